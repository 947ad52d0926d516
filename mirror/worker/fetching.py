"""The fetch end: one long-polling loop per source leader, over all of its partitions at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from broker.base.ending import to_its_end
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError
from broker.client.log import FETCH_BY_ID_VERSION, FetchEpochs, FetchLimits, fetch_request, records_of
from broker.client.model import read_metadata
from broker.client.offsets import log_spans
from broker.wire.api import ApiKey
from broker.wire.errors import BatchBeyondLimits, ErrorCode
from broker.wire.messages.fetch import AbortedTransaction, FetchResponse, PartitionData
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.offsets.entries import GapKind
from mirror.worker.budget import Lease
from mirror.worker.limits import WorkerLimits
from mirror.worker.plan import Blocker, plan_batches
from mirror.worker.recoding import Recoded, Sealed, find_sealed, recode_all, recode_at_once
from mirror.worker.replicator import Replicator
from mirror.worker.session import Session
from mirror.worker.watching import refuse_other_origins, refuse_used_sequences


async def run_fetcher(session: Session, node_id: int, replicators: list[Replicator]) -> None:
    """Fetch and plan for ever. Raises ClientError: then everything is in doubt, and the session ends."""
    async with asyncio.TaskGroup() as tasks:
        await _run_fetches(session, node_id, replicators, Openings(session, tasks))


async def _run_fetches(session: Session, node_id: int, replicators: list[Replicator], openings: Openings) -> None:
    connection = await session.source.connection(node_id, "fetch")
    limits = session.limits
    clock = session.source.clock
    wanted_bytes = limits.fetch_start_bytes
    while True:
        free_bytes = await session.budget.wait_room()
        moving = [each for each in replicators if each.is_moving and each not in openings.under_way]
        roomy = [replicator for replicator in moving if replicator.buffered_bytes < limits.partition_buffer_max_bytes]
        if not roomy:
            await session.budget.wait_release()
            continue
        crowded = len(roomy) < len(moving)
        fetch_limits = FetchLimits(
            max_bytes=min(wanted_bytes, free_bytes),
            partition_max_bytes=limits.fetch_partition_max_bytes,
            max_wait_ms=limits.fetch_crowded_wait_ms if crowded else limits.fetch_max_wait_ms,
        )
        started = clock.monotonic()
        brought_bytes = await _fetch(session, connection, roomy, fetch_limits, openings)
        wanted_bytes = next_fetch_bytes(limits, wanted_bytes, brought_bytes, 1000 * (clock.monotonic() - started))


def next_fetch_bytes(limits: WorkerLimits, asked_bytes: int, brought_bytes: int, took_ms: float) -> int:
    """How much to ask for next: large answers over long round trips, small ones nearby.

    One fetch per leader is under way, so over a distance its size is the throughput; nearby a small answer costs less,
    since its memory is used again while it is warm.
    """
    if brought_bytes * 4 >= asked_bytes * 3 and took_ms > limits.fetch_slow_ms:
        return min(2 * asked_bytes, limits.fetch_max_bytes)
    if brought_bytes and took_ms < limits.fetch_fast_ms:
        return max(asked_bytes // 2, limits.fetch_start_bytes)
    return asked_bytes


async def _fetch(
    session: Session, connection: Connection, replicators: list[Replicator], limits: FetchLimits, openings: Openings
) -> int:
    """One fetch -> the bytes of records that it brought."""
    # The order in which the broker fills its answer: those with the least buffered first.
    idle_first = sorted(replicators, key=lambda replicator: replicator.buffered_bytes)
    positions = {replicator.source: replicator.cursor.position for replicator in idle_first}
    epochs = {
        replicator.source: FetchEpochs(session.source.leader_epoch(replicator.source), replicator.cursor.leader_epoch)
        for replicator in idle_first
    }
    ids = _topic_ids(session, connection, positions)
    request = fetch_request(positions, limits, IsolationLevel.READ_COMMITTED, epochs, ids)
    response: FetchResponse = await connection.request(request, FETCH_BY_ID_VERSION if ids else None)
    if response.error_code:
        raise KafkaError(response.error_code, f"fetch from {session.link.source.name}")
    others = {} if ids else await _find_others(session, connection, response)
    names = {topic_id: name for name, topic_id in ids.items()}
    # Who asked may not be who moves the partition by now: it was held and taken in anew while this was under way.
    asked = {replicator.source: replicator for replicator in idle_first}
    brought: list[tuple[Replicator, PartitionData, memoryview]] = []
    size_bytes = 0
    for topic in response.responses:
        for data in topic.partitions:
            name = names[topic.topic_id] if ids else topic.topic
            replicator = asked[TopicPartition(name, data.partition_index)]
            if error_code := others.get(name) or data.error_code:
                await _refuse(session, replicator, error_code)
                continue
            if data.diverging_epoch is not None:
                session.doubt_source(replicator)
                continue
            records = records_of(data)
            size_bytes += len(records)
            brought.append((replicator, data, records))
            if len(records):
                await session.passage.learn(replicator.source, records, is_onward=True)
            refuse_used_sequences(session, replicator)
    refuse_other_origins(session)
    _plan(session, brought, size_bytes, openings)
    return size_bytes


def _topic_ids(session: Session, connection: Connection, positions: Mapping[TopicPartition, int]) -> Mapping[str, UUID]:
    """Of all topics that are asked for, as they were opened; none where the broker, or one of them, knows no ids.

    By its name a topic that was deleted and made anew in the meantime, and filled beyond the position, would be read as
    if it went on.
    """
    if not connection.offers(ApiKey.FETCH, FETCH_BY_ID_VERSION):
        return {}
    names = {where.topic for where in positions}
    known = session.source_topic_ids
    return {name: known[name] for name in names} if names <= known.keys() else {}


async def _find_others(session: Session, connection: Connection, response: FetchResponse) -> dict[str, ErrorCode]:
    """The topics that a fetch by names may have read another one's records of, and why (an error code).

    The broker that answered is asked after it did (Metadata has ids from version 10, KIP-516): while it names the id
    that was opened, so it did before. A topic that had no id when it was opened cannot be told apart.
    """
    brought = {topic.topic for topic in response.responses if any(data.records for data in topic.partitions)}
    opened = {name: session.source_topic_ids[name] for name in sorted(brought & session.source_topic_ids.keys())}
    if not opened:
        return {}
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in opened], allow_auto_topic_creation=False)
    metadata = read_metadata(await connection.request(request))
    found = {name: topic.topic_id for name, topic in metadata.topics.items()}
    others = {name: ErrorCode.UNKNOWN_TOPIC_ID for name, topic_id in opened.items() if found.get(name) != topic_id}
    return others | {name: metadata.topic_errors[name] for name in others & metadata.topic_errors.keys()}


def _plan(
    session: Session,
    brought: list[tuple[Replicator, PartitionData, memoryview]],
    size_bytes: int,
    openings: Openings,
) -> None:
    lease = Lease(session.budget, size_bytes)
    for replicator, data, records in brought:
        if not replicator.is_moving:
            continue  # it was stopped while this fetch was under way: nothing may follow what it forgot
        replicator.see_source_end(data.high_watermark)
        if len(records):
            fetched = Fetched(replicator, records, data.aborted_transactions or (), lease)
            position, max_bytes = replicator.cursor.position, replicator.rules.max_batch_bytes
            sealed = find_sealed(records, position, max_bytes)
            try:
                fetched.take(recode_at_once(sealed, position, max_bytes))
            except BatchBeyondLimits:
                openings.begin(fetched, sealed)
    lease.release()


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one fetch brought of one partition."""

    replicator: Replicator
    records: memoryview
    aborted: Sequence[AbortedTransaction]
    lease: Lease

    def take(self, recoded: Mapping[int, Recoded]) -> None:
        to = self.replicator
        to.take(plan_batches(self.records, self.aborted, to.cursor, to.rules, self.lease, recoded))


class Openings:
    """Partitions whose fetched batches are being opened in a thread; they are not fetched, all others are."""

    def __init__(self, session: Session, tasks: asyncio.TaskGroup) -> None:
        self.under_way: set[Replicator] = set()
        self._session = session
        self._tasks = tasks

    def begin(self, fetched: Fetched, sealed: list[Sealed]) -> None:
        fetched.lease.hold()
        self.under_way.add(fetched.replicator)
        self._tasks.create_task(self._open(fetched, sealed))

    async def _open(self, fetched: Fetched, sealed: list[Sealed]) -> None:
        replicator, loop = fetched.replicator, asyncio.get_running_loop()
        position, max_bytes = replicator.cursor.position, replicator.rules.max_batch_bytes
        try:
            async with self._session.opening:
                recoded = await to_its_end(loop.run_in_executor(None, recode_all, sealed, position, max_bytes))
            if replicator.is_moving:  # nothing may follow what it forgot
                fetched.take(recoded)
        finally:
            self.under_way.discard(replicator)
            fetched.lease.release()
            self._session.budget.wake()


async def _refuse(session: Session, replicator: Replicator, error_code: int) -> None:
    """An error for one partition: retention passed the position (stop it), or anything else (hold it)."""
    position = replicator.cursor.position
    where, site = replicator.source, session.link.source.name
    error: ClientError = KafkaError(error_code, f"fetch of {where} from {site} at offset {position}")
    if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        # The answer does not say where the log begins and ends.
        span = (await log_spans(session.source, [where]))[where]
        if isinstance(span, ClientError):
            error = span
        elif span.start > position:
            detail = f"the source's log starts at {span.start}"
            replicator.hold_at(Blocker(GapKind.TRUNCATED_START, position, span.start, detail))
            return
        elif span.end < position:
            session.doubt_source(replicator)
            return
    session.hold(replicator, error, at_source=True)
