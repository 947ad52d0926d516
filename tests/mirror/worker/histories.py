"""Two logs and a link's state in memory, which lose their ends, grow again, and are mirrored by the real functions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

from broker.base.clock import SystemClock
from broker.client.epochs import EpochEnd
from broker.client.probe import StoredBatch
from broker.client.site import Site
from broker.log.epochs import LeaderEpochs
from broker.wire.batch import BatchHeader, patch_base_offset, patch_leader_epoch, peek
from broker.wire.records import ControlKind, Record, control_batch, decode_records, encode_batch
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.link import Link
from mirror.offsets.acceptance import anew
from mirror.offsets.acceptance_entries import NEVER_ASKED, Acceptance
from mirror.offsets.entries import (
    Checkpoint,
    Gap,
    GapKind,
    GapStatus,
    Void,
    Writer,
    encode_key,
    encode_value,
    encode_void_key,
)
from mirror.offsets.folding import Folding
from mirror.offsets.map_ledger import MapLedger
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.origin_entries import Way
from mirror.offsets.recovery import TailBatch
from mirror.offsets.state_writer import Change
from mirror.offsets.tail import Tail, stand_in
from mirror.origins import Judgement, Verdict
from mirror.worker.budget import Budget, Lease
from mirror.worker.comparing import compare_logs
from mirror.worker.ground import history_of
from mirror.worker.holds import Attempts, Holds
from mirror.worker.limits import WorkerLimits
from mirror.worker.plan import Rules, plan_batches
from mirror.worker.replicator import Replicator
from mirror.worker.resume import Evidence, Opening, SourceLog, open_partition
from tests.mirror.partition import Submissions

T = TypeVar("T")
WHERE = TopicPartition("flights", 0)
LINK = Link("l", Site("east", "e:1"), Site("west", "w:1"), ("flights",))
LINK_PRODUCER = 7
LOCAL_PRODUCER = 99


class MemoryLog:
    """One partition's log, as a cluster serves it."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.epoch = 1
        self.topic_number = 1
        self.batches: list[StoredBatch] = []
        self.epochs = LeaderEpochs()
        self.epochs.assign(1, 0)
        self.transaction_from: int | None = None
        """Where one begins that is open: from there on nobody sees what is committed."""

    def append(self, batch: bytearray | memoryview) -> int:
        """Store a batch whose base offset is 0 -> the offset that it got."""
        stored = memoryview(bytearray(batch))
        base = self.end
        patch_base_offset(stored, base)
        patch_leader_epoch(stored, self.epoch)
        self.batches.append(StoredBatch(peek(stored), stored))
        self.end = self.batches[-1].header.next_offset
        return base

    def write(self, values: Iterable[int], producer_id: int = -1, holes: int = 0) -> None:
        """A batch of records with these values, with `holes` offsets that compaction left between every two."""
        records = [Record(at * (holes + 1), 1, b"k", b"%d" % value) for at, value in enumerate(values)]
        numbers: dict[str, Any] = {}
        if producer_id >= 0:
            numbers = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        self.append(encode_batch(records, dense=False, **numbers))

    def mark(self, writer: Writer) -> None:
        self.append(
            control_batch(
                ControlKind.ABORT,
                coordinator_epoch=0,
                producer_id=writer.producer_id,
                producer_epoch=writer.epoch,
                timestamp_ms=1,
            )
        )

    def cut(self, offset: int) -> None:
        """Lose the batches from the one that holds the offset on."""
        self.batches = [stored for stored in self.batches if stored.header.next_offset <= offset]
        self.end = self.batches[-1].header.next_offset if self.batches else self.start
        self.epochs.truncate_from_end(self.end)

    def elect(self) -> None:
        """A new leader: its epoch begins where the log ends."""
        self.epoch += 1
        self.epochs.assign(self.epoch, self.end)

    def forget_epochs(self) -> None:
        """Only what is in force now is known, from here on."""
        self.epochs = LeaderEpochs()
        self.epochs.assign(self.epoch, self.end)

    def delete_to(self, offset: int, *, inside: bool = False) -> None:
        """Retention: the batches before the one that holds the offset; `inside`: the log begins at it, cut by hand.

        What was cut off inside of a batch does not come back: a log's start never falls, though the batch is kept.
        """
        self.batches = [stored for stored in self.batches if stored.header.next_offset > offset]
        self.start = max(self.start, self.batches[0].header.base_offset if self.batches else self.end)
        if inside:
            self.start = max(self.start, offset)
        self.epochs.truncate_from_start(self.start)

    def recreate(self) -> None:
        number = self.topic_number + 1
        self.__init__()  # type: ignore[misc]  # as new
        self.topic_number = number

    def records(self) -> list[Record]:
        batches = (batch for header, batch in self.batches if not header.is_control)
        return [record for batch in batches for record in decode_records(batch) if record.offset >= self.start]

    # -- as mirror.worker.logs.Logs

    async def leader_epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return {where: EpochEnd(*self.epochs.end_offset_for(epoch, self.end)) for where, epoch in epochs.items()}

    async def batches_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, StoredBatch | None]:
        return {where: self._at(offset) for where, offset in offsets.items()}

    def _at(self, offset: int) -> StoredBatch | None:
        if not self.start <= offset < self.end:
            return None
        return next(stored for stored in self.batches if stored.header.next_offset > offset)

    async def read_batches(
        self, _where: TopicPartition, start: int, end: int, isolation: IsolationLevel
    ) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        for header, batch in self.batches:
            is_committed_only = isolation is IsolationLevel.READ_COMMITTED
            if is_committed_only and self.transaction_from is not None and header.base_offset >= self.transaction_from:
                return
            hidden = is_committed_only and header.is_control
            if header.next_offset > start and header.base_offset < end and not hidden:
                yield header, batch


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run what waits for nothing but its own tasks, on a loop that all examples share."""
    return _loop().run_until_complete(work)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


class AllPasses:
    """The passage of a link whose source has no mirrored records."""

    async def learn(self, where: TopicPartition, records: memoryview) -> None:
        pass

    def judge(self, where: TopicPartition) -> Callable[[BatchHeader], Judgement]:
        return lambda _header: Judgement(Verdict.CARRY, Way(frozenset(), frozenset()))


@dataclass
class Twins:
    """A source, its target, and the state topic of the link between them."""

    shared: bool
    source: MemoryLog = field(default_factory=MemoryLog)
    target: MemoryLog = field(default_factory=MemoryLog)
    producer_epoch: int = 0
    tells_ids: bool = True
    """Whether the clusters tell their topics' ids now."""
    holds: Holds = field(default_factory=lambda: Holds(Attempts(WorkerLimits(), SystemClock()), SystemClock()))
    folding: Folding = field(default_factory=lambda: Folding(LINK))

    def note(self, changes: Iterable[Change]) -> None:
        """What a state topic holds after these, encoded and read again."""
        for change in changes:
            if isinstance(change, Void):
                self.folding.apply(Record(0, 0, encode_void_key(change), None))
            else:
                self.folding.apply(Record(0, 0, encode_key(change), encode_value(change)))

    def fence(self) -> Writer:
        self.producer_epoch += 2
        self.target.mark(Writer(LINK_PRODUCER, self.producer_epoch - 1))
        return Writer(LINK_PRODUCER, self.producer_epoch)

    async def open(self) -> tuple[Opening, Writer]:
        """What a session's start does."""
        writer = self.fence()
        entries = self.folding.entries()
        checkpoint = entries.checkpoints.get(WHERE)
        evidence = Evidence(
            where=WHERE,
            shared=self.shared,
            source=SourceLog(
                self.source.start,
                self.source.end,
                f"source-{self.source.topic_number}" if self.tells_ids else "",
                checkpoint.topic_ids.source if checkpoint else "",
            ),
            tail=self._tail(checkpoint),
            recorded=entries.intervals(*WHERE),
            blocks=tuple(entries.blocks_of(*WHERE)),
            pages=tuple(entries.pages_of(*WHERE)),
            checkpoint=checkpoint,
            now_ms=0,
            gaps=entries.undecided_gaps().get(WHERE, ()),
            target_topic_id=f"target-{self.target.topic_number}" if self.tells_ids else "",
        )
        compared = await compare_logs(
            (self.source, self.target),
            {WHERE: evidence},
            {WHERE: WHERE},
            AllPasses(),  # type: ignore[arg-type]  # in the place of one that asks clusters
            self.holds,
        )
        opening = open_partition(replace(evidence, comparison=compared.get(WHERE, evidence.comparison)), writer)
        self.note(opening.changes)
        return opening, writer

    def _tail(self, checkpoint: Checkpoint | None) -> Tail:
        tail = Tail(self.target.start, self.target.end)
        if checkpoint is not None:
            tail.batches += [
                TailBatch(h.base_offset, h.last_offset, h.producer_id, h.producer_epoch, h.base_sequence, h.is_control)
                for h, _ in self.target.batches
                if h.next_offset > checkpoint.end.target_next
            ]
            if not self.shared:
                return stand_in(checkpoint, tail)
        return tail

    def replicator(self, opening: Opening, writer: Writer, state: Submissions) -> Replicator:
        found = PartitionMap(opening.intervals, opening.end, opening.position)
        rules = Rules(writer, 1 << 20)
        ledger = MapLedger(*WHERE)
        ledger.note(self.folding.entries().blocks_of(*WHERE))
        return Replicator(
            WHERE,
            WHERE,
            found,
            rules,
            state.outlet(),
            shared=self.shared,
            history=history_of(opening),
            ledger=ledger,
        )

    def accept(self) -> GapKind:
        """As an operator: the gap that is open, by its name -> its kind."""
        (gap,) = self.folding.entries().open_gaps().values()
        self.note([replace(gap, status=GapStatus.ACCEPTED)])
        return gap.kind

    def ask_anew(self) -> None:
        """As an operator who has the partition mirrored anew."""
        known = self.folding.entries()
        at_ms = 1 + max((gap.at_ms for gap in known.gaps.values()), default=0)
        position = known.checkpoints[WHERE].position if WHERE in known.checkpoints else 0
        asked = Acceptance(*WHERE, position, GapKind.MIRRORED_ANEW, at_ms, 0, "repair")
        gap = anew(NEVER_ASKED, asked)
        assert gap is not None
        self.note([gap])

    def mirrored_anew_from(self) -> int | None:
        """The target offset behind the copy that is not needed any more; None while that is not begun anew."""
        gaps = self.folding.entries().gaps.values()
        last = max((gap for gap in gaps if gap.kind is GapKind.MIRRORED_ANEW), key=lambda gap: gap.at_ms)
        return last.target_offset if last.status is GapStatus.PASSED else None

    def open_gap(self) -> Gap | None:
        return self.folding.entries().open_gaps().get(WHERE)

    def check_copies(self, found: PartitionMap, below: int) -> None:
        """Every record that the source has before `below` is at the target, where the map says."""
        at_target = {record.offset: record for record in self.target.records()}
        for record in self.source.records():
            if record.offset < below:
                at = found.to_target(record.offset)
                forgotten = at is None and record.offset < found.intervals[0].source_start and self.target.start > 0
                if forgotten or (at is not None and at < self.target.start):
                    continue  # the target's own retention took it
                copy = at_target.get(at if at is not None else -1)
                assert copy is not None, f"source offset {record.offset} is not at the target's {at}"
                assert copy.value == record.value, f"source offset {record.offset} is another record than {at}"
                assert found.to_source(copy.offset) == record.offset


class Life:
    """A session from its start to its death, which may come at any step."""

    def __init__(self, twins: Twins, opening: Opening, writer: Writer) -> None:
        self.twins = twins
        self.state = Submissions()
        self.replicator: Replicator = twins.replicator(opening, writer, self.state)
        self.landed: list[int] = []
        self._budget = Budget(1 << 20, 1)

    def fetch(self, batches: int) -> None:
        replicator = self.replicator
        if not replicator.is_moving:
            return
        ahead = [b for h, b in self.twins.source.batches if h.next_offset > replicator.cursor.position]
        fetched = memoryview(bytearray(b"".join(ahead[:batches])))
        lease = Lease(self._budget, len(fetched))
        replicator.take(plan_batches(fetched, (), replicator.cursor, replicator.rules, lease))
        lease.release()

    def write_state(self, entries: int) -> None:
        for _ in range(min(entries, len(self.state.queue))):
            self.twins.note(self.state.acknowledge())

    def produce(self, batches: int) -> None:
        for _ in range(min(batches, len(self.replicator.ready))):
            self.landed.append(self.twins.target.append(self.replicator.send().batch))

    def acknowledge(self, batches: int) -> None:
        for _ in range(batches):
            if self.landed and self.replicator.gap is None:
                self.replicator.acknowledge(self.landed.pop(0))

    def checkpoint(self) -> None:
        """Written behind all that was submitted before it; while it stands still there is none."""
        self.write_state(len(self.state.queue))
        if self.replicator.gap is None:
            self.twins.note([self.replicator.checkpoint(0), *self.replicator.pack()])

    def tidy(self) -> None:
        """What the target's retention took is not needed any more."""
        self.write_state(len(self.state.queue))
        self.twins.note(self.replicator.tidy(self.twins.target.start))

    def mirror_all(self) -> None:
        while self.replicator.gap is None and self.replicator.cursor.position < self.twins.source.end:
            self.fetch(3)
            while not self.replicator.is_idle and self.replicator.gap is None:
                self.write_state(len(self.state.queue))
                self.produce(9)
                self.acknowledge(9)
        self.checkpoint()
