"""A pass that stalls between its looks: what it saw of the source is old by then, and undoes nothing at the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from broker.client.cluster import Cluster
from broker.client.model import CommittedOffset
from broker.wire.api import ApiKey
from broker.wire.frames import RequestHeader
from broker.wire.schema import Message
from broker.wire.vocabulary import TopicPartition
from mirror.groups.sync import GroupSyncMemory, GroupSyncReport, sync_groups
from mirror.link import Link
from mirror.offsets.group_entries import GroupSync, Written
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import GroupMap
from mirror.offsets.state_writer import Change
from tests.broker.client.group_site import GroupSite, serving

WHERE = TopicPartition("t", 0)
MAP = OffsetMap({("t", 0): PartitionMap([Interval(0, 0)], End(100, 100), 100)})
BEFORE = Written(7, 7, stood=7, turn=1)
READ_ON = Written(10, 10, 7, stood=10, turn=2)
SET_BACK = Written(3, 3, 10, stood=3, turn=3)


def at(offset: int) -> dict[TopicPartition, CommittedOffset]:
    return {WHERE: CommittedOffset(offset)}


@dataclass
class Looked(GroupSite):
    """`then` happens once, right behind the first answer about offsets."""

    then: list[Callable[[], None]] = field(default_factory=list)

    def _answer(self, header: RequestHeader, message: Message) -> Message:
        answer = super()._answer(header, message)
        if header.api_key == ApiKey.OFFSET_FETCH and self.then:
            self.then.pop()()
        return answer


@dataclass
class TwoWays:
    """The group reads in the west, and the link back carried that to the east, where this link begins."""

    east: Looked = field(default_factory=lambda: Looked({"g": at(10)}))
    west: Looked = field(default_factory=lambda: Looked({"g": at(10)}))
    back: Written = READ_ON
    memory: GroupSyncMemory = field(default_factory=lambda: GroupSyncMemory({"g": GroupSync("g", 1, {WHERE: BEFORE})}))
    at_map: list[Callable[[], None]] = field(default_factory=list)

    def set_back(self) -> None:
        """An operator sets it back in the west; the link back carries that over, and sees that it is done."""
        self.west.offsets["g"] = at(3)
        self.east.offsets["g"] = at(3)
        self.back = SET_BACK

    def read_on(self) -> None:
        self.east.offsets["g"] = at(12)

    async def one_pass(self) -> GroupSyncReport:
        async def write(_written: Sequence[Change]) -> None:
            pass

        self.east.ports.clear()
        self.west.ports.clear()
        async with serving(self.east, "east") as source, serving(self.west, "west") as target:
            link = Link("there", source, target, ("t",), groups=(".*",), shared_targets=True)
            back = replace(link, name="back", source=target, target=source)
            link = replace(link, reverse_links=(back,))

            async def load_map() -> GroupMap:
                while self.at_map:
                    self.at_map.pop()()
                return GroupMap(MAP, ((back, OffsetMap()),), written_back={"g": {WHERE: self.back}})

            async with Cluster(source) as here, Cluster(target) as there:
                return await sync_groups(link, here, there, load_map, self.memory, write)


@pytest.mark.parametrize("moment", ["behind the source", "behind the target", "before the map"])
async def test_a_set_back_at_the_target_is_not_undone_by_a_look_at_the_source_from_before(moment: str) -> None:
    world = TwoWays()
    {"behind the source": world.east.then, "behind the target": world.west.then, "before the map": world.at_map}[
        moment
    ].append(world.set_back)
    await world.one_pass()
    assert (world.west.offsets, world.memory.by_group["g"].written[WHERE].turn) == ({"g": at(3)}, BEFORE.turn)
    report = await world.one_pass()
    assert not report.failures
    assert world.west.offsets == {"g": at(3)}
    assert world.memory.by_group["g"].written[WHERE].target_offset == 3


async def test_a_group_that_reads_on_at_the_source_all_the_time_is_carried_over() -> None:
    world = TwoWays()
    world.east.offsets["g"] = at(11)
    world.at_map.append(world.read_on)
    report = await world.one_pass()
    assert not report.failures
    assert world.west.offsets == {"g": at(11)}
