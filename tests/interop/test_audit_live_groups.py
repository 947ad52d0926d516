"""A link's worker runs, groups commit all the time, and audits look: nothing on its way is called a difference."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import append
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from monitoring.audit.freeze import freeze_link
from monitoring.audit.group_looks import freeze_groups
from monitoring.audit.groups import FrozenGroups, GroupReason, GroupVerdict
from tests.forking import start_farshore
from tests.interop.brokers import KEEPS_ALL

ROOT = Path(__file__).parents[2]
RECORDS = 4_000
COMMITS_PER_OFFSET = 5
BETWEEN_S = 0.01
"""Commits without a pause keep both clusters busy for nothing: a hundred a second are always some under way."""
DEADLINE_S = 120


@asynccontextmanager
async def committing(source: Cluster, group: str, where: TopicPartition) -> AsyncIterator[None]:
    """A group that reads on, and never back, however long the audits take: it commits each offset some times over."""

    async def commits() -> None:
        for commit in itertools.count():
            offset = min(100 + commit // COMMITS_PER_OFFSET, RECORDS)
            await commit_offsets(source, group, {where: CommittedOffset(offset)})
            await asyncio.sleep(BETWEEN_S)

    task = asyncio.create_task(commits())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_audit_beside_a_living_link(shared_broker: Any, kafka_39: Any, tmp_path: Path) -> None:
    name = f"live-{uuid.uuid4().hex[:8]}"
    east, west = Site("east", kafka_39.bootstrap), Site("west", shared_broker.bootstrap)
    link = Link(name, east, west, (name,), "same", (f"{name}.*",))
    (tmp_path / "farshore.toml").write_text(
        f'[sites.east]\nbootstrap_servers = "{kafka_39.bootstrap}"\n'
        f'[sites.west]\nbootstrap_servers = "{shared_broker.bootstrap}"\n'
        f'[[links]]\nname = "{name}"\nsource = "east"\ntarget = "west"\ntopics = ["{name}"]\n'
        f'topic_names = "same"\ngroups = ["{name}.*"]\n'
    )
    where = TopicPartition(name, 0)
    async with Cluster(east) as source, Cluster(west) as target:
        assert not await create_topics(source, [NewTopic(name, 1, configs=KEEPS_ALL)])
        for first in range(0, RECORDS, 500):
            batch = [Record(n, 1_000 + first + n, b"k", b"%d" % (first + n), ()) for n in range(500)]
            await append(source, where, encode_batch(batch))
        for group in ("still", "moving", "moved-by-hand"):
            await commit_offsets(source, f"{name}-{group}", {where: CommittedOffset(100)})
        arguments = ["--config", str(tmp_path / "farshore.toml"), "mirror", "run"]
        mirror = start_farshore(arguments, ROOT, tmp_path / "mirror.log")
        try:
            await until_carried(target, f"{name}-moved-by-hand", where)
            await commit_offsets(target, f"{name}-moved-by-hand", {where: CommittedOffset(700)})
            async with committing(source, f"{name}-moving", where):
                for _ in range(3):
                    frozen = await freeze_link(link, source, target, lambda: 1)
                    found = await freeze_groups(link, frozen, source, target)
                    assert found is not None
                    check(found, name)
        finally:
            mirror.terminate()
            mirror.wait(60)


async def until_carried(cluster: Cluster, group: str, where: TopicPartition) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while where not in await committed_offsets(cluster, group):
            await asyncio.sleep(BETWEEN_S)


def check(found: FrozenGroups, name: str) -> None:
    told = {item.group.removeprefix(f"{name}-"): item for item in found.offsets}
    assert found.is_pass_seen
    assert (told["still"].verdict, told["still"].is_by_content) == (GroupVerdict.SAME, True)
    assert told["moving"].verdict in (GroupVerdict.SAME, GroupVerdict.BEHIND)
    assert not told["moving"].is_finding
    by_hand = told["moved-by-hand"]
    assert (by_hand.verdict, by_hand.reason) == (GroupVerdict.AHEAD, GroupReason.MOVED_ON)
    assert (by_hand.is_finding, found.findings) == (True, 1)
