"""When a held partition is tried again, and what of it is written down."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.errors import KafkaError
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.hold_entries import Hold, HoldReason, VoidHold
from mirror.worker.holds import Attempts, Holds
from mirror.worker.limits import WorkerLimits
from tests.broker.clock import ManualClock

LIMITS = WorkerLimits()
WHERE = TopicPartition("flights", 0)


def pause_ms(clock: ManualClock, attempts: Attempts) -> int:
    """Let time pass until the partition is due -> how long that took."""
    started = clock.now_ms()
    while not attempts.is_due(WHERE):
        clock.advance(100)
    return clock.now_ms() - started


def test_pauses_grow_to_a_limit_and_begin_anew_after_a_healthy_time() -> None:
    clock = ManualClock()
    attempts = Attempts(LIMITS, clock)
    assert attempts.is_due(WHERE)
    found = []
    for _ in range(9):
        attempts.failed(WHERE, passing=True)
        found.append(pause_ms(clock, attempts))
    assert found[:4] == [1_000, 4_000, 16_000, 64_000]
    assert found[-1] == LIMITS.hold_pause_max_ms
    clock.advance(LIMITS.healthy_after_ms + 100)
    attempts.failed(WHERE, passing=True)
    assert pause_ms(clock, attempts) == 1_000


def test_what_does_not_pass_by_itself_waits_longer() -> None:
    clock = ManualClock()
    attempts = Attempts(LIMITS, clock)
    attempts.failed(WHERE, passing=False)
    assert attempts.next_due_s([WHERE, "another"]) == LIMITS.hold_refused_pause_ms / 1000
    assert pause_ms(clock, attempts) == LIMITS.hold_refused_pause_ms
    assert attempts.next_due_s([WHERE]) is None


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(["fails", "refused", "moves"]), st.integers(0, 400_000)), max_size=30))
def test_a_hold_is_tried_at_the_time_it_says_within_minutes_and_at_once_when_a_leader_changed(
    course: list[tuple[str, int]],
) -> None:
    """Whatever failed, moved and waited before: the time that is told is the time at which it is due."""
    clock = ManualClock()
    attempts = Attempts(LIMITS, clock)
    leader = 1
    attempts.see(WHERE, leader)
    for step, wait_ms in course:
        clock.advance(wait_ms)
        if step in ("fails", "refused"):
            attempts.failed(WHERE, passing=step == "fails")
            pause_ms = attempts.next_try_at_ms(WHERE) - clock.now_ms()
            assert LIMITS.hold_pause_ms <= pause_ms <= LIMITS.hold_pause_max_ms <= 10 * 60_000
        elif step == "moves":
            leader += 1
            attempts.see(WHERE, leader)
            assert attempts.is_due(WHERE)
        attempts.see(WHERE, leader)  # as it was: that changes nothing
        left_ms = attempts.next_try_at_ms(WHERE) - clock.now_ms()
        assert attempts.is_due(WHERE) == (left_ms == 0)
        if left_ms:
            assert attempts.next_due_s([WHERE]) == pytest.approx(left_ms / 1000, abs=0.01)
            clock.advance(left_ms - 1)
            assert not attempts.is_due(WHERE)
            clock.advance(1)
            assert attempts.is_due(WHERE)


def test_only_what_changed_is_written_and_what_is_over_is_taken_back() -> None:
    clock = ManualClock()
    known = {
        WHERE: Hold(*WHERE, HoldReason.NO_LEADER_AT_SOURCE, "", 5),
        ("flights", 1): Hold("flights", 1, HoldReason.ERROR_AT_TARGET, "disk", 6),
        ("gates", None): Hold("gates", None, HoldReason.TOPIC_NOT_CREATED, "no", 7),
    }
    holds = Holds(Attempts(LIMITS, clock), clock)
    holds.add(Hold(*WHERE, HoldReason.NO_LEADER_AT_SOURCE, "", clock.now_ms()))
    holds.add(Hold("gates", None, HoldReason.NAME_TOO_LONG, "long", clock.now_ms()))
    written = holds.begin(known)
    next_try_at_ms = clock.now_ms() + LIMITS.hold_pause_ms
    still = replace(known[WHERE], next_try_at_ms=next_try_at_ms)
    other = Hold("gates", None, HoldReason.NAME_TOO_LONG, "long", clock.now_ms())
    assert written == [still, other, VoidHold("flights", 1)]
    assert holds.current[WHERE].at_ms == 5, "since when, not since the last session"
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "fetch")
    changed = Hold(*WHERE, HoldReason.ERROR_AT_SOURCE, str(error), clock.now_ms(), next_try_at_ms)
    assert holds.review({WHERE: changed}) == [changed, VoidHold("gates", None)]
    assert holds.review({WHERE: changed}) == []
    assert holds.review({}) == [], "only a new session takes a partition in"
    assert list(holds.current) == [WHERE]
