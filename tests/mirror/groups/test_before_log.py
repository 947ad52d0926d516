"""A group whose next records the target has no more is not called equal: its consumers would go on elsewhere there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.client.cluster import Cluster
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.groups.description import carried_group
from mirror.groups.sync import GroupSyncMemory, sync_groups
from mirror.link import Link
from mirror.offsets.group_entries import GroupAction, GroupSync
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import GroupMap
from mirror.offsets.state_writer import Change
from tests.broker.client.group_site import GroupSite, serving

WHERE = TopicPartition("t", 0)
MAP = OffsetMap({("t", 0): PartitionMap([Interval(0, 5)], End(100, 105), 100)})
"""The source's 0 to 99 are the target's 5 to 104."""


def at(offset: int) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    return {"g": {WHERE: CommittedOffset(offset)}}


async def one_pass(east: GroupSite, west: GroupSite, memory: GroupSyncMemory) -> list[Change]:
    async def load_map() -> GroupMap:
        return GroupMap(MAP)

    changes: list[Change] = []

    async def write(written: Sequence[Change]) -> None:
        changes.extend(written)

    east.ports.clear()
    west.ports.clear()
    async with serving(east, "east") as source, serving(west, "west") as target:
        link = Link("l", source, target, ("t",), groups=(".*",))
        async with Cluster(source) as here, Cluster(target) as there:
            await sync_groups(link, here, there, load_map, memory, write)
    return changes


@pytest.mark.parametrize("stood_at", [3, 8], ids=["it is committed", "it stands there already"])
async def test_it_is_carried_over_exactly_and_waits(stood_at: int) -> None:
    """The offset at the target is exact, for who moves the group, and no other one is equal."""
    east, west, memory = GroupSite(at(3)), GroupSite(at(stood_at), log_starts={WHERE: 20}), GroupSyncMemory()
    await one_pass(east, west, memory)
    assert west.offsets == at(8)
    entry = memory.by_group["g"]
    assert entry.waiting == {WHERE: GroupAction.BEFORE_LOG}
    assert (entry.written[WHERE].source_offset, entry.written[WHERE].target_offset) == (3, 8)
    assert memory.syncs.synced_at("g") is None
    (partition,) = carried_group(
        Link("l", Site("east", "e:1"), Site("west", "w:1"), ("t",)),
        "g",
        memory.syncs,
        east.offsets["g"],
        west.offsets["g"],
    ).partitions
    assert partition.state == "waiting"
    assert partition.reason.startswith("before_log: ")


@pytest.mark.parametrize(
    ("source_offset", "source_start", "target_start"),
    [
        pytest.param(3, 0, 8, id="the first one that is there"),
        pytest.param(3, 4, 20, id="its source has it no more either"),
        pytest.param(100, 0, 110, id="behind the last record are markers alone"),
    ],
)
async def test_what_is_equal_still_is(source_offset: int, source_start: int, target_start: int) -> None:
    east = GroupSite(at(source_offset), log_starts={WHERE: source_start})
    west, memory = GroupSite(at(source_offset + 5), log_starts={WHERE: target_start}), GroupSyncMemory()
    await one_pass(east, west, memory)
    assert memory.by_group["g"].is_settled
    assert memory.syncs.synced_at("g") is not None


async def test_it_is_equal_again_when_it_has_read_on() -> None:
    east, west, memory = GroupSite(at(3)), GroupSite(at(8), log_starts={WHERE: 20}), GroupSyncMemory()
    await one_pass(east, west, memory)
    east.offsets = at(15)
    (entry,) = [c for c in await one_pass(east, west, memory) if isinstance(c, GroupSync) and c.is_settled]
    assert west.offsets == at(20)
    assert entry.waiting == {}


async def test_where_the_log_begins_is_not_forgotten_while_it_does_not_answer() -> None:
    """A log's start goes up alone: an offset before it is not back because nobody can be asked."""
    east, west, memory = GroupSite(at(3)), GroupSite(at(8), log_starts={WHERE: 20}), GroupSyncMemory()
    await one_pass(east, west, memory)
    west.log_starts = None
    await one_pass(east, west, memory)
    assert memory.by_group["g"].waiting == {WHERE: GroupAction.BEFORE_LOG}
