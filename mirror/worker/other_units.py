"""What a link's other units have mirrored, as far as their state at the target proves it: for passes over groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.client.model import Topic
from mirror.heartbeat import Pulse, judge_heartbeat
from mirror.link import Link
from mirror.offsets.offset_map import OffsetMap, PartitionMap, Where
from mirror.offsets.state import StateReaders, load_partial_state
from mirror.offsets.state_entries import StateEntries


@dataclass(slots=True)
class OtherUnits:
    """Their maps, and the partitions where an offset of now may mean another record than these speak of."""

    maps: dict[Where, PartitionMap] = field(default_factory=dict)
    in_doubt: set[Where] = field(default_factory=set)

    def with_own(self, own: OffsetMap) -> OffsetMap:
        """The map of all of the link."""
        return OffsetMap({**self.maps, **{where: own.partition(*where) for where in own.partitions()}})


async def load_other_units(
    link: Link, target: Cluster, source_topics: Mapping[str, Topic], readers: StateReaders
) -> OtherUnits:
    """Of a unit's link; `source_topics` as they were after the offsets were read that are to be translated.

    Raises ClientError, StateDamaged.
    """
    found = OtherUnits()
    for unit in link.each_unit():
        if unit.state_partition != link.state_partition:
            state = await load_partial_state(unit, target, readers.of(unit))
            if state.entries.link != unit:
                continue  # it was cut anew, and this session is about to end
            found.maps |= {where: state.map.partition(*where) for where in state.map.partitions()}
            found.in_doubt |= doubted(state.entries, source_topics, target.clock.now_ms()) | state.unread.keys()
    return found


def doubted(entries: StateEntries, source_topics: Mapping[str, Topic], now_ms: int) -> set[Where]:
    """Of one unit: also what no living worker has compared with the source since it took the unit over. Pure."""
    owner = entries.owner
    lives = judge_heartbeat(owner, now_ms).pulse is Pulse.ALIVE
    found = set(entries.doubts(source_topics))
    for where, checkpoint in entries.checkpoints.items():
        if not lives or owner is None or checkpoint.writer != owner.writer or where[0] not in source_topics:
            found.add(where)
    return found
