"""What a drill shows of a loss: beside what was left before, and of all links from a site."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deploy.cli.drill import _show
from failover.drilling.drill import LinkDrill
from failover.drilling.moved import MovedLink
from failover.failback.stranding import Stranded
from failover.losses.statements import Certainty, LossTotal
from failover.observing.snapshot import LeftRange
from mirror.api import StrandedTail

LOSS = LossTotal(12, None, 1, Certainty.AT_LEAST, 1_000, 0, 2_000)
SEEN = LinkDrill(
    *("flights", "east", "west", True, 2_000, True, "w-1", 100, 100, 12, 0.1, LOSS, (), (), ()),
    *("", None, None, None, ()),
)


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_what_was_left_at_the_source_before_is_said_beside_the_loss(capsys: pytest.CaptureFixture[str]) -> None:
    """It was only said by the failover."""
    left = LeftRange("flights", 0, 100, 103, None, 500, "old orders")
    _show([replace(SEEN, left_at_source=(left,))], None, "table")
    text = told(capsys)
    assert "at most 3 records in 1 partition (by their offsets: they were not read) stay at east alone" in text
    assert "(old orders): west does not get them from link flights" in text
    _show([replace(SEEN, left_at_source=(left,))] * 2, [], "table")
    assert told(capsys).count("stay at east alone") == 2


@pytest.mark.parametrize("seen", [[SEEN], [SEEN, SEEN]])
def test_a_link_that_could_not_be_looked_at_is_named_beside_what_the_others_lose_at_least(
    capsys: pytest.CaptureFixture[str], seen: list[LinkDrill]
) -> None:
    """The total of all was null, and in the table there was none."""
    drills = [*seen, replace(SEEN, link="orders", loss=None)]
    _show(drills, [], "json")
    loss = json.loads(capsys.readouterr().out)["loss"]
    assert (loss["offsets"], loss["unasked_links"], loss["certainty"]) == (12 * len(seen), 1, "at_least")
    _show(drills, [], "table")
    text = told(capsys).partition("all links, if east died now:")[2]
    assert f"at least {12 * len(seen)} offsets" in text
    assert "not looked at, and not among it: orders" in text


TAIL = StrandedTail("flights", 0, "flights", 3, 8, 5, None, None, False, False, 3)
ALONE = Stranded("trips", "east", "west", 5, (TAIL,))
MOVED = replace(SEEN, link="trips", loss=None, moved=MovedLink(5, ALONE))


def test_of_a_link_that_was_moved_no_loss_is_told_but_what_stands_at_its_source_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its target was told to lose, "if east died now", what nothing brings any more."""
    _show([MOVED], None, "table")
    text = told(capsys)
    assert "if east died now" not in text
    assert "trips was moved, and brings nothing more: what it would lose with east is what that alone has" in text
    assert "that alone has: east alone has 5 records in 1 range" in text
    assert "farshore stranded list --link trips" in text
    unread = replace(MOVED, moved=MovedLink(None, None, "east does not answer"))
    _show([unread], None, "table")
    assert "what east alone has is not known (east does not answer)" in told(capsys)


def test_a_link_that_was_moved_is_neither_among_the_loss_nor_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    _show([SEEN, MOVED], [], "json")
    found = json.loads(capsys.readouterr().out)
    assert (found["loss"]["offsets"], found["loss"]["unasked_links"]) == (12, 0)
    assert [one["moved"] and one["moved"]["stranded_records"] for one in found["items"]] == [None, 5]
    _show([SEEN, MOVED], [], "table")
    text = told(capsys)
    assert "not looked at" not in text
    assert "moved before, and not among it: trips" in text
    _show([MOVED], [], "json")
    assert json.loads(capsys.readouterr().out)["loss"] is None
