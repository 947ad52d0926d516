"""What a plan says before a question: no loss where none is possible, and no rows of nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.cli.failover_tables import show_plan
from failover.losses import Certainty
from failover.plan import plan_failover, plan_switchover
from tests.failover.test_plan import BEHIND, MIRRORED, SNAPSHOT, source_gone

MIRRORED_NOW = replace(SNAPSHOT, partitions=(MIRRORED,))


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("certainty", Certainty)
def test_a_switchover_tells_how_far_the_mirror_is_behind_and_of_no_loss(
    capsys: pytest.CaptureFixture[str], certainty: Certainty
) -> None:
    """Under a producer that writes on it said "lost: at least 2 records", since the source had grown meanwhile."""
    plan = plan_switchover(SNAPSHOT)
    losses = tuple(replace(loss, certainty=certainty, records=loss.offsets) for loss in plan.losses)
    show_plan(replace(plan, losses=losses))
    said = told(capsys)
    assert "nothing is lost: west is 10 records in 1 partition behind east, as of 2023-11-14T22:13:20.000Z" in said
    assert "The drain waits until west has all" in said
    assert "lost: " not in said.replace("nothing is lost: ", "")
    assert not {"at_least", "exact", "unknown"} & set(said.split())
    assert "flights 1 10 10 90 100" in said
    assert ("flights 0 0" in said) == (certainty is Certainty.UNKNOWN)


def test_a_switchover_whose_mirror_has_brought_all_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(plan_switchover(MIRRORED_NOW))
    assert "nothing is lost: west has all that east has, as of 2023" in told(capsys)


def test_behind_a_move_a_switchover_waits_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(plan_switchover(replace(SNAPSHOT, link_state="promoted")))
    said = told(capsys)
    assert "the link was moved before, and brings nothing more; 10 offsets in 1 partition are at east alone" in said
    assert "The drain waits" not in said


def test_rows_of_a_loss_have_what_was_seen_to_be_missing_or_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Each partition of a lost source had one, of 0 offsets, that are at least so many."""
    never_seen = replace(MIRRORED, partition=2, seen_source_end=None, seen_at_ms=None)
    gone = source_gone(replace(SNAPSHOT, partitions=(MIRRORED, BEHIND, never_seen)))
    plan = plan_failover(gone, allow_data_loss=True, even_if_source_answers=False)
    assert [loss.offsets for loss in plan.losses] == [0, 10, None], "the document has them all"
    show_plan(plan)
    rows = [
        line.split()[:4] for line in capsys.readouterr().err.splitlines() if "at_least" in line or "unknown" in line
    ]
    assert [row for row in rows if row[0] == "flights"] == [
        ["flights", "1", "at_least", "10"],
        ["flights", "2", "unknown", "-"],
    ]
