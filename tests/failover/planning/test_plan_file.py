"""A plan that was written down: it is carried out while it holds, and what has changed since is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.site_role import SiteRole, SiteStanding
from deploy.cli.terminal import exit_code_of
from failover.errors import PlanUnreadable, WorldChanged
from failover.freezing.choice import Freezing
from failover.freezing.hooks import Hooks
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import Snapshot
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.planning.plan import plan_failover, plan_switchover
from failover.planning.plan_file import check_holds, read_plan, write_plan
from failover.planning.world import ChangeKind, World, changes, read_world, world_of
from failover.running.link_run import LinkMove
from failover.running.steps import Operation
from failover.running.taking_up import begin
from mirror.link import Link
from mirror.offsets.operations import pause_link
from tests.failover.planning.test_plan import GROUP as VIEWED_GROUP
from tests.failover.planning.test_plan import GROUP_AT, MIRRORED, SNAPSHOT, source_gone
from tests.failover.stage import GROUP, PARTITIONS, Stage, commit_group, mirrored, two_sites
from tests.mirror.harness import make_topic, some_records, wait_for_records, write

LINK = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), (".*",), groups=(".*",))
INTENT = Intent(Operation.SWITCHOVER, ("east-west",), "east", "west")


def kinds(before: Snapshot, now: Snapshot) -> list[ChangeKind]:
    one, other = (world_of(plan_switchover(snapshot), LINK) for snapshot in (before, now))
    assert changes(one, one) == changes(other, other) == ()
    return [change.kind for change in changes(one, other)]


def with_group(**changed: object) -> Snapshot:
    return replace(SNAPSHOT, groups=(replace(VIEWED_GROUP, **changed),))  # type: ignore[arg-type]


def with_offsets(**changed: object) -> Snapshot:
    return with_group(partitions=(replace(GROUP_AT, **changed),))  # type: ignore[arg-type]


def test_what_goes_on_by_itself_is_no_change() -> None:
    grown = replace(MIRRORED, source_end=200, target_end=180, mirrored_source_next=170)
    assert kinds(SNAPSHOT, replace(SNAPSHOT, partitions=(grown, *SNAPSHOT.partitions[1:]))) == []
    assert kinds(SNAPSHOT, with_offsets(source_offset=60, translated_offset=63)) == []
    assert kinds(SNAPSHOT, with_offsets(target_offset=43)) == []
    assert kinds(SNAPSHOT, replace(SNAPSHOT, taken_at_ms=SNAPSHOT.taken_at_ms + 1_000_000)) == []


def test_each_other_change_is_named() -> None:
    first, second = SNAPSHOT.partitions
    assert kinds(SNAPSHOT, replace(SNAPSHOT, link_state="paused", operation_id="p")) == [ChangeKind.LINK_STATE]
    assert ChangeKind.SOURCE_FINDING in kinds(SNAPSHOT, source_gone(SNAPSHOT))
    assert kinds(SNAPSHOT, replace(SNAPSHOT, source_finding=SiteFinding.PARTLY_THERE)) == [ChangeKind.SOURCE_FINDING]
    assert kinds(SNAPSHOT, replace(SNAPSHOT, partitions=(first,))) == [ChangeKind.PARTITIONS]
    assert kinds(replace(SNAPSHOT, partitions=(first,)), SNAPSHOT) == [ChangeKind.PARTITIONS]
    doubted = replace(SNAPSHOT, partitions=(first, replace(second, trusted=False)))
    assert kinds(SNAPSHOT, doubted) == [ChangeKind.PARTITIONS]
    for name in ("source_end", "target_end"):
        shorter = replace(first, **{name: 7})  # type: ignore[arg-type]
        assert kinds(SNAPSHOT, replace(SNAPSHOT, partitions=(shorter, second))) == [ChangeKind.LOG_WENT_BACK]
    assert set(kinds(SNAPSHOT, replace(SNAPSHOT, groups=()))) == {ChangeKind.GROUPS}
    for members in (2, None):
        assert kinds(SNAPSHOT, with_group(source_members=members)) == [ChangeKind.GROUP_MEMBERS]
    assert kinds(SNAPSHOT, with_offsets(source_offset=39, translated_offset=42)) == [ChangeKind.GROUP_WENT_BACK]
    assert kinds(SNAPSHOT, with_offsets(target_offset=90)) == [ChangeKind.GROUP_MOVE]
    assert kinds(SNAPSHOT, with_offsets(translated_offset=None)) == [ChangeKind.GROUP_MOVE]


def test_what_does_not_answer_at_the_target_any_more_is_that_and_not_a_log_that_went_back() -> None:
    first, second = SNAPSHOT.partitions
    silent = replace(SNAPSHOT, partitions=(replace(first, target_end=None, unanswered="no leader"), second))
    assert ChangeKind.UNANSWERED in kinds(SNAPSHOT, silent)
    assert ChangeKind.LOG_WENT_BACK not in kinds(SNAPSHOT, silent)
    assert kinds(silent, SNAPSHOT) == []
    stood = with_offsets(target_offset=43)
    (group,) = stood.groups
    at = replace(group.partitions[0], target_offset=None)
    alone = replace(stood, groups=(replace(group, unanswered="no coordinator", partitions=(at,)),))
    assert ChangeKind.UNANSWERED in kinds(stood, alone)
    assert ChangeKind.GROUP_WENT_BACK not in kinds(stood, alone)


def test_an_offset_of_a_group_that_is_not_there_any_more_is_a_change() -> None:
    """The group would begin there wherever its consumers are told to begin without one."""
    other = replace(GROUP_AT, partition=1, target_offset=None)
    both = with_group(partitions=(GROUP_AT, other))
    assert kinds(both, with_group(partitions=(GROUP_AT,))) == [ChangeKind.GROUP_WENT_BACK]
    assert kinds(both, with_group(partitions=(GROUP_AT, replace(other, source_offset=None)))) != []
    at_target = replace(GROUP_AT, target_offset=43)
    assert kinds(with_group(partitions=(at_target, other)), both) == [ChangeKind.GROUP_WENT_BACK]


def test_a_greater_loss_is_a_change_of_a_failover_and_a_smaller_one_is_not() -> None:
    first, second = SNAPSHOT.partitions

    def world(mirrored_next: int, **more: int | None) -> object:
        view = replace(second, mirrored_source_next=mirrored_next, **more)  # type: ignore[arg-type]
        snapshot = replace(SNAPSHOT, partitions=(first, view))
        return world_of(plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True), LINK)

    planned = world(90)
    assert [one.kind for one in changes(planned, world(89))] == [ChangeKind.LOSS]  # type: ignore[arg-type]
    assert changes(planned, world(95)) == ()  # type: ignore[arg-type]
    assert changes(planned, world(90, source_end=None, returned_at_most=0))  # type: ignore[arg-type]


def test_what_came_back_is_no_change_of_a_loss_and_more_of_either_is() -> None:
    first, second = SNAPSHOT.partitions

    def world(mirrored_next: int, returned_at_most: int) -> World:
        view = replace(second, mirrored_source_next=mirrored_next, source_end=None, seen_source_end=100, seen_at_ms=5)
        snapshot = replace(SNAPSHOT, partitions=(first, replace(view, returned_at_most=returned_at_most)))
        return world_of(plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True), LINK)

    planned = world(60, 30)
    assert (planned.loss_offsets, planned.unclear_loss_offsets) == (10, 30)
    assert read_world(json.loads(json.dumps(planned.document()))) == planned
    assert changes(planned, world(60, 5)) == changes(planned, world(60, 40)) == ()
    (change,) = changes(planned, world(59, 40))
    assert (change.kind, change.before) == (ChangeKind.LOSS, "10 offsets, at least, and 30 unclear")
    assert change.now == "1 offsets, at least, and 40 unclear"


def test_another_role_step_or_declaration_is_a_change_and_it_is_read_back_as_it_was() -> None:
    before = world_of(plan_switchover(SNAPSHOT), LINK)
    active = Freezing(SiteStanding(), SiteStanding(), freezes=True)
    roles = world_of(plan_switchover(SNAPSHOT, freezing=active), LINK)
    assert {one.kind for one in changes(before, roles)} == {
        ChangeKind.SOURCE_ROLE,
        ChangeKind.TARGET_ROLE,
        ChangeKind.STEPS,
    }
    again = replace(active, source=SiteStanding(SiteRole.ACTIVE, 2, "thawed"))
    told = changes(roles, world_of(plan_switchover(SNAPSHOT, freezing=again), LINK))
    assert [(one.kind, one.before, one.now) for one in told] == [
        (ChangeKind.SOURCE_ROLE, "active since change 0", "active since change 2")
    ]
    other = replace(LINK, topics=("flights",))
    assert [one.kind for one in changes(before, world_of(plan_switchover(SNAPSHOT), other))] == [
        ChangeKind.LINK_DECLARED
    ]
    assert read_world(json.loads(json.dumps(before.document()))) == before


async def planned(stage: Stage) -> list[LinkMove]:
    return [await plan_link(INTENT, stage.sites, Hooks())]


async def test_a_plan_holds_while_records_and_groups_go_on_and_is_carried_out(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        intent = replace(INTENT, links=(stage.link.name,), reason="a test")
        write_plan(tmp_path / "plan.json", intent, await planned(stage))
        await write(stage.source, PARTITIONS[0], some_records(5000, 7))
        await wait_for_records(stage.target, PARTITIONS[0], 57)
        await commit_group(stage.source, 41, 42)
        file = read_plan(tmp_path / "plan.json")
        assert file.intent == intent
        moves = await planned(stage)
        check_holds(file.worlds, moves)
        (result,) = await begin(moves, file.intent, "one", "tests", {"plan_digest": file.digest})
        assert result.verified, result.differences
        first = (await stage.log("one")).entries[0].detail
        assert (first["plan_digest"], first["intent"]["reason"]) == (file.digest, "a test")


async def test_what_changed_in_the_world_is_named_and_nothing_is_done(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        write_plan(tmp_path / "plan.json", INTENT, await planned(stage))
        file = read_plan(tmp_path / "plan.json")
        await commit_offsets(stage.source, GROUP, {PARTITIONS[1]: CommittedOffset(5)})
        await make_topic(stage.source, "another", 1)
        await pause_link(stage.link, stage.target, "somebody")
        with pytest.raises(WorldChanged) as refused:
            check_holds(file.worlds, await planned(stage))
        assert exit_code_of(refused.value) == 3
        for named in (
            "link_state east-west",
            "running -> paused somebody",
            f"group_went_back {GROUP} flights-1 at the source: 30 -> 5",
            "nothing was changed",
        ):
            assert named in str(refused.value)


def test_a_file_that_was_edited_or_is_none_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for text in ("", "[]", "{}", '{"digest": "x"}', '{"digest": "x", "plan_version": 1}'):
        path.write_text(text)
        with pytest.raises(PlanUnreadable):
            read_plan(path)
    write_plan(path, INTENT, [])
    assert read_plan(path).intent == INTENT
    path.write_text(path.read_text().replace('"allow_data_loss": false', '"allow_data_loss": true'))
    with pytest.raises(PlanUnreadable, match="not as it was written"):
        read_plan(path)
    write_plan(path, replace(INTENT, operation=Operation.FAILBACK), [])
    with pytest.raises(PlanUnreadable, match="no move of one plan"):
        read_plan(path)


def test_more_to_read_again_or_to_skip_than_was_consented_to_is_a_change_and_fewer_are_not() -> None:
    before = world_of(plan_switchover(SNAPSHOT), LINK)
    name = next(iter(before.moves))
    for field, kind in (("read_again_records", ChangeKind.READ_AGAIN), ("skipped_records", ChangeKind.SKIPPED)):
        counts: tuple[int | None, ...] = (0, 5, 6, None)
        worlds = {count: replace(before, **{field: {name: count}}) for count in counts}  # type: ignore[arg-type]
        grown = [(was, now) for was in counts for now in counts if changes(worlds[was], worlds[now])]
        assert grown == [(0, 5), (0, 6), (0, None), (5, 6), (5, None), (6, None)]
        (change,) = changes(worlds[5], worlds[6])
        assert (change.kind, change.subject, change.before, change.now) == (kind, name, "5 records", "6 records")


def test_a_group_that_reads_on_at_the_target_before_it_is_set_back_changes_what_was_consented_to() -> None:
    def world(at_target: int) -> World:
        snapshot = with_offsets(target_offset=at_target)
        return world_of(plan_switchover(snapshot, set_back_groups=["analysts"]), LINK)

    found = changes(world(60), world(75))
    assert [(one.kind, one.before, one.now) for one in found] == [
        (ChangeKind.READ_AGAIN, f"{60 - 43} records", f"{75 - 43} records")
    ]
    assert changes(world(75), world(75)) == ()


def test_a_group_that_the_mirror_brought_to_where_the_plan_has_it_is_no_change() -> None:
    """Where both sites write: the plan was refused for that, as the group is ahead there, by more records."""

    def world(at_target: int, **changed: object) -> World:
        snapshot = with_offsets(**{"translated_offset": 58, "ahead_from": 39, "target_offset": at_target} | changed)
        return world_of(plan_switchover(snapshot), LINK)

    planned = world(53)
    (name,) = planned.moves
    assert (planned.moves[name], planned.skipped_records[name]) == ("translated", 14)
    brought = world(58)
    assert (brought.moves[name], brought.skipped_records[name]) == ("ahead", 19)
    assert read_world(json.loads(json.dumps(planned.document()))) == planned
    assert changes(planned, brought) == ()

    assert changes(planned, world(55)) == (), "it is on its way there"

    went_on, set_back = world(59), world(58, source_offset=30)
    assert [one.kind for one in changes(planned, went_on)] == [ChangeKind.GROUP_MOVE]
    assert [one.kind for one in changes(planned, set_back)] == [ChangeKind.GROUP_WENT_BACK, ChangeKind.GROUP_MOVE]
    lost_more, uncounted = (replace(brought, skipped_records={name: count}) for count in (20, None))
    for more in (lost_more, uncounted):
        assert [one.kind for one in changes(planned, more)] == [ChangeKind.SKIPPED]
    again = replace(brought, read_again_records={name: 1})
    assert [one.kind for one in changes(planned, again)] == [ChangeKind.READ_AGAIN]
    assert [one.kind for one in changes(replace(planned, goes_to={}), brought)] == [ChangeKind.GROUP_MOVE], (
        "an older plan"
    )
