"""The judge of the chaos runs sees what it is there to see."""

from __future__ import annotations

from tests.chaos_runs.oracle import Differences, compare, out_of_order

A, B, C, D = (("a",), ("b",), ("c",), ("d",))


def test_equal_logs_differ_in_nothing() -> None:
    assert not compare([A, B, C], [A, B, C])
    assert not compare([], [])


def test_each_kind_of_difference_is_named() -> None:
    assert compare([A, B, C], [A, C]) == Differences(lost=[B])
    assert compare([A, B], [A, A, B]) == Differences(twice=[A])
    assert compare([A, B], [A, B, D]) == Differences(extra=[D])
    assert compare([A, B, C], [B, A, C]) == Differences(reordered=1)


def test_a_record_that_the_source_has_twice_is_wanted_twice() -> None:
    assert not compare([A, B, A], [A, B, A])
    assert compare([A, B, A], [A, B]).lost == [A]


def test_repeats_behind_do_not_count_as_reordered() -> None:
    assert out_of_order([A, B, C], [A, B, C, A]) == 0
    assert out_of_order([A, B, C], [C, A, B]) == 2
