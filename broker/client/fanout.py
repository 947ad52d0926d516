"""Asking many brokers at once, and asking again only for what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from broker.client.cluster import Cluster, CoordinatorKind, Purpose
from broker.client.connection import Connection
from broker.client.errors import ClientError, ConnectionLost, KafkaError, RequestTimedOut
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER, TopicPartition

A = TypeVar("A")
R = TypeVar("R")

MOVED_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


async def ask_leaders(
    cluster: Cluster,
    what: str,
    wanted: Mapping[TopicPartition, A],
    ask: Callable[[Connection, Mapping[TopicPartition, A]], Awaitable[Mapping[TopicPartition, R | ErrorCode]]],
    purpose: Purpose = "admin",
) -> dict[TopicPartition, R]:
    """One request per leader for its share of `wanted` -> an answer for every partition.

    `ask` gives per partition the answer or the error code. Retriable failures are tried again, for their partitions
    only; the first other failure is raised as KafkaError, naming its partition.
    """
    done: dict[TopicPartition, R] = {}
    retry = cluster.retry()
    while len(done) < len(wanted):
        failed: dict[TopicPartition, ClientError] = {}

        async def ask_node(
            node_id: int, share: dict[TopicPartition, A], failed: dict[TopicPartition, ClientError]
        ) -> None:
            try:
                answers = await ask(await cluster.connection(node_id, purpose), share)
            except ClientError as error:
                failed.update(dict.fromkeys(share, error))
                return
            for where in share:
                answer = answers.get(where, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if isinstance(answer, ErrorCode):
                    failed[where] = KafkaError(answer, f"{what} of {where} at {cluster.site.name}")
                else:
                    done[where] = answer

        missing = [where for where in wanted if where not in done]
        grouped = await _grouped(cluster, missing)
        for where in set(missing) - {where for share in grouped.values() for where in share}:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            failed[where] = KafkaError(code, f"{what} of {where} at {cluster.site.name}")
        async with asyncio.TaskGroup() as group:
            for node_id, share in grouped.items():
                group.create_task(ask_node(node_id, {where: wanted[where] for where in share}, failed))
        if failed:
            cluster.forget_leaders({where.topic for where in failed})
            await retry.pause(next((e for e in failed.values() if not e.retriable), next(iter(failed.values()))))
    return done


async def _grouped(cluster: Cluster, partitions: list[TopicPartition]) -> dict[int, list[TopicPartition]]:
    grouped = await cluster.by_leader(partitions)
    grouped.pop(NO_LEADER, None)
    return grouped


async def ask_coordinator(
    cluster: Cluster,
    kind: CoordinatorKind,
    key: str,
    ask: Callable[[Connection], Awaitable[R]],
) -> R:
    """Ask the coordinator of one group or transactional id; `ask` raises KafkaError for an error in the answer."""
    retry = cluster.retry()
    while True:
        try:
            return await ask(await cluster.coordinator(kind, key))
        except ClientError as error:
            if _moved(error):
                cluster.forget_coordinators(kind, [key])
            await retry.pause(error)


async def ask_group_coordinators(
    cluster: Cluster,
    groups: list[str],
    ask: Callable[[Connection, list[str]], Awaitable[Mapping[str, R | KafkaError]]],
) -> dict[str, R | KafkaError]:
    """One request per coordinator for its share of `groups` -> per group the answer, or why there is none.

    One group's error never hides another group's answer.
    """
    done: dict[str, R | KafkaError] = {}
    retry = cluster.retry()
    while True:
        failed: dict[str, ClientError] = {}
        shares: dict[int, list[str]] = {}
        located = await cluster.coordinators("group", [group for group in groups if group not in done])
        for group, node_id in located.items():
            if isinstance(node_id, KafkaError):
                failed[group] = node_id
            else:
                shares.setdefault(node_id, []).append(group)
        for node_id, share in shares.items():
            try:
                answers = await ask(await cluster.connection(node_id), share)
            except ClientError as error:
                failed.update(dict.fromkeys(share, error))
                continue
            for group in share:
                answer = answers.get(group, KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group}"))
                if isinstance(answer, KafkaError) and answer.retriable:
                    failed[group] = answer
                else:
                    done[group] = answer
        if not failed:
            return done
        cluster.forget_coordinators("group", [group for group, error in failed.items() if _moved(error)])
        try:
            await retry.pause(next(iter(failed.values())))
        except KafkaError:
            return done | {g: e for g, e in failed.items() if isinstance(e, KafkaError)}


def _moved(error: ClientError) -> bool:
    if isinstance(error, KafkaError):
        return error.code in MOVED_COORDINATOR
    return isinstance(error, ConnectionLost | RequestTimedOut)
