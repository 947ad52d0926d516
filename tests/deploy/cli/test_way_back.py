"""What is said at the end of a failback, which is over by then, and of what keeps one from beginning."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.site import Site
from deploy.cli.failback_plan import show
from deploy.cli.failback_words import refuse, steps_at_end
from deploy.cli.terminal import CommandRefused
from deploy.cli.way_back import Coming, is_taken_up
from deploy.config import FileContext
from failover.errors import JournalDamaged
from failover.failback.foreseen import Foreseen, SetBack
from failover.failback.operation import Beginning
from failover.failback.plan import BackLink, StandsStill, nothing_left, plan_failback
from failover.failback.stranding import Stranded
from failover.journal.values import GENESIS_HASH, Event, JournalEntry, OperationLog
from failover.planning.moves import GroupTotal
from mirror.api import LinkCondition, LinkRun, RunState
from mirror.link import Link
from tests.deploy.cli.test_failover import CONFIG

NO_APP: Any = None
"""Only what a file lacks is said by what it has."""


async def test_a_target_that_goes_away_at_the_end_takes_no_result_with_it() -> None:
    """All was done and verified; the command ended with that site's error, exit code 1, and told nothing of it."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        link = Link("east-west", Site("east", "e:1"), Site("west", f"127.0.0.1:{nobody.getsockname()[1]}"), (".*",))
        is_run = await is_taken_up(link)
    assert is_run is None
    start, run = steps_at_end(link, is_run=is_run)
    assert start.what.startswith("start producers and consumers at east")
    assert run.what.startswith("west does not say whether a worker runs link east-west")
    assert run.command == "farshore mirror run --link east-west"


def test_the_rights_that_the_link_back_held_are_given_before_applications_start() -> None:
    link = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), (".*",))
    back = replace(link, name="west-east", source=link.target, target=link.source, sync_acls=True)
    given, start = steps_at_end(link, (), back, is_run=True)
    assert given.command == "farshore acls apply --link west-east --promote"
    assert start.what.startswith("start producers and consumers at east")
    assert len(steps_at_end(link, (), replace(back, sync_acls=False), is_run=True)) == 1


def test_what_the_link_back_does_not_bring_is_refused_with_the_commands_that_end_that() -> None:
    gap = StandsStill("flights", 0, "truncated_start", is_gap=True, command="farshore link resume --gap flights:0")
    held = StandsStill("flights", 1, "no_leader_at_source", is_gap=False, command="farshore link retry --link back")
    run = LinkRun(RunState.PROMOTED, "op", 1)
    back = BackLink("back", LinkCondition.RUNNING, None, paused_topics=("a", "b"), still=(gap, held))
    plan = plan_failback(Stranded("east-west", "east", "west", 0, ()), run, (back,), "folder", same_names=True)
    paused, still = (replace(plan, refusals=(one,)) for one in plan.refusals)
    link = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), (".*",))
    with pytest.raises(CommandRefused, match=r"paused along link back, .*: a, b\. Nothing was") as refused:
        refuse(NO_APP, link, paused, None)
    assert refused.value.hint == "let them be mirrored again: farshore topic resume --link back --topic a,b"
    with pytest.raises(
        CommandRefused, match=r"flights:0 \(truncated_start\), flights:1 \(no_leader_at_source\)"
    ) as refused:
        refuse(NO_APP, link, still, OperationLog("failback-1", ()))
    assert f"farshore operation abort failback-1, then {gap.command}; {held.command}" in refused.value.hint


def test_topics_that_are_paused_along_the_link_are_told_with_the_command_that_ends_that() -> None:
    """They were paused before the loss, and what is written at the source would not come behind `all is back`."""
    run, back = LinkRun(RunState.PROMOTED, "op", 1), BackLink("back", LinkCondition.RUNNING, None)
    found = Stranded("east-west", "east", "west", 0, ())
    plan = plan_failback(found, run, (back,), "folder", same_names=True, stays_paused=("a", "b"))
    assert (plan.stays_paused, plan.refusals) == (("a", "b"), ())
    assert nothing_left(found, ["back"], stays_paused=("a",)).stays_paused == ("a",)
    link = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), (".*",))
    start, resume = steps_at_end(link, is_run=True, stays_paused=plan.stays_paused)
    assert start.what.startswith("start producers and consumers at east")
    assert resume.command == "farshore topic resume --link east-west --topic a,b"
    assert "west" in resume.what


def test_a_plan_tells_the_topics_that_stay_paused(capsys: pytest.CaptureFixture[str]) -> None:
    plan = replace(nothing_left(Stranded("east-west", "east", "west", 0, ()), ["back"]), stays_paused=("a",))
    show(plan, None)
    assert "paused along east-west, and stay so: a" in " ".join(capsys.readouterr().err.split())


def test_a_plan_says_what_each_group_reads_again_and_skips_and_of_which_that_is_not_known_yet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only the result told it, of groups that were set back."""
    foreseen = Foreseen(set_back=(SetBack("ahead", "flights", 0, 53, 39),), to_be_brought=("late",))
    totals = (GroupTotal("ahead", 14, 0), GroupTotal("late", None, None), GroupTotal("plain", 0, 0))
    back = BackLink("back", LinkCondition.RUNNING, None, foreseen=foreseen, group_totals=totals)
    found, run = Stranded("east-west", "east", "west", 0, ()), LinkRun(RunState.PROMOTED, "op", 1)
    plan = plan_failback(found, run, (back,), "folder", same_names=True)
    assert plan.group_totals == totals
    show(plan, None, to_stderr=False)
    told = capsys.readouterr().out
    assert "ahead: at most 14 records read again, 0 records skipped\n" in told
    assert "plain: 0 records read again, 0 records skipped\n" in told
    words = " ".join(told.split())
    assert "late: an unknown number of records read again, an unknown number of records skipped" in words
    assert "stand further at east than at west, and are set back to where they go on: ahead (-o json" in words
    assert "is not known before back has brought what they read at west: late" in words
    assert "does not count as skipped" not in words, "east alone has nothing"
    show(replace(plan, left_records=3), None, to_stderr=False)
    assert "what east alone has does not count as skipped" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("intent", [None, 7, "x", ["x"]])
def test_a_failback_whose_intent_is_no_object_is_damaged_and_not_gone_on_with(intent: object, tmp_path: Path) -> None:
    """It ended in a traceback."""
    (tmp_path / "farshore.toml").write_text(CONFIG.format(east="127.0.0.1:9", west="127.0.0.1:8"))
    app = FileContext(tmp_path / "farshore.toml")
    link = app.link("east-west")
    plan = nothing_left(Stranded(link.name, "east", "west", 0, ()), [link.name])
    first = JournalEntry(0, 1, "failback-1", Event.PLANNED, {"intent": intent, "who": "ann"}, GENESIS_HASH)
    log = OperationLog("failback-1", (first,))
    with pytest.raises(JournalDamaged, match="what failback-1 was asked for cannot be read") as told:
        Coming(app, link, plan, Beginning(log.operation_id, "ben", {}, log), 1.0)
    assert "farshore switchover" in told.value.hint
