"""Before the switchover of a failback: what was written is brought, and groups stand where they are to go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition
from failover.errors import NotDrained
from failover.limits import DRAIN_POLL_S
from failover.observe import observe
from failover.snapshot import Snapshot
from mirror.api import Link, complete_link, load_group_map, load_link_state

Report = Callable[[int, int], None]
"""Is told how many offsets are still to come, and how many there were."""


@dataclass(frozen=True, slots=True)
class SetBack:
    """A group of the old source, ahead of where it stands at the other site: by `records` at most."""

    group: str
    topic: str
    partition: int
    from_offset: int
    to_offset: int

    @property
    def offsets(self) -> int:
        """That it reads again, or for the first time."""
        return self.from_offset - self.to_offset


async def await_carried(back: Link, source: Cluster, target: Cluster, patience_s: float, report: Report) -> Snapshot:
    """Wait until the link back has brought what its source has now. Raises NotDrained when nothing came for
    `patience_s`, ClientError, MirrorError.
    """
    loop = asyncio.get_running_loop()
    wanted: dict[tuple[str, int], int] = {}
    left, least, since = -1, -1, loop.time()
    first = 0
    while True:
        snapshot = await observe(back, source, target, (), source.clock.now_ms())
        here = {(view.topic, view.partition): view for view in snapshot.partitions}
        if not wanted:
            wanted = {at: view.source_end or 0 for at, view in here.items()}
        left = sum(max(0, end - (here[at].mirrored_source_next or 0)) for at, end in wanted.items() if at in here)
        first = max(first, left)
        report(left, first)
        if not left:
            return snapshot
        if least < 0 or left < least:
            least, since = left, loop.time()
        if loop.time() - since > patience_s:
            raise NotDrained(
                f"link {back.name} brought nothing for {patience_s:.0f} s, and {left} offsets are missing",
                hint=f"see `farshore status --link {back.name}`; is it run? farshore mirror run --link {back.name}",
            )
        await asyncio.sleep(DRAIN_POLL_S)


async def set_groups(
    back: Link, source: Cluster, target: Cluster, snapshot: Snapshot, names: Container[str]
) -> tuple[SetBack, ...]:
    """Set each of these groups of the link back's target to where it stands at its source, if it is further ->
    those.

    A place that a group had before the site was lost would count as read there (ADR 8), and what the group reads anew
    at the other site would be passed over. Groups with members there are left alone: the switchover refuses them.
    Raises ClientError, MirrorError.
    """
    back = await complete_link(back, source, target)
    state = await load_link_state(back, target)
    doubted = state.entries.in_doubt(asks_source=True)
    group_map = await load_group_map(back, state.map, doubted, (source, target), {})
    found = []
    wanted: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for group in snapshot.groups:
        for at in group.partitions if group.group in names else ():
            if at.source_offset is None or at.target_offset is None or group.target_members != 0:
                continue
            exact = group_map.to_target(at.topic, at.partition, at.source_offset)
            if exact is not None and exact < at.target_offset:
                where = TopicPartition(at.target_topic, at.partition)
                wanted.setdefault(group.group, {})[where] = CommittedOffset(exact, at.metadata)
                found.append(SetBack(group.group, at.target_topic, at.partition, at.target_offset, exact))
    for refused in (await commit_offsets_of_groups(target, wanted)).values():
        raise refused
    return tuple(found)
