"""A plan that was written down, and topics that came, went, or are others of the same name since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.topics import create_partitions, delete_topics
from broker.wire.vocabulary import TopicPartition
from failover.freezing.hooks import Hooks
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.planning.plan_file import read_plan, write_plan
from failover.planning.world import Change, ChangeKind, changes, world_of
from failover.running.steps import Operation
from tests.failover.stage import GROUP, PARTITIONS, TOPIC, Stage, mirrored, two_sites
from tests.mirror.harness import eventually, make_topic, some_records, wait_for_records, write

EMPTY, FULL, NEW = "flights-empty", "flights-full", "flights-new"
INTENT = Intent(Operation.SWITCHOVER, ("east-west",), "east", "west")
Hand = Callable[[Cluster], Awaitable[object]]


async def delete(cluster: Cluster, topic: str) -> None:
    assert await delete_topics(cluster, [topic]) == {}


async def make_anew(cluster: Cluster, topic: str) -> None:
    await delete(cluster, topic)
    await make_topic(cluster, topic)


async def grow(cluster: Cluster) -> None:
    assert await create_partitions(cluster, {EMPTY: 2}) == {}


PARTITION = ChangeKind.PARTITIONS
CASES: dict[str, tuple[Hand, set[tuple[ChangeKind, str, str]]]] = {
    "an empty topic is deleted": (lambda east: delete(east, EMPTY), {(PARTITION, f"{EMPTY}-0", "gone")}),
    "a topic with records is deleted": (lambda east: delete(east, FULL), {(PARTITION, f"{FULL}-0", "gone")}),
    "an empty topic is made anew": (lambda east: make_anew(east, EMPTY), {(PARTITION, f"{EMPTY}-0", "in doubt")}),
    "a partition is added": (grow, {(PARTITION, f"{EMPTY}-1", "there")}),
    "a topic is made": (lambda east: make_topic(east, NEW), {(PARTITION, f"{NEW}-0", "there")}),
    "a group's offset is moved back": (
        lambda east: commit_offsets(east, GROUP, {PARTITIONS[0]: CommittedOffset(3)}),
        {(ChangeKind.GROUP_WENT_BACK, f"{GROUP} {TOPIC}-0 at the source", "3")},
    ),
}


async def look(stage: Stage, folder: Path) -> list[Change]:
    """What is not as the plan in the folder has it."""
    move = await plan_link(INTENT, stage.sites, Hooks())
    return list(changes(read_plan(folder / "plan.json").worlds[0], world_of(move.plan, stage.link)))


@pytest.mark.parametrize("case", CASES)
async def test_what_came_or_went_is_named_also_where_it_is_empty(tmp_path: Path, case: str) -> None:
    hand, expected = CASES[case]
    async with two_sites(tmp_path) as stage:
        stage.link = replace(stage.link, topics=(f"{TOPIC}.*",))
        for topic in (EMPTY, FULL):
            await make_topic(stage.source, topic)
        await write(stage.source, TopicPartition(FULL, 0), some_records(1, 5))
        async with mirrored(stage):
            await wait_for_records(stage.target, TopicPartition(FULL, 0), 5)
            await eventually(lambda: is_mirrored(stage, EMPTY), "the empty topic to be taken in")
            write_plan(tmp_path / "plan.json", INTENT, [await plan_link(INTENT, stage.sites, Hooks())])
            assert await look(stage, tmp_path) == []
            await hand(stage.source)
            found = {(one.kind, one.subject, one.now) for one in await look(stage, tmp_path)}
            assert expected <= found, found


async def is_mirrored(stage: Stage, topic: str) -> bool:
    views = (await plan_link(INTENT, stage.sites, Hooks())).plan.snapshot.partitions
    return any(view.topic == topic and view.mirrored_source_next is not None for view in views)
