"""How one goes on from a split brain, command by command, until it has its end. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from broker.client.site import Site
from deploy.cli.deciding import steps_behind_resume, steps_to_decide
from deploy.cli.stranded import exit_code_of
from deploy.cli.terminal import ExitCode
from failover.failback.stranding import Stranded
from mirror.api import StrandedTail
from mirror.link import Link
from mirror.status import LinkCondition
from mirror.worker.parted import PartingKind, SourceParting

LINK = Link("there", Site("east", "e:1"), Site("west", "w:1"), ("flights",), topic_names="same", groups=(".*",))
BACK = replace(LINK, name="back", source=LINK.target, target=LINK.source)
TAIL = StrandedTail("flights", 0, "flights", 4, 6, 2, 0, 0, False, True, 5)
SPLIT = Stranded("there", "east", "west", 2, (TAIL,))
SAVE, BY_FAILBACK = "stranded export --link there --to DIR", "failback --link there"
LOOK = "stranded list --link there"
WAYS = [f"link resume --link there --stranded {way}" for way in ("leave", "append")]


def to_decide(found: Stranded, *back: Link, **conditions: LinkCondition) -> list[str]:
    return [step.command.removeprefix("farshore ") for step in steps_to_decide(LINK, found, back, conditions)]


def behind(at_target: bool | None, *back: Link, **conditions: LinkCondition) -> list[str]:
    return [step.command.removeprefix("farshore ") for step in steps_behind_resume(LINK, back, conditions, at_target)]


def test_what_is_only_at_the_source_is_saved_first_and_each_decision_has_its_command() -> None:
    assert to_decide(SPLIT, BACK, back=LinkCondition.NEVER_RAN) == [
        SAVE,
        "mirror run --link back",
        BY_FAILBACK,
        *WAYS,
    ]
    assert to_decide(SPLIT, BACK, back=LinkCondition.PROMOTED) == [
        SAVE,
        "link resume --link back",
        "mirror run --link back",
        BY_FAILBACK,
        *WAYS,
    ], "it does not ask as long as the link itself is promoted"
    (_, add, *_) = steps_to_decide(LINK, SPLIT, (), {})
    assert 'name = "west-east"' in add.toml
    assert to_decide(SPLIT, BACK, replace(BACK, name="other"))[-2:] == WAYS
    for no_question in (replace(TAIL, target_wrote=False), replace(TAIL, left=True)):
        assert to_decide(replace(SPLIT, tails=(no_question,)), BACK) == []


def test_the_words_are_true_wherever_applications_are_by_now() -> None:
    """The source is the active site again: it said that applications come back there, and are at the target."""
    told = [step.what for step in steps_to_decide(LINK, SPLIT, (BACK,), {"back": LinkCondition.PROMOTED})]
    assert not [what for what in told if "come back" in what or "applications at west" in what]


def test_where_clients_went_back_to_the_source_the_link_itself_is_to_run() -> None:
    """It had the link back run, and a failback come back to where they are."""
    conditions = {"back": LinkCondition.PROMOTED}
    decide = partial(steps_to_decide, LINK, backs=(BACK,), conditions=conditions, is_promoted=True, at_target=False)
    told = [step.command.removeprefix("farshore ") for step in decide(SPLIT)]
    assert told == [SAVE, *WAYS]
    only = replace(SPLIT, tails=(replace(TAIL, target_wrote=False),))
    (step,) = decide(only)
    assert step.command == "farshore link resume --link there", "as `status` says it (`both_promoted`)"


def test_where_only_the_lost_site_wrote_the_way_back_is_told() -> None:
    """A failover's `next` leads there, and it ended there: there was nothing to decide."""
    only = replace(SPLIT, tails=(replace(TAIL, target_wrote=False),))
    told = steps_to_decide(LINK, only, (BACK,), {}, is_promoted=True)
    assert [step.command for step in told] == ["farshore mirror run --link back", f"farshore {BY_FAILBACK}"]
    assert (
        told[-1].what == "to come back to east, with what only it has saved first: stop what reads and writes at west"
    )
    left = replace(only, tails=(replace(TAIL, left=True),))
    assert steps_to_decide(LINK, left, (BACK,), {}, is_promoted=True) == (), "somebody decided about it"
    is_open = replace(SPLIT, tails=(replace(TAIL, target_wrote=False, records=None, open_from=4),))
    assert [step.command for step in steps_to_decide(LINK, is_open, (BACK,), {}, is_promoted=True)] == [
        f"farshore {LOOK}"
    ]
    prefixed = replace(LINK, topic_names="prefixed")
    assert steps_to_decide(prefixed, only, (), {}, is_promoted=True) == ()


@pytest.mark.parametrize(
    ("kind", "is_missing", "expected"),
    [
        (PartingKind.CUT, True, [LOOK, "stranded leave --link there", "site standby --site east"]),
        (PartingKind.NOT_COMPARED, True, [LOOK]),
        (PartingKind.CUT, False, [BY_FAILBACK, *WAYS]),
    ],
)
def test_behind_an_older_disk_nothing_is_offered_that_is_refused(
    kind: PartingKind, is_missing: bool, expected: list[str]
) -> None:
    parting = SourceParting("flights", 0, kind, 3, 9, "by a test", is_missing)
    assert to_decide(replace(SPLIT, partings=(parting,)), BACK) == [SAVE, "mirror run --link back", *expected]


def test_what_is_not_settled_is_neither_saved_nor_left_nor_brought_back_before_it_is() -> None:
    is_open = replace(SPLIT, tails=(replace(TAIL, records=None, open_from=4),))
    (wait,) = steps_to_decide(LINK, is_open, (BACK,), {})
    assert wait.command == f"farshore {LOOK}"
    assert wait.what.startswith("a transaction is open in flights-0 from offset 4 on; each ends by its own time-out")
    unshown = replace(SPLIT, tails=(TAIL, replace(TAIL, first_offset=9, records=None, is_shown=False)))
    (wait,) = steps_to_decide(LINK, unshown, (BACK,), {})
    assert wait.command == f"farshore {LOOK}"
    assert wait.what.startswith("nobody is shown flights-0 from offset 9 on")
    without_end = replace(SPLIT, tails=(replace(TAIL, records=None, is_end_known=False),))
    assert to_decide(without_end, BACK) == ["site role", "link resume --link back --stranded append", LOOK]


def test_a_link_that_runs_again_leads_to_both_links_right_and_applications_at_one_site() -> None:
    see = "status --until healthy"
    assert behind(True, BACK) == ["mirror run --link back", see, "switchover --link back"]
    assert behind(True, BACK, back=LinkCondition.PROMOTED) == [
        "link resume --link back --stranded append",
        "mirror run --link back",
        see,
        "switchover --link back",
    ], "who is to get what the active site wrote has asked for it"
    assert behind(True, BACK, back=LinkCondition.PAUSED)[0] == "link resume --link back"
    assert behind(False, BACK) == [see, "switchover --link there"], "clients are at its source"
    assert behind(None, BACK) == [], "it was paused, say"


def test_a_list_that_cannot_say_whether_there_is_more_is_no_done() -> None:
    """What nobody is shown was listed with exit code 0, though what it is, and whether it stays, is not known."""
    unshown = replace(TAIL, first_offset=9, records=None, is_shown=False)
    assert exit_code_of(SPLIT) is ExitCode.DONE, "all of it is counted"
    assert exit_code_of(replace(SPLIT, tails=(*SPLIT.tails, unshown))) is ExitCode.FINDINGS
    assert exit_code_of(replace(SPLIT, untold_ends=(TAIL.where,))) is ExitCode.FINDINGS
    assert exit_code_of(replace(SPLIT, may_be_brought=(unshown,))) is ExitCode.DONE, "as a move: nobody alone has it"
