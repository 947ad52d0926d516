"""Which of two links, one each way, was promoted later: by what they knew of each other, and by no clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.link import Link
from mirror.offsets.entries import LinkRun, RunState
from mirror.offsets.promotion_entries import BackPromotion
from mirror.offsets.promotions import is_later, unwritten
from mirror.offsets.state_entries import StateEntries
from tests.mirror.harness import link_between

THERE = replace(link_between("127.0.0.1:1", "127.0.0.1:2", ["flights"]), name="there")
BACK = replace(THERE, name="back", source=THERE.target, target=THERE.source)
HOUR_MS = 3_600_000


def promoted(link: Link, at_ms: int, *after: str, told: str = "", told_of: Link | None = None) -> StateEntries:
    """By the operation that is called as the link."""
    backs = {told_of.name: BackPromotion(told_of.name, told)} if told_of else {}
    return StateEntries(link, exists=True, run=LinkRun(RunState.PROMOTED, link.name, at_ms, after), backs=backs)


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, 0, HOUR_MS])
@pytest.mark.parametrize(
    ("there", "back", "back_is_later"),
    [
        ([], ["there"], True),
        (["back"], [], False),
        (["back"], ["there"], None),
        ([], [], None),
        (["an-earlier-one"], ["there", "another"], True),
    ],
)
def test_who_followed_the_other_is_later_whatever_the_clocks_say(
    there: list[str], back: list[str], back_is_later: bool | None, ahead_ms: int
) -> None:
    one, other = promoted(THERE, HOUR_MS, *there), promoted(BACK, HOUR_MS + ahead_ms, *back)
    assert is_later(other, one) is back_is_later
    assert is_later(one, other) is (None if back_is_later is None else not back_is_later)


def test_what_a_state_was_told_of_after_its_own_promotion_came_later() -> None:
    told = promoted(THERE, 5, told="back", told_of=BACK)
    assert is_later(promoted(BACK, 1), told) is True, "the state there was told when it was promoted already"
    assert is_later(told, promoted(BACK, 1)) is False
    followed = promoted(THERE, 5, "back", told="back", told_of=BACK)
    assert is_later(promoted(BACK, 9), followed) is False, "it was told before"
    assert is_later(promoted(BACK, 1), promoted(THERE, 5, told="an-earlier-one", told_of=BACK)) is None


def test_of_a_link_that_is_not_promoted_nothing_is_later() -> None:
    runs = replace(promoted(BACK, 9, "there"), run=LinkRun(RunState.RUNNING, "back", 9))
    assert is_later(runs, promoted(THERE, 5)) is None
    assert is_later(promoted(THERE, 5), StateEntries(BACK)) is None


def test_a_session_writes_down_what_is_new() -> None:
    one, other = BackPromotion("back", "op-1"), BackPromotion("back", "op-2")
    assert unwritten({}, [one]) == [one]
    assert unwritten({"back": one}, [one]) == []
    assert unwritten({"back": one}, [other]) == [other]
