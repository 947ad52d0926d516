"""Whether a worker lives: by one look's stamp, and by several looks, which no clock that is off can deceive."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.heartbeat import OLDEST_ALIVE_MS, HeartbeatWatch, Pulse, judge_heartbeat
from mirror.limits import CLOCK_DIFFERENCE_MAX_MS, HEARTBEAT_INTERVAL_MS
from mirror.offsets.entries import Owner, Writer

WRITER = Writer(7, 3)


@dataclass
class HandClock:
    """A clock that a test sets; its wall may be off by `wrong_ms`."""

    steady_ms: int = 0
    wrong_ms: int = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.steady_ms + self.wrong_ms

    def monotonic(self) -> float:
        return self.steady_ms / 1000

    def boottime(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        self.steady_ms += round(seconds * 1000)


def owner(clock: HandClock, worker: str = "host:1") -> Owner:
    """The heartbeat of a worker whose clock is right."""
    return Owner(WRITER, worker, 1_700_000_000_000 + clock.steady_ms)


@given(st.integers(-(10**9), 10**9))
def test_one_look_says_alive_only_of_a_stamp_that_is_near(age_ms: int) -> None:
    found = judge_heartbeat(Owner(WRITER, "host:1", 10**12), 10**12 + age_ms)
    if age_ms < -CLOCK_DIFFERENCE_MAX_MS:
        assert found.pulse is Pulse.UNKNOWN
    else:
        assert found.pulse is (Pulse.ALIVE if age_ms <= OLDEST_ALIVE_MS else Pulse.SILENT)
    assert (found.detail == "") == (found.pulse is Pulse.ALIVE)


def test_a_worker_that_waits_for_a_command_is_awaited_before_it_is_missed() -> None:
    """Right behind `link resume` the link was called silent while its worker was about to take it over."""
    clock = HandClock()
    left = owner(clock, "operation resume-1")
    clock.steady_ms += 3_000
    found = judge_heartbeat(left, clock.now_ms())
    assert found.pulse is Pulse.AWAITED
    assert "operation resume-1 left the link to its worker 3.0 s ago" in found.detail
    clock.steady_ms = OLDEST_ALIVE_MS
    assert judge_heartbeat(left, clock.now_ms()).pulse is Pulse.AWAITED
    clock.steady_ms += 100_000
    found = judge_heartbeat(left, clock.now_ms())
    assert found.pulse is Pulse.SILENT
    assert "no worker has taken the link over since operation resume-1, 2 min 0 s ago" in found.detail
    assert judge_heartbeat(None, clock.now_ms()).pulse is Pulse.SILENT


@pytest.mark.parametrize("wrong_ms", [-3_600_000, 0, 3_600_000])
def test_who_watches_awaits_a_worker_whatever_the_clocks_say(wrong_ms: int) -> None:
    clock = HandClock(wrong_ms=wrong_ms)
    watch = HeartbeatWatch(clock)
    watch.judge("l", owner(clock))
    clock.steady_ms += 2_000
    left = owner(clock, "operation resume-1")
    assert watch.judge("l", left).pulse is Pulse.AWAITED
    clock.steady_ms += 2_000
    assert watch.judge("l", owner(clock)).pulse is Pulse.ALIVE, "it took the link over"
    clock.steady_ms += 2_000
    left = owner(clock, "operation resume-2")
    assert watch.judge("l", left).pulse is Pulse.AWAITED
    clock.steady_ms += OLDEST_ALIVE_MS + 1
    found = watch.judge("l", left)
    assert found.pulse is Pulse.SILENT
    assert "operation resume-2" in found.detail


@pytest.mark.parametrize("wrong_ms", [-3_600_000, -10_000, 0, 10_000, 600_000, 3_600_000])
def test_who_looks_again_is_not_deceived_by_a_clock(wrong_ms: int) -> None:
    clock = HandClock(wrong_ms=wrong_ms)
    watch = HeartbeatWatch(clock)
    beat = owner(clock)
    watch.judge("l", beat)
    for _ in range(10):
        clock.steady_ms += HEARTBEAT_INTERVAL_MS
        beat = owner(clock)
        assert watch.judge("l", beat).pulse is Pulse.ALIVE
    clock.steady_ms += OLDEST_ALIVE_MS
    assert watch.judge("l", beat).pulse is Pulse.ALIVE, "it may only be late"
    clock.steady_ms += 1
    assert watch.judge("l", beat).pulse is Pulse.SILENT
    clock.steady_ms += 600_000
    assert watch.judge("l", beat).pulse is Pulse.SILENT, "also when the wrong clock passes the stamp"
    assert watch.judge("l", owner(clock)).pulse is Pulse.ALIVE, "it lives again"


@pytest.mark.parametrize("wrong_ms", [0, 3_600_000, -3_600_000])
def test_a_change_between_two_looks_that_lie_far_apart_is_no_sign_of_life_now(wrong_ms: int) -> None:
    """The metrics' drill looks once a minute: a worker that had died 55 s before was alive to it, for a minute more."""
    clock = HandClock(wrong_ms=wrong_ms)
    watch = HeartbeatWatch(clock)
    watch.judge("l", owner(clock))
    clock.steady_ms += HEARTBEAT_INTERVAL_MS
    last = owner(clock)
    clock.steady_ms += 55_000
    found = watch.judge("l", last)
    assert found.pulse is judge_heartbeat(last, clock.now_ms()).pulse
    assert found.pulse is not Pulse.ALIVE
    clock.steady_ms += HEARTBEAT_INTERVAL_MS
    assert watch.judge("l", owner(clock)).pulse is Pulse.ALIVE, "it moves while it is watched"


def test_links_are_watched_each_for_itself_and_a_lost_state_is_looked_at_anew() -> None:
    clock = HandClock(wrong_ms=600_000)
    watch = HeartbeatWatch(clock)
    beat = owner(clock)
    assert watch.judge("a", beat).pulse is Pulse.SILENT
    clock.steady_ms += 1_000
    assert watch.judge("b", owner(clock)).pulse is Pulse.SILENT, "a first look at b"
    assert watch.judge("a", None).pulse is Pulse.SILENT
    assert watch.judge("a", owner(clock)).pulse is Pulse.SILENT, "a first look at a, again"
