"""Two compacted copies in memory: written, mirrored, cleaned and read in turns that a seed tells."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from monitoring.audit.model import Side

SEGMENT = 3
KEYS = 12


@dataclass(frozen=True)
class Written:
    """A record: `value` None is a tombstone. `offset` is the source's, and the target's."""

    offset: int
    key: int
    value: str | None


@dataclass
class CleanedLog:
    """What of a log is still there. Its cleaner takes whole segments, the oldest first, and leaves the newest two."""

    records: dict[int, Written] = field(default_factory=dict)
    end: int = 0
    seen: set[int] = field(default_factory=set)
    """Tombstones that a pass has met before: the next one may drop them."""

    def append(self, record: Written) -> None:
        self.records[record.offset] = record
        self.end = record.offset + 1

    def clean(self, rng: random.Random, mirrored: Callable[[], int]) -> Iterator[None]:
        """A pass, with a turn for all others behind each segment.

        A tombstone stays until it is mirrored: the mirror is no later than `delete.retention.ms`.
        """
        clean_to = self.end - self.end % SEGMENT - SEGMENT
        latest: dict[int, int] = {}
        for offset in sorted(self.records):
            if offset < clean_to:
                latest[self.records[offset].key] = offset
        drops_tombstones = rng.random() < 0.7
        for start in range(0, max(0, clean_to), SEGMENT):
            for offset in range(start, start + SEGMENT):
                record = self.records.get(offset)
                if record is None:
                    continue
                is_old = latest[record.key] > offset
                may_go = drops_tombstones and offset in self.seen and offset < mirrored()
                if is_old or (record.value is None and may_go):
                    del self.records[offset]
                elif record.value is None:
                    self.seen.add(offset)
            yield

    def read(self, into: list[Written]) -> Iterator[None]:
        """To the end that it has now, a segment a turn."""
        end = self.end
        for start in range(0, end, SEGMENT):
            into += [self.records[at] for at in range(start, min(start + SEGMENT, end)) if at in self.records]
            yield


class CompactedWorld:
    """`span_end` is what is compared, up to where the mirror had come at the freeze. `readings` are by site.

    One in three worlds has a mirror that loses a record, another one in three one that changes a value.
    """

    def __init__(self, seed: int, readings: int) -> None:
        self.rng = random.Random(seed)
        self.logs = {side: CleanedLog() for side in Side}
        self.history: list[Written] = []
        self.mirrored = 0
        self.fault = {0: "lost", 1: "changed"}.get(seed % 3)
        self.at_fault: int | None = None
        for _ in range(self.rng.randrange(10, 40)):
            self._happens()
        self._mirror(self.rng.randrange(0, 8))
        self.span_end = self.mirrored
        self.readings: list[dict[Side, list[Written]]] = []
        for _ in range(readings):
            found: dict[Side, list[Written]] = {side: [] for side in Side}
            self._in_turns([self.logs[side].read(found[side]) for side in Side])
            self.readings.append(found)

    def _happens(self) -> None:
        what = self.rng.random()
        if what < 0.55:
            self._write()
        elif what < 0.85:
            self._mirror(self.rng.randrange(1, 4))
        else:
            for _ in self.logs[self.rng.choice(list(Side))].clean(self.rng, lambda: self.mirrored):
                pass

    def _in_turns(self, readers: list[Iterator[None]]) -> None:
        """Readers and one cleaner of each site, a step each as it comes, while records are written and mirrored."""
        reading = list(readers)
        cleaning = {side: self.logs[side].clean(self.rng, lambda: self.mirrored) for side in Side}
        while reading:
            if self.rng.random() < 0.3:
                self._write() if self.rng.random() < 0.5 else self._mirror(2)
            side = self.rng.choice(list(Side))
            for _ in range(self.rng.choice([0, 0, 1, 3, 20])):
                if next(cleaning[side], self) is self:
                    cleaning[side] = self.logs[side].clean(self.rng, lambda: self.mirrored)
            one = self.rng.choice(reading)
            if next(one, self) is self:
                reading.remove(one)

    def _write(self) -> None:
        value = None if self.rng.random() < 0.2 else f"v{len(self.history)}"
        record = Written(len(self.history), self.rng.randrange(KEYS), value)
        self.history.append(record)
        self.logs[Side.SOURCE].append(record)

    def _mirror(self, number: int) -> None:
        for _ in range(number):
            if self.mirrored == len(self.history):
                return
            record = self.logs[Side.SOURCE].records.get(self.mirrored)
            self.mirrored += 1
            if record is None:
                continue
            if self.at_fault is None and self.fault and record.value is not None and self.rng.random() < 0.1:
                self.at_fault = record.offset
                if self.fault == "lost":
                    continue
                record = Written(record.offset, record.key, "tampered with")
            self.logs[Side.TARGET].append(record)
        self.logs[Side.TARGET].end = max(self.logs[Side.TARGET].end, self.mirrored)

    @property
    def must_be_named(self) -> bool:
        """Whether the fault is about a value that was the newest of its key all the time, in what is compared."""
        at = self.at_fault
        if at is None or at >= self.span_end:
            return False
        key = self.history[at].key
        return not any(record.key == key for record in self.history[at + 1 :])
