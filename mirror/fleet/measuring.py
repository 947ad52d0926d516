"""What a worker measures of what it runs, and when that is worth a write to the store. Pure: times and counts come in.

A worker has one key for all of its units, and writes it only where something has become notably different: a fleet in
which nothing changes writes nothing, however much it moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Final

from mirror.coordinator.model import Meter, Unit
from mirror.fleet.keys import LinkLoad, LoadRecord

SMOOTHED_OVER_S: Final = 60.0
MEASURED_AFTER_S: Final = 15.0
"""A unit that runs for less has no rate yet: it catches up, mostly."""
TOLD_EVERY_S: Final = 10.0
"""No worker writes its measures more often."""
NOTABLE_PART: Final = 0.3
NOTABLE_CORES: Final = 0.1
NOTABLE_BYTES_PER_SECOND: Final = 64 * 1024
NOTABLE_RECORDS_PER_SECOND: Final = 500
NOTABLE_LAG_OFFSETS: Final = 10_000
NOTABLE_LAG_S: Final = 5.0
"""Between two checkpoints a busy link always has some lag: of as much as it moves in so long nothing is told."""


FAILING_AFTER_S: Final = 15.0
"""A unit of which no session could be opened for so long, though it was tried, cannot be run here."""
SHORT_SESSIONS_MAX: Final = 3
"""Nor one of which so many in a row were opened and failed soon, if none has lasted for so long after that."""


class _Smoothed:
    """A mean in which what was long ago counts less."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, value: float, over_s: float) -> None:
        kept = exp(-over_s / SMOOTHED_OVER_S)
        self._sum = kept * self._sum + (1 - kept) * value
        self._weight = kept * self._weight + (1 - kept)

    @property
    def mean(self) -> float:
        return self._sum / self._weight if self._weight else 0.0


class _Measured:
    """One unit since it runs here."""

    def __init__(self, now: float, meter: Meter) -> None:
        self.meter, self.since, self._at = meter, now, now
        self._counted = meter.acknowledged_bytes, meter.acknowledged_records
        self._bytes, self._records, self._lag = _Smoothed(), _Smoothed(), _Smoothed()
        self._failed_since: float | None = None

    def look(self, now: float) -> None:
        if not self.meter.failed_sessions and self.meter.short_sessions < SHORT_SESSIONS_MAX:
            self._failed_since = None
        elif self._failed_since is None:
            self._failed_since = now
        over_s = now - self._at
        if over_s <= 0:
            return
        counted = self.meter.acknowledged_bytes, self.meter.acknowledged_records
        self._bytes.add((counted[0] - self._counted[0]) / over_s, over_s)
        self._records.add((counted[1] - self._counted[1]) / over_s, over_s)
        if self.meter.lag_offsets is not None:
            self._lag.add(self.meter.lag_offsets, over_s)
        self._counted, self._at = counted, now

    def fails(self, now: float) -> bool:
        return self._failed_since is not None and now - self._failed_since >= FAILING_AFTER_S

    def load(self) -> LinkLoad:
        lag = None if self.meter.lag_offsets is None else round(self._lag.mean)
        return LinkLoad(
            bytes_per_second=round(self._bytes.mean), records_per_second=round(self._records.mean), lag_offsets=lag
        )


class Measuring:
    """`now` and `cpu_s` are seconds from any start: of the steady clock, and of processor time spent so far."""

    def __init__(self, now: float, cpu_s: float) -> None:
        self._at, self._cpu_s, self._cores = now, cpu_s, _Smoothed()
        self._measured: dict[Unit, _Measured] = {}
        self._told: LoadRecord | None = None
        self._told_at = float("-inf")

    def look(self, now: float, cpu_s: float, running: Mapping[Unit, Meter]) -> None:
        """What runs now, as its meters stand. One that began anew elsewhere in between has another meter."""
        if now > self._at:
            self._cores.add((cpu_s - self._cpu_s) / (now - self._at), now - self._at)
        self._at, self._cpu_s = now, cpu_s
        before = self._measured
        self._measured = {}
        for unit, meter in running.items():
            known = before.get(unit)
            one = known if known is not None and known.meter is meter else _Measured(now, meter)
            one.look(now)
            self._measured[unit] = one

    def to_tell(self) -> LoadRecord | None:
        """What is to be written now; None: nothing that others should know has changed."""
        if self._at - self._told_at < TOLD_EVERY_S:
            return None
        failing = {unit for unit, one in self._measured.items() if one.fails(self._at)}
        links = {
            str(unit): one.load()
            for unit, one in self._measured.items()
            if self._at - one.since >= MEASURED_AFTER_S and unit not in failing
        }
        names = tuple(sorted(map(str, failing)))
        record = LoadRecord(cpu_cores=round(self._cores.mean, 3), links=links, failing=names)
        if self._told is None:
            return record if links or failing else None
        return record if _is_notable(self._told, record) else None

    def tell(self, record: LoadRecord) -> None:
        """It was written."""
        self._told, self._told_at = record, self._at

    def forget_told(self) -> None:
        """What was written went with its lease."""
        self._told = None


def _is_notable(told: LoadRecord, now: LoadRecord) -> bool:
    if told.links.keys() != now.links.keys() or told.failing != now.failing:
        return True
    if _differ(told.cpu_cores, now.cpu_cores, NOTABLE_CORES):
        return True
    return any(_is_other(told.links[name], link) for name, link in now.links.items())


def _is_other(told: LinkLoad, now: LinkLoad) -> bool:
    if _differ(told.bytes_per_second, now.bytes_per_second, NOTABLE_BYTES_PER_SECOND):
        return True
    if _differ(told.records_per_second, now.records_per_second, NOTABLE_RECORDS_PER_SECOND):
        return True
    if told.lag_offsets is None or now.lag_offsets is None:
        return told.lag_offsets is not now.lag_offsets
    usual = NOTABLE_LAG_S * max(told.records_per_second, now.records_per_second)
    return _differ(told.lag_offsets, now.lag_offsets, max(NOTABLE_LAG_OFFSETS, usual))


def _differ(told: float, now: float, at_least: float) -> bool:
    return abs(told - now) > max(at_least, NOTABLE_PART * max(told, now))
