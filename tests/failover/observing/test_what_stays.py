"""The move of one link says which groups stay: its plan, its result and a drill name them, with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from failover.drilling.drill import AuditNote
from failover.drilling.looks import drill_link
from failover.freezing.hooks import Hooks
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.planning.plan import OperationPlan
from failover.planning.staying import Stay, StayKind, StayReason
from failover.running.steps import Operation
from failover.running.taking_up import begin
from mirror.heartbeat import HeartbeatWatch
from tests.failover.observing.test_contact import Far, served
from tests.failover.stage import GROUP, PARTITIONS, RARE, Stage, mirrored, now_ms, two_sites
from tests.mirror.harness import make_topic

NOTES = TopicPartition("notes", 0)
UNKNOWN = Stay(StayKind.GROUP, "", StayReason.NOT_KNOWN, "east does not tell which groups it has")


def staying(stage: Stage) -> set[Stay]:
    return {
        Stay(StayKind.GROUP, "temp-1", StayReason.GROUP_NOT_SELECTED, stage.link.name),
        Stay(StayKind.GROUP, GROUP, StayReason.OTHER_TOPICS, "notes"),
        Stay(StayKind.GROUP, "notes-only", StayReason.NO_OFFSETS),
    }


@asynccontextmanager
async def some_selected(folder: Path) -> AsyncIterator[Stage]:
    """`temp-1` and `temp-2` are not selected, and read the link's topic, and another one."""
    async with two_sites(folder) as stage:
        await make_topic(stage.source, NOTES.topic, 1)
        for group, at in (("temp-1", PARTITIONS[0]), ("temp-2", NOTES), ("notes-only", NOTES), (GROUP, NOTES)):
            await commit_offsets(stage.source, group, {at: CommittedOffset(3)})
        stage.link = replace(stage.link, groups=(GROUP, "notes-.*"))
        yield stage


async def planned(stage: Stage, operation: Operation, *groups: str, lost: bool = False) -> OperationPlan:
    intent = Intent(
        operation,
        (stage.link.name,),
        "east",
        "west",
        groups,
        allow_data_loss=True,
        even_if_source_answers=True,
    )
    sites = replace(stage.without_source if lost else stage.sites, groups=groups)
    return (await plan_link(intent, sites, Hooks())).plan


async def test_a_plan_names_what_stays_and_why_and_so_does_a_drill(tmp_path: Path) -> None:
    async with some_selected(tmp_path) as stage, mirrored(stage, RARE):
        assert set((await planned(stage, Operation.SWITCHOVER)).stays) == staying(stage)
        assert set((await planned(stage, Operation.FAILOVER)).stays) == staying(stage)
        named = await planned(stage, Operation.SWITCHOVER, "temp-1")
        assert set(named.stays) == set(), "who was asked for goes, and who was not is told elsewhere"
        watch = HeartbeatWatch(SystemClock())
        assert set((await drill_link(stage.link, watch, AuditNote(), now_ms, (stage.link,))).stays) == staying(stage)


async def test_of_a_source_that_is_lost_nothing_is_said_but_that(tmp_path: Path) -> None:
    async with some_selected(tmp_path) as stage, mirrored(stage, RARE):
        assert (await planned(stage, Operation.FAILOVER, lost=True)).stays == (UNKNOWN,)


async def test_of_a_source_that_is_lost_those_are_named_that_the_mirror_carried_and_this_file_does_not_select(
    tmp_path: Path,
) -> None:
    """They stayed behind, and nobody said so: plan and result were those of a move of all groups."""
    async with two_sites(tmp_path) as stage, mirrored(stage, RARE):
        stage.link = replace(stage.link, groups=("nobody",))
        left = Stay(StayKind.GROUP, GROUP, StayReason.GROUP_NOT_SELECTED_NOW, stage.link.name)
        gone = replace(stage.link.source, bootstrap_servers="127.0.0.1:1")
        watch, lost = HeartbeatWatch(SystemClock()), replace(stage.link, source=gone)
        assert set((await drill_link(lost, watch, AuditNote(), now_ms, (lost,))).stays) == {UNKNOWN, left}
        living = await planned(stage, Operation.SWITCHOVER)
        assert living.stays == (Stay(StayKind.GROUP, GROUP, StayReason.GROUP_NOT_SELECTED, stage.link.name),)
        assert GROUP in {move.group for move in (await planned(stage, Operation.FAILOVER, GROUP, lost=True)).moves}
        intent = Intent(Operation.FAILOVER, (stage.link.name,), "east", "west", allow_data_loss=True)
        move = await plan_link(intent, stage.without_source, Hooks())
        assert set(move.plan.stays) == {UNKNOWN, left}
        (result,) = await begin([move], intent, "operation-1", "tests", {})
    assert set(result.stays) == {UNKNOWN, left}


async def test_where_all_goes_nothing_stays(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage, RARE):
        assert (await planned(stage, Operation.SWITCHOVER)).stays == ()


async def test_the_result_has_it_too(tmp_path: Path) -> None:
    async with some_selected(tmp_path) as stage, mirrored(stage, RARE):
        intent = Intent(Operation.SWITCHOVER, (stage.link.name,), "east", "west")
        move = await plan_link(intent, stage.sites, Hooks())
        assert move.plan.refusals == ()
        (result,) = await begin([move], intent, "operation-1", "tests", {})
    assert result.verified
    assert set(result.stays) == staying(stage)


async def test_what_stays_is_asked_for_beside_the_rest(tmp_path: Path) -> None:
    """That of some groups it is to be asked where they stand costs no round trip of its own."""
    taken: list[int] = []
    async with some_selected(tmp_path) as stage:
        async with mirrored(stage, RARE):
            pass
        bootstrap = stage.link.source.bootstrap_servers
        for groups in ((".*",), stage.link.groups):
            far = Far(bootstrap)
            async with served(far) as address, Cluster(Site("east", address, {bootstrap: address})) as source:
                asked = replace(stage, link=replace(stage.link, groups=groups), source=source)
                await planned(asked, Operation.SWITCHOVER)
            taken.append(far.round_trips)
    assert taken[1] <= taken[0]
