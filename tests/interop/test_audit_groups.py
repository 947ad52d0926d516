"""Where groups stand, looked at in real clusters: from a link state written by hand, and a link's passes by hand."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, delete_groups
from broker.client.log import append
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.client.topics import delete_records, delete_topics, list_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.link import STATE_PREFIX, Link
from mirror.offsets.entries import Entry, LinkRun, RunState, encode_key, encode_value
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncTimes, Written
from mirror.offsets.intervals import End, Interval
from monitoring import limits
from monitoring.audit.freeze import freeze_link
from monitoring.audit.group_looks import freeze_groups
from monitoring.audit.groups import FrozenGroups, GroupOffset, GroupReason, GroupVerdict
from tests.interop.test_audit_freeze import mirrored, prepared

HAND_WRITTEN = f"{STATE_PREFIX}groups-"
END = End(10, 11)
MAP = [Interval(0, 0), Interval(6, 7)]
"""Ten records; between the target's 5 and 7 stands one that is not the mirror's."""


@pytest.fixture(params=["kafka_39", "shared_broker"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Apache Kafka, and farshore's own broker: one cluster is both sites. No state is left in it."""
    async with Cluster(Site("east", request.getfixturevalue(request.param).bootstrap)) as found:
        yield found
        await delete_topics(found, [name for name in await list_topics(found) if name.startswith(HAND_WRITTEN)])


class World:
    """A link, its topic at both sites and its state."""

    def __init__(self, cluster: Cluster) -> None:
        self.name = f"groups-{uuid.uuid4().hex[:8]}"
        self.cluster = cluster
        west = replace(cluster.site, name="west")
        self.link = Link(self.name, cluster.site, west, (f"{self.name}-.*",), "prefixed", (f"{self.name}.*",))
        self.topic = f"{self.name}-data"
        self.entries = 0

    async def begin(self, entries: Sequence[Entry] = (), changed: Mapping[int, bytes] | None = None) -> None:
        known = [*mirrored(self.topic, MAP, END), *entries]
        await prepared(self.cluster, self.link, known, source=12, target=0)
        here = [str(offset).encode() for offset in range(10)]
        there = [*here[:6], b"a local one", *here[6:]]
        values = {**dict(enumerate(there)), **(changed or {})}
        times = [*range(1_000, 1_006), 5, *range(1_006, 1_010)]
        batch = [Record(n, times[n], b"k", values[n], ()) for n in range(11)]
        await append(self.cluster, TopicPartition(self.link.target_topic(self.topic), 0), encode_batch(batch))

    async def tell(self, *entries: Entry) -> None:
        """As the link's worker would: into its state."""
        batch = [Record(n, 1, encode_key(entry), encode_value(entry), ()) for n, entry in enumerate(entries)]
        await append(self.cluster, TopicPartition(self.link.state_topic, 0), encode_batch(batch))

    async def stands(self, group: str, source: int | None = None, target: int | None = None) -> None:
        places = {self.topic: source, self.link.target_topic(self.topic): target}
        offsets = {TopicPartition(name, 0): CommittedOffset(at) for name, at in places.items() if at is not None}
        await commit_offsets(self.cluster, f"{self.name}-{group}", offsets)

    async def look(self) -> FrozenGroups:
        frozen = await freeze_link(self.link, self.cluster, self.cluster, lambda: 1)
        found = await freeze_groups(self.link, frozen, self.cluster, self.cluster)
        assert found is not None
        return found

    async def told(self) -> dict[str, GroupOffset]:
        return {item.group.removeprefix(f"{self.name}-"): item for item in (await self.look()).offsets}

    def written(self, group: str, source: int, target: int) -> GroupSync:
        return GroupSync(f"{self.name}-{group}", 1, {(self.topic, 0): Written(source, target)})


def said(item: GroupOffset) -> tuple[GroupVerdict, GroupReason | None, bool]:
    return item.verdict, item.reason, item.is_in_flight


async def test_each_group_is_judged_by_the_record_that_it_reads_next(cluster: Cluster) -> None:
    world = World(cluster)
    await world.begin(changed={8: b"tampered with"})
    for group, source, target in (
        ("same", 3, 3),
        ("mapped", 8, 9),
        ("at-the-end", 10, 11),
        ("at-a-changed-one", 7, 8),
        ("ahead", 3, 5),
        ("behind", 8, 4),
        ("beside-the-map", 6, 6),
        ("too-far", 12, 11),
        ("not-there", 3, None),
        ("only-there", None, 3),
    ):
        await world.stands(group, source, target)
    excluded, elsewhere = TopicPartition(world.topic, 0), TopicPartition(world.link.state_topic, 0)
    await commit_offsets(cluster, f"another-{world.name}", {excluded: CommittedOffset(1)})
    await commit_offsets(cluster, f"{world.name}-of-another-topic", {elsewhere: CommittedOffset(1)})
    told = await world.told()
    assert {group: said(item) for group, item in told.items()} == {
        "same": (GroupVerdict.SAME, None, False),
        "mapped": (GroupVerdict.SAME, None, False),
        "at-the-end": (GroupVerdict.SAME, None, False),
        "at-a-changed-one": (GroupVerdict.OTHER_RECORD, GroupReason.MAP_LEADS_ELSEWHERE, False),
        "ahead": (GroupVerdict.AHEAD, GroupReason.MOVED_ON, False),
        "behind": (GroupVerdict.BEHIND, GroupReason.MOVED_ON, False),
        # It would read the local record first, and then go on as at the source.
        "beside-the-map": (GroupVerdict.BEHIND, GroupReason.MOVED_ON, False),
        "too-far": (GroupVerdict.UNMAPPED, GroupReason.NOT_MIRRORED_YET, True),
        "not-there": (GroupVerdict.MISSING_AT_TARGET, GroupReason.NOT_LOOKED_AT_YET, True),
        "only-there": (GroupVerdict.MISSING_AT_SOURCE, GroupReason.NOT_AT_SOURCE, False),
    }
    assert [told[name].is_by_content for name in ("same", "mapped", "at-the-end")] == [True, True, False]
    changed = told["at-a-changed-one"]
    assert None not in (changed.source_digest, changed.target_digest)
    assert changed.source_digest != changed.target_digest
    assert (told["mapped"].expected_offset, told["behind"].expected_offset) == (9, 9)
    found = await world.look()
    assert (found.not_selected >= 1, found.not_listed, found.is_pass_seen) == (True, "", False)


async def test_what_a_whole_pass_left_as_it_was_differs_and_what_it_brought_does_not(cluster: Cluster) -> None:
    world = World(cluster)
    await world.begin([world.written("forgotten", 2, 2), world.written("carried", 2, 2), world.written("active", 2, 2)])
    for group, source, target in (("forgotten", 5, 2), ("carried", 5, 2), ("gone", 5, None), ("active", 5, 4)):
        await world.stands(group, source, target)
    now_ms = cluster.clock.now_ms()
    await world.tell(GroupSyncTimes(looked_at_ms=now_ms))

    async def passes() -> None:
        """One that was under way, and a whole one, which carries one group over and leaves another out."""
        for nth in (1, 2):
            if nth == 2:
                await world.stands("carried", target=5)
                skipped = GroupSync(f"{world.name}-active", 1, waiting={(world.topic, 0): GroupAction.SKIP_ACTIVE})
                await world.tell(skipped)
            await asyncio.wait_for(seen[nth - 1].wait(), 30)
            await world.tell(GroupSyncTimes(looked_at_ms=now_ms + nth))

    seen = [asyncio.Event(), asyncio.Event()]
    clock = cluster.clock

    class Counted:
        """Each time that the audit waits, the next pass ends."""

        def __getattr__(self, name: str) -> Any:
            return getattr(clock, name)

        async def sleep(self, seconds: float) -> None:
            for event in seen:
                if not event.is_set():
                    event.set()
                    break
            await clock.sleep(seconds)

    cluster.clock = Counted()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(passes())
        told = await world.told()
    assert {name: said(item) for name, item in told.items()} == {
        "forgotten": (GroupVerdict.BEHIND, GroupReason.NOT_CARRIED, False),
        "carried": (GroupVerdict.SAME, None, False),
        "gone": (GroupVerdict.MISSING_AT_TARGET, GroupReason.NOT_CARRIED, False),
        "active": (GroupVerdict.BEHIND, GroupReason.ACTIVE_AT_TARGET, False),
    }


async def test_where_no_pass_comes_what_the_link_left_is_in_flight(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AUDIT_GROUP_PASS_MS", 1_000)
    world = World(cluster)
    await world.begin([world.written("left", 2, 2)])
    await world.stands("left", 5, 2)
    await world.stands("moved", 5, 2)
    await world.tell(GroupSyncTimes(looked_at_ms=cluster.clock.now_ms()))
    told = await world.told()
    assert said(told["left"]) == (GroupVerdict.BEHIND, GroupReason.NOT_LOOKED_AT_YET, True)
    assert said(told["moved"]) == (GroupVerdict.BEHIND, GroupReason.MOVED_ON, False)


async def test_behind_a_promotion_groups_go_on_at_the_target(cluster: Cluster) -> None:
    world = World(cluster)
    await world.begin([LinkRun(RunState.PROMOTED, "op-1", 1)])
    await world.stands("went-on", 3, 8)
    told = await world.told()
    assert said(told["went-on"]) == (GroupVerdict.AHEAD, GroupReason.LINK_PROMOTED, False)


async def test_groups_that_are_deleted_are_on_no_list(cluster: Cluster) -> None:
    world = World(cluster)
    await world.begin()
    await world.stands("deleted", 3, 3)
    await delete_groups(cluster, [f"{world.name}-deleted"])
    assert await world.told() == {}
    assert (await world.look()).is_full


async def test_records_that_expired_are_compared_by_their_place(cluster: Cluster) -> None:
    world = World(cluster)
    await world.begin()
    await world.stands("old", 2, 2)
    await delete_records(cluster, {TopicPartition(world.topic, 0): 4})
    told = await world.told()
    assert said(told["old"]) == (GroupVerdict.SAME, None, False)
    assert not told["old"].is_by_content
    await delete_records(cluster, {TopicPartition(world.link.target_topic(world.topic), 0): 7})
    assert said((await world.told())["old"]) == (GroupVerdict.SAME, None, False)


async def test_a_link_without_groups_has_none_to_compare(cluster: Cluster) -> None:
    world = World(cluster)
    await world.begin()
    link = replace(world.link, groups=())
    frozen = await freeze_link(link, cluster, cluster, lambda: 1)
    assert await freeze_groups(link, frozen, cluster, cluster) is None
