"""What a worker says of its load: little, and true."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from mirror.coordinator.model import Meter, Unit
from mirror.fleet.keys import LinkLoad, LoadRecord
from mirror.fleet.loads import IDLE_LOAD, lags, loads_of
from mirror.fleet.measuring import FAILING_AFTER_S, MEASURED_AFTER_S, TOLD_EVERY_S, Measuring

MIB = 1024 * 1024
RED, BLUE = Unit("red"), Unit("blue")
LOOK_S = 5.0


@dataclass
class Worker:
    """Its time, its meters, and what it would have written."""

    now: float = 1_000.0
    cpu_s: float = 0.0
    cores: float = 0.2
    running: dict[Unit, Meter] = field(default_factory=dict)
    written: list[tuple[float, LoadRecord]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.measuring = Measuring(self.now, self.cpu_s)

    def go_on(self, seconds: float, rates: dict[Unit, float], wavers: random.Random | None = None) -> None:
        """`rates` in bytes per second; a record has a KiB."""
        until = self.now + seconds
        while self.now < until:
            self.now += LOOK_S
            self.cpu_s += LOOK_S * self.cores * (wavers.uniform(0.7, 1.3) if wavers else 1.0)
            for unit, rate in rates.items():
                moved = int(LOOK_S * rate * (wavers.uniform(0.5, 1.5) if wavers else 1.0))
                self.running[unit].acknowledged_bytes += moved
                self.running[unit].acknowledged_records += moved // 1024
                if wavers:  # what is on its way right now
                    self.running[unit].lag_offsets = int(wavers.uniform(0, 2) * rate / 1024)
            self.measuring.look(self.now, self.cpu_s, self.running)
            if (record := self.measuring.to_tell()) is not None:
                self.measuring.tell(record)
                self.written.append((self.now, record))


def test_steady_links_are_told_once_whatever_they_waver() -> None:
    for seed in range(20):
        worker = Worker(running={RED: Meter(), BLUE: Meter()})
        worker.go_on(3_600, {RED: 50 * MIB, BLUE: 0.0}, random.Random(seed))
        assert len(worker.written) <= 12, "in an hour"
        _, told = worker.written[-1]
        assert told.links["red"].bytes_per_second == pytest.approx(50 * MIB, rel=0.5)
        assert told.links["red"].records_per_second == pytest.approx(50 * 1024, rel=0.5)
        assert told.links["blue"].bytes_per_second == 0
        assert told.cpu_cores == pytest.approx(0.2, abs=0.11)


def test_what_changes_is_told_soon_and_seldom() -> None:
    worker = Worker(running={RED: Meter(lag_offsets=0)})
    worker.go_on(60, {RED: 1 * MIB})
    (first_at, told), *more = worker.written
    assert not more
    assert first_at == 1_000.0 + LOOK_S + MEASURED_AFTER_S
    assert told.links["red"] == LinkLoad(bytes_per_second=MIB, records_per_second=1024, lag_offsets=0)
    worker.go_on(60, {RED: 4 * MIB})
    changed = [at for at, record in worker.written[1:] if record.links["red"].bytes_per_second > 1.3 * MIB]
    assert changed
    assert changed[0] <= 1_060.0 + 15
    times = [at for at, _ in worker.written]
    assert all(after - before >= TOLD_EVERY_S for before, after in pairwise(times))
    worker.running[RED].lag_offsets = 10_000_000
    worker.go_on(60, {RED: 4 * MIB})
    assert lags(worker.written[-1][1])
    worker.running.pop(RED)
    worker.go_on(60, {})
    assert not worker.written[-1][1].links
    count = len(worker.written)
    worker.measuring.forget_told()
    worker.go_on(60, {})
    assert len(worker.written) == count, "of nothing nothing is told, also under a new lease"


def test_a_unit_that_comes_back_is_measured_anew() -> None:
    worker = Worker(running={RED: Meter()})
    worker.go_on(60, {RED: MIB})
    worker.running = {RED: Meter()}
    worker.go_on(10, {RED: MIB})
    assert not worker.written[-1][1].links, "it runs for too short a time"
    worker.go_on(30, {RED: MIB})
    assert worker.written[-1][1].links["red"].bytes_per_second == MIB


def test_the_processor_is_shared_out_by_bytes() -> None:
    links = {
        "red": LinkLoad(bytes_per_second=3 * MIB),
        "blue": LinkLoad(bytes_per_second=MIB),
        "idle": LinkLoad(),
    }
    loads = loads_of(LoadRecord(cpu_cores=0.43, links=links))
    assert loads == {RED: IDLE_LOAD + 30, BLUE: IDLE_LOAD + 10, Unit("idle"): IDLE_LOAD}
    assert set(loads_of(LoadRecord(cpu_cores=0.01, links=links)).values()) == {IDLE_LOAD}
    assert loads_of(LoadRecord(cpu_cores=0.5, links={"idle": LinkLoad()})) == {Unit("idle"): IDLE_LOAD}


def test_who_lags() -> None:
    def lagging(records_per_second: int, lag_offsets: int | None) -> bool:
        link = LinkLoad(records_per_second=records_per_second, lag_offsets=lag_offsets)
        return lags(LoadRecord(links={"red": link, "blue": LinkLoad(lag_offsets=0)}))

    assert not lagging(0, 9_000), "a link at rest has a few records to go"
    assert lagging(0, 20_000)
    assert not lagging(100_000, 1_000_000), "ten seconds behind"
    assert lagging(10_000, 1_000_000)
    assert not lagging(10_000, None)


def test_a_unit_that_cannot_be_begun_is_told_and_not_measured() -> None:
    worker = Worker(running={RED: Meter(), BLUE: Meter()})
    worker.go_on(60, {RED: MIB, BLUE: MIB})
    worker.running[RED].failed_sessions = 1
    worker.go_on(10, {BLUE: MIB})
    assert not worker.written[-1][1].failing, "that may be over soon"
    worker.go_on(20, {BLUE: MIB})
    at, told = worker.written[-1]
    assert (told.failing, set(told.links)) == (("red",), {"blue"})
    assert at <= 1_060.0 + 2 * LOOK_S + FAILING_AFTER_S
    worker.running[RED].failed_sessions = 0
    worker.go_on(20, {BLUE: MIB})
    _, told = worker.written[-1]
    assert (told.failing, set(told.links)) == ((), {"red", "blue"})
    alone = Worker(running={RED: Meter(failed_sessions=1)})
    alone.go_on(30, {})
    assert alone.written[0][1].failing == ("red",)


def test_a_unit_whose_sessions_open_and_fail_is_told_until_one_lasts() -> None:
    worker = Worker(running={RED: Meter(), BLUE: Meter()})
    worker.go_on(60, {RED: MIB, BLUE: MIB})
    red = worker.running[RED]
    for _ in range(2):
        red.opened()
        red.ended(failed=True)
    red.opened()
    worker.go_on(60, {BLUE: MIB})
    assert not worker.written[-1][1].failing, "a broker may have been started anew"
    red.ended(failed=True)
    red.opened()
    worker.go_on(20, {BLUE: MIB})
    red.ended(failed=True)
    red.opened()
    worker.go_on(20, {BLUE: MIB})
    _, told = worker.written[-1]
    assert (told.failing, set(told.links)) == (("red",), {"blue"})
    red.lasted()
    worker.go_on(20, {BLUE: MIB})
    assert worker.written[-1][1].failing == ()


def test_what_ends_a_session_that_lasted_or_is_no_error_counts_for_nothing() -> None:
    meter = Meter()
    for _ in range(9):
        meter.opened()
        meter.ended(failed=False)
        meter.opened()
        meter.lasted()
        meter.ended(failed=True)
    assert (meter.failed_sessions, meter.short_sessions) == (1, 0)
    meter.ended(failed=True)
    assert (meter.failed_sessions, meter.short_sessions) == (2, 0), "it was not opened"
