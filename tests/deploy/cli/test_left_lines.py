"""Whose applications may not start is named where it is said that the others may, or it is said where it is. Pure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.base.documents import to_document
from deploy.cli.left_lines import but_not
from failover.planning.staying import NONE_AWAY, Away, StayingLink, away_of, staying_links

GROUPS = [f"g{number:02}" for number in range(12)]
TEN = ", ".join(GROUPS[:10])
ALL = " (`farshore operation show op` has all)"


@pytest.mark.parametrize(
    ("groups", "links", "said"),
    [
        ([], [], ""),
        (GROUPS[:10], [], f", but not: {TEN}"),
        (GROUPS[:11], [], f", but not: {TEN} and 1 more group{ALL}"),
        (GROUPS, [], f", but not: {TEN} and 2 more groups{ALL}"),
        ([], [StayingLink("a", 1)], f", but not along links that stay at east: a (1 group){ALL}"),
        (
            ["g"],
            [StayingLink("a", 0), StayingLink("b", None)],
            f", but not: g; nor along links that stay at east: a (0 groups), b (groups not known){ALL}",
        ),
    ],
)
def test_ten_are_named_and_where_all_are(groups: list[str], links: list[StayingLink], said: str) -> None:
    assert but_not("east", groups, links, "op") == said


def test_links_that_stay_are_counted_as_the_plan_had_them() -> None:
    planned = {
        "intent": {"refused_links": ["a", "b"]},
        "staying_links": [{"link": "a", "groups": 3}, {"link": "b", "groups": None}],
        "plans": [{"snapshot": {"link": "c", "groups": [{}, {}]}}],
    }
    found = [StayingLink("a", 3), StayingLink("b", None), StayingLink("c", 2), StayingLink("d", None)]
    assert list(staying_links(planned, ["c", "d"])) == found
    older = {"intent": {"refused_links": ["a"]}}
    assert staying_links(older, []) == (StayingLink("a", None),)


def test_links_that_are_still_to_come_back_stay_also_by_the_journal() -> None:
    away = Away((StayingLink("orders-ew", 2), StayingLink("bills", None)), ("billing",))
    planned = {"intent": {"refused_links": []}, "plans": [], "away": json.loads(json.dumps(to_document(away)))}
    assert away_of(planned) == away
    assert staying_links(planned, ["c"]) == (*away.links, StayingLink("c", None))
    unreadable: tuple[Any, ...] = (None, [], {"links": [{}]})
    assert [away_of({"away": one}) for one in unreadable] == [NONE_AWAY] * len(unreadable)
    assert away_of({}) == NONE_AWAY
