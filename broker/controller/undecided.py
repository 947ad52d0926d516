"""Partitions whose metadata were older than their logs: of whom the ISR speaks is not known then, nor which leader
epochs were given out since. Pure.

Such a partition is led by nobody, in an epoch above all that its replicas know of, until all of them have said what
they have (KIP-966 elects so, too). Of logs that come from one history the one with the latest epoch, and of these the
longest, has all that was acknowledged: each leader had it when its epoch began. Where another replica was told that
more was acknowledged than it has in common with that one, there are two histories: who leads is for an operator to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from broker.cluster.metadata import PartitionState
from broker.cluster.orders import ReplicaLog
from broker.controller.elections import Liveness
from broker.wire.vocabulary import NO_LEADER

NO_EPOCH: Final = -1

Logs = Mapping[int, ReplicaLog]
"""By node id."""


def undecided(state: PartitionState, logs: Iterable[ReplicaLog]) -> PartitionState:
    """Led by nobody, above every epoch that any of these knows of."""
    latest = max(state.leader_epoch, *(log.leader_epoch for log in logs))
    return replace(state, leader=NO_LEADER, leader_epoch=latest + 1, isr=())


def most_complete(state: PartitionState, logs: Logs, brokers: Liveness, *, unclean: bool) -> PartitionState:
    """The state with the leader that its replicas' logs show, alone in sync until others have followed it.

    The very same object where that is not known yet. `unclean` decides among those that are there, and told theirs:
    what others have is lost.
    """
    live = [node for node in state.replicas if node in brokers.live]
    there = {node: logs[node] for node in live if node in logs}
    if not there or len(there) < len(live) or (not unclean and hindrance(state, there) is not None):
        return state
    leader = _leader(there)
    return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=(leader,))


def hindrance(state: PartitionState, logs: Logs) -> str | None:
    """Why nobody of those who told their logs is to lead yet; None: somebody is."""
    needed = [node for node in state.replicas if node not in state.adding_replicas]
    if missing := [node for node in needed if node not in logs]:
        return f"replicas {missing} have not told yet what they have"
    with_records = [node for node in needed if logs[node].end_offset > 0]
    if with_records and (empty := [node for node in needed if node not in with_records]):
        # It may be in place of one that was lost.
        return f"replicas {empty} have no records at all, and {with_records} have"
    leader = _leader(logs)
    for node, log in logs.items():
        common = parted(log, logs[leader])
        if common < log.high_watermark:
            return (
                f"replica {leader} has what was written last, and replica {node} from offset {common} on other records "
                f"than that, of which those before {log.high_watermark} were acknowledged"
            )
    return None


def _leader(logs: Logs) -> int:
    """The first of the most complete, as the replicas are ordered."""
    return max(logs, key=lambda node: (_last_epoch(logs[node]), logs[node].end_offset))


def _last_epoch(log: ReplicaLog) -> int:
    """Of its last record: that an epoch began says nothing of what was written in it."""
    return next((epoch for epoch, start in reversed(log.epochs) if start < log.end_offset), NO_EPOCH)


def parted(log: ReplicaLog, other: ReplicaLog) -> int:
    """The offset up to which they have the same, by their epochs (KIP-279): one epoch is one leader's."""
    ends = _ends(other)
    for epoch, (start, end) in reversed(_ends(log).items()):
        if epoch not in ends:
            continue
        other_start, other_end = ends[epoch]
        # Where retention took its beginning an epoch begins with the log.
        if start == other_start or epoch in (log.epochs[0][0], other.epochs[0][0]):
            return min(end, other_end)
    # Of one that ends where the other begins nothing can be compared.
    begins = other.epochs[0][1] if other.epochs else other.end_offset
    return log.end_offset if log.end_offset <= begins else 0


def _ends(log: ReplicaLog) -> dict[int, tuple[int, int]]:
    """By epoch where it begins and ends; those without a record are left out."""
    ends = [*(start for _, start in log.epochs[1:]), log.end_offset]
    spans = {epoch: (start, end) for (epoch, start), end in zip(log.epochs, ends, strict=False)}
    return {epoch: (start, end) for epoch, (start, end) in spans.items() if start < end}
