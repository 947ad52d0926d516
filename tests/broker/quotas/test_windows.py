"""Kafka's windows: how fast something goes, and how long it rests."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.quotas.windows import KEPT_MS, Rate

LIMIT = 1000.0
BEGAN_MS = 5_000_000.0
steps = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), min_size=1, max_size=200)


def test_ten_seconds_are_looked_at_from_the_first_moment_on() -> None:
    rate = Rate()
    assert rate.measure(BEGAN_MS) == (0, 10_000)
    rate.note(12_000, BEGAN_MS)
    assert rate.measure(BEGAN_MS) == (1200, 10_000)
    assert rate.rest_ms(LIMIT, BEGAN_MS) == pytest.approx(2000)
    assert rate.rest_ms(1200, BEGAN_MS) == 0
    assert rate.measure(BEGAN_MS + 10_500) == pytest.approx((12_000 / 10.5, 10_500))
    assert rate.measure(BEGAN_MS + KEPT_MS) == (0, 10_000)


def test_each_second_has_its_window_and_the_oldest_is_used_again() -> None:
    rate = Rate()
    for second in range(30):
        rate.note(100, BEGAN_MS + second * 1000)
        rate.note(1, BEGAN_MS + second * 1000 + 999)
    now_ms = BEGAN_MS + 29_999
    assert rate.measure(now_ms) == pytest.approx((11 * 101 / 10.999, 10_999))
    rate.note(-1, now_ms)
    assert rate.measure(now_ms)[0] == pytest.approx((11 * 101 - 1) / 10.999)


@given(steps)
@example([(0, 5000)] * 20)
def test_who_rests_as_told_stays_below_the_limit(asked: list[tuple[int, int]]) -> None:
    """But for the last request, and what may come at once in the first ten seconds."""
    rate, now_ms, before = Rate(), BEGAN_MS, 0.0
    for pause_ms, amount in asked:
        now_ms += pause_ms
        assert before <= LIMIT * (now_ms - BEGAN_MS + KEPT_MS) / 1000 + 5000
        rate.note(amount, now_ms)
        before += amount
        now_ms += rate.rest_ms(LIMIT, now_ms)


@given(st.integers(1, 1000), st.floats(0.1, 0.9), st.integers(1, 100))
def test_who_is_slower_never_rests(amount: int, part: float, count: int) -> None:
    rate, now_ms, gap_ms = Rate(), BEGAN_MS, amount / (LIMIT * part) * 1000
    for _ in range(count):
        rate.note(amount, now_ms)
        assert rate.rest_ms(LIMIT, now_ms) == 0
        now_ms += gap_ms


@given(steps, st.integers(0, 20_000))
def test_what_is_too_old_is_as_if_it_had_never_been(asked: list[tuple[int, int]], later_ms: int) -> None:
    rate, now_ms = Rate(), BEGAN_MS
    for pause_ms, amount in asked:
        now_ms += pause_ms
        rate.note(amount, now_ms)
    now_ms += KEPT_MS + later_ms
    fresh = Rate()
    for pause_ms, amount in asked:
        rate.note(amount, now_ms)
        fresh.note(amount, now_ms)
        assert rate.measure(now_ms) == pytest.approx(fresh.measure(now_ms))
        now_ms += pause_ms
