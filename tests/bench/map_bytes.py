"""What the map of a million records takes in a link's state: by a real replicator, into a state topic in memory.

Beside it MirrorMaker 2's offset-syncs topic, by its rule for when it writes and the sizes of its fields.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.base.clock import SystemClock
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import (
    Block,
    Void,
    VoidBlock,
    Writer,
    encode_key,
    encode_value,
    encode_void_key,
)
from mirror.offsets.intervals import End
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.pages import Page, VoidPage
from mirror.offsets.state_writer import Change
from mirror.worker.budget import Budget, Lease
from mirror.worker.plan import Rules, plan_batches
from mirror.worker.replicator import Outlet, Replicator

RECORDS = 1_000_000
RECORD_BYTES = 100
FETCH_BYTES = 1_000_000
FETCHES_PER_CHECKPOINT = 100
"""While a source is followed: each batch is fetched alone, and a checkpoint is written every second."""
RECORD_OVERHEAD_BYTES = 12
"""Around a key and a value in a batch, about."""
SYNC_KEY_BYTES, SYNC_VALUE_BYTES = 2 + len("flights") + 4, 8 + 8
"""Of an offset sync: the topic and the partition; the offsets at both sites (its class OffsetSync)."""
SYNC_LAG_MAX_RECORDS = 100
"""The default of its `offset.lag.max`."""
_WHERE = TopicPartition("flights", 0)
_WRITER = Writer(7, 0)


class MapBytes(NamedTuple):
    """Per million records; `written` to the state topic, of which the cleaner leaves `kept` in `entries`.

    MirrorMaker's are the most that it writes: where ten of its syncs are on their way, the next one of a partition
    takes the place of one that waits.
    """

    source: str
    fetched: str
    intervals: int
    written_bytes: int
    kept_bytes: int
    entries: int


Batch = tuple[list[int], int]
"""The offsets of its records, counted from its own first one, and by how much the next one's is behind that."""


def _plain(_random: random.Random) -> Batch:
    return list(range(1_000)), 1_000


def _transactions_of_ten(_random: random.Random) -> Batch:
    return list(range(10)), 11


def _transactions(random_: random.Random) -> Batch:
    count = random_.randint(1, 19)
    return list(range(count)), count + 1


def _compacted(random_: random.Random) -> Batch:
    return [at for at in range(1_000) if random_.random() < 1 / 3] or [0], 1_000


SOURCES: dict[str, Callable[[random.Random], Batch]] = {
    "plain": _plain,
    "transactions of 10": _transactions_of_ten,
    "transactions of 1 to 19": _transactions,
    "compacted, a third is left": _compacted,
}


def bench_map_bytes() -> Iterator[MapBytes]:
    for source, shape in SOURCES.items():
        for fetched, size_bytes in (("1 MB at a time", FETCH_BYTES), ("as it is written", 1)):
            yield _measured(source, fetched, shape, size_bytes)
        yield _by_mirror_maker(source, shape)


@dataclass(slots=True)
class _StateTopic:
    """The map's entries: their bytes, by key what is left of them, and all that were ever written."""

    kept: dict[bytes, int] = field(default_factory=dict)
    written_bytes: int = 0

    def submit(self, changes: Sequence[Change], then: Callable[[], None] | None = None) -> None:
        for change in changes:
            if isinstance(change, Block | Page | VoidBlock | VoidPage):
                key = encode_void_key(change) if isinstance(change, Void) else encode_key(change)
                value = b"" if isinstance(change, Void) else encode_value(change)
                size_bytes = len(key) + len(value) + RECORD_OVERHEAD_BYTES
                self.written_bytes += size_bytes
                self.kept.pop(key, None)
                if value:
                    self.kept[key] = size_bytes
        if then is not None:
            then()


def _measured(source: str, fetched: str, shape: Callable[[random.Random], Batch], fetch_bytes: int) -> MapBytes:
    state, budget = _StateTopic(), Budget(1 << 40, 1)
    outlet = Outlet("bench", state.submit, lambda _event, /, **_fields: None, SystemClock())
    replicator = Replicator(_WHERE, _WHERE, PartitionMap((), End(0, 0)), Rules(_WRITER, 1 << 20), outlet, shared=False)
    made, target_end, fetches = _source(shape), 0, 0
    while replicator.acknowledged_records < RECORDS:
        log = bytearray()
        while len(log) < fetch_bytes:
            log += next(made)
        lease = Lease(budget, len(log))
        replicator.take(plan_batches(memoryview(log), (), replicator.cursor, replicator.rules, lease))
        lease.release()
        while replicator.ready:
            count = replicator.send().count
            replicator.acknowledge(target_end)
            target_end += count
        fetches += 1
        if fetch_bytes > 1 or fetches % FETCHES_PER_CHECKPOINT == 0:
            state.submit([replicator.checkpoint(0), *replicator.pack()])
    intervals = len(replicator.map.intervals)
    return MapBytes(source, fetched, intervals, state.written_bytes, sum(state.kept.values()), len(state.kept))


def _by_mirror_maker(source: str, shape: Callable[[random.Random], Batch]) -> MapBytes:
    """A sync behind every gap in the source's offsets, and where the last one is too far behind (OffsetSyncWriter)."""
    seeded, base, there, syncs, synced, before = random.Random(9), 0, 0, 0, -1, -1
    while there < RECORDS:
        offsets, step = shape(seeded)
        for at in offsets:
            if synced < 0 or base + at != before + 1 or there - (synced + 1) >= SYNC_LAG_MAX_RECORDS:
                syncs, synced = syncs + 1, there
            before, there = base + at, there + 1
        base += step
    sync_bytes = SYNC_KEY_BYTES + SYNC_VALUE_BYTES + RECORD_OVERHEAD_BYTES
    return MapBytes(source, "MirrorMaker 2", syncs, syncs * sync_bytes, sync_bytes, 1)


def _source(shape: Callable[[random.Random], Batch]) -> Iterator[bytes]:
    base, seeded, value = 0, random.Random(9), bytes(RECORD_BYTES)
    while True:
        offsets, step = shape(seeded)
        records = [Record(base + at, 1, None, value) for at in offsets]
        last_offset = base + (offsets[-1] if step <= offsets[-1] + 2 else step - 1)  # a marker lies behind the batch
        yield bytes(encode_batch(records, base_offset=base, dense=False, last_offset=last_offset))
        base += step
