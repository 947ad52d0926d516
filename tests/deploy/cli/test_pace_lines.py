"""Of what time the pace is that a loss is told with."""

from __future__ import annotations

import pytest

from deploy.cli.loss_lines import headline
from failover.losses.statements import Certainty, LossTotal

AT_MS = 1_700_000_000_000
AT = "2023-11-14T22:13:20.000Z"


@pytest.mark.parametrize(
    ("seconds", "stated_after_ms", "said"),
    [
        (59.8, 4_200, "In the fastest second of the minute before, 2 came."),
        (9.0, 4_200, f"In the fastest second of the 9.0 s that a worker watched it until {AT}, 2 came."),
        (
            9.0,
            20_000,
            f"In the fastest second of the 9.0 s that a worker watched it until {AT}, 2 came; had it gone on",
        ),
        (60.0, 20_000, "In the fastest second of its last minute, 2 came; had it gone on"),
    ],
)
def test_a_worker_that_had_just_begun_tells_of_no_minute(seconds: float, stated_after_ms: int, said: str) -> None:
    total = LossTotal(
        *(0, None, 0, Certainty.AT_LEAST, AT_MS, 0, AT_MS + stated_after_ms),
        likely_offsets=2,
        fastest_per_s=2.0,
        pace_seconds=seconds,
        pace_at_ms=AT_MS,
    )
    assert said in headline(total, "east")


@pytest.mark.parametrize(
    ("seconds", "stated_after_ms", "said"),
    [
        (60.0, 4_200, "in the fastest second of its last minute 2 came"),
        (9.0, 4_200, f"in the fastest second of the 9.0 s that a worker watched it until {AT} 2 came"),
        (60.0, 67_000, f"in the fastest second of the 1 min 0 s that a worker watched it until {AT} 2 came"),
    ],
)
def test_the_pace_of_a_source_that_answers_is_of_its_last_minute_only_where_a_worker_watched_that(
    seconds: float, stated_after_ms: int, said: str
) -> None:
    """The worker had died a minute before, and the records of that minute were lost as "0 came"."""
    total = LossTotal(
        *(2, 2, 1, Certainty.EXACT, None, 0, AT_MS + stated_after_ms),
        fastest_per_s=2.0,
        pace_seconds=seconds,
        pace_at_ms=AT_MS,
    )
    assert headline(total, "east").endswith(said)


def test_the_likely_loss_of_a_dead_broker_is_told_as_of_its_partitions_alone() -> None:
    total = LossTotal(
        *(5, None, 1, Certainty.AT_LEAST, AT_MS, 0, AT_MS + 3_600_000),
        likely_offsets=6,
        unanswered_at_ms=AT_MS + 250,
        fastest_per_s=400.0,
        ceased_per_s=4.0,
        ceased_partitions=1,
        is_source_there=True,
    )
    assert headline(total, "east") == (
        f"lost: likely 5 to 6 offsets. Seen at east ({AT}, 1 h 0 min ago): 5 offsets in 1 partition, which are at most "
        "as many records; 250 ms later 1 partition did not answer any more. In their fastest seconds of the minute "
        "before, 4 came there. What was written there after that look cannot be known from here"
    )


def test_records_that_were_not_counted_are_not_said_to_be_none() -> None:
    """The document says null there."""
    total = LossTotal(
        *(0, None, 0, Certainty.AT_LEAST, AT_MS, 0, AT_MS + 4_200),
        likely_offsets=2,
        fastest_per_s=2.0,
    )
    assert "0 offsets, records unknown" in headline(total, "east")
    assert "0 records" not in headline(total, "east")
