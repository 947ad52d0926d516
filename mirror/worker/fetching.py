"""The fetch end: one long-polling loop per source leader, over all of its partitions at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from broker.base.ending import to_its_end
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError
from broker.client.fetch_session import UNTOLD, FetchSession, Wanted
from broker.client.log import FETCH_BY_ID_VERSION, FetchLimits, records_of
from broker.client.model import read_metadata
from broker.client.offsets import log_spans
from broker.wire.api import ApiKey
from broker.wire.errors import BatchBeyondLimits, ErrorCode
from broker.wire.messages.fetch import AbortedTransaction, FetchResponse, PartitionData
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.offsets.entries import GapKind
from mirror.worker.budget import Lease
from mirror.worker.limits import FETCH_REVIEW_INTERVAL_MS, WorkerLimits
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
    fetches = _Fetches(session, await session.source.connection(node_id, "fetch"), openings)
    limits = session.limits
    clock = session.source.clock
    wanted_bytes = limits.fetch_start_bytes
    while True:
        free_bytes = await session.budget.wait_room()
        fetches.choose(replicators)
        if not fetches.asked:
            await session.budget.wait_release()
            continue
        fetch_limits = FetchLimits(
            max_bytes=min(wanted_bytes, free_bytes),
            partition_max_bytes=limits.fetch_partition_max_bytes,
            max_wait_ms=limits.fetch_crowded_wait_ms if fetches.is_crowded else limits.fetch_max_wait_ms,
        )
        started = clock.monotonic()
        brought_bytes = await fetches.fetch(fetch_limits)
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


class _Fetches:
    """Of one leader, one after another, in a fetch session.

    `asked` are the partitions of the next fetch, and of the last one. Who asked may not be who moves a partition when
    it is answered: it was held and taken in anew while that was under way. `is_crowded`: some are left out, which have
    much on its way.
    """

    def __init__(self, session: Session, connection: Connection, openings: Openings) -> None:
        self.asked: dict[TopicPartition, Replicator] = {}
        self.is_crowded = False
        self._session = session
        self._connection = connection
        self._openings = openings
        self._told = FetchSession(session.link.source.name, IsolationLevel.READ_COMMITTED)
        self._wanted: dict[TopicPartition, Wanted] = {}
        self._ids: Mapping[str, UUID] = {}
        self._changed: set[TopicPartition] | None = None
        """Where the place of one that is asked for may be another than it was asked; None: of any."""
        self._came: list[Replicator] = []
        self._members: tuple[int, Replicator | None] = (0, None)
        self._review_at_s = session.source.clock.monotonic()

    def choose(self, replicators: list[Replicator]) -> None:
        """Of `replicators` those that are to be fetched next, and from where.

        All are gone through seldom, and when some joined or left: what a fetch costs grows with what it brings.
        Meanwhile only those are looked at that the last one brought something of, so a hold counts a little later.
        """
        session, now_s, changed = self._session, self._session.source.clock.monotonic(), self._changed
        members = (len(replicators), replicators[-1] if replicators else None)
        goes_on = members == self._members and now_s < self._review_at_s and not self._told.is_full
        if changed is not None and goes_on and all(self._is_open(self.asked[where]) for where in changed):
            self._wanted |= {where: self._place(self.asked[where]) for where in changed}
            return
        moving = [each for each in replicators if each.is_moving and each not in self._openings.under_way]
        roomy = [each for each in moving if each.buffered_bytes < session.limits.partition_buffer_max_bytes]
        self.is_crowded = len(roomy) < len(moving)
        if self._told.is_full:
            # The order in which the broker fills its answer: those with the least buffered first. In a session that
            # goes on, those come last that were answered last.
            roomy.sort(key=lambda replicator: replicator.buffered_bytes)
        before, self.asked = self.asked, {replicator.source: replicator for replicator in roomy}
        self._came = [replicator for where, replicator in self.asked.items() if replicator is not before.get(where)]
        self._wanted = {where: self._place(replicator) for where, replicator in self.asked.items()}
        self._ids = _topic_ids(session, self._connection, self._wanted)
        self._changed, self._members = None, members
        is_whole = not self.is_crowded and not self._openings.under_way
        self._review_at_s = now_s + FETCH_REVIEW_INTERVAL_MS / 1000 if is_whole else now_s

    def _is_open(self, replicator: Replicator) -> bool:
        has_room = replicator.buffered_bytes < self._session.limits.partition_buffer_max_bytes
        return has_room and replicator.is_moving and replicator not in self._openings.under_way

    def _place(self, replicator: Replicator) -> Wanted:
        cursor = replicator.cursor
        return Wanted(cursor.position, self._session.source.leader_epoch(replicator.source), cursor.leader_epoch)

    async def fetch(self, limits: FetchLimits) -> int:
        """One fetch of those that were chosen -> the bytes of records that it brought."""
        session, ids = self._session, self._ids
        request = self._told.next_request(self._wanted, limits, ids, self._changed)
        response: FetchResponse = await self._connection.request(request, FETCH_BY_ID_VERSION if ids else None)
        answered = self._told.take(response)
        self._changed = {where for where, _ in answered}
        others = {} if ids else await _find_others(session, self._connection, response)
        brought: list[tuple[Replicator, PartitionData, memoryview]] = []
        size_bytes = 0
        for where, data in answered:
            replicator = self.asked[where]
            if error_code := others.get(where.topic) or data.error_code:
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
        self._tell_ends()
        _plan(session, brought, size_bytes, self._openings)
        return size_bytes

    def _tell_ends(self) -> None:
        """Who came in the place of another hears where its log ends: the broker said so to the one before."""
        for replicator in self._came:
            if replicator.is_moving and (end := self._told.high_watermark(replicator.source)) != UNTOLD:
                replicator.see_source_end(end)
        self._came = []


def _topic_ids(session: Session, connection: Connection, wanted: Iterable[TopicPartition]) -> Mapping[str, UUID]:
    """Of all topics that are asked for, as they were opened; none where the broker, or one of them, knows no ids.

    By its name a topic that was deleted and made anew in the meantime, and filled beyond the position, would be read as
    if it went on.
    """
    if not connection.offers(ApiKey.FETCH, FETCH_BY_ID_VERSION):
        return {}
    names = {where.topic for where in wanted}
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
