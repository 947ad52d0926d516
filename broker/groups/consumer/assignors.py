"""The assignors on the coordinator's side: who should have which partition. Pure.

Both keep what a member has where that costs no balance, because each move stops somebody's reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from broker.coordination.host import TopicShape
from broker.groups.consumer.model import Slot, Slots

Wants = Mapping[str, Mapping[str, TopicShape]]
"""Per member id the topics that it is subscribed to and that exist."""
Assignor = Callable[[Wants, Mapping[str, Slots]], dict[str, Slots]]
"""(wants, the target before) -> the new target: every wanted partition at exactly one member that wants it."""


def assign_uniform(wants: Wants, before: Mapping[str, Slots]) -> dict[str, Slots]:
    """As even as the subscriptions allow: no single partition given from one member to another would even them out."""
    wanting: dict[Slot, list[str]] = {}
    for member_id in sorted(wants):
        for shape in wants[member_id].values():
            for partition in range(shape.partitions):
                wanting.setdefault(Slot(shape.topic_id, partition), []).append(member_id)
    given: dict[str, set[Slot]] = {member_id: set() for member_id in wants}
    owner: dict[Slot, str] = {}
    for member_id in sorted(wants):
        for slot in sorted(before.get(member_id, ())):
            if slot not in owner and member_id in wanting.get(slot, ()):
                owner[slot] = member_id
                given[member_id].add(slot)
    # Those that few want go first: the others can even out what they make uneven.
    for slot in sorted(wanting.keys() - owner.keys(), key=lambda slot: (len(wanting[slot]), slot)):
        least = min(wanting[slot], key=lambda member_id: (len(given[member_id]), member_id))
        owner[slot] = least
        given[least].add(slot)
    _even_out(wanting, given)
    return {member_id: frozenset(slots) for member_id, slots in given.items()}


def _even_out(wanting: Mapping[Slot, list[str]], given: dict[str, set[Slot]]) -> None:
    """Move partitions from those with many to those with few, until no single move helps.

    Each move makes the sum of squares smaller, so it ends.
    """
    while move := _best_move(wanting, given):
        giver, taker, slot = move
        given[giver].discard(slot)
        given[taker].add(slot)


def _best_move(wanting: Mapping[Slot, list[str]], given: dict[str, set[Slot]]) -> tuple[str, str, Slot] | None:
    """(giver, taker, slot) from the one with the most that has a taker with at least two fewer."""
    fewest = min(map(len, given.values()), default=0)
    for giver in sorted(given, key=lambda member_id: (-len(given[member_id]), member_id)):
        if len(given[giver]) <= fewest + 1:
            break
        for slot in sorted(given[giver], reverse=True):
            taker = min(wanting[slot], key=lambda member_id: (len(given[member_id]), member_id))
            if len(given[taker]) + 1 < len(given[giver]):
                return giver, taker, slot
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
