"""What does not answer at the target is named, left by consent, and stops nothing else: a partition, a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.limits import ClientLimits
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from failover.freezing.choice import read_roles
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event
from failover.losses.statements import Certainty
from failover.observing.contact import SiteFinding
from failover.observing.sites import Sites
from failover.observing.snapshot import Snapshot
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.left import LeftPartition
from failover.planning.links import mark_interrupted
from failover.planning.moves import MoveKind
from failover.planning.plan import OperationPlan, plan_failover
from failover.planning.to_datetime import moves_to
from failover.running.groups_stand import GroupsStand
from failover.running.verification import DifferenceKind
from mirror.link import Link
from tests.broker.faults import SPARED, Faults, injected
from tests.broker.running import running_server
from tests.failover.stage import GROUP, PARTITIONS, TOPIC, Stage, now_ms
from tests.mirror.harness import eventually, make_topic, running, some_records, wait_for_records, write

IMPATIENT = ClientLimits(retry_backoff_max_ms=100, retry_timeout_ms=2_000, partition_patience_ms=300)
QUIET = TopicPartition("quiet", 0)
OTHER = "others"
"""Reads the second partition alone."""
RECORDS = 10
GROUP_APIS = (ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS)


@asynccontextmanager
async def stage_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Stage, Faults]]:
    """All is mirrored, nothing runs; what comes to the target's faults, the operation meets."""
    monkeypatch.setattr("failover.observing.sites.LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr("failover.running.verifying.TAKEN_OVER_S", 0.0)
    west = Faults()
    async with running_server(folder / "east") as one, running_server(folder / "west") as two:
        link = Link("east-west", Site("east", one.address), Site("west", two.address), (TOPIC, "quiet"), groups=(".*",))
        with injected(monkeypatch, {two.broker: west}):
            async with (
                Cluster(link.source, client_id=SPARED) as source,
                Cluster(link.target, client_id="farshore-failover", limits=IMPATIENT) as target,
            ):
                await make_topic(source, TOPIC, len(PARTITIONS))
                await make_topic(source, QUIET.topic, 1)
                for at in (*PARTITIONS, QUIET):
                    await write(source, at, some_records(0, RECORDS))
                everywhere = {at: CommittedOffset(4 + at.partition) for at in PARTITIONS}
                await commit_offsets(source, GROUP, everywhere)
                await commit_offsets(source, OTHER, {PARTITIONS[1]: CommittedOffset(7)})
                async with running(link):
                    for at in (*PARTITIONS, QUIET):
                        await wait_for_records(target, at, RECORDS)

                    async def are_carried() -> bool:
                        carried = await committed_offsets(target, GROUP), await committed_offsets(target, OTHER)
                        return [len(each) for each in carried] == [2, 1]

                    await eventually(are_carried, "the groups at the target")
                yield Stage(link, source, target, brokers=(one.broker, two.broker)), west


async def planned(sites: Sites, *, partitions: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> OperationPlan:
    snapshot = await mark_interrupted(await sites.look_past_source(), sites)
    roles = await read_roles(sites.link, sites.source, sites.target, even_without_source=True)
    return plan_failover(
        snapshot,
        freezing=replace(roles, freezes=True),
        allow_data_loss=True,
        even_if_source_answers=True,
        left_partitions=partitions,
        left_groups=groups,
    )


def kinds(plan: OperationPlan) -> dict[tuple[str, int], MoveKind]:
    return {(move.group, move.partition): move.kind for move in plan.moves}


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead source", "living source"])
async def test_a_partition_without_a_leader_is_left_by_name_and_the_rest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_dead: bool
) -> None:
    async with stage_with(tmp_path, monkeypatch) as (stage, west):
        sites = stage.without_source if is_dead else stage.sites
        carried = await stage.group_at(stage.target)
        west.leaderless |= {PARTITIONS[0], QUIET}
        refused = await planned(sites)
        (refusal,) = refused.refusals
        assert (refusal.reason, refusal.subject) == (RefusalReason.PARTITION_UNANSWERED, f"{TOPIC}:0")
        assert "LEADER" in refusal.detail
        assert refused.snapshot.source_finding is (SiteFinding.DEAD if is_dead else SiteFinding.ALIVE)
        assert refused.loss.unseen_partitions == 2, "what the target has of them nobody knows"

        plan = await planned(sites, partitions=(f"{TOPIC}:0",))
        assert kinds(plan)[GROUP, 0] is MoveKind.UNKNOWN
        assert MoveKind.UNKNOWN not in {kind for (group, at), kind in kinds(plan).items() if at == 1}
        stands: list[GroupsStand] = []
        result = await stage.run(plan, sites, tell=stands.append)
        assert (result.verified, result.differences) == (True, ())
        assert result.has_findings
        assert [stand.left_groups for stand in stands] == [(GROUP,)], "nobody says that it may start"
        assert [(one.topic, one.groups, one.is_fenced) for one in result.left_partitions] == [
            (TOPIC, (GROUP,), False),
            (QUIET.topic, (), False),
        ]
        log = await stage.log(result.operation_id)
        assert standing_of(log, now_ms()).state is OperationState.FINDINGS
        (verified,) = [entry for entry in log.entries if entry.event == Event.GROUPS_VERIFIED]
        assert verified.detail["left_groups"] == [GROUP]

        west.heal()
        again = replace(sites, groups=(GROUP,))
        rest = await stage.run(await planned(again), again)
        assert (rest.verified, rest.has_findings) == (True, False)
        assert await stage.group_at(stage.target) == carried


async def test_a_partition_that_no_group_reads_is_named_and_asks_for_no_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage_with(tmp_path, monkeypatch) as (stage, west):
        west.leaderless.add(QUIET)
        plan = await planned(stage.without_source)
        assert plan.refusals == ()
        assert {view.name for view in plan.snapshot.partitions if view.unanswered} == {"quiet:0"}
        result = await stage.run(plan, stage.without_source)
    assert result.verified
    (left,) = result.left_partitions
    assert left == LeftPartition("quiet", 0, "quiet", left.error, (), is_fenced=False)
    (loss,) = [loss for loss in result.losses if loss.topic == "quiet"]
    assert (loss.certainty, loss.offsets) == (Certainty.UNKNOWN, None)


async def test_a_group_without_a_coordinator_is_left_by_name_and_the_others_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage_with(tmp_path, monkeypatch) as (stage, west):
        west.groups |= {(api, OTHER): ErrorCode.COORDINATOR_NOT_AVAILABLE for api in GROUP_APIS}
        refused = await planned(stage.without_source)
        (refusal,) = refused.refusals
        assert (refusal.reason, refusal.subject) == (RefusalReason.GROUP_UNANSWERED, OTHER)
        assert "COORDINATOR_NOT_AVAILABLE" in refusal.detail
        plan = await planned(stage.without_source, groups=(OTHER,))
        assert kinds(plan) == {(GROUP, 0): MoveKind.KEPT, (GROUP, 1): MoveKind.KEPT, (OTHER, 1): MoveKind.UNKNOWN}
        stands: list[GroupsStand] = []
        result = await stage.run(plan, stage.without_source, tell=stands.append)
        assert (result.verified, result.unanswered_groups, result.has_findings) == (True, (OTHER,), True)
        assert [stand.left_groups for stand in stands] == [(OTHER,)]
        west.heal()
        again = replace(stage.without_source, groups=(OTHER,))
        rest = await stage.run(await planned(again), again)
        assert (rest.verified, rest.has_findings) == (True, False)
        assert {(move.group, move.kind) for move in rest.moves} == {(OTHER, MoveKind.KEPT)}


async def test_a_list_of_groups_that_is_not_whole_hides_none_that_the_link_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage_with(tmp_path, monkeypatch) as (stage, west):
        west.listing = ErrorCode.COORDINATOR_NOT_AVAILABLE
        plan = await planned(stage.without_source)
        assert {group.group for group in plan.snapshot.groups} == {GROUP, OTHER}
        assert "COORDINATOR_NOT_AVAILABLE" in plan.snapshot.groups_not_listed
        assert plan.refusals == ()


async def test_what_ceases_to_answer_behind_the_plan_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody consented to that."""
    async with stage_with(tmp_path, monkeypatch) as (stage, west):
        plan = await planned(stage.sites)
        assert plan.refusals == ()
        west.leaderless.add(PARTITIONS[0])
        result = await stage.run(plan, stage.sites)
    assert not result.verified
    assert {one.kind for one in result.differences} == {DifferenceKind.NOT_FENCED, DifferenceKind.GROUP_NOT_MOVED}
    assert [one.topic for one in result.left_partitions] == [TOPIC]


async def test_what_answers_again_and_is_not_known_for_another_reason_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consent to leave what does not answer was taken for this, too."""
    async with stage_with(tmp_path, monkeypatch) as (stage, west):
        await commit_offsets(stage.source, GROUP, {PARTITIONS[0]: CommittedOffset(RECORDS + 1)})  # no record is there
        west.leaderless.add(PARTITIONS[0])
        plan = await planned(stage.sites, partitions=(f"{TOPIC}:0",))
        west.heal()
        result = await stage.run(plan, stage.sites)
    assert not result.verified
    assert [(one.kind, one.subject, one.partition) for one in result.differences] == [
        (DifferenceKind.GROUP_NOT_MOVED, f"{GROUP} on {TOPIC}", 0)
    ]
    assert result.left_partitions == ()


async def test_a_leader_that_comes_back_soon_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage_with(tmp_path, monkeypatch) as (stage, west):
        monkeypatch.setattr("failover.observing.sites.LOOK_AGAIN_S", 60.0)
        looks = 0

        def look() -> int:
            nonlocal looks
            looks += 1
            west.leaderless = {PARTITIONS[0]} if looks == 1 else set()
            return now_ms()

        seen = await replace(stage.without_source, now_ms=look).look_past_source(patience_s=60.0)
    assert (looks, seen.unanswered) == (2, frozenset())


async def test_at_a_time_what_does_not_answer_is_unknown_and_the_rest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage_with(tmp_path, monkeypatch) as (stage, west):
        west.leaderless.add(PARTITIONS[0])
        west.groups |= {(api, OTHER): ErrorCode.COORDINATOR_NOT_AVAILABLE for api in GROUP_APIS}
        seen: Snapshot = await stage.without_source.look_past_source()
        found = await moves_to(seen, stage.target, 0)
    at_once = {(move.group, move.partition): move.kind for move in found}
    assert at_once[GROUP, 1] is MoveKind.BY_TIMESTAMP
    assert {kind for place, kind in at_once.items() if place != (GROUP, 1)} == {MoveKind.UNKNOWN}
    assert {place for place in at_once if place[0] == GROUP} == {(GROUP, 0), (GROUP, 1)}
    plan = plan_failover(seen, allow_data_loss=True, even_if_source_answers=False, moves=found)
    assert [(one.reason, one.subject) for one in plan.refusals] == [
        (RefusalReason.PARTITION_UNANSWERED, f"{TOPIC}:0"),
        (RefusalReason.GROUP_UNANSWERED, OTHER),
    ]
    assert GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, OTHER) not in plan.refusals
