"""How fast replicas that are held back are copied: the rate on average, whatever the pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replication.throttling import UNLIMITED, ReplicationQuota, is_listed

MIB = 1 << 20


@given(
    st.integers(1, 1 << 30),
    st.lists(st.tuples(st.integers(1, 64 * MIB), st.floats(0, 500)), min_size=1, max_size=50),
)
def test_no_more_than_the_rate_and_a_second_of_it_and_one_piece(
    bytes_per_s: int, pieces: list[tuple[int, float]]
) -> None:
    """Whoever copies when he may, a while late each time, has copied what the rate says."""
    quota, now_ms, copied_bytes = ReplicationQuota(), 5_000.0, 0
    quota.limit(bytes_per_s, now_ms)
    for size_bytes, late_ms in pieces:
        now_ms += quota.over_in_ms(now_ms)
        assert not quota.is_exceeded(now_ms + 0.001)
        now_ms += late_ms
        allowed_bytes = bytes_per_s * (1 + (now_ms - 5_000) / 1000)
        assert copied_bytes <= allowed_bytes * 1.0001 + 1
        quota.record(size_bytes, now_ms)
        copied_bytes += size_bytes
    now_ms += quota.over_in_ms(now_ms)
    took_s = (now_ms - 5_000) / 1000
    assert took_s <= copied_bytes / bytes_per_s * 1.0001 + sum(late + 2 for _, late in pieces) / 1000


def test_what_was_too_much_is_waited_for_at_the_new_rate() -> None:
    quota = ReplicationQuota()
    quota.limit(1000, 0)
    quota.record(1_000_000, 0)
    assert quota.over_in_ms(0) == pytest.approx(1_000_000)
    quota.limit(1_000_000, 500_000)
    assert quota.over_in_ms(500_000) == pytest.approx(500)
    quota.limit(UNLIMITED, 500_000)
    assert not quota.is_exceeded(500_001)


def test_without_a_rate_nothing_is_held_back_and_with_0_everything() -> None:
    quota = ReplicationQuota()
    quota.record(1 << 40, 1)
    assert not quota.is_exceeded(1)
    quota.limit(0, 10)
    assert quota.is_exceeded(1e12)


def test_replicas_are_named_by_partition_and_broker() -> None:
    assert not is_listed(frozenset(), 0, 1)
    assert is_listed(frozenset({"*"}), 0, 1)
    assert is_listed(frozenset({"0:1", "12:3"}), 12, 3)
    assert not is_listed(frozenset({"0:1", "12:3"}), 0, 3)
