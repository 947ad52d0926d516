"""What a loss comes to, in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.cli.loss_lines import behind_line, headline
from failover.losses.statements import Certainty, LossTotal

LOSS = LossTotal(0, 0, 0, Certainty.EXACT)
SEEN_AT_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("total", "said"),
    [
        (LOSS, "only at the source: 0 records"),
        (replace(LOSS, offsets=7, records=5, partitions_with_loss=2), "only at the source: 5 records in 2 partitions"),
        (
            LossTotal(0, 0, 0, Certainty.AT_LEAST, SEEN_AT_MS, 0, SEEN_AT_MS + 4_200),
            "lost: nothing of what was seen at east, and whatever was written at east after it was last seen "
            "(2023-11-14T22:13:20.000Z, 4.2 s ago): how much that is cannot be known from here",
        ),
        (
            LossTotal(9, None, 1, Certainty.AT_LEAST, SEEN_AT_MS, 3, SEEN_AT_MS),
            "lost: at least 9 offsets in 1 partition, which are at most as many records, and whatever was written at "
            "east after it was last seen (2023-11-14T22:13:20.000Z, 0 ms ago): how much that is cannot be known from "
            "here; of 3 partitions nothing is known",
        ),
        (
            LossTotal(
                *(11_464, None, 2, Certainty.AT_LEAST, SEEN_AT_MS, 0, SEEN_AT_MS + 4_200),
                likely_offsets=12_900,
                seen_seconds=3.1,
                unanswered_at_ms=SEEN_AT_MS + 300,
                fastest_per_s=4_786.4,
            ),
            "lost: likely 11,464 to 12,900 offsets. Seen at east (2023-11-14T22:13:20.000Z, 4.2 s ago): 11,464 offsets "
            "in 2 partitions, which are at most as many records, what east wrote in 3.1 s; 300 ms later it did not "
            "answer. In the fastest second of the minute before, 4,786 came. What it wrote after that look cannot be "
            "known from here, nor topics and partitions made there since",
        ),
        (
            LossTotal(
                *(0, 0, 0, Certainty.AT_LEAST, SEEN_AT_MS, 3, SEEN_AT_MS + 4_200),
                likely_offsets=0,
                seen_seconds=0.0,
                fastest_per_s=0.0,
            ),
            "lost: likely 0 offsets. Seen at east (2023-11-14T22:13:20.000Z, 4.2 s ago): 0 records; nothing says when "
            "it ceased to answer. In the fastest second of the minute before, 0 came. What it wrote after that look "
            "cannot be known from here, nor topics and partitions made there since; of 3 partitions nothing is known",
        ),
        (
            LossTotal(
                *(0, None, 0, Certainty.AT_LEAST, SEEN_AT_MS, 0, SEEN_AT_MS + 52_200),
                likely_offsets=0,
                seen_seconds=0.0,
                fastest_per_s=0.0,
            ),
            "lost: how much is not known: nobody was watching east since 2023-11-14T22:13:20.000Z, 52.2 s ago, and "
            "what it wrote then, or which topics and partitions were made there, cannot be known from here. Seen "
            "before that: 0 offsets, records unknown. In the fastest second of its last minute, 0 came; had it gone on "
            "so until now, 0 offsets would be lost",
        ),
        (
            LossTotal(
                *(3, None, 1, Certainty.AT_LEAST, SEEN_AT_MS, 2, SEEN_AT_MS + 20_000),
                likely_offsets=2_003,
                seen_seconds=0.1,
                fastest_per_s=100.0,
            ),
            "lost: how much is not known: nobody was watching east since 2023-11-14T22:13:20.000Z, 20.0 s ago, and "
            "what it wrote then, or which topics and partitions were made there, cannot be known from here. Seen "
            "before that: 3 offsets in 1 partition, which are at most as many records, what east wrote in 100 ms. In "
            "the fastest second of its last minute, 100 came; had it gone on so until now, 3 to 2,003 offsets would be "
            "lost; of 2 partitions nothing is known",
        ),
        (
            LossTotal(*(7, 5, 1, Certainty.AT_LEAST, SEEN_AT_MS), likely_offsets=7, fastest_per_s=0.5),
            "lost: likely 7 offsets. Seen at east (2023-11-14T22:13:20.000Z): 5 records in 1 partition, more than east "
            "wrote in the minute before; nothing says when it ceased to answer. In the fastest second of the minute "
            "before, 0 came. What it wrote after that look cannot be known from here, nor topics and partitions made "
            "there since",
        ),
        (
            LossTotal(*(7, 5, 1, Certainty.AT_LEAST, SEEN_AT_MS, 0, SEEN_AT_MS - 3_600_000), fastest_per_s=0.5),
            "lost: at least 5 records in 1 partition, and whatever was written at east after it was last seen "
            "(2023-11-14T22:13:20.000Z, by a clock 1 h 0 min ahead of this one): how much that is cannot be known from "
            "here",
        ),
        (
            LossTotal(
                *(20, None, 1, Certainty.AT_LEAST, SEEN_AT_MS, 0, SEEN_AT_MS + 4_200),
                likely_offsets=6_500,
                seen_seconds=3.1,
                fastest_per_s=100.0,
                unclear_offsets=6_366,
            ),
            "lost: likely 20 to 6,500 offsets. Seen at east (2023-11-14T22:13:20.000Z, 4.2 s ago): 20 offsets in 1 "
            "partition, which are at most as many records; 6,366 offsets more may be lost, or hold what a link back "
            "had brought there: nobody here can tell; what came to east in 3.1 s; nothing says when it ceased to "
            "answer. In the fastest second of the minute before, 100 came. What it wrote after that look cannot be "
            "known from here, nor topics and partitions made there since",
        ),
        (
            LossTotal(*(0, None, 0, Certainty.AT_LEAST, SEEN_AT_MS, 0, SEEN_AT_MS), unclear_offsets=1),
            "lost: nothing of what was seen at east for certain; 1 offset more may be lost, or hold what a link back "
            "had brought there: nobody here can tell, and whatever was written at east after it was last seen "
            "(2023-11-14T22:13:20.000Z, 0 ms ago): how much that is cannot be known from here",
        ),
        (
            LossTotal(*(0, 0, 0, Certainty.AT_LEAST, SEEN_AT_MS, 0, SEEN_AT_MS), open_offsets=8),
            "lost: no record of those that are committed at east; 8 offsets more stand there behind the start of a "
            "transaction that is open, and how many of them are records that count nobody can tell before it ends, and "
            "whatever was written at east after it was last seen (2023-11-14T22:13:20.000Z, 0 ms ago): how much that "
            "is cannot be known from here",
        ),
        (
            LossTotal(*(12, 9, 1, Certainty.AT_LEAST, SEEN_AT_MS, 0, SEEN_AT_MS), open_offsets=1),
            "lost: at least 9 records in 1 partition; 1 offset more stand there behind the start of a transaction that "
            "is open, and how many of them are records that count nobody can tell before it ends, and whatever was "
            "written at east after it was last seen (2023-11-14T22:13:20.000Z, 0 ms ago): how much that is cannot be "
            "known from here",
        ),
        (
            LossTotal(0, 0, 0, Certainty.AT_LEAST, None, 3),
            "lost: how much cannot be known: of 3 partitions it was never seen where it ended at east, or nobody can "
            "tell what the other site has of it",
        ),
    ],
)
def test_a_loss_that_is_not_exact_says_since_when_nothing_is_known(total: LossTotal, said: str) -> None:
    assert headline(total, "east") == said


@pytest.mark.parametrize(
    ("offsets", "has"),
    [(0, "west has all that is committed at east"), (3, "west is 3 records in 1 partition behind east")],
)
def test_what_an_open_transaction_holds_is_a_clause_of_its_own(offsets: int, has: str) -> None:
    """It stood in the middle of another one: "4 offsets more ... before it ends behind west"."""
    total = replace(LOSS, offsets=offsets, records=offsets, partitions_with_loss=int(offsets > 0), open_offsets=4)
    total = replace(total, is_source_there=True)
    held = "4 offsets more stand there behind the start of a transaction that is open, and how many of them are records"
    told = behind_line(total, "east", "west", is_promoted=False)
    assert told.startswith(f"nothing is lost: {has}, now; {held} that count nobody can tell before it ends. The drain")
    has = "east alone has nothing that is committed" if not offsets else "3 records in 1 partition are at east alone"
    assert f"; {has}, now; {held}" in behind_line(total, "east", "west", is_promoted=True)


GONE = LossTotal(
    *(0, 0, 0, Certainty.AT_LEAST, SEEN_AT_MS, 0, SEEN_AT_MS + 4_200),
    likely_offsets=2_550,
    seen_seconds=0.0,
    unanswered_at_ms=SEEN_AT_MS + 300,
    fastest_per_s=4_786.4,
)


@pytest.mark.parametrize("is_promoted", [False, True])
def test_of_a_source_that_does_not_answer_a_switchover_says_what_a_failover_does(is_promoted: bool) -> None:
    """It was "nothing is lost: west has all that east has", as of now, where 394 records were missing."""
    said = behind_line(GONE, "east", "west", is_promoted=is_promoted)
    assert "nothing is lost" not in said
    assert "has all" not in said
    assert "has nothing" not in said
    what = "what east alone has" if is_promoted else "how far west is behind east"
    assert f"{what} is not known now, as east does not answer. Missing at west: likely 0 to 2,550 offsets." in said
    assert "Seen at east (2023-11-14T22:13:20.000Z, 4.2 s ago): 0 records; 300 ms later it did not answer" in said
    never = LossTotal(0, None, 0, Certainty.UNKNOWN)
    said = behind_line(never, "east", "west", is_promoted=is_promoted)
    assert said.endswith("Missing at west: how much is unknown: nothing was ever seen of what east has")


def test_of_a_source_of_which_a_part_answers_the_rest_is_said_to_be_likely() -> None:
    partly = replace(GONE, is_source_there=True, ceased_partitions=1, ceased_per_s=40.0)
    said = behind_line(partly, "east", "west", is_promoted=False)
    assert said.startswith("how far west is behind east is not known now, as east does not answer wholly. Missing at")
    assert "300 ms later 1 partition did not answer any more" in said
