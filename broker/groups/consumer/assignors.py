"""The assignors on the coordinator's side: who should have which partition. Pure.

Both keep what a member has where that costs no balance, because each move stops somebody's reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final
from uuid import UUID

from broker.coordination.host import TopicShape
from broker.groups.consumer.model import Slot, Slots

Wants = Mapping[str, Mapping[str, TopicShape]]
"""Per member id the topics that it is subscribed to and that exist."""
Assignor = Callable[[Wants, Mapping[str, Slots]], dict[str, Slots]]
"""(wants, the target before) -> the new target: every wanted partition at exactly one member that wants it."""


def assign_uniform(wants: Wants, before: Mapping[str, Slots]) -> dict[str, Slots]:
    """As even as the subscriptions allow: no single partition given from one member to another would even them out."""
    subscriptions = list(wants.values())
    if all(topics == subscriptions[0] for topics in subscriptions):
        return _assign_alike(sorted(wants), subscriptions[0] if subscriptions else {}, before)
    wanting: dict[UUID, list[str]] = {}
    free: set[Slot] = set()
    for member_id in sorted(wants):
        for shape in wants[member_id].values():
            wanting.setdefault(shape.topic_id, []).append(member_id)
            free.update(_slots(shape))
    given: dict[str, set[Slot]] = {member_id: set() for member_id in wants}
    for member_id in sorted(wants):
        wanted = {shape.topic_id for shape in wants[member_id].values()}
        kept = {slot for slot in before.get(member_id, ()) if slot in free and slot.topic_id in wanted}
        given[member_id] |= kept
        free -= kept
    # Those that few want go first: the others can even out what they make uneven.
    for slot in sorted(free, key=lambda slot: (len(wanting[slot.topic_id]), slot)):
        least = min(wanting[slot.topic_id], key=lambda member_id: (len(given[member_id]), member_id))
        given[least].add(slot)
    _even_out(wanting, given)
    return {member_id: frozenset(slots) for member_id, slots in given.items()}


def _slots(shape: TopicShape) -> Iterator[Slot]:
    return (Slot(shape.topic_id, partition) for partition in range(shape.partitions))


def _assign_alike(
    members: Sequence[str], topics: Mapping[str, TopicShape], before: Mapping[str, Slots]
) -> dict[str, Slots]:
    """All want the same: each keeps what it had up to its share, and the rest is dealt out."""
    free = {slot for shape in topics.values() for slot in _slots(shape)}
    if not members:
        return {}
    held: dict[str, list[Slot]] = {}
    for member_id in members:
        held[member_id] = sorted(free & before.get(member_id, frozenset()))
        free -= set(held[member_id])
    each, more = divmod(sum(map(len, held.values())) + len(free), len(members))
    by_load = sorted(members, key=lambda member_id: (-len(held[member_id]), member_id))
    share = {member_id: each + (index < more) for index, member_id in enumerate(by_load)}
    for member_id in members:
        free.update(held[member_id][share[member_id] :])
        del held[member_id][share[member_id] :]
    rest = iter(sorted(free))
    for member_id in members:
        held[member_id] += islice(rest, share[member_id] - len(held[member_id]))
    return {member_id: frozenset(slots) for member_id, slots in held.items()}


def _even_out(wanting: Mapping[UUID, list[str]], given: dict[str, set[Slot]]) -> None:
    """Move partitions from those with many to those with few, until no single move helps.

    Each move makes the sum of squares smaller, so it ends.
    """
    held: dict[str, dict[UUID, list[int]]] = {member_id: {} for member_id in given}
    for member_id, slots in given.items():
        for slot in sorted(slots):
            held[member_id].setdefault(slot.topic_id, []).append(slot.partition)
    while move := _best_move(wanting, given, held):
        giver, taker, topic_id = move
        partition = held[giver][topic_id].pop()
        held[taker].setdefault(topic_id, []).append(partition)
        given[giver].discard(Slot(topic_id, partition))
        given[taker].add(Slot(topic_id, partition))


def _best_move(
    wanting: Mapping[UUID, list[str]], given: Mapping[str, set[Slot]], held: Mapping[str, Mapping[UUID, list[int]]]
) -> tuple[str, str, UUID] | None:
    """(giver, taker, topic) from the one with the most that has a taker with at least two fewer."""
    fewest = min(map(len, given.values()), default=0)
    for giver in sorted(given, key=lambda member_id: (-len(given[member_id]), member_id)):
        if len(given[giver]) <= fewest + 1:
            break
        for topic_id in sorted(topic_id for topic_id, partitions in held[giver].items() if partitions):
            taker = min(wanting[topic_id], key=lambda member_id: (len(given[member_id]), member_id))
            if len(given[taker]) + 1 < len(given[giver]):
                return giver, taker, topic_id
    return None


def assign_range(wants: Wants, before: Mapping[str, Slots]) -> dict[str, Slots]:
    """Per topic one run of neighbouring partitions each, in the order of the member ids, the first ones one more.

    Topics with equally many partitions and the same subscribers are cut alike, so that joins by key stay together;
    that is why what was before does not count here.
    """
    subscribers: dict[TopicShape, list[str]] = {}
    for member_id in sorted(wants):
        for shape in wants[member_id].values():
            subscribers.setdefault(shape, []).append(member_id)
    given: dict[str, set[Slot]] = {member_id: set() for member_id in wants}
    for shape, members in subscribers.items():
        each, more = divmod(shape.partitions, len(members))
        start = 0
        for index, member_id in enumerate(members):
            end = start + each + (index < more)
            given[member_id].update(Slot(shape.topic_id, partition) for partition in range(start, end))
            start = end
    return {member_id: frozenset(slots) for member_id, slots in given.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"uniform": assign_uniform, "range": assign_range})
DEFAULT_ASSIGNOR: Final = "uniform"
