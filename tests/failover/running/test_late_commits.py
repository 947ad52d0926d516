"""A consumer that joins no group goes on at the source: the switchover says so, and its group can be moved again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka.structs import TopicPartition as Place

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, delete_groups
from broker.client.limits import GROUPS_PER_REQUEST
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import TopicPartition
from failover.journal.log import load_operations
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event
from failover.planning.moves import GroupMove, MoveKind
from failover.planning.plan import plan_switchover
from failover.running.late_commits import LateCommit, committed_at_source, compare, late_commits
from failover.running.steps import OperationStep
from mirror.api import Link
from tests.broker.client.group_site import GroupSite, serving
from tests.failover.failback.stage import transaction
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, TOPIC, Stage, commit_group, mirrored, now_ms, two_sites
from tests.mirror.harness import eventually, running, some_records, wait_for_records, write

MOVE = GroupMove(GROUP, TOPIC, 0, TOPIC, MoveKind.TRANSLATED, 20, 23, "")


def committed(group: str, partition: int, offset: int) -> dict[tuple[str, str, int], CommittedOffset]:
    return {(group, TOPIC, partition): CommittedOffset(offset)}


def test_each_offset_that_no_move_was_made_from_is_named() -> None:
    assert list(compare(committed(GROUP, 0, 20), [MOVE], ())) == []
    assert list(compare(committed(GROUP, 0, 25), [MOVE], ())) == [LateCommit(GROUP, TOPIC, 0, 20, 25)]
    assert list(compare(committed(GROUP, 0, 15), [MOVE], ())) == [LateCommit(GROUP, TOPIC, 0, 20, 15)]
    assert list(compare(committed(GROUP, 1, 5), [MOVE], ())) == [LateCommit(GROUP, TOPIC, 1, None, 5)]
    assert list(compare({}, [MOVE], ())) == [], "its offset expired"


def test_a_group_that_may_stay_may_read_on_where_it_stays() -> None:
    unknown = replace(MOVE, kind=MoveKind.UNKNOWN, target_offset=None)
    assert list(compare(committed(GROUP, 0, 25) | committed(GROUP, 1, 5), [unknown], {GROUP})) == []
    assert list(compare(committed(GROUP, 0, 25), [MOVE], {GROUP})) == [LateCommit(GROUP, TOPIC, 0, 20, 25)]


LOOK_WAVES = 7
"""Round trips to the source: at 100 ms each less than a second."""


@pytest.mark.parametrize("held", [(), ("g7", "new")])
async def test_a_thousand_groups_by_two_hundred_partitions_are_looked_at_in_a_few_round_trips(
    held: tuple[str, ...],
) -> None:
    """Each was asked for by its name in each partition, 200,000 and as many answers, where nothing had changed."""
    places = [TopicPartition(TOPIC, number) for number in range(200)]
    stood = {f"g{number}": {places[number % 200]: CommittedOffset(number)} for number in range(1_000)}
    east = GroupSite({**stood, "new": {}}, leaders=[0, 1] * 25, topics={TOPIC: len(places)})
    for group in held:
        east.hold(group, {places[3]: CommittedOffset(1)})
    async with serving(east, "east") as site, Cluster(site) as source:
        link = Link("l", site, replace(site, name="west"), (TOPIC,), groups=(".*",))
        found, untold = await committed_at_source(link, source, (), ())
    assert untold is None
    assert east.waves <= LOOK_WAVES
    assert sum(east.requests.values()) <= 2 * LOOK_WAVES + len(stood) // GROUPS_PER_REQUEST
    assert east.named_offsets <= len(held) * len(places) * 3 * len(stood) // len(east.leaders)
    assert {place for place, offset in found.items() if offset is None} == {(group, TOPIC, 3) for group in held}
    assert len(found) == len(stood) + len(held)


async def _is_done(stage: Stage, step: OperationStep) -> bool:
    logs = (await load_operations(stage.target)).values()
    return any(entry.event == Event.DONE and entry.detail["step"] == step for log in logs for entry in log.entries)


async def test_who_goes_on_behind_the_fence_without_members_is_named_and_moved_again(tmp_path: Path) -> None:
    """It assigned itself its partitions, so that the group is empty all the time."""
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await commit_offsets(stage.source, "others", {PARTITIONS[1]: CommittedOffset(7)})

        async def read_on() -> None:
            await eventually(lambda: _is_done(stage, OperationStep.FENCE), "the fence")
            await commit_offsets(stage.source, GROUP, {PARTITIONS[0]: CommittedOffset(44)})
            await commit_offsets(stage.source, "born-late", {PARTITIONS[1]: CommittedOffset(2)})

        reading = asyncio.create_task(read_on())
        result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites)
        await reading
        assert result.verified, result.differences
        assert result.late_commits == (
            LateCommit(GROUP, TOPIC, 0, 20, 44),
            LateCommit("born-late", TOPIC, 1, None, 2),
        )
        assert result.has_findings
        assert standing_of(await stage.log(result.operation_id), now_ms()).state is OperationState.FINDINGS

        again = replace(stage.sites, groups=(GROUP, "born-late"))
        result = await stage.run(plan_switchover(await again.look()), again)
        assert (result.verified, result.late_commits, result.has_findings) == (True, (), False)
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)


async def test_the_first_offset_of_a_group_in_a_partition_is_named_while_its_transaction_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka does not say it who is asked for all offsets of the group: a move had no finding, and it was read twice."""
    monkeypatch.setattr("broker.handlers.offset_fetch._all", lambda offsets: sorted(offsets.committed))
    async with two_sites(tmp_path) as stage, transaction(stage.link.source.bootstrap_servers) as producer:
        await commit_offsets(stage.source, "others", {PARTITIONS[1]: CommittedOffset(7)})
        moves = tuple(plan_switchover(await stage.sites.look()).moves)
        await producer.send_offsets_to_transaction({Place(TOPIC, 0): 9}, "others")
        found = await late_commits(stage.link, (stage.source, stage.target), (), moves, ())
        assert found == (LateCommit("others", TOPIC, 0, None, None),)
        await producer.abort_transaction()


@pytest.mark.parametrize("is_read_on", [False, True])
async def test_what_a_link_back_carried_to_the_source_is_no_reader_there(tmp_path: Path, is_read_on: bool) -> None:
    async with two_sites(tmp_path) as stage:
        there = replace(stage.link, shared_targets=True)
        back = replace(there, name=f"{there.name}-back", source=there.target, target=there.source)
        stage.link = replace(there, reverse_links=(back,))

        async def is_carried() -> bool:
            found = await stage.group_at(stage.source)
            return all(found[at] > moved for at, moved in zip(PARTITIONS, (20, 30), strict=True))

        async with mirrored(stage), running(replace(back, reverse_links=(there,))):
            moves = plan_switchover(await stage.sites.look()).moves
            for at in PARTITIONS:
                await write(stage.target, at, some_records(5_000, 3))
                await wait_for_records(stage.source, at, RECORDS + 3)
            await commit_group(stage.target, *(await log_end_offsets(stage.target, PARTITIONS)).values())
            await eventually(is_carried, "the group's way back")
        if is_read_on:
            await commit_offsets(stage.source, GROUP, {PARTITIONS[1]: CommittedOffset(45)})
        found = await late_commits(stage.link, (stage.source, stage.target), (), moves, ())
        assert found == ((LateCommit(GROUP, TOPIC, 1, 30, 45),) if is_read_on else ())
        await delete_groups(stage.source, [GROUP])
        assert await late_commits(stage.link, (stage.source, stage.target), (), moves, ()) == ()
