from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.base.percentile import percentile


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_percentiles_are_values_that_were_measured(values: list[int]) -> None:
    for share in (0.01, 0.5, 0.99, 1.0):
        found = percentile(values, share)
        assert found in values
        assert sum(value <= found for value in values) >= share * len(values)
        assert sum(value < found for value in values) < max(1, share * len(values))


def test_of_nothing_there_is_none() -> None:
    assert percentile([], 0.5) is None


def test_one_outlier_in_a_hundred_is_above_p99() -> None:
    assert percentile([1.0] * 99 + [5_000.0], 0.99) == 1.0
