"""Groups of which an application's transaction commits offsets at the target are left to it, and to a later pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from broker.client.cluster import Cluster
from broker.client.model import CommittedOffset
from broker.wire.api import ApiKey
from broker.wire.frames import RequestHeader
from broker.wire.schema import Message
from broker.wire.vocabulary import TopicPartition
from mirror.groups.committing import OffsetsHeld
from mirror.groups.sync import GroupSyncMemory, GroupSyncReport, sync_groups
from mirror.link import Link
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import GroupMap
from mirror.offsets.state_writer import Change
from tests.broker.client.group_site import GroupSite, serving

WHERE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
MAP = OffsetMap({("t", number): PartitionMap([Interval(0, 0)], End(100, 100), 100) for number in range(2)})
READ = 20
"""What the application commits in its transaction."""


def at(offset: int, where: TopicPartition = WHERE) -> dict[TopicPartition, CommittedOffset]:
    return {where: CommittedOffset(offset)}


@dataclass
class Late(GroupSite):
    """The application's transaction has the groups' offsets when the first request of this kind comes."""

    before: ApiKey | None = None

    def _answer(self, header: RequestHeader, message: Message) -> Message:
        if header.api_key == self.before:
            self.before = None
            self.hold("g", at(READ))
            self.hold("first", at(READ))
        return super()._answer(header, message)


@dataclass
class World:
    """The groups `g` and `first`, which has no offset there, are to go to 10 in the west, where an application reads
    them in transactions; `free` goes to 12.
    """

    east: GroupSite = field(default_factory=lambda: GroupSite({"g": at(10), "first": at(10), "free": at(12)}))
    west: Late = field(default_factory=lambda: Late({"g": at(3)}))
    memory: GroupSyncMemory = field(default_factory=GroupSyncMemory)

    async def one_pass(self) -> GroupSyncReport:
        async def load_map() -> GroupMap:
            return GroupMap(MAP)

        async def write(_written: Sequence[Change]) -> None:
            pass

        self.east.ports.clear()
        self.west.ports.clear()
        async with serving(self.east, "east") as source, serving(self.west, "west") as target:
            link = Link("l", source, target, ("t",), groups=(".*",))
            async with Cluster(source) as here, Cluster(target) as there:
                return await sync_groups(link, here, there, load_map, self.memory, write)


@pytest.mark.parametrize(
    ("moment", "newest"),
    [
        (None, {}),
        (None, {ApiKey.OFFSET_FETCH: 7}),
        (ApiKey.INIT_PRODUCER_ID, {}),
        (ApiKey.ADD_OFFSETS_TO_TXN, {}),
    ],
    ids=["before the pass", "and groups are asked one by one", "before the fence", "right before it is staged"],
)
async def test_an_applications_commit_is_not_overtaken_by_a_pass_amid_its_transaction(
    moment: ApiKey | None, newest: dict[ApiKey, int]
) -> None:
    """It ended well, and the group read again from where the mirror had put it amid that."""
    world = World()
    world.west.newest = newest
    if moment is None:
        world.west.hold("g", at(READ))
        world.west.hold("first", at(READ))
    else:
        world.west.before = moment
    report = await world.one_pass()
    groups = {"g", "first"}
    assert all(isinstance(report.failures[group], OffsetsHeld) for group in groups)
    assert report.failures.keys() == groups
    assert world.west.offsets == {"g": at(3), "free": at(12)}
    world.west.end_held()
    assert world.west.offsets == {"g": at(READ), "first": at(READ), "free": at(12)}


async def test_it_is_said_which_transaction_a_group_waits_for_and_the_next_pass_carries_it() -> None:
    world = World()
    world.west.hold("g", at(READ))
    report = await world.one_pass()
    text = "a transaction at west that has not ended has the group's offset in t-0"
    assert str(report.failures["g"]) == world.memory.by_group["g"].failure == text
    assert "kafka-transactions.sh list" in (report.failures["g"].hint or "")
    world.west.held.clear()
    assert not (await world.one_pass()).failures
    assert (world.west.offsets["g"], world.memory.by_group["g"].failure) == (at(10), "")


async def test_a_transaction_elsewhere_holds_up_no_group() -> None:
    world = World()
    world.west.hold("g", at(READ, OTHER))
    assert not (await world.one_pass()).failures
    assert world.west.offsets["g"] == at(10)
    world.west.end_held()
    assert world.west.offsets["g"] == at(10) | at(READ, OTHER)
