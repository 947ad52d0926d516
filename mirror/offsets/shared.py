"""Translating a group's offset where the target topic has writers of its own.

The two sites hold the same records in different orders, so that an offset of the source has no equal at the target.
What it has is the first target offset that the group has not read: the earlier of two, one of each kind of record.

- Of the source's own records, the one that this link's map says.
- Of the target's own records, the first that the reverse link had not yet brought before the group's offset.

Some records behind it may be read a second time; none is left out. Taking only the first would leave records out, and
two links that each take the first would drive a group of both sites forward for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.client.cluster import Cluster
from mirror.link import Link
from mirror.offsets.intervals import End
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.state import load_link_state


@dataclass(frozen=True, slots=True)
class GroupMap:
    """An offset map for groups. `reverse_links`: the links back that write the same topics, each with its map."""

    own: OffsetMap
    reverse_links: tuple[tuple[Link, OffsetMap], ...] = ()

    def to_target(self, topic: str, partition: int, source_offset: int) -> int | None:
        """The first target offset that a group at `source_offset` has not read; None where it cannot be known."""
        found = [self.own.to_target(topic, partition, source_offset)]
        found += [_first_unread(back, topic, partition, source_offset) for back in self._backs(topic)]
        known = [offset for offset in found if offset is not None]
        return min(known) if len(known) == len(found) else None

    def mirrored_end(self, topic: str, partition: int) -> End | None:
        """As of the link's own map; None where the target has writers of its own: they may have written before it."""
        return None if any(True for _ in self._backs(topic)) else self.own.mirrored_end(topic, partition)

    def _backs(self, topic: str) -> Iterable[OffsetMap]:
        return (back for link, back in self.reverse_links if link.selects_topic(topic))


def _first_unread(back: OffsetMap, topic: str, partition: int, offset: int) -> int | None:
    """The reverse link's source offset of the first record that it brought to `offset` or behind it, or will."""
    end, intervals = back.mirrored_end(topic, partition), back.intervals(topic, partition)
    if end is None or not intervals:
        return None
    if offset >= end.target_next:
        return end.source_next
    if offset < intervals[0].target_start:
        return intervals[0].source_start
    return back.to_source(topic, partition, offset)


async def load_group_map(link: Link, own: OffsetMap, source: Cluster) -> GroupMap:
    """The map with those of the reverse links, which are kept at this link's source. Raises ClientError, StateDamaged.

    A map that is read too early only says an earlier offset.
    """
    backs = [(back, (await load_link_state(back, source)).map) for back in link.reverse_links]
    return GroupMap(own, tuple(backs))
