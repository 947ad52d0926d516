"""What a plan says: no loss where none is possible, and no rows of nothing; and a result, what is not in the plan."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.children import die_with_parent
from deploy.cli.failover_tables import result_document, show_plan, show_result
from deploy.cli.lines import WIDTH, next_line
from deploy.cli.loss_lines import is_nothing_likely
from failover.losses.statements import Certainty, LossTotal
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import Snapshot
from failover.planning.plan import OperationPlan, plan_failover, plan_switchover
from failover.running.result import OperationResult
from tests.deploy.cli.test_failover import ROOT, two_sites
from tests.failover.planning.test_plan import BEHIND, MIRRORED, NOW_MS, SNAPSHOT, source_gone

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
        line.split()[:3] for line in capsys.readouterr().err.splitlines() if "at_least" in line or "unknown" in line
    ]
    assert [row for row in rows if row[0].startswith("flights")] == [
        ["flights-1", "at_least", "10"],
        ["flights-2", "unknown", "-"],
    ]


def with_look(seen: Snapshot) -> Snapshot:
    """Its source is gone, and was seen to its end three seconds before."""
    partitions = tuple(replace(view, seen_at_ms=NOW_MS - 3_000) for view in source_gone(seen).partitions)
    return replace(source_gone(seen), partitions=partitions)


WAS_SEEN = "and east was last seen at 2023-11-14T22:13:17.000Z, 3.0 s ago: what was written there after that is lost"


@pytest.mark.parametrize("link_state", ["paused", "running"])
def test_a_pause_is_said_to_hide_what_a_lost_source_wrote(capsys: pytest.CaptureFixture[str], link_state: str) -> None:
    """50 records were written behind a pause, and the plan said that likely none was lost, and nothing of the pause;
    then the plan said it, and the result did not.
    """
    gone = replace(with_look(MIRRORED_NOW), link_state=link_state)
    plan = plan_failover(gone, allow_data_loss=True, even_if_source_answers=False)
    show_plan(plan)
    is_paused = link_state == "paused"
    assert (f"east-west is paused: since then nothing was mirrored, {WAS_SEEN}" in told(capsys)) is is_paused
    result = replace(as_result(plan), was_paused=plan.snapshot.is_behind_pause)
    show_result(result, plan)
    said = f"east-west was paused: since then nothing was mirrored, {WAS_SEEN}"
    assert told(capsys).count(said) == is_paused
    assert result_document(result, ())["summary"].count(said) == is_paused
    assert not result.has_findings


def test_a_pause_of_a_source_that_tells_its_ends_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    there = replace(MIRRORED_NOW, link_state="paused")
    show_plan(plan_failover(there, allow_data_loss=True, even_if_source_answers=True))
    assert "is paused" not in told(capsys)


def test_of_a_source_that_nobody_ever_saw_no_age_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    never = replace(MIRRORED, seen_source_end=None, seen_at_ms=None)
    gone = replace(source_gone(replace(SNAPSHOT, partitions=(never,))), link_state="paused")
    show_plan(plan_failover(gone, allow_data_loss=True, even_if_source_answers=False))
    assert "is paused: since then nothing was mirrored, and nobody has seen how far east went" in told(capsys)


def test_of_a_source_that_is_there_in_part_the_age_is_of_what_does_not_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What answers tells its ends itself."""
    view = replace(BEHIND, source_end=None, seen_at_ms=NOW_MS - 3_000)
    partly = replace(SNAPSHOT, partitions=(MIRRORED, view), source_finding=SiteFinding.PARTLY_THERE)
    plan = plan_failover(replace(partly, link_state="paused"), allow_data_loss=True, even_if_source_answers=False)
    show_plan(plan)
    assert "nothing was mirrored, and what of east does not answer was last seen at 2023" in told(capsys)


def as_result(plan: OperationPlan) -> OperationResult:
    return OperationResult(
        "one", plan.operation, "east-west", "east", "west", True, 2.0, plan.losses, plan.moves, (), plan.loss
    )


def test_a_result_says_what_became_of_the_plan_that_was_read_just_now(capsys: pytest.CaptureFixture[str]) -> None:
    """Both were the same hundred lines."""
    plan = plan_failover(SNAPSHOT, allow_data_loss=True, even_if_source_answers=True)
    show_result(as_result(plan), plan)
    said = capsys.readouterr().out
    assert "Only at the source, as in the plan: 1 partition" in said
    assert "Groups, as in the plan: 1 move" in said
    assert "flights" not in said

    more = tuple(replace(loss, offsets=12, end_offset=102) if loss.partition == 1 else loss for loss in plan.losses)
    moves = tuple(replace(move, target_offset=44) for move in plan.moves)
    show_result(replace(as_result(plan), losses=more, moves=moves), plan)
    said = " ".join(capsys.readouterr().out.split())
    assert "Only at the source, unlike the plan" in said
    assert "flights-1 exact 12" in said
    assert "Groups, unlike the plan" in said
    assert "translated 40 44" in said
    assert "as in the plan" not in said


def test_of_a_source_that_is_gone_a_result_says_none_only_of_what_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_failover(source_gone(MIRRORED_NOW), allow_data_loss=True, even_if_source_answers=False)
    show_result(as_result(plan), plan)
    assert "Only at the source: none that was seen\n" in capsys.readouterr().out
    there = plan_failover(MIRRORED_NOW, allow_data_loss=True, even_if_source_answers=True)
    show_result(as_result(there), there)
    assert "Only at the source: none\n" in capsys.readouterr().out


def test_a_result_is_whole_where_no_plan_was_shown_in_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_failover(SNAPSHOT, allow_data_loss=True, even_if_source_answers=True)
    show_result(as_result(plan))
    said = " ".join(capsys.readouterr().out.split())
    assert "flights-1 exact 10" in said
    assert "translated 40 43" in said


@pytest.mark.parametrize("together", [True, False])
def test_stdout_and_stderr_are_one_place_where_one_file_or_terminal_has_both(together: bool) -> None:
    code = "from deploy.cli.terminal import is_one_place; print(is_one_place())"
    other = subprocess.STDOUT if together else subprocess.PIPE
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=other, text=True, check=True)
    assert done.stdout.strip() == str(together)


def test_nothing_is_likely_only_of_what_was_all_seen_and_watched_to_the_end() -> None:
    """In a drill of many links each had a paragraph of "likely 0 offsets"; those are one sentence, but for these."""
    quiet = LossTotal(0, 0, 0, Certainty.AT_LEAST, NOW_MS, 0, NOW_MS, likely_offsets=0, unanswered_at_ms=NOW_MS)
    assert is_nothing_likely(quiet)
    for odd in (
        replace(quiet, likely_offsets=1),
        replace(quiet, likely_offsets=None),
        replace(quiet, unclear_offsets=1),
        replace(quiet, unseen_partitions=1),
        replace(quiet, unanswered_at_ms=None, stated_at_ms=NOW_MS + 60_000),
    ):
        assert not is_nothing_likely(odd)


def test_what_is_next_fits_and_a_command_stays_whole() -> None:
    command = f"farshore failover --link east-west --group {'x' * WIDTH} --allow-data-loss"
    assert next_line(command) == f"next: {command}"
    sentence = "see to what is said of the partition, then try again with `farshore link retry --link east-west --yes`"
    assert max(map(len, next_line(sentence).split("\n"))) <= WIDTH
    assert "`farshore link retry --link east-west --yes`" in next_line(sentence)


def test_a_failover_at_a_terminal_fits_and_says_no_table_twice(tmp_path: Path) -> None:
    with two_sites(tmp_path) as shell:
        shell.east.kill9()
        done = subprocess.run(
            shell.argv("failover --allow-data-loss --yes"),
            cwd=shell.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(WIDTH)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            preexec_fn=die_with_parent,
        )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.split("\n[[links]]")[0].splitlines()
    assert [line for line in lines if len(line) > WIDTH and "farshore " not in line] == []
    heads = [" ".join(line.split()) for line in lines if line.lstrip().startswith(("group ", "topic "))]
    assert sorted(heads) == sorted(set(heads)), done.stdout
