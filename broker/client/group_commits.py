"""Offsets of many groups, committed from outside of them, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.groups import commit_offsets
from broker.client.limits import COMMITTED_AT_ONCE
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition


async def commit_offsets_of_groups(
    cluster: Cluster, offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
) -> dict[str, ClientError]:
    """Commit, from outside, each group's offsets in a request of its own -> the groups of which that is not known to be
    done, and why.

    COMMITTED_AT_ONCE are under way at the same time; one group's refusal holds up no other, nor does a coordinator that
    does not answer: of its groups alone it is not known whether they were committed (no KafkaError).
    """
    turns = asyncio.Semaphore(COMMITTED_AT_ONCE)
    failed: dict[str, ClientError] = {}

    async def commit(group: str) -> None:
        async with turns:
            try:
                await commit_offsets(cluster, group, offsets[group])
            except ClientError as error:
                failed[group] = error

    wanted = [group for group, asked in offsets.items() if asked]
    with suppress(ClientError):  # then each asks for its own, and has the error if it stays
        await cluster.coordinators("group", wanted)
    async with asyncio.TaskGroup() as tasks:
        for group in wanted:
            tasks.create_task(commit(group))
    return failed
