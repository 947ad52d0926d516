"""Groups of a source that cannot be asked, held against where the link's state says that the mirror brought them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.groups import commit_offsets, delete_groups
from broker.client.model import CommittedOffset
from deploy.cli.group_lines import place_lines
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.moves import MoveKind, plan_moves
from failover.planning.plan import plan_failover
from tests.failover.stage import GROUP, PARTITIONS, commit_group, mirrored, two_sites

VIEW = PartitionView("flights", 0, "flights", None, 100, 1, 1, 100, 103, 0, mirrored_target_next=102)
AT = GroupPartitionView("flights", 0, "flights", None, None, 43, "", brought_offset=43)


def snapshot(at: GroupPartitionView, view: PartitionView = VIEW) -> Snapshot:
    group = GroupView("analysts", None, "Empty", 0, 0, 1, (at,))
    return Snapshot("east-west", "east", "west", 9, SiteFinding.DEAD, "running", "", (view,), (group,))


@pytest.mark.parametrize(
    ("at", "view", "expected", "words"),
    [
        pytest.param(AT, VIEW, (MoveKind.KEPT, 43, None, None), "of the mirror's last sync", id="as brought"),
        pytest.param(
            AT,
            replace(VIEW, has_local_writers=True),
            (MoveKind.KEPT, 43, None, None),
            "or had read at west alone where both sites write, is skipped",
            id="as brought behind what it read there",
        ),
        pytest.param(
            replace(AT, target_offset=67), VIEW, (MoveKind.AHEAD, 67, None, 24), "further on than where", id="ahead"
        ),
        pytest.param(
            replace(AT, target_offset=67),
            replace(VIEW, has_local_writers=True),
            (MoveKind.KEPT, 67, None, None),
            "does not know as a place",
            id="a link back may have moved it",
        ),
        pytest.param(
            replace(AT, target_offset=12),
            VIEW,
            (MoveKind.KEPT, 12, None, None),
            "does not know as",
            id="set back there",
        ),
        pytest.param(
            replace(AT, brought_offset=None), VIEW, (MoveKind.KEPT, 43, None, None), "does not know as", id="nobody's"
        ),
        pytest.param(
            replace(AT, target_offset=None), VIEW, (MoveKind.RESTORED, 43, None, None), "(restored)", id="lost there"
        ),
        pytest.param(
            replace(AT, target_offset=None),
            replace(VIEW, target_end=42),
            (MoveKind.UNKNOWN, None, None, None),
            "",
            id="cut",
        ),
        pytest.param(
            replace(AT, target_offset=None),
            replace(VIEW, trusted=False),
            (MoveKind.UNKNOWN, None, None, None),
            "",
            id="another log",
        ),
        pytest.param(
            replace(AT, target_offset=None),
            replace(VIEW, has_local_writers=True),
            (MoveKind.UNKNOWN, None, None, None),
            "",
            id="lost, and a link back may have moved it",
        ),
        pytest.param(
            replace(AT, target_offset=None),
            replace(VIEW, target_start=60),
            (MoveKind.AT_START, 60, None, 17),
            "(at_start)",
            id="lost, and so is what it reads next",
        ),
    ],
)
def test_each_is_said_as_what_it_is(
    at: GroupPartitionView, view: PartitionView, expected: tuple[object, ...], words: str
) -> None:
    (move,) = plan_moves(snapshot(at, view))
    assert (move.kind, move.target_offset, move.read_again_records, move.skipped_records) == expected
    said = list(place_lines([move], "west", is_short=False))
    assert len(said) == bool(words)
    assert all(words in line and line.startswith("analysts: ") for line in said)


def test_one_that_is_ahead_goes_back_by_consent() -> None:
    (move,) = plan_moves(snapshot(replace(AT, target_offset=67)), ["analysts"])
    assert (move.kind, move.target_offset, move.skipped_records) == (MoveKind.RESTORED, 43, None)


async def test_a_group_that_read_at_the_target_skips_and_is_told_so(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        before = await stage.group_at(stage.target)
        await commit_group(stage.target, 45, before[PARTITIONS[1]])
        seen = await stage.without_source.look_past_source()
        plan = plan_failover(seen, allow_data_loss=True, even_if_source_answers=False)
        assert [(move.kind, move.skipped_records) for move in plan.moves] == [
            (MoveKind.AHEAD, 45 - before[PARTITIONS[0]]),
            (MoveKind.KEPT, None),
        ]
        plan = plan_failover(seen, allow_data_loss=True, even_if_source_answers=False, set_back_groups=[GROUP])
        assert (await stage.run(plan, stage.without_source)).verified
        assert await stage.group_at(stage.target) == before


async def test_one_that_reads_on_there_since_the_plan_is_a_finding(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        before = await stage.group_at(stage.target)
        seen = await stage.without_source.look_past_source()
        plan = plan_failover(seen, allow_data_loss=True, even_if_source_answers=False)
        await commit_group(stage.target, 45, before[PARTITIONS[1]])
        result = await stage.run(plan, stage.without_source)
        assert [one.skipped_records for one in result.unplanned_skips] == [45 - before[PARTITIONS[0]]]


@pytest.mark.parametrize("has_one", [False, True])
async def test_what_the_target_lost_of_a_group_goes_on_where_the_mirror_brought_it(
    tmp_path: Path, has_one: bool
) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        before = await stage.group_at(stage.target)
        assert await delete_groups(stage.target, [GROUP]) == {}
        if has_one:
            await commit_offsets(stage.target, GROUP, {PARTITIONS[0]: CommittedOffset(before[PARTITIONS[0]])})
        sites = replace(stage.without_source, groups=(GROUP,))
        plan = plan_failover(await sites.look_past_source(), allow_data_loss=True, even_if_source_answers=False)
        assert plan.refusals == ()
        kinds = (MoveKind.KEPT if has_one else MoveKind.RESTORED, MoveKind.RESTORED)
        assert tuple(move.kind for move in plan.moves) == kinds
        result = await stage.run(plan, sites)
        assert (result.verified, result.has_findings) == (True, False)
        assert await stage.group_at(stage.target) == before


async def test_one_whose_place_is_not_known_any_more_is_refused_by_name(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        assert await delete_groups(stage.target, [GROUP]) == {}
        seen = await stage.without_source.look_past_source()
        doubted = replace(seen, partitions=tuple(replace(view, trusted=False) for view in seen.partitions))
        plan = plan_failover(doubted, allow_data_loss=True, even_if_source_answers=False)
        assert plan.refusals == (GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, GROUP),)
