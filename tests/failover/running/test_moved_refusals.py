"""Which refusals a world allows, asked of the judge by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.wire.vocabulary import TopicPartition
from failover.errors import (
    GateRefused,
    GroupsRead,
    NotDrained,
    NotMovable,
    OperationEnded,
    OperationUnderWay,
    Overtaken,
    PromotedMeanwhile,
)
from failover.planning.gates import GateRefusal, RefusalReason
from tests.failover.machines import PlanRefused
from tests.failover.moved_refusals import MovedWrongly, Reach, Standing, Trouble, groups_in_the_way

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
REACH = Reach(brought={A: 5, B: 7}, written={A: 9, B: 7})
NOTHING = Standing()
READ = {"behind": {A: 4, B: 7}, "at the end": {A: 5}, "beyond": {A: 9, B: 0}, "elsewhere": {B: 7}}


def plan(*said: tuple[RefusalReason, str]) -> PlanRefused:
    return PlanRefused([GateRefusal(*one) for one in said])


def judged(error: GateRefused, trouble: Trouble = Trouble.NONE, standing: Standing = NOTHING) -> list[str]:
    return groups_in_the_way(error, trouble, standing=standing, read=READ, reach=REACH)


NOT_MOVABLE = RefusalReason.GROUP_NOT_MOVABLE
IN_A_RESUME = GateRefused("operation-1 cannot go on: group_not_movable (beyond); nothing more was changed")


@pytest.mark.parametrize(
    ("error", "groups"),
    [
        (plan((NOT_MOVABLE, "beyond")), ["beyond"]),
        (plan((NOT_MOVABLE, "at the end"), (NOT_MOVABLE, "beyond")), ["at the end", "beyond"]),
        (NotMovable(["beyond"]), ["beyond"]),
        (IN_A_RESUME, ["beyond"]),
    ],
)
def test_a_group_may_be_unknown_where_the_mirror_has_more_to_bring(error: GateRefused, groups: list[str]) -> None:
    assert judged(error) == groups


@pytest.mark.parametrize(
    "error",
    [
        plan((NOT_MOVABLE, "behind")),
        plan((NOT_MOVABLE, "beyond"), (NOT_MOVABLE, "elsewhere")),
        plan((NOT_MOVABLE, "beyond"), (RefusalReason.GROUP_NOT_FOUND, "beyond")),
        plan((RefusalReason.SOURCE_PARTLY_THERE, "east")),
        NotMovable(["behind"]),
        NotDrained("not mirrored"),
        GroupsRead(["behind"], "east"),
        OperationUnderWay("somebody else"),
        GateRefused("some other gate"),
    ],
    ids=str,
)
def test_all_else_is_wrong_where_nothing_is_in_the_way(error: GateRefused) -> None:
    with pytest.raises(MovedWrongly, match="without a reason"):
        judged(error)


def test_what_a_lost_line_or_a_late_request_looks_like_is_asked_again() -> None:
    partly = plan((RefusalReason.SOURCE_PARTLY_THERE, "east"), (NOT_MOVABLE, "behind"))
    assert judged(partly, Trouble.CUTS) == []
    with pytest.raises(MovedWrongly):
        judged(partly, Trouble.DEATH)
    with pytest.raises(MovedWrongly):
        judged(plan((NOT_MOVABLE, "behind")), Trouble.CUTS)


OPEN = Standing(was_troubled=True, is_open=True)
PROMOTED = PromotedMeanwhile("operation-1", ["east-west"], "east")


@pytest.mark.parametrize(
    ("error", "standing"),
    [
        (OperationUnderWay("operation-1 is carried on elsewhere just now"), OPEN),
        (Overtaken("east", "west"), Standing(was_troubled=True)),
        (PROMOTED, Standing(was_troubled=True, is_promoted=True)),
    ],
    ids=str,
)
def test_a_machine_that_died_may_be_heard_late(error: GateRefused, standing: Standing) -> None:
    assert judged(error, standing=standing) == []
    with pytest.raises(MovedWrongly, match="without a reason"):
        judged(error, standing=replace(standing, was_troubled=False))


@pytest.mark.parametrize(
    ("error", "standing"),
    [
        (OperationUnderWay("operation-1 moves east-west"), replace(OPEN, is_open=False)),
        (OperationUnderWay("since the plan was made, operation-1 set the link east-west to promoted"), OPEN),
        (OperationEnded("operation-1 has ended"), OPEN),
        (PROMOTED, OPEN),
    ],
    ids=str,
)
def test_what_nobody_else_does_is_no_reason_however_troubled_the_world_was(
    error: GateRefused, standing: Standing
) -> None:
    with pytest.raises(MovedWrongly, match="without a reason"):
        judged(error, standing=standing)
