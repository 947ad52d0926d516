"""Crashes, simulated: whatever landed, recovery finds the exact position, and the exact map."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.client.site import Site
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets import map_ledger
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    GapKind,
    Void,
    Writer,
    encode_key,
    encode_value,
    encode_void_key,
)
from mirror.offsets.folding import Folding
from mirror.offsets.intervals import Interval
from mirror.offsets.map_ledger import MapLedger
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.recovery import SEQUENCE_MASK, TailBatch
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import Change
from mirror.offsets.tail import Tail
from mirror.worker.budget import Budget, Lease
from mirror.worker.events import Event
from mirror.worker.plan import Rules
from mirror.worker.replicator import Replicator
from mirror.worker.resume import Evidence, SourceLog, open_partition, recover_partition
from tests.mirror.partition import Submissions, take, take_together
from tests.worlds import first_worlds

LINK = Link("east-west", Site("east", "east:9092"), Site("west", "west:9092"), ("flights",))
WHERE = TopicPartition("flights", 0)


@dataclass
class Target:
    """A target partition, its state topic, and which source offset lies at which target offset."""

    log: list[TailBatch] = field(default_factory=list)
    end: int = 0
    truth: list[tuple[int, int]] = field(default_factory=list)
    state: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """The records of the state topic."""
    epoch: int = 0
    log_start: int = 0

    def append(self, count: int, writer: Writer, sequence: int, *, control: bool = False) -> int:
        base = self.end
        self.log.append(TailBatch(base, base + count - 1, writer.producer_id, writer.epoch, sequence, control))
        self.end += count
        return base

    def note(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, Void):
                self.state.append((encode_void_key(change), None))
            else:
                self.state.append((encode_key(change), encode_value(change)))

    def compact(self, kept: Callable[[], bool]) -> None:
        """Kafka's cleaner: some of what was written over goes; tombstones stay for a day."""
        newest = {key: at for at, (key, _) in enumerate(self.state)}
        self.state = [(key, value) for at, (key, value) in enumerate(self.state) if newest[key] == at or kept()]

    def entries(self) -> StateEntries:
        folding = Folding(LINK)
        for at, (key, value) in enumerate(self.state):
            folding.apply(Record(at, 0, key, value))
        return folding.entries()

    @property
    def blocks(self) -> list[int]:
        """The keys of those that stand in the state."""
        return sorted(block.key_source for block in self.entries().blocks_of(*WHERE))

    def evidence(self, shared: bool, source_end: int = 100) -> Evidence:
        entries = self.entries()
        checkpoint = entries.checkpoints.get(WHERE)
        first = max(checkpoint.end.target_next if checkpoint else 0, self.log_start)
        return Evidence(
            where=WHERE,
            shared=shared,
            source=SourceLog(0, source_end, "", ""),
            tail=Tail(self.log_start, self.end, [batch for batch in self.log if batch.base_offset >= first]),
            recorded=entries.intervals(*WHERE),
            blocks=tuple(entries.blocks_of(*WHERE)),
            checkpoint=checkpoint,
            now_ms=0,
            pages=tuple(entries.pages_of(*WHERE)),
        )


def open_replicator(target: Target, shared: bool, source_end: int, fences: int, state: Submissions) -> Replicator:
    """What a session's start does: some fences, of which only the last goes on."""
    for _ in range(fences):
        target.epoch += 2
        target.append(1, Writer(7, target.epoch - 1), -1, control=True)
    writer = Writer(7, target.epoch)
    evidence = target.evidence(shared, source_end)
    opening = open_partition(evidence, writer)
    assert opening.gap is None, opening.gap
    target.note(opening.changes)
    found = PartitionMap(opening.intervals, opening.end, opening.position)
    ledger = MapLedger(*WHERE)
    ledger.note([*evidence.blocks, *opening.changes])
    return Replicator(WHERE, WHERE, found, Rules(writer, 1 << 20), state.outlet(), shared=shared, ledger=ledger)


def check_map(target: Target, found: PartitionMap) -> None:
    for source, landed in target.truth:
        if landed >= target.log_start:
            assert found.to_target(source) == landed, (source, landed, found.intervals)
            assert found.to_source(landed) == source


def written_to(target: Target) -> int:
    """The target's end by the last checkpoint."""
    return target.entries().checkpoints[WHERE].end.target_next


def read_map(target: Target) -> PartitionMap:
    """As who asks from outside reads it."""
    evidence = target.evidence(shared=False)
    found = recover_partition(evidence)
    return PartitionMap(found.intervals, found.end, found.position)


def acknowledge(
    data: st.DataObject, target: Target, replicator: Replicator, state: Submissions, landed: list[int]
) -> None:
    """Some of it becomes known, with checkpoints now and then, until the worker dies."""
    for base in landed[: data.draw(st.integers(0, len(landed)))]:
        submitted = len(state.queue)
        replicator.acknowledge(base)
        correction = state.queue.pop() if len(state.queue) > submitted else None
        if correction is not None and data.draw(st.booleans()):
            target.note(tuple(correction[0]))
        elif correction is not None:
            return  # the checkpoint never comes before the correction: here the worker died
        if data.draw(st.booleans()):
            changes: list[Change] = [replicator.checkpoint(0), *replicator.pack()]
            written = data.draw(st.integers(0, len(changes)))
            target.note(changes[:written])
            if written < len(changes):
                return
        if replicator.end.target_next > target.log_start and data.draw(st.booleans()):
            target.log_start = data.draw(st.integers(target.log_start, written_to(target)))
            changes = replicator.tidy(target.log_start)
            written = data.draw(st.integers(0, len(changes)))
            target.note(changes[:written])
            if written < len(changes):
                return
        target.compact(lambda: data.draw(st.booleans()))
        check_map(target, read_map(target))


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_ledger, "PACKED_BLOCKS_MIN", 1)
    monkeypatch.setattr(map_ledger, "PAGE_INTERVALS_MAX", 12)


@pytest.mark.usefixtures("small_pages")
@settings(max_examples=first_worlds(80, of=400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.booleans())
def test_a_crash_anywhere_loses_nothing_and_repeats_nothing(data: st.DataObject, shared: bool) -> None:
    """Lives of a worker: each plans batches, some land, some are acknowledged, checkpoints come now and then.

    Maps are packed, the state is compacted, and what is packed is written by halves.
    """
    target, budget = Target(), Budget(1 << 20, 1)
    source: list[int] = []
    position = 0
    for _ in range(data.draw(st.integers(1, 4))):
        fences = data.draw(st.integers(1, 3))
        state = Submissions()
        replicator = open_replicator(target, shared, 1 << 30, fences, state)
        check_map(target, replicator.map)
        assert [here for here, _ in target.truth] == source[: len(target.truth)], "order"
        position = replicator.cursor.position
        assert position >= (target.truth[-1][0] + 1 if target.truth else 0)
        unmirrored = [offset for offset in source if offset >= position]
        assert len(unmirrored) + len(target.truth) == len(source), "a record was lost or repeated"
        batches = [unmirrored] if unmirrored else []
        offset = max([position, *(at + 1 for at in source[-1:])])
        for _ in range(data.draw(st.integers(0, 5))):
            gaps = data.draw(st.lists(st.sampled_from([0, 0, 0, 2]), min_size=1, max_size=5))
            batch = []
            for gap in gaps:
                batch.append(offset + gap)
                offset += gap + 1
            offset += data.draw(st.sampled_from([0, 0, 3]))
            source += batch
            batches.append(batch)
        fetched = data.draw(st.integers(1, 5))
        for at in range(0, len(batches), fetched):
            take_together(replicator, Lease(budget, 0), *batches[at : at + fetched])
        for _ in range(data.draw(st.integers(0, len(state.queue)))):
            target.note(state.acknowledge())
        landed: list[int] = []
        for planned, batch in zip(list(replicator.ready), batches, strict=False):
            if data.draw(st.booleans()) is False and data.draw(st.booleans()):
                break
            if shared and data.draw(st.booleans()):
                target.append(data.draw(st.integers(1, 3)), Writer(99, 0), 0)
            base = target.append(len(batch), replicator.writer, planned.sequence)
            target.truth += [(here, base + at) for at, here in enumerate(batch)]
            replicator.send()
            landed.append(base)
        acknowledge(data, target, replicator, state, landed)
    final = open_replicator(target, shared, 1 << 30, 1, Submissions())
    check_map(target, final.map)
    assert [here for here, _ in target.truth] == source[: len(target.truth)]


def test_a_foreign_batch_is_noticed_at_the_acknowledgement_and_at_the_next_start() -> None:
    target, budget = Target(), Budget(1 << 20, 1)
    state = Submissions()
    replicator = open_replicator(target, False, 100, 1, state)
    (planned,) = take(replicator, Lease(budget, 0), [0, 1, 2])
    while state.queue:
        target.note(state.acknowledge())
    replicator.send()
    target.append(2, Writer(99, 0), 0)
    base = target.append(3, replicator.writer, planned.sequence)
    replicator.acknowledge(base)
    noticed = replicator.gap
    assert noticed is not None
    assert (noticed.kind, noticed.source_from, noticed.source_to) == (GapKind.FOREIGN_WRITER, 0, 0)
    assert noticed.detail == "expected target offset 1, the batch landed at 3"
    assert state.acknowledge() == (noticed,)
    assert state.told == [Event.PARTITION_STOPPED]
    opening = open_partition(target.evidence(shared=False), Writer(7, 4))
    assert opening.gap is not None
    assert opening.gap.kind == "foreign_writer"


def test_sequences_wrap() -> None:
    target, budget = Target(), Budget(1 << 20, 1)
    state = Submissions()
    replicator = open_replicator(target, False, 100, 1, state)
    start = SEQUENCE_MASK - 1
    replicator.cursor.sequence = start
    target.note([Checkpoint(WHERE.topic, 0, replicator.end, 0, replicator.writer, start, 100, -1, 0)])
    target.note([Block(WHERE.topic, 0, replicator.writer, start, (Interval(0, 1),))])
    outgoing = take(replicator, Lease(budget, 0), [0, 1, 2], [7, 8])
    assert outgoing[1].sequence == 1
    while state.queue:
        target.note(state.acknowledge())
    for planned, offsets in zip(outgoing, ([0, 1, 2], [7, 8]), strict=True):
        base = target.append(len(offsets), replicator.writer, planned.sequence)
        target.truth += [(here, base + at) for at, here in enumerate(offsets)]
    final = open_replicator(target, False, 100, 1, Submissions())
    assert final.cursor.position == 9
    check_map(target, final.map)


def test_intervals_of_deleted_records_are_forgotten() -> None:
    target, budget = Target(), Budget(1 << 20, 1)
    state = Submissions()
    replicator = open_replicator(target, False, 100, 1, state)
    outgoing = take(replicator, Lease(budget, 0), [0, 1], [10, 11], [20, 21])
    while state.queue:
        target.note(state.acknowledge())
    for planned in outgoing:
        target.append(2, replicator.writer, planned.sequence)
    assert target.blocks == [0, 10, 20]
    evidence = target.evidence(shared=False)
    evidence = replace(evidence, tail=replace(evidence.tail, log_start=4))
    opening = open_partition(evidence, Writer(7, 4))
    assert opening.intervals[0] == Interval(10, 3)
    target.note(opening.changes)
    assert target.blocks == [10, 20, 22]  # the last is where this session starts
