"""Partitions on their way to other replicas (KIP-455). Pure.

While one is reassigned it has the replicas of both: those that it is to have come first, `adding_replicas` are new,
`removing_replicas` go when all that stay are in sync. So it can be called off, and gone on with by any controller, by
what is written alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from broker.cluster.metadata import PartitionState
from broker.controller.elections import Liveness, in_new_epoch, is_reassigned
from broker.wire.vocabulary import NO_LEADER


class Assignment(NamedTuple):
    """Of one partition: all its replicas, the preferred leader first, and which of them come and go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


def assignment_of(state: PartitionState) -> Assignment:
    return Assignment(state.replicas, state.adding_replicas, state.removing_replicas)


def moving(state: PartitionState, target: Iterable[int]) -> Assignment:
    """On the way to `target`, whatever the way was before: what it came from stays until it has arrived."""
    origin, target = _origin(state), tuple(target)
    replicas = tuple(dict.fromkeys((*target, *origin)))
    return Assignment(
        replicas,
        tuple(node for node in replicas if node not in origin),
        tuple(node for node in replicas if node not in target),
    )


def called_off(state: PartitionState) -> Assignment:
    return moving(state, _origin(state))


def arrived(state: PartitionState) -> Assignment | None:
    """What it has from now on; None while not all of these are in sync, or nobody leads."""
    target = tuple(node for node in state.replicas if node not in state.removing_replicas)
    if not is_reassigned(state) or state.leader == NO_LEADER or not set(target) <= set(state.isr):
        return None
    return Assignment(target)


def without(state: PartitionState, dropped: Collection[int], brokers: Liveness) -> PartitionState | None:
    """In a new leader epoch, led and kept in sync without `dropped`: the leader of before, which may not have heard of
    it, cannot write an ISR with them any more. None where nobody else that is in sync could lead.
    """
    isr = tuple(node for node in state.isr if node not in dropped)
    return in_new_epoch(state, isr, brokers) if isr else None


def _origin(state: PartitionState) -> tuple[int, ...]:
    return tuple(node for node in state.replicas if node not in state.adding_replicas)
