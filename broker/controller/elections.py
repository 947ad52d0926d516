"""Who leads a partition after something changed. Pure; nothing here is true before it is written and ordered.

Every change of leader or ISR by the controller raises the leader epoch, so that orders and requests of before are
refused (KIP-101, KIP-279). A replica leaves the ISR when its broker is gone, but for those that go last: what they
have is all that was acknowledged, and a leader is found again only among them (unclean election off).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Final

from broker.cluster.metadata import PartitionState
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER

FIRST_LEADER_EPOCH: Final = 0


@dataclass(frozen=True, slots=True)
class Liveness:
    """The brokers that are registered, and those of them that are about to stop (ControlledShutdown)."""

    live: Set[int]
    leaving: Set[int] = frozenset()

    @property
    def staying(self) -> Set[int]:
        return self.live - self.leaving


def after_brokers_changed(state: PartitionState, brokers: Liveness, *, unclean: bool) -> PartitionState:
    """The state as it is with these brokers: gone ones are out of the ISR, and the leader is one that is there.

    `unclean` lets a replica that is not in sync lead when no other is there: what it lacks is lost. The very same
    object where nothing changes.
    """
    isr = tuple(node for node in state.isr if node in brokers.live)
    if not isr:
        candidates = [node for node in state.replicas if node in brokers.live] if unclean else []
        # One that is being added may have nothing yet.
        candidates.sort(key=lambda node: node in state.adding_replicas)
        if not candidates:
            # Whoever of them comes back first has all that was acknowledged.
            return state if state.leader == NO_LEADER else _changed(state, NO_LEADER, state.isr)
        return _changed(state, candidates[0], (candidates[0],))
    if state.leader in isr:
        return state if isr == state.isr else _changed(state, state.leader, isr)
    staying = _first(state, isr, brokers.staying)
    return _changed(state, isr[0] if staying is None else staying, isr)


def after_restarts(state: PartitionState, brokers: Liveness, restarted: Set[int], *, unclean: bool) -> PartitionState:
    """As `after_brokers_changed`, where some of the brokers were gone and are back: what they had not written to their
    disks is lost, so others that are in sync come first, and none leads on in the same epoch (KIP-320).
    """
    back = restarted & {state.leader, *state.isr}
    if not back:
        return after_brokers_changed(state, brokers, unclean=unclean)
    without = after_brokers_changed(state, Liveness(brokers.live - back, brokers.leaving), unclean=False)
    if without.leader != NO_LEADER:
        return without
    again = after_brokers_changed(state, brokers, unclean=unclean)
    return _changed(state, state.leader, state.isr) if again is state and state.leader != NO_LEADER else again


def first_leader(state: PartitionState, ready: Set[int]) -> PartitionState | None:
    """Of a new partition, whose replicas in `ready` have its folder; None where none has. Only these are in sync."""
    isr = tuple(node for node in state.replicas if node in ready)
    return replace(state, leader=isr[0], leader_epoch=FIRST_LEADER_EPOCH, isr=isr) if isr else None


def preferred_leader(state: PartitionState, brokers: Liveness) -> PartitionState | None:
    """With the first replica as the leader; None where it is not there or not in sync. The same object where it leads
    already.
    """
    preferred = state.replicas[0]
    if preferred == state.leader:
        return state
    if preferred not in state.isr or preferred not in brokers.staying:
        return None
    return _changed(state, preferred, state.isr)


def asked_leader(state: PartitionState, brokers: Liveness, *, unclean: bool) -> PartitionState | ErrorCode:
    """As a client asks for it (KIP-460): the first replica leads; or, `unclean`, where nobody leads whoever is there,
    also one that is not in sync. The code says why there is no such election.
    """
    if not unclean:
        preferred = preferred_leader(state, brokers)
        if preferred is None:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return ErrorCode.ELECTION_NOT_NEEDED if preferred is state else preferred
    if state.leader in brokers.live:
        return ErrorCode.ELECTION_NOT_NEEDED
    after = after_brokers_changed(state, brokers, unclean=True)
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if after.leader == NO_LEADER else after


def is_reassigned(state: PartitionState) -> bool:
    """Whether it is on its way to other replicas (KIP-455)."""
    return bool(state.adding_replicas or state.removing_replicas)


def in_new_epoch(state: PartitionState, isr: tuple[int, ...], brokers: Liveness) -> PartitionState | None:
    """With this ISR, a part of the one before, and its leader if that is in it; None where nobody in it could lead."""
    if state.leader == NO_LEADER or state.leader in isr:
        return _changed(state, state.leader, isr)
    leader = _first(state, isr, brokers.staying)
    if leader is None:
        leader = _first(state, isr, brokers.live)
    return None if leader is None else _changed(state, leader, isr)


def without_broker(state: PartitionState, leaving: int, brokers: Liveness) -> PartitionState | None:
    """Led by another replica than `leaving`, and without it in the ISR; None while no other replica is in sync.

    The same object where it is not in the ISR.
    """
    if leaving not in state.isr:
        return state
    isr = tuple(node for node in state.isr if node != leaving and node in brokers.live)
    if not isr:
        return None
    leader = state.leader if state.leader in isr else _first(state, isr, brokers.staying)
    return None if leader is None else _changed(state, leader, isr)


def _first(state: PartitionState, isr: tuple[int, ...], brokers: Set[int]) -> int | None:
    return next((node for node in state.replicas if node in isr and node in brokers), None)


def _changed(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)
