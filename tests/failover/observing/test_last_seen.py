"""Which of two looks at a source's log counts, and what a total makes of the last one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failover.losses.statements import Certainty, PartitionLoss, total_loss
from failover.observing.last_seen import LastSeen, last_seen
from mirror.api import Checkpoint, LastLook, SeenEnd
from mirror.offsets.entries import TopicIds, Writer
from mirror.offsets.intervals import End
from mirror.offsets.source_ends import Growth

NOW_MS = 1_700_000_000_000
CHECKPOINT = Checkpoint("a", 0, End(40, 41), 40, Writer(1, 0), 0, 472, 5, NOW_MS, topic_ids=TopicIds("id", "there"))
OBSERVED = SeenEnd(3, 11_464, NOW_MS + 200, "id")
MINUTE = (Growth(60_000, 0),)
NO_IDS = replace(CHECKPOINT, topic_ids=TopicIds())


@pytest.mark.parametrize(
    ("checkpoint", "observed", "expected"),
    [
        (None, None, None),
        (CHECKPOINT, None, LastSeen(None, 472, NOW_MS)),
        (None, OBSERVED, LastSeen(*OBSERVED[:3])),
        (CHECKPOINT, OBSERVED, LastSeen(*OBSERVED[:3])),
        # A checkpoint that was just written has its end from a fetch of long ago.
        (CHECKPOINT, OBSERVED._replace(at_ms=NOW_MS - 9), LastSeen(3, 11_464, NOW_MS - 9)),
        # The source lost its log's end since the fetch.
        (CHECKPOINT, OBSERVED._replace(end=400), LastSeen(3, 400, NOW_MS + 200)),
        # A worker that hung writes it when it goes on, and the source may be gone by then.
        (
            CHECKPOINT,
            OBSERVED._replace(end=400, at_ms=NOW_MS - 2_900),
            LastSeen(3, 472, NOW_MS - 2_900, seen_beyond=72),
        ),
        (CHECKPOINT, OBSERVED._replace(topic_id="new"), LastSeen(*OBSERVED[:3], is_another=True)),
        # The same, seen by a worker whose clock is behind that of the one who wrote the checkpoint.
        (
            CHECKPOINT,
            OBSERVED._replace(topic_id="new", at_ms=NOW_MS - 9),
            LastSeen(3, 11_464, NOW_MS - 9, is_another=True),
        ),
        (NO_IDS, OBSERVED, LastSeen(*OBSERVED[:3])),
        (CHECKPOINT, OBSERVED._replace(topic_id=""), LastSeen(*OBSERVED[:3])),
    ],
)
def test_the_last_that_was_seen(
    checkpoint: Checkpoint | None, observed: SeenEnd | None, expected: LastSeen | None
) -> None:
    assert last_seen(checkpoint, observed) == expected


@pytest.mark.parametrize(
    ("observed", "read_to", "end", "seen_beyond"),
    [
        (OBSERVED, 11_500, 11_500, 36),
        (OBSERVED, 11_400, 11_464, 0),
        (OBSERVED._replace(topic_id="new"), 11_500, 11_464, 0),  # of which of the two topics it was nobody knows
        (OBSERVED._replace(end=400, at_ms=NOW_MS + 200 - 2_900), 500, 500, 100),
    ],
)
def test_so_far_as_a_group_has_read_the_log_went(observed: SeenEnd, read_to: int, end: int, seen_beyond: int) -> None:
    found = last_seen(CHECKPOINT, observed, read_to)
    assert found is not None
    assert (found.end, found.at_ms) == (end, observed.at_ms), "when that was nobody knows"
    assert found.seen_beyond == seen_beyond
    assert last_seen(None, None, read_to) is None


@given(
    st.integers(0, 5_000),
    st.integers(0, 100_000),
    st.none() | st.integers(0, 100_000),
    st.floats(0, 1e4),
    st.sampled_from(Certainty),
)
def test_what_is_likely_begins_with_what_was_seen_and_nothing_is_likely_where_all_is_known(
    offsets: int, age_ms: int, unanswered_ms: int | None, fastest_per_s: float, certainty: Certainty
) -> None:
    last = LastLook(
        NOW_MS - age_ms, None if unanswered_ms is None else NOW_MS - age_ms + unanswered_ms, MINUTE, fastest_per_s
    )
    loss = PartitionLoss("a", 0, certainty, offsets, None, 1, 1 + offsets)
    total = total_loss([loss], NOW_MS, last)
    assert (total.offsets, total.stated_at_ms) == (offsets, NOW_MS)
    if certainty is Certainty.EXACT:
        known = total_loss([loss], NOW_MS)
        assert total == replace(known, fastest_per_s=fastest_per_s, pace_seconds=60.0, pace_at_ms=last.at_ms)
        return
    if certainty is Certainty.UNKNOWN:
        assert (total.likely_offsets, total.seen_at_ms) == (None, None), "a pace says nothing of what is at the target"
        return
    unseen_s = (age_ms if unanswered_ms is None else unanswered_ms) / 1000
    assert total.likely_offsets is not None
    assert offsets <= total.likely_offsets
    assert total.likely_offsets == pytest.approx(offsets + fastest_per_s * unseen_s, abs=1)
    assert total.seen_at_ms == last.at_ms


def test_what_was_seen_is_told_as_time_too() -> None:
    last = LastLook(NOW_MS - 4_200, NOW_MS - 3_900, (Growth(1_000, 4_000), Growth(5_000, 14_000)), 4_786.0)
    total = total_loss([PartitionLoss("a", 0, Certainty.AT_LEAST, 11_464, None, 1, 11_465)], NOW_MS, last)
    assert (total.likely_offsets, total.unanswered_at_ms) == (11_464 + 1_436, NOW_MS - 3_900)
    assert total.seen_seconds == pytest.approx(1 + 4 * 7_464 / 10_000)


@pytest.mark.parametrize(("ahead_ms", "likely"), [(0, 472), (5_000, 472), (5_001, None), (3_600_000, None)])
def test_for_how_long_a_source_went_on_is_not_asked_of_a_clock_that_is_ahead(ahead_ms: int, likely: int | None) -> None:
    loss = PartitionLoss("a", 0, Certainty.AT_LEAST, 472, None, 1, 473)
    total = total_loss([loss], NOW_MS, LastLook(NOW_MS + ahead_ms, None, MINUTE, 100.0))
    assert (total.offsets, total.likely_offsets, total.seen_at_ms) == (472, likely, NOW_MS + ahead_ms)
    asked_ms = NOW_MS + ahead_ms + 2_000
    known = total_loss([loss], NOW_MS, LastLook(NOW_MS + ahead_ms, asked_ms, MINUTE, 100.0))
    assert known.likely_offsets == 672, "both are of the worker's clock"


@pytest.mark.parametrize(("watched_ms", "likely"), [(None, None), (250, 5), (9_000, 5), (60_000, 5)])
def test_how_fast_a_source_wrote_is_not_likely_of_one_that_was_looked_at_once(
    watched_ms: int | None, likely: int | None
) -> None:
    """Its worker had just begun, and a pace of 0 was told of a minute that nobody had seen."""
    grown = () if watched_ms is None else (Growth(watched_ms, 0),)
    loss = PartitionLoss("a", 0, Certainty.AT_LEAST, 5, None, 1, 6)
    total = total_loss([loss], NOW_MS, LastLook(NOW_MS - 4_000, None, grown, 0.0))
    assert (total.likely_offsets, total.offsets) == (likely, 5)
    assert (total.pace_seconds, total.pace_at_ms) == ((watched_ms or 0) / 1000, NOW_MS - 4_000)
