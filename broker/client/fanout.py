"""Asking many brokers at once, and asking again only for what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster, CoordinatorKind, Purpose
from broker.client.connection import Connection
from broker.client.errors import ClientError, ClusterUnreachable, ConnectionLost, KafkaError, RequestTimedOut
from broker.client.limits import GROUPS_PER_REQUEST, LAGGARD_MS, PARTITIONS_PER_REQUEST
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
    """Ask each leader for its share of `wanted` -> an answer for every partition.

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
    """Ask each leader for its share -> the answers, and what failed; whose leaders are asked for anew next time.

    At most PARTITIONS_PER_REQUEST are in one `ask`; all are under way at the same time.
    """
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
            for at in range(0, len(share), PARTITIONS_PER_REQUEST):
                group.create_task(
                    ask_node(node_id, {where: wanted[where] for where in share[at : at + PARTITIONS_PER_REQUEST]})
                )
    if failed:
        cluster.forget_leaders({where.topic for where in failed})
    return done, failed


async def both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, R]) -> tuple[A, R]:
    """Two questions under way at the same time -> both answers. Raises what one of them raises, and ends the other."""
    stops = _stops()
    try:
        async with asyncio.TaskGroup() as tasks:
            one, other = tasks.create_task(first), tasks.create_task(second)
    except BaseExceptionGroup as errors:
        raise _first(errors, stops) from None
    return one.result(), other.result()


async def side_by_side(asked: Iterable[Coroutine[Any, Any, A]]) -> list[A]:
    """As `both`, of any number: the answers in their order."""
    stops = _stops()
    try:
        async with asyncio.TaskGroup() as tasks:
            under_way = [tasks.create_task(one) for one in asked]
    except BaseExceptionGroup as errors:
        raise _first(errors, stops) from None
    return [one.result() for one in under_way]


def _stops() -> int:
    """How often the task that asks was stopped."""
    asking = asyncio.current_task()
    return asking.cancelling() if asking is not None else 0


def _first(errors: BaseExceptionGroup[BaseException], stops: int) -> BaseException:
    """The error that counts. A task that is stopped in the moment in which a question fails hears of the failure alone,
    in Python 3.11, and would go on: whoever catches that for a site that does not answer must hear of the stop. One
    more than before, which was `stops`, is the group's own, for that failure.
    """
    return asyncio.CancelledError() if _stops() > stops + 1 else errors.exceptions[0]


def split_failures(found: Mapping[K, R | ClientError]) -> tuple[dict[K, R], dict[K, ClientError]]:
    """The answers, and the reasons where there is none."""
    failures = {key: answer for key, answer in found.items() if isinstance(answer, ClientError)}
    return {key: answer for key, answer in found.items() if not isinstance(answer, ClientError)}, failures


def _without(wanted: Mapping[TopicPartition, A], done: Mapping[TopicPartition, object]) -> dict[TopicPartition, A]:
    return {where: asked for where, asked in wanted.items() if where not in done}


async def ask_any_broker(cluster: Cluster, ask: Callable[[Connection], Awaitable[R]]) -> R:
    """Ask whichever is at hand, again where it fails retriably; `ask` raises KafkaError for an error in the answer."""
    retry = cluster.retry()
    while True:
        try:
            return await ask(await cluster.any_connection())
        except ClientError as error:
            await retry.pause(error)


async def ask_each_broker(
    cluster: Cluster, ask: Callable[[Connection], Awaitable[R]], *, laggard_ms: int = LAGGARD_MS
) -> dict[int, R | ClientError]:
    """Ask all known brokers side by side -> by node id what each says, or why it does not. Behind the first one that
    says it the others have `laggard_ms`: one that takes connections and is silent holds nobody up for longer.
    """

    async def ask_one(node_id: int) -> R:
        return await ask(await cluster.connection(node_id))

    return await ask_these_brokers(cluster, cluster.nodes, ask_one, laggard_ms)


async def ask_these_brokers(
    cluster: Cluster, node_ids: Iterable[int], ask: Callable[[int], Awaitable[R]], laggard_ms: int
) -> dict[int, R | ClientError]:
    """As `ask_each_broker`, of those brokers; `ask` connects to the one that it is given."""

    async def answer_of(node_id: int) -> R | ClientError:
        try:
            return await ask(node_id)
        except ClientError as error:
            return error

    async with asyncio.TaskGroup() as tasks:
        asked = {node_id: tasks.create_task(answer_of(node_id)) for node_id in sorted(node_ids)}
        waiting = set(asked.values())
        is_told = False
        while waiting and not is_told:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            is_told = any(not isinstance(one.result(), ClientError) for one in done)
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=laggard_ms / 1000)
            for one in late:
                one.cancel()
    text = f"no answer within {laggard_ms / 1000:g} s of the first broker of {cluster.site.name}"
    return {
        node_id: RequestTimedOut(f"broker {node_id}: {text}") if one.cancelled() else one.result()
        for node_id, one in asked.items()
    }


async def await_every_broker(
    cluster: Cluster,
    ask: Callable[[], Awaitable[Mapping[int, R | ClientError]]],
    is_so: Callable[[R], bool],
    not_everywhere: Callable[[str], ClientError],
) -> None:
    """Returns when all brokers say what `is_so` takes; who came meanwhile is asked, too. `ask`: what each of them says,
    by node id. Raises what `not_everywhere` makes of which brokers did not, or of what failed.
    """
    retry = cluster.retry()
    while True:
        try:
            told = await ask()
            await cluster.metadata(())
            late = sorted({*told, *cluster.nodes} - {node for node, said in told.items() if _is(said, is_so)})
            if not late:
                return
            why = f"not said by {', '.join(f'broker {node_id}' for node_id in late)}"
        except ClientError as error:
            why = str(error)
            if not error.retriable:
                raise not_everywhere(why) from error
        await retry.pause(not_everywhere(why))


def _is(said: R | ClientError, is_so: Callable[[R], bool]) -> bool:
    return not isinstance(said, ClientError) and is_so(said)


async def ask_coordinator(
    cluster: Cluster,
    kind: CoordinatorKind,
    key: str,
    ask: Callable[[Connection], Awaitable[R]],
    *,
    patience_ms: int | None = None,
) -> R:
    """Ask the coordinator of one group or transactional id; `ask` raises KafkaError for an error in the answer.

    What fails retriably is tried again until `patience_ms` are over (None: the client's own patience).
    """
    retry = cluster.retry(patience_ms)
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
    """Ask each coordinator for its share of `groups` -> per group the answer, or the code why there is none.

    One group's error never hides another group's answer. Raises ClientError when a coordinator does not answer.
    """
    answered: dict[str, R | KafkaError] = {}
    for group, answer in (await ask_each_group(cluster, groups, ask)).items():
        if isinstance(answer, ClientError) and not isinstance(answer, KafkaError):
            raise answer
        answered[group] = answer
    return answered


async def ask_each_group(
    cluster: Cluster,
    groups: list[str],
    ask: Callable[[Connection, list[str]], Awaitable[Mapping[str, R | KafkaError]]],
    *,
    patience_ms: int | None = None,
) -> dict[str, R | ClientError]:
    """As `ask_group_coordinators`, but raises nothing: a coordinator that does not answer fails only its own groups.

    What fails retriably is tried again until `patience_ms` are over (None: the client's own patience). At most
    GROUPS_PER_REQUEST are in one `ask`; all are under way at the same time.
    """
    deadline = cluster.clock.monotonic() + (patience_ms or cluster.limits.retry_timeout_ms) / 1000
    retry = cluster.retry()
    answers: dict[str, R | ClientError] = {}
    missing, attempt = list(dict.fromkeys(groups)), 0
    while missing:
        left = None if patience_ms is None else max(0.0, deadline - cluster.clock.monotonic())
        tried = await _ask_shares(cluster, missing, ask, left)
        # That the time was over says less than what the broker said before.
        answers |= {g: a for g, a in tried.items() if g not in answers or not isinstance(a, RequestTimedOut)}
        failed = {group: error for group in missing if isinstance(error := answers[group], ClientError)}
        cluster.forget_coordinators("group", [group for group, error in failed.items() if _moved(error)])
        missing = [g for g, error in failed.items() if error.retriable and not isinstance(error, ClusterUnreachable)]
        pause = retry.pause_seconds(attempt)
        if not missing or cluster.clock.monotonic() + pause > deadline:
            break
        attempt += 1
        await cluster.clock.sleep(pause)
    return answers


async def _ask_shares(
    cluster: Cluster,
    groups: list[str],
    ask: Callable[[Connection, list[str]], Awaitable[Mapping[str, R | KafkaError]]],
    patience_s: float | None,
) -> dict[str, R | ClientError]:
    """One try -> for every group its answer or its error."""
    answers: dict[str, R | ClientError] = {}

    async def ask_share(node_id: int, share: list[str]) -> None:
        try:
            async with timeout(patience_s):
                found = await ask(await cluster.connection(node_id), share)
        except ClientError as error:
            answers.update(dict.fromkeys(share, error))
            return
        except TimeoutError:
            late = RequestTimedOut(f"node {node_id} of {cluster.site.name} does not answer for its groups")
            answers.update(dict.fromkeys(share, late))
            return
        for group in share:
            answers[group] = found.get(group, KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group}"))

    try:
        async with timeout(patience_s):
            located = await cluster.coordinators("group", groups)
    except ClientError as error:
        return dict.fromkeys(groups, error)
    except TimeoutError:
        late = RequestTimedOut(f"{cluster.site.name} does not say where its groups are coordinated")
        return dict.fromkeys(groups, late)
    shares: dict[int, list[str]] = {}
    for group, node_id in located.items():
        if isinstance(node_id, KafkaError):
            answers[group] = node_id
        else:
            shares.setdefault(node_id, []).append(group)
    async with asyncio.TaskGroup() as tasks:
        for node_id, share in shares.items():
            for at in range(0, len(share), GROUPS_PER_REQUEST):
                tasks.create_task(ask_share(node_id, share[at : at + GROUPS_PER_REQUEST]))
    return answers


def _moved(error: ClientError) -> bool:
    if isinstance(error, KafkaError):
        return error.code in MOVED_COORDINATOR
    return isinstance(error, ConnectionLost | RequestTimedOut)
