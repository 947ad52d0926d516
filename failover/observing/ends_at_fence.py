"""Where a source's logs end right before its link is promoted, as far as anybody knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import side_by_side
from broker.client.topics import list_topics
from broker.client.unshown import LogEnd, log_ends
from broker.wire.site_role import SiteRole, SiteStanding
from broker.wire.vocabulary import NO_LEADER_EPOCH, TopicPartition
from failover.limits import FENCE_ENDS_S
from failover.observing.snapshot import Snapshot
from mirror.api import BackPromotion, FenceEnd, Link


def last_seen_ends(seen: Snapshot, *, is_told: bool = False) -> dict[TopicPartition, FenceEnd]:
    """Of a look. `is_told`: what the source said then is where its logs end, since nobody writes to them. Pure."""
    found: dict[TopicPartition, FenceEnd] = {}
    for view in seen.partitions:
        where = TopicPartition(view.topic, view.partition)
        if view.source_end is not None:
            found[where] = FenceEnd(view.source_end, seen.taken_at_ms, is_told)
        elif view.seen_source_end is not None and view.seen_at_ms is not None:
            found[where] = FenceEnd(view.seen_source_end, view.seen_at_ms, is_told=False)
    return found


async def ends_at_fence(
    link: Link, source: Cluster | None, seen: Snapshot, now_ms: Callable[[], int]
) -> dict[TopicPartition, FenceEnd]:
    """Of a source that may be written to, or have gone, since the look: it is asked now; None: it does not answer. Of a
    partition that it does not tell in time, what the look saw is the last that is known.
    """
    found = last_seen_ends(seen)
    looked_at_ms = max((end.at_ms for end in found.values()), default=seen.taken_at_ms)
    if source is not None:
        with suppress(ClientError, TimeoutError):
            async with timeout(FENCE_ENDS_S):
                await _ask(link, source, (looked_at_ms, now_ms()), found)
    return found


def stood_for(told: Iterable[BackPromotion], target: SiteStanding | None, seen: Snapshot) -> list[str]:
    """The operations that promoted links back, and stand: as the source tells them, or, where it does not, as the
    target's role does, which all of these topics were closed by behind such a fence. Pure.
    """
    found = [back.operation_id for back in told]
    if target is None or target.role is not SiteRole.STANDBY:
        return found
    is_left = all(target.refuses(view.target_topic) for view in seen.partitions)
    return [*found, target.reason] if is_left else found


async def _ask(link: Link, source: Cluster, at_ms: tuple[int, int], found: dict[TopicPartition, FenceEnd]) -> None:
    """`at_ms`: of the look, and now. Each leader is asked by itself: one that hangs takes no other's answer with it.
    A partition of which the look knew nothing is as if it had been empty then. Raises ClientError.
    """
    looked_at_ms, asked_at_ms = at_ms
    wanted = [
        TopicPartition(name, partition.partition)
        for name, topic in (await list_topics(source)).items()
        if link.selects_topic(name) and name != link.canary_topic
        for partition in topic.partitions
    ]
    for where in wanted:
        found.setdefault(where, FenceEnd(0, looked_at_ms, is_told=False))

    async def ask(share: Iterable[TopicPartition]) -> None:
        with suppress(ClientError):
            for where, end in (await log_ends(source, share)).items():
                if isinstance(end, LogEnd):
                    epoch = _one_epoch(epochs[where], source.leader_epoch(where))
                    found[where] = _fence_end(end, asked_at_ms, epoch)

    shares = await source.by_leader(wanted)
    epochs = {where: source.leader_epoch(where) for share in shares.values() for where in share}
    await side_by_side(ask(share) for share in shares.values())


def _one_epoch(before: int, after: int) -> int:
    """Of a leader that was asked in between: a failure of another partition of its topic has all of them forgotten
    meanwhile. Where there was another leader, nobody knows which one answered.
    """
    if NO_LEADER_EPOCH in (before, after):
        return max(before, after)
    return before if before == after else NO_LEADER_EPOCH


def _fence_end(end: LogEnd, at_ms: int, epoch: int) -> FenceEnd:
    """What nobody is shown was there before, too, unless its leader loses it: what stands at its offsets then is of a
    later epoch. Where the cluster has none, time has to tell. Where it is not told what that is, what is shown is.
    """
    if end.appended is None or not end.has_unshown:
        return FenceEnd(end.shown, at_ms, is_told=True)
    if epoch == NO_LEADER_EPOCH:
        return FenceEnd(end.shown, at_ms, is_told=False)
    return FenceEnd(end.shown, at_ms, True, end.appended, epoch)
