"""What decides which batches are tried, and which partitions are left to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from monitoring import limits
from monitoring.audit.model import ComparablePartition, FrozenLink, FrozenSite, Segment, Span
from monitoring.audit.phases import Sites
from monitoring.audit.unopened import Told, beginning, is_hopeful, is_worthwhile, proved_if_any, to_be_opened

WIDTH = limits.AUDIT_RANGE_OFFSETS
LARGE = limits.AUDIT_UNOPENED_BATCH_RECORDS
TOLD = Told(ranges=8, proved=8, batches=100, records=100 * LARGE, bytes=100, is_unread=False)
SITE = FrozenSite("east", "east:9092", None)


def partition(offsets: int, start: int = 0, shift: int = 0, nth: int = 0) -> ComparablePartition:
    source, target = Span(start, start + offsets), Span(start + shift, start + shift + offsets)
    return ComparablePartition("t", nth, "t", source, target, (Segment(start + shift, start, offsets),))


def sites(*partitions: ComparablePartition) -> Sites:
    return Sites(None, FrozenLink("east-west", SITE, SITE, 0, ()), partitions)


def test_it_is_worth_it_where_both_sites_together_have_much() -> None:
    half = limits.AUDIT_UNOPENED_MIN_OFFSETS // 2
    assert is_worthwhile([partition(half)])
    assert not is_worthwhile([partition(half - 1)])
    assert is_worthwhile([partition(half - 1), partition(1)])
    assert not is_worthwhile([])


@pytest.mark.parametrize(
    ("told", "is_it"),
    [
        (None, True),
        (TOLD, True),
        (replace(TOLD, proved=4), True),
        (replace(TOLD, proved=3), False),
        (replace(TOLD, proved=0), False),
        (replace(TOLD, is_unread=True), False),
        (replace(TOLD, records=100 * LARGE - 1), False),
        (replace(TOLD, records=100, bytes=100 * limits.AUDIT_UNOPENED_BATCH_BYTES), True),
        (replace(TOLD, records=100, bytes=100 * limits.AUDIT_UNOPENED_BATCH_BYTES - 1), False),
    ],
)
def test_a_partition_is_hopeful_where_its_beginning_is_mostly_proved_by_large_batches(
    told: Told | None, is_it: bool
) -> None:
    assert is_hopeful(told) is is_it


@pytest.mark.parametrize(
    ("offsets", "ranges"),
    [
        (1, 1),
        (WIDTH * limits.AUDIT_LOOK_SHARE, 1),
        (3 * WIDTH * limits.AUDIT_LOOK_SHARE, 3),
        (100 * WIDTH * limits.AUDIT_LOOK_SHARE, limits.AUDIT_LOOK_RANGES),
    ],
)
def test_a_beginning_has_the_first_ranges_of_both_sites(offsets: int, ranges: int) -> None:
    item = partition(offsets, start=5 * WIDTH, shift=700)
    end = 5 * WIDTH + min(offsets, ranges * WIDTH)
    cut = beginning(item)
    assert (cut.source, cut.target) == (Span(5 * WIDTH, end), Span(5 * WIDTH + 700, end + 700))
    assert replace(cut, source=item.source, target=item.target) == item


def test_a_beginning_within_a_range_ends_with_it() -> None:
    cut = beginning(partition(10 * WIDTH, start=WIDTH + 9))
    assert cut.source == Span(WIDTH + 9, 2 * WIDTH)


def test_of_nothing_the_beginning_is_nothing() -> None:
    assert beginning(partition(0, start=9)).source.offsets == 0


def test_what_batches_do_not_prove_is_opened_and_nothing_is_read_for_nothing() -> None:
    asked = sites(partition(9), partition(9, nth=1), partition(9, nth=2))
    whole, in_part = to_be_opened(asked, {("t", 1): [0], ("t", 2): []})
    assert ([item.partition for item in whole.partitions], whole.chosen) == ([0], None)
    assert [item.partition for item in in_part.partitions] == [1]
    assert in_part.chosen == {("t", 1): [0], ("t", 2): []}
    assert [each.partitions for each in to_be_opened(asked, {})] == [list(asked.partitions)]
    assert to_be_opened(asked, {("t", nth): [] for nth in range(3)}) == []
    assert to_be_opened(asked, None) == [asked]
    assert to_be_opened(sites(), None) == [sites()]


def test_where_a_site_runs_a_program_for_its_password_all_is_opened_and_that_is_said() -> None:
    """There is no Spark here: no task is made at all."""
    security = Security(None, Sasl(Mechanism.PLAIN, "me", Secret(command=("vault",))))
    locked = replace(SITE, name="west", security=security)
    steps: list[str] = []
    asked = replace(sites(partition(9)), frozen=FrozenLink("east-west", SITE, locked, 0, ()))
    assert proved_if_any(asked, steps.append) is None
    assert steps == ["opening all records: at site west each task of Spark's would log in anew"]
