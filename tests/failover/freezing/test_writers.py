"""Producers that write while a switchover runs: they wait, or what they wrote too late is named. Nothing in between."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.limits import ClientLimits
from broker.client.log import append
from broker.client.site_role import set_site_role, site_standing
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from broker.wire.site_role import EVERY_TOPIC, SiteRole
from broker.wire.vocabulary import TopicPartition
from failover.errors import HookFailed, NotDrained, OperationUnderWay, StillFrozen
from failover.freezing.choice import Freezing, read_roles
from failover.freezing.hooks import Hooks
from failover.journal.log import load_operations
from failover.journal.values import Event
from failover.losses.stranded import StrandedRange, stranded_ranges
from failover.planning.plan import OperationPlan, plan_failover, plan_switchover
from failover.running.groups_stand import GroupsStand
from failover.running.moving import FencedCommits
from failover.running.result import OperationResult
from failover.running.steps import OperationStep
from failover.running.verification import DifferenceKind
from mirror.groups.committing import Commits, Due
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, Stage, commit_group, mirrored, two_sites
from tests.mirror.harness import eventually, make_topic, read_all, running, some_records, wait_for_records, write

IMPATIENT = ClientLimits(retry_timeout_ms=1_000)
"""So a writer hears soon that it is to wait; it goes on trying."""


@dataclass
class Writers:
    """What was acknowledged to whom: the record's value -> where it is at the source."""

    site: Cluster
    acknowledged: dict[bytes, tuple[TopicPartition, int]] = field(default_factory=dict)
    refused: int = 0

    async def write(self, number: int, pause_s: float) -> None:
        """One record after the other, for ever; each is tried until it is taken."""
        where = PARTITIONS[number % len(PARTITIONS)]
        for at in itertools.count():
            value = b"%d-%d" % (number, at)
            while True:
                try:
                    offset = await append(self.site, where, encode_batch([Record(0, 1_700_000_000_000, None, value)]))
                    break
                except ClientError:
                    self.refused += 1
            self.acknowledged[value] = (where, offset)
            await asyncio.sleep(pause_s)


@asynccontextmanager
async def writing(stage: Stage, pauses_s: Sequence[float]) -> AsyncIterator[Writers]:
    """A writer for each pause, all of them shops, for as long as the context is open."""
    async with Cluster(stage.link.source, client_id="shop", limits=IMPATIENT) as shop, asyncio.TaskGroup() as tasks:
        writers = Writers(shop)
        begun = [tasks.create_task(writers.write(number, pause_s)) for number, pause_s in enumerate(pauses_s)]
        yield writers
        for task in begun:
            task.cancel()


async def frozen_plan(stage: Stage, hooks: Hooks | None = None) -> OperationPlan:
    freezing = replace(await read_roles(stage.link, stage.source, stage.target), freezes=True, hooks=hooks or Hooks())
    return plan_switchover(await stage.sites.look(), freezing=freezing)


async def roles(stage: Stage) -> tuple[SiteRole | None, ...]:
    found = [await site_standing(site) for site in (stage.source, stage.target)]
    return tuple(standing.role if standing else None for standing in found)


async def values_at(site: Cluster) -> set[bytes | None]:
    return {record.value for at in PARTITIONS for record in await read_all(site, at)}


def named(result: OperationResult) -> set[tuple[TopicPartition, int]]:
    return {
        (TopicPartition(one.topic, one.partition), offset)
        for one in result.stranded
        for offset in range(one.first_offset, one.end_offset)
    }


async def test_with_the_freeze_every_acknowledged_record_is_at_the_target_and_the_rest_waits(tmp_path: Path) -> None:
    """Whatever the pauses are: some would never let the source be quiet, some would slip through its quiet."""
    async with two_sites(tmp_path) as stage, mirrored(stage):
        pauses_s = (0.1, 0.2, 0.9, 2.1, 3.0, random.Random(10).uniform(1.0, 4.0))
        async with writing(stage, pauses_s) as writers:
            await eventually(lambda: _have_written(writers, len(pauses_s)), "each writer to have written")
            result = await stage.run(await frozen_plan(stage), stage.sites)
            assert (result.verified, result.stranded) == (True, ()), (result.differences, result.stranded)
            assert await roles(stage) == (SiteRole.STANDBY, SiteRole.ACTIVE)
            assert writers.acknowledged.keys() <= await values_at(stage.target)
            written = len(writers.acknowledged)
            refused = writers.refused
            await eventually(lambda: _is_refused(writers, refused), "the writers to try on")
            assert len(writers.acknowledged) == written, "the old site stays closed"


async def _have_written(writers: Writers, count: int) -> bool:
    return len({value.split(b"-")[0] for value in writers.acknowledged}) == count


async def _is_refused(writers: Writers, before: int) -> bool:
    return writers.refused > before


@pytest.mark.parametrize("pause_s", [2.6, 3.1])
async def test_without_it_what_came_too_late_is_named_to_the_offset(tmp_path: Path, pause_s: float) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage), writing(stage, [pause_s]) as writers:
        try:
            result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites)
        except NotDrained:
            return  # it was never quiet for long enough: nothing was changed
        acknowledged = dict(writers.acknowledged)
        at_target = await values_at(stage.target)
        late = {place for value, place in acknowledged.items() if value not in at_target}
        assert late <= named(result) | {max(acknowledged.values(), key=lambda place: place[1])}, "but for the very last"
        assert all(one.records == one.end_offset - one.first_offset for one in result.stranded)
        assert result.verified, result.differences


async def test_a_record_behind_the_fence_is_found_within_the_patience(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        plan = plan_switchover(await stage.sites.look())

        async def write_late() -> None:
            await eventually(lambda: _is_done(stage, OperationStep.FENCE), "the fence")
            await write(stage.source, PARTITIONS[1], some_records(7_000, 3))
            await make_topic(stage.source, "unmirrored", 1)

        late = asyncio.create_task(write_late())
        result = await stage.run(plan, stage.sites)
        await late
        assert result.verified, result.differences
        assert result.stranded == (StrandedRange(*PARTITIONS[1], RECORDS, RECORDS + 3, 3),)


async def test_applications_are_let_in_as_soon_as_their_groups_stand_and_what_comes_late_is_found_behind_that(
    tmp_path: Path,
) -> None:
    """They waited for the whole of a watch that is about the site they had left."""
    async with two_sites(tmp_path) as stage, mirrored(stage):
        at_source = {at: await stage.next_record(stage.source, at) for at in PARTITIONS}
        seen: list[GroupsStand] = []
        told = asyncio.Event()

        async def start_there() -> dict[TopicPartition, tuple[object, ...]]:
            await told.wait()
            await write(stage.source, PARTITIONS[1], some_records(7_000, 3))
            return {at: await stage.next_record(stage.target, at) for at in PARTITIONS}

        def tell(stand: GroupsStand) -> None:
            seen.append(stand)
            told.set()

        starting = asyncio.create_task(start_there())
        result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites, tell=tell)
        assert seen == [GroupsStand("operation-1", "east", "west", is_watched=True)]
        assert await starting == at_source
        assert result.verified, result.differences
        assert result.stranded == (StrandedRange(*PARTITIONS[1], RECORDS, RECORDS + 3, 3),)


async def test_nobody_is_let_in_where_a_group_does_not_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_self: FencedCommits, due: Sequence[Due], _check: object) -> Commits:
        refused = {one.group: KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, one.group) for one in due}
        return Commits(refused, None, None)

    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 25, 35)
        plan = plan_switchover(await stage.sites.look())
        monkeypatch.setattr(FencedCommits, "commit", refuse)
        seen: list[GroupsStand] = []
        result = await stage.run(plan, stage.sites, tell=seen.append)
        assert [found.kind for found in result.differences] == [DifferenceKind.GROUP_OFFSET] * 2
        assert seen == []


async def _is_done(stage: Stage, step: OperationStep) -> bool:
    logs = (await load_operations(stage.target)).values()
    return any(entry.event == Event.DONE and entry.detail["step"] == step for log in logs for entry in log.entries)


async def test_of_what_came_only_committed_records_count(tmp_path: Path) -> None:
    """An aborted transaction leaves offsets behind, and no record; of an open one it is not known yet."""
    async with two_sites(tmp_path) as stage, mirrored(stage):
        fenced = await stage.sites.look()
        source, where = stage.source, PARTITIONS[0]

        producer = AIOKafkaProducer(bootstrap_servers=source.site.bootstrap_servers, transactional_id="t")
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_and_wait(where.topic, b"x", partition=where.partition)
            await producer.abort_transaction()
            assert await stranded_ranges(stage.link, source, stage.target, fenced) == ()
            await producer.begin_transaction()
            await producer.send_and_wait(where.topic, b"y", partition=where.partition)
            await producer.commit_transaction()
            (found,) = await stranded_ranges(stage.link, source, stage.target, fenced)
            assert found == StrandedRange(*where, RECORDS, RECORDS + 4, 1)
            await producer.begin_transaction()
            await producer.send_and_wait(where.topic, b"z", partition=PARTITIONS[1].partition)
            _, open_one = await stranded_ranges(stage.link, source, stage.target, fenced)
            assert open_one == StrandedRange(*PARTITIONS[1], RECORDS, RECORDS + 1, None, open_from_offset=RECORDS)
            await producer.abort_transaction()
        finally:
            await producer.stop()


async def test_given_up_before_the_fence_clients_write_again(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write(stage.source, PARTITIONS[1], some_records(5_000, 1))  # nobody brings it
        plan = await frozen_plan(stage)
        assert plan.steps[0] is OperationStep.FREEZE
        with pytest.raises(NotDrained, match="nothing was changed"):
            await stage.run(plan, stage.sites, drain_timeout_s=0.5)
        assert await roles(stage) == (SiteRole.ACTIVE, SiteRole.ACTIVE)
        async with asyncio.TaskGroup() as tasks:
            cancelled = tasks.create_task(stage.run(await frozen_plan(stage), stage.sites))
            await eventually(lambda: _is(stage, SiteRole.FROZEN), "the freeze")
            cancelled.cancel()
        assert await roles(stage) == (SiteRole.ACTIVE, SiteRole.ACTIVE), "also where somebody pressed Ctrl-C"


async def _is(stage: Stage, role: SiteRole) -> bool:
    return (await roles(stage))[0] is role


async def test_what_another_left_frozen_is_said_and_stays_so_or_goes_on(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await set_site_role(
            stage.source, SiteRole.FROZEN, "switchover-that-was-killed", await site_standing(stage.source)
        )
        plan = await frozen_plan(stage)
        assert plan.freezing.source is not None
        assert plan.freezing.source.reason == "switchover-that-was-killed"
        hooks = Hooks((sys.executable, "-c", "raise SystemExit('the firewall says no')"), thaw=("true",))
        with pytest.raises(HookFailed, match="exit code 1: the firewall says no; nothing was changed"):
            await stage.run(replace(plan, freezing=replace(plan.freezing, hooks=hooks)), stage.sites)
        assert await roles(stage) == (SiteRole.FROZEN, SiteRole.ACTIVE), "it was so before"
        result = await stage.run(plan, stage.sites)
        assert result.verified
        left = await site_standing(stage.source)
        assert left is not None
        assert (left.role, left.topics, left.standby) == (SiteRole.FROZEN, (), (TOPIC,)), "the rest stays as it was"
        assert left.opened("", [EVERY_TOPIC]).topics == (TOPIC,)
        again = await read_roles(stage.link, stage.source, stage.target)
        assert not again.hands_over


async def test_only_what_the_link_carries_is_frozen_and_then_closed_and_one_move_leaves_anothers_roles(
    tmp_path: Path,
) -> None:
    """Two links between two sites, a topic each: what the first move closed stays so when the second is given up."""
    other = TopicPartition("orders", 0)
    async with two_sites(tmp_path) as stage:
        await make_topic(stage.source, other.topic, 1)
        async with mirrored(stage), Cluster(stage.link.source, client_id="shop", limits=IMPATIENT) as shop:
            plan = await frozen_plan(stage)
            assert (plan.freezing.topics, plan.freezing.others) == (("flights",), ())
            assert (await stage.run(plan, stage.sites)).verified
            moved = await site_standing(stage.source)
            assert moved is not None
            assert (moved.role, moved.topics) == (SiteRole.STANDBY, ("flights",))
            await append(shop, other, encode_batch([Record(0, 1_700_000_000_000, None, b"goes on")]))
            with pytest.raises(ClientError):
                await append(shop, PARTITIONS[0], encode_batch([Record(0, 1_700_000_000_000, None, b"waits")]))
        second = replace(stage, link=replace(stage.link, name="orders-too", topics=("orders",)))
        async with running(second.link):
            await wait_for_records(stage.target, other, 1)
        await write(stage.source, other, some_records(9_000, 1))  # nobody brings it
        with pytest.raises(NotDrained):
            await stage.run(await frozen_plan(second), second.sites, drain_timeout_s=0.5)
        given_up = await site_standing(stage.source)
        assert given_up is not None
        assert given_up.is_as(moved), "as it was before, not open"
        async with running(second.link):
            assert (await stage.run(await frozen_plan(second), second.sites)).verified
        both = await site_standing(stage.source)
        assert both is not None
        assert (both.role, both.topics) == (SiteRole.STANDBY, ("flights", "orders"))
        back = Freezing(source=await site_standing(stage.target), target=both, target_topics=("flights",))
        assert back.begun(both).topics == ("orders",), "the way back opens its own"


async def test_a_whole_site_names_the_topics_that_stop_although_the_link_does_not_carry_them(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await make_topic(stage.source, "orders", 1)
        whole = await read_roles(stage.link, stage.source, stage.target, whole_site=True)
        assert (whole.topics, whole.target_topics, whole.others) == ((), (), ("orders",))
        plan = plan_switchover(await stage.sites.look(), freezing=replace(whole, freezes=True))
        assert (await stage.run(plan, stage.sites)).verified
        standing = await site_standing(stage.source)
        assert standing is not None
        assert (standing.role, standing.topics) == (SiteRole.STANDBY, ())


async def test_two_operators_cannot_both_freeze(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        late = await frozen_plan(stage)
        await set_site_role(stage.source, SiteRole.FROZEN, "the first one", await site_standing(stage.source))
        with pytest.raises(OperationUnderWay, match="changed by somebody else"):
            await stage.run(late, stage.sites)
        standing = await site_standing(stage.source)
        assert standing is not None
        assert standing.reason == "the first one", "and who came late does not thaw it"


async def test_hooks_run_around_it_and_know_what_it_is_about(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write(stage.source, PARTITIONS[1], some_records(5_000, 1))
        noted = tmp_path / "noted"
        note = "import os, sys; print(sys.argv[2], os.environ['FARSHORE_SOURCE'], file=open(sys.argv[1], 'a'))"
        command = (sys.executable, "-c", note, str(noted))
        plan = plan_switchover(
            await stage.sites.look(), freezing=Freezing(hooks=Hooks((*command, "freeze"), (*command, "thaw")))
        )
        with pytest.raises(NotDrained):
            await stage.run(plan, stage.sites, drain_timeout_s=0.5)
        assert noted.read_text().splitlines() == ["freeze east", "thaw east"]
        assert await roles(stage) == (SiteRole.ACTIVE, SiteRole.ACTIVE)
        broken = replace(plan, freezing=Freezing(hooks=Hooks((*command, "freeze"), ("/no/such/program",))))
        with pytest.raises(StillFrozen, match="thaw_hook cannot be started"):
            await stage.run(broken, stage.sites, drain_timeout_s=0.5)


async def test_a_failover_has_the_target_active_and_a_source_that_is_there_standby(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await set_site_role(stage.target, SiteRole.STANDBY, "the pair", await site_standing(stage.target))
        roles_then = replace(
            await read_roles(stage.link, stage.source, stage.target, even_without_source=True), freezes=True
        )
        plan = plan_failover(
            await stage.sites.look_past_source(),
            allow_data_loss=True,
            even_if_source_answers=True,
            freezing=roles_then,
        )
        result = await stage.run(plan, stage.sites)
        assert result.verified, result.differences
        assert await roles(stage) == (SiteRole.STANDBY, SiteRole.ACTIVE)
        assert result.source_role is not None
        assert (result.source_role.role, result.source_role.reason) == (SiteRole.STANDBY, result.operation_id)


async def test_a_failover_without_its_source_has_the_target_active(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await set_site_role(stage.target, SiteRole.STANDBY, "the pair", await site_standing(stage.target))
        known = replace(await read_roles(stage.link, None, stage.target, even_without_source=True), freezes=True)
        plan = plan_failover(
            await stage.without_source.look(), allow_data_loss=True, even_if_source_answers=False, freezing=known
        )
        result = await stage.run(plan, stage.without_source)
        assert (result.verified, result.source_role) == (True, None)
        assert await roles(stage) == (SiteRole.ACTIVE, SiteRole.ACTIVE), "nobody reached the source"
