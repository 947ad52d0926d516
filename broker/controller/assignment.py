"""Which brokers get the replicas of new partitions. Pure: where the round begins is passed in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

from broker.errors import BrokerError
from broker.wire.errors import ErrorCode


class TooFewBrokers(BrokerError):
    """More replicas were asked for than there are brokers to keep them."""

    error_code = ErrorCode.INVALID_REPLICATION_FACTOR
    hint = "start more brokers, or ask for a smaller replication factor"


def assign_replicas(
    brokers: Mapping[int, str | None], partitions: int, replication_factor: int, *, first: int, shift: int
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first; `brokers` are node ids with their racks.

    Leaders go round over the brokers from place `first` on, one rack after the other; the followers of partitions with
    one leader begin `shift` places further and one more in each round, so that a lost broker's load falls on all the
    others. No broker has two replicas of a partition, and no rack has two while another has none. Where a broker has no
    rack, racks are left out of it. Raises TooFewBrokers.
    """
    if not 1 <= replication_factor <= len(brokers):
        raise TooFewBrokers(f"{replication_factor} replicas were asked for, {len(brokers)} brokers are running")
    known = {node: rack for node, rack in brokers.items() if rack is not None}
    racks: Mapping[int, str | None] = known if len(known) == len(brokers) else dict.fromkeys(brokers)
    ring = _by_racks_in_turn(racks)
    # After so many partitions they come again in the same order, which a topic of ten thousand need not work out.
    round_size = len(ring) * max(len(ring) - 1, 1)
    one_round = [
        _replicas(ring, racks, replication_factor, first + index, shift, index)
        for index in range(min(partitions, round_size))
    ]
    return [one_round[index % round_size] for index in range(partitions)]


def _by_racks_in_turn(racks: Mapping[int, str | None]) -> list[int]:
    """One broker of each rack, then the next of each: neighbours are in different racks for as long as there are."""
    by_rack: dict[str, list[int]] = {}
    for node in sorted(racks):
        by_rack.setdefault(racks[node] or "", []).append(node)
    columns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [node for node in chain.from_iterable(columns) if node is not None]


def _replicas(
    ring: Sequence[int], racks: Mapping[int, str | None], count: int, leader_place: int, shift: int, index: int
) -> tuple[int, ...]:
    leader = ring[leader_place % len(ring)]
    chosen = [leader]
    others = [ring[(leader_place + step) % len(ring)] for step in range(1, len(ring))]
    if others:
        turn = (shift + index // len(ring)) % len(others)
        others = others[turn:] + others[:turn]
    used = Counter([racks[leader]])
    while len(chosen) < count:
        # The least used rack; of equals the one that comes first in the round.
        follower = min(others, key=lambda node: used[racks[node]])
        others.remove(follower)
        chosen.append(follower)
        used[racks[follower]] += 1
    return tuple(chosen)
