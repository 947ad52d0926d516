"""One partition of a link while a session runs: what is planned, on its way, and proved. One session owns it.

A batch waits in `waiting` until its intervals are durable, then in `ready`, then in `in_flight`, and its
acknowledgement ends here. `position` is proved: it never stands behind a record that is on its way. Everything changes
between two awaits of the session's one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.base.clock import Clock
from broker.wire.vocabulary import NO_LEADER_EPOCH, TopicPartition
from mirror.offsets.entries import Block, Checkpoint, Gap, GapKind, GapStatus, LastRecord, Writer
from mirror.offsets.histories import newest_epochs
from mirror.offsets.intervals import End, Interval, again, intervals_for
from mirror.offsets.map_ledger import MapChange, MapLedger, join_blocks
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.origin_entries import RUNS_MAX, OriginRun, OriginRuns, join_runs
from mirror.offsets.origin_ledger import OriginLedger
from mirror.offsets.recovery import SEQUENCE_MASK
from mirror.offsets.state_writer import Change
from mirror.worker.events import EventSink, tell_gap
from mirror.worker.history import History
from mirror.worker.plan import Blocker, Cursor, Plan, ProducerBatch, Rules


class EntrySink(Protocol):
    """Where entries of the link's state go; `then` is called when they, and all before them, are durable."""

    def __call__(self, changes: Sequence[Change], then: Callable[[], None] | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Outlet:
    """What a session's replicators share: the link's name, where entries and events go, and the clock for both."""

    link: str
    submit: EntrySink
    tell: EventSink
    clock: Clock


class Replicator:
    """The queue, the cursor, the map and the buffer leases of one partition.

    With a `gap` it stands still; with a `blocker`, or where it `is_held` for what the source said, it will, as soon as
    nothing is on its way. `due` is set when there is something to send.
    """

    __slots__ = (
        "_acknowledged_sequence",
        "_outlet",
        "_settles",
        "_shared",
        "_start",
        "acknowledged_bytes",
        "acknowledged_records",
        "blocker",
        "buffered_bytes",
        "changed",
        "cursor",
        "due",
        "gap",
        "history",
        "in_flight",
        "is_held",
        "ledger",
        "map",
        "origins",
        "ready",
        "rules",
        "source",
        "source_end_offset",
        "source_timestamp_ms",
        "target",
        "unanswered",
        "waiting",
    )

    def __init__(
        self,
        source: TopicPartition,
        target: TopicPartition,
        found: PartitionMap,
        rules: Rules,
        outlet: Outlet,
        *,
        shared: bool,
        history: History | None = None,
        sequence: int = 0,
        origins: OriginLedger | None = None,
        ledger: MapLedger | None = None,
    ) -> None:
        assert found.end is not None
        self.source = source
        self.target = target
        self.map = found
        self.rules = rules
        self.origins = origins or OriginLedger()
        self.ledger = ledger or MapLedger(*source)
        self.history = history = history or History()
        stand = history.epochs_stand and history.leader_epochs
        known = history.leader_epochs[-1].leader_epoch if stand else NO_LEADER_EPOCH
        self.cursor = Cursor(found.position, found.end, sequence, known)
        self.waiting: deque[ProducerBatch] = deque()
        self.ready: deque[ProducerBatch] = deque()
        self.in_flight: deque[ProducerBatch] = deque()
        self.due = asyncio.Event()
        self.buffered_bytes = 0
        self.gap: Gap | None = None
        self.is_held = False
        self._settles = False
        self.unanswered = 0
        self.blocker: Blocker | None = None
        self.source_end_offset = -1
        self.source_timestamp_ms = -1
        self.changed = False
        self.acknowledged_records = 0
        self.acknowledged_bytes = 0
        self._acknowledged_sequence = sequence
        self._outlet = outlet
        self._shared = shared
        self._start = found.position

    @property
    def writer(self) -> Writer:
        return self.rules.writer

    @property
    def sequence(self) -> int:
        """Of the next record behind all that the target acknowledged."""
        return self._acknowledged_sequence

    @property
    def end(self) -> End:
        """Up to where the target acknowledged."""
        assert self.map.end is not None
        return self.map.end

    @property
    def position(self) -> int:
        """The source offset before which nothing is left to mirror, proved."""
        return self.map.position

    @property
    def is_moving(self) -> bool:
        """Whether it is to be fetched: it neither stands still nor is about to, at a blocker it has read."""
        return not self.is_stopped and not self.is_held and self.blocker is None

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still: no answer counts any more."""
        return self.gap is not None or (self.is_held and not self._settles)

    @property
    def is_proved(self) -> bool:
        """The target acknowledged all that was ever taken: its log expects the sequence that would follow."""
        return self.cursor.sequence == self._acknowledged_sequence

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way."""
        return not (self.in_flight or self.ready or self.waiting)

    @property
    def may_step(self) -> bool:
        """Whether what lies behind the end in the target's log is others': they write there, too, and nothing of this
        one is on its way.
        """
        return self._shared and self.is_moving and self.is_idle and self.is_proved

    def step_to(self, target_next: int) -> None:
        """The next record gets `target_next`, or a later offset: all that lies before it there, and behind the end, is
        others'. Who reads the state need not look through that.
        """
        if target_next <= self.end.target_next:
            return
        step = Interval(self.end.source_next, target_next)
        moved = self.map.intervals.go_on([step], self.end)
        blocks = [Block(*self.source, self.writer, self._acknowledged_sequence, moved)]
        self.ledger.note(blocks)
        self._outlet.submit(blocks)
        self.map.end = self.cursor.end = End(*step)
        self.changed = True

    def see_source_end(self, offset: int) -> None:
        """The source's log ends at `offset`, as its leader says."""
        if offset != self.source_end_offset:
            self.source_end_offset = offset
            self.changed = True

    def take(self, plan: Plan) -> None:
        """Take what was planned from `cursor` on. Batches with new intervals wait until those are durable.

        Others go at once, unless earlier ones wait: the order is never changed. What the plan left out is done with
        when nothing is on its way, so the batches are queued before that is asked.
        """
        assert self.is_moving, f"{self.source} stands still: nothing may follow what it forgot"
        waits = bool(self.waiting)
        ahead: list[Change] = self._origins(plan.batches) if self.rules.names_origins else []
        for batch in plan.batches:
            batch.lease.hold()
            self.buffered_bytes += len(batch.batch)
            self.waiting.append(batch)
        blocks = join_blocks(batch.block(*self.source, self.writer) for batch in plan.batches if batch.intervals)
        self.ledger.note(blocks)
        ahead += blocks
        self.cursor = plan.cursor
        self.history.read(plan.leader_epochs, self.position)
        if self.history.leave(plan.left_out):  # a batch behind it proves the position, and a start must know of it then
            ahead.append(self.checkpoint(self._outlet.clock.now_ms()))
        count = len(plan.batches)
        if ahead or (waits and count):
            self._outlet.submit(ahead, lambda: self._release(count))
        else:
            self._release(count)
        self._settle()
        if plan.blocker is not None:
            self.hold_at(plan.blocker)

    def _origins(self, batches: Sequence[ProducerBatch]) -> list[Change]:
        """What tells the readers of the target where these batches came from."""
        runs = join_runs(OriginRun(b.sequence, b.sequence + b.count, b.way) for b in batches)
        proved = (self._acknowledged_sequence, self.end.target_next)
        entries = [
            OriginRuns(*self.source, self.writer, tuple(runs[at : at + RUNS_MAX]), *proved)
            for at in range(0, len(runs), RUNS_MAX)
        ]
        for entry in entries:
            self.origins.add(entry)
        return [*entries]

    def _release(self, count: int) -> None:
        """The first `count` waiting batches may be produced now; after a stop there are none."""
        for _ in range(min(count, len(self.waiting))):
            self.ready.append(self.waiting.popleft())
        if self.ready:
            self.due.set()

    def send(self) -> ProducerBatch:
        """The next batch to produce; it is in flight from here on."""
        batch = self.ready.popleft()
        self.in_flight.append(batch)
        self.unanswered += 1
        return batch

    def acknowledge(self, base_offset: int) -> None:
        """The target has the oldest batch in flight, at `base_offset`: the position moves behind it.

        Landed elsewhere than predicted, what was written ahead for it is corrected; where only this link may write, it
        shows a foreign writer, and the partition stops.
        """
        batch = self.in_flight.popleft()
        self._drop(batch)
        shift = base_offset - batch.target_base
        if shift < 0:
            detail = f"the target's log had ended at {self.end.target_next}, the next batch landed at {base_offset}"
            at = self.end.source_next
            self.stop_at(Blocker(GapKind.TARGET_TRUNCATED, at, at, detail), landed_at=base_offset)
            return
        if shift and not self._shared:
            # No source record is missing, but the target is not a mirror any more.
            detail = f"expected target offset {batch.target_base}, the batch landed at {base_offset}"
            at = self.end.source_next
            self.stop_at(Blocker(GapKind.FOREIGN_WRITER, at, at, detail))
            return
        if shift:
            self._shift(shift)
            batch.target_base = base_offset
        intervals = intervals_for(self.end, batch.pieces, base_offset)
        intervals = self.map.advance(intervals, End(batch.source_next, base_offset + batch.count))
        self.history.last = LastRecord(batch.source_next - 1, base_offset + batch.count - 1, self.writer.producer_id)
        self._acknowledged_sequence = (batch.sequence + batch.count) & SEQUENCE_MASK
        self.acknowledged_records += batch.count
        self.acknowledged_bytes += len(batch.batch)
        self.source_timestamp_ms = max(self.source_timestamp_ms, batch.source_timestamp_ms)
        self.changed = True
        if intervals != batch.intervals:
            batch.intervals = again(batch.intervals, intervals, batch.pieces, base_offset)
            if batch.intervals:
                self._outlet.submit(self.ledger.correct(batch.block(*self.source, self.writer), batch.source_next))
        self._settle()
        self._stop_if_due()

    def _settle(self) -> None:
        """Nothing is on its way: what was left out behind the last record is done with, too."""
        if self.is_idle and self.position < self.cursor.position:
            self.map.position = self.cursor.position
            self.changed = True
        self._check_position()

    def _check_position(self) -> None:
        """A position behind a record that is on its way would lose that record at the next start, silently."""
        for queue in (self.in_flight, self.ready, self.waiting):
            if queue:
                oldest = queue[0].pieces[0].source_start
                assert self.position <= oldest, f"{self.source}: position {self.position} passes offset {oldest}"
                return

    def hold_at(self, blocker: Blocker) -> None:
        """Stop as soon as all that was read before the blocker is acknowledged.

        Stopping at once would forget that, and an operator who accepts the gap would lose it with the gap.
        """
        if self.is_moving:
            self.blocker = blocker
            self._stop_if_due()

    def _stop_if_due(self) -> None:
        if self.blocker is not None and not self.is_stopped and self.is_idle:
            self.stop_at(self.blocker)

    def stop_at(self, blocker: Blocker, landed_at: int | None = None) -> None:
        """Stand still, and say so in the ledger: at the end of what is proved, or where a batch landed before that.

        What was not sent is forgotten. What is in flight may still land; its answers do not count.
        """
        self.gap = Gap(
            topic=self.source.topic,
            partition=self.source.partition,
            kind=blocker.kind,
            source_from=blocker.source_from,
            source_to=blocker.source_to,
            target_offset=self.end.target_next if landed_at is None else landed_at,
            status=GapStatus.STOPPED,
            at_ms=self._outlet.clock.now_ms(),
            detail=blocker.detail,
        )
        self._forget()
        self.changed = self.changed or self.is_proved
        self._outlet.submit([self.gap])
        tell_gap(self._outlet.tell, self._outlet.link, self.gap)

    def hold(self, *, settles: bool) -> None:
        """Take nothing more, until the partition is taken in anew.

        With `settles` what was taken still goes to the target. Else it stands still, and what is in flight is in doubt.
        """
        self.is_held, self._settles = True, settles
        if not settles:
            self._forget()
        self.changed |= self.gap is None and self.is_proved

    def _forget(self) -> None:
        for queue in (self.waiting, self.ready, self.in_flight):
            for batch in queue:
                self._drop(batch)
            queue.clear()

    def checkpoint(self, now_ms: int) -> Checkpoint:
        """What is proved now. Of one that takes nothing more: that no record, or that a fence's marker, may follow."""
        self._check_position()
        is_settled = not self.is_moving and self.is_proved
        return Checkpoint(
            topic=self.source.topic,
            partition=self.source.partition,
            end=self.end,
            position=self.position,
            writer=self.writer,
            sequence=self._acknowledged_sequence,
            source_end_offset=self.source_end_offset,
            source_timestamp_ms=self.source_timestamp_ms,
            observed_at_ms=now_ms,
            leader_epochs=newest_epochs(self.history.leader_epochs, self.position),
            last=self.history.last,
            topic_ids=self.history.topic_ids,
            epochs_to=self.history.epochs_to if self.position == self._start else -1,
            left_out=self.history.left_out,
            marker_may_follow=self.is_held and not is_settled,
            records_behind=0 if is_settled else -1,
        )

    def pack(self) -> list[MapChange]:
        """What makes its map in the state smaller, behind a checkpoint of now.

        None while it is held: who takes it in anew goes by what the state said then.
        """
        return [] if self.is_held else self.ledger.pack(self.map.intervals, self.end)

    def tidy(self, log_start: int) -> list[Change]:
        """What makes the state smaller where the target's log begins at `log_start`; of a map not while it is held."""
        spent = [] if self.is_held else self.ledger.trim(self.map.intervals, log_start)
        return [*self.origins.tidy(log_start), *spent]

    def _drop(self, batch: ProducerBatch) -> None:
        self.buffered_bytes -= len(batch.batch)
        batch.lease.release()

    def _shift(self, shift: int) -> None:
        """Others wrote `shift` records before our batch: all predictions behind it move."""
        for batch in (*self.in_flight, *self.ready, *self.waiting):
            batch.target_base += shift
        end = self.cursor.end
        self.cursor.end = End(end.source_next, end.target_next + shift)
