"""The map for a pass over groups, as both sites stand now: the link's own with those of the links back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.client.cluster import Cluster
from broker.client.fanout import both
from broker.client.topics import describe_topics
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Gap
from mirror.offsets.group_entries import Written
from mirror.offsets.limits import EXAMINED_ROUNDS
from mirror.offsets.offset_map import OffsetMap, Where
from mirror.offsets.shared import Examined, GroupMap, examine
from mirror.offsets.state import StateReaders, load_partial_state
from mirror.worker.outlived import in_doubt_now


async def load_group_map(
    link: Link,
    own: OffsetMap,
    in_doubt: Iterable[Where],
    clusters: tuple[Cluster, Cluster],
    examined: dict[TopicPartition, Examined],
    readers: StateReaders | None = None,
    leaving: Iterable[Gap] = (),
) -> GroupMap:
    """The map with those of the reverse links, which are kept at this link's source; `clusters`: source and target.

    `in_doubt`, and what is so in a reverse link: the partitions where an offset may mean another record by now, or
    where the reverse link's log cannot be read. What a reverse link says of a topic that is another one by now counts
    for nothing: the target's records are those that this link brought. `examined` is what earlier calls saw, and is
    added to; `readers` go on from where those had read. A map that is read too early only says an earlier offset.
    `leaving`: entries of the reverse links' gap ledgers that are about to be written, and count as if they were.
    Raises ClientError, StateDamaged.
    """
    source, target = clusters
    backs: list[tuple[Link, OffsetMap]] = []
    written_back: dict[str, Mapping[Where, Written]] = {}
    left: dict[TopicPartition, tuple[range, ...]] = {}
    doubted = set(in_doubt)
    for back in link.reverse_links:
        state, topics = await both(
            load_partial_state(back, source, readers.of(back) if readers is not None else None),
            describe_topics(target, {topic for topic, _ in own.partitions()}),
        )
        others = state.entries.of_other_topics(topics)
        backs.append((back, state.map.without(others)))
        for name, entry in state.entries.groups.by_group.items():
            written_back[name] = {where: pair for where, pair in entry.written.items() if where not in others}
        doubted |= await in_doubt_now(back, state.entries, target, source) | state.unread.keys()
        for gap in (*state.entries.left_at_source(), *leaving):
            at = TopicPartition(gap.topic, gap.partition)
            if at not in others:
                left[at] = (*left.get(at, ()), range(gap.source_from, gap.source_to))
    in_doubt = frozenset(doubted)
    more = (*link.side_links, *link.round_links)
    found = GroupMap(own, tuple(backs), in_doubt, examined, more, written_back, left)
    for _ in range(EXAMINED_ROUNDS):
        if not await examine(target, found.unexplained(), examined):
            break
        found = GroupMap(own, tuple(backs), in_doubt, examined, more, written_back, left)
    return found
