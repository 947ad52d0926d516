"""Asking many brokers at once, and asking again only for what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar

from broker.client.cluster import Cluster, CoordinatorKind, Purpose
from broker.client.connection import Connection
from broker.client.errors import ClientError, ConnectionLost, KafkaError, RequestTimedOut
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER, TopicPartition

A = TypeVar("A")
K = TypeVar("K")
R = TypeVar("R")

MOVED_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


Ask: TypeAlias = Callable[[Connection, Mapping[TopicPartition, A]], Awaitable[Mapping[TopicPartition, R | ErrorCode]]]
"""Asks one leader for its share -> per partition the answer or the error code."""


async def ask_leaders(
    cluster: Cluster,
    what: str,
    wanted: Mapping[TopicPartition, A],
    ask: Ask[A, R],
    purpose: Purpose = "admin",
) -> dict[TopicPartition, R]:
    """One request per leader for its share of `wanted` -> an answer for every partition.

    Retriable failures are tried again, for their partitions only; the first other failure is raised as KafkaError,
    naming its partition.
    """
    done: dict[TopicPartition, R] = {}
    retry, young = cluster.retry(), cluster.retry(cluster.limits.unknown_topic_timeout_ms)
    while len(done) < len(wanted):
        answered, failed = await _ask_once(cluster, what, _without(wanted, done), ask, purpose)
        done |= answered
        if failed:
            error = next((e for e in failed.values() if not e.retriable), next(iter(failed.values())))
            unled = isinstance(error, KafkaError) and error.code is ErrorCode.LEADER_NOT_AVAILABLE
            await (young if unled else retry).pause(error)
    return done


async def ask_each_leader(
    cluster: Cluster,
    what: str,
    wanted: Mapping[TopicPartition, A],
    ask: Ask[A, R],
    purpose: Purpose = "admin",
) -> dict[TopicPartition, R | ClientError]:
    """As `ask_leaders`, but each partition stands alone: it has its answer, or the reason why there is none.

    A retriable failure holds up the others for `partition_patience_ms` at most. Raises ClientError only when no broker
    of the cluster answers at all.
    """
    done: dict[TopicPartition, R | ClientError] = {}
    retry = cluster.retry(cluster.limits.partition_patience_ms)
    while len(done) < len(wanted):
        answered, failed = await _ask_once(cluster, what, _without(wanted, done), ask, purpose)
        done |= answered
        done |= {where: error for where, error in failed.items() if not error.retriable}
        passing = [error for error in failed.values() if error.retriable]
        if passing:
            try:
                await retry.pause(passing[0])
            except ClientError:  # it is over: what failed now has failed
                done |= failed
    return done


async def _ask_once(
    cluster: Cluster, what: str, wanted: Mapping[TopicPartition, A], ask: Ask[A, R], purpose: Purpose
) -> tuple[dict[TopicPartition, R], dict[TopicPartition, ClientError]]:
    """One request per leader -> the answers, and what failed; the leaders of those are asked for anew next time."""
    done: dict[TopicPartition, R] = {}
    failed: dict[TopicPartition, ClientError] = {}

    async def ask_node(node_id: int, share: dict[TopicPartition, A]) -> None:
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

    grouped = await cluster.by_leader(wanted)
    unled = grouped.pop(NO_LEADER, [])
    unknown = set(wanted) - {where for share in grouped.values() for where in share} - set(unled)
    for code, partitions in (
        (ErrorCode.LEADER_NOT_AVAILABLE, unled),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, sorted(unknown)),
    ):
        for where in partitions:
            failed[where] = KafkaError(code, f"{what} of {where} at {cluster.site.name}")
    async with asyncio.TaskGroup() as group:
        for node_id, share in grouped.items():
            group.create_task(ask_node(node_id, {where: wanted[where] for where in share}))
    if failed:
        cluster.forget_leaders({where.topic for where in failed})
    return done, failed


def split_failures(found: Mapping[K, R | ClientError]) -> tuple[dict[K, R], dict[K, ClientError]]:
    """The answers, and the reasons where there is none."""
    failures = {key: answer for key, answer in found.items() if isinstance(answer, ClientError)}
    return {key: answer for key, answer in found.items() if not isinstance(answer, ClientError)}, failures


def _without(wanted: Mapping[TopicPartition, A], done: Mapping[TopicPartition, object]) -> dict[TopicPartition, A]:
    return {where: asked for where, asked in wanted.items() if where not in done}


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
