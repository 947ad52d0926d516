"""One session of a link: what its tasks share, from the fence until anything is in doubt.

Data path: `fetching.py` (fetch, plan) -> `plan.py` (filter, patch) -> `flow.py` (order, positions) -> `producing.py`
(produce, acknowledge). Nothing is ever sent twice in a session: on any error all tasks end, everything in flight is
forgotten, and the next session recomputes its positions from the target.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER, TopicPartition
from mirror.groups import GroupSyncMemory
from mirror.link import Link
from mirror.offsets.entries import UNTRANSLATABLE_KINDS, Block, Gap, GapKind, GapStatus
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.state_writer import StateWriter
from mirror.worker.budget import Budget, Lease
from mirror.worker.events import Event, EventSink
from mirror.worker.flow import Flow
from mirror.worker.limits import WorkerLimits
from mirror.worker.origins import OriginRegistry
from mirror.worker.plan import Obstacle, Outgoing
from mirror.worker.startup import Opened


class Session:
    """What is shared by the tasks of one session. All on one event loop; each flow changes only between awaits."""

    def __init__(
        self,
        link: Link,
        clusters: tuple[Cluster, Cluster],
        opened: Opened,
        registry: OriginRegistry | None,
        limits: WorkerLimits,
        tell: EventSink,
    ) -> None:
        self.link = link
        self.source, self.target = clusters
        self.limits = limits
        self.tell = tell
        self.registry = registry
        self.owner = opened.owner
        self.topics = opened.topics
        self.flows = opened.flows
        self.by_target = {flow.target: flow for flow in opened.flows.values()}
        self.offset_map = OffsetMap({(where.topic, where.partition): flow.map for where, flow in opened.flows.items()})
        self.state_writer = StateWriter(opened.state_log)
        self.budget = Budget(limits.in_flight_max_bytes, limits.fetch_room_min_bytes)
        self.groups = GroupSyncMemory(synced_at_ms=dict(opened.state.groups.synced_at_ms))
        self.acknowledged_since_checkpoint_bytes = 0
        self.checkpoint_due = asyncio.Event()
        self._produce_due: dict[int, asyncio.Event] = {}
        self._target_leaders: dict[TopicPartition, int] = {}

    async def by_source_leader(self) -> dict[int, list[Flow]]:
        """The flows that can move, by the source's node; those without a leader wait for the next look at topics."""
        grouped = await self.source.by_leader([where for where, flow in self.flows.items() if flow.gap is None])
        return {node: [self.flows[where] for where in share] for node, share in grouped.items() if node != NO_LEADER}

    async def by_target_leader(self) -> dict[int, list[Flow]]:
        """The flows by the target's node; every later batch of a flow goes to that node's producer.

        Raises KafkaError when a partition has no leader: its batches would only fill the memory.
        """
        moving = [flow.target for flow in self.flows.values() if flow.gap is None]
        grouped = await self.target.by_leader(moving)
        unled = set(moving) - {where for node, share in grouped.items() if node != NO_LEADER for where in share}
        if unled:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{min(unled)} at {self.link.target.name}")
        for node, share in grouped.items():
            self._produce_due.setdefault(node, asyncio.Event())
            self._target_leaders.update(dict.fromkeys(share, node))
        return {
            node: [self.by_target[where] for where in share] for node, share in grouped.items() if node != NO_LEADER
        }

    def trusted_map(self) -> OffsetMap:
        """The map without the partitions whose offsets do not mean the mirrored records any more."""
        return self.offset_map.without(
            {where for where, flow in self.flows.items() if flow.gap and flow.gap.kind in UNTRANSLATABLE_KINDS}
        )

    def produce_due(self, node_id: int) -> asyncio.Event:
        """Set when a flow led by this node has something to send."""
        return self._produce_due[node_id]

    def enqueue(self, planned: list[tuple[Flow, list[Outgoing]]], lease: Lease) -> None:
        """Take what one fetch brought. Batches with new intervals wait until those are durable; others go at once.

        A flow whose earlier batches wait, waits too: the order within a partition is never changed.
        """
        blocks: list[Block] = []
        held: list[tuple[Flow, int]] = []
        for flow, outgoing in planned:
            waits = bool(flow.waiting)
            needed = flow.enqueue(outgoing, lease)
            blocks += needed
            if needed or waits:
                held.append((flow, len(outgoing)))
            else:
                self._release(flow, len(outgoing))
        if held:

            def release() -> None:
                for flow, count in held:
                    self._release(flow, count)

            self.state_writer.submit(blocks, release)

    def _release(self, flow: Flow, count: int) -> None:
        flow.release(count)
        due = self._produce_due.get(self._target_leaders.get(flow.target, NO_LEADER))
        if flow.ready and due is not None:
            due.set()

    def acknowledge(self, flow: Flow, base_offset: int, size_bytes: int) -> None:
        """The target has the flow's oldest batch in flight. Raises ForeignBatch."""
        correction = flow.acknowledge(base_offset)
        if correction is not None:
            self.state_writer.submit([correction])
        self.acknowledged_since_checkpoint_bytes += size_bytes
        self._stop_if_due(flow)
        if self.acknowledged_since_checkpoint_bytes >= self.limits.checkpoint_max_bytes:
            self.checkpoint_due.set()

    def hold_at(self, flow: Flow, obstacle: Obstacle) -> None:
        """Stop the partition as soon as all that was read before the obstacle is acknowledged.

        Stopping at once would forget that, and an operator who accepts the gap would lose it with the gap.
        """
        if flow.is_moving:
            flow.obstacle = obstacle
            self._stop_if_due(flow)

    def _stop_if_due(self, flow: Flow) -> None:
        if flow.obstacle is not None and flow.gap is None and flow.is_idle:
            self.stop_at(flow, flow.obstacle)

    def stop_at(self, flow: Flow, obstacle: Obstacle) -> None:
        """Stop one partition, and say so in the ledger."""
        end = flow.map.end
        assert end is not None
        gap = Gap(
            topic=flow.source.topic,
            partition=flow.source.partition,
            kind=obstacle.kind,
            source_from=obstacle.source_from,
            source_to=obstacle.source_to,
            target_offset=end.target_next,
            status=GapStatus.STOPPED,
            at_ms=self.target.clock.now_ms(),
            detail=obstacle.detail,
        )
        flow.stop(gap)
        self.state_writer.submit([gap])
        tell_gap(self.tell, gap)

    def write_owner(self) -> None:
        """Say that this worker lives. An idle worker that was fenced notices it by this: the write is refused."""
        self.state_writer.submit([replace(self.owner, at_ms=self.target.clock.now_ms())])

    def write_checkpoints(self) -> None:
        """Queue the positions that moved since they were last written."""
        now_ms = self.target.clock.now_ms()
        moved = [flow for flow in self.flows.values() if flow.changed]
        self.acknowledged_since_checkpoint_bytes = 0
        self.checkpoint_due.clear()
        if moved:
            self.state_writer.submit([flow.checkpoint(now_ms) for flow in moved])
        for flow in moved:
            flow.changed = False


def tell_gap(tell: EventSink, gap: Gap) -> None:
    tell(
        Event.PARTITION_STOPPED,
        topic=gap.topic,
        partition=gap.partition,
        reason=gap.kind.value,
        source_from=gap.source_from,
        source_to=gap.source_to,
        detail=gap.detail,
    )


def foreign_obstacle(flow: Flow, detail: str) -> Obstacle:
    """Somebody wrote into an exclusive target: no source record is missing, but the target is not a mirror any more."""
    end = flow.map.end
    assert end is not None
    return Obstacle(GapKind.FOREIGN_WRITER, end.source_next, end.source_next, detail)


def idle_first(flows: Iterable[Flow]) -> list[Flow]:
    """The order in which a fetch asks, and the broker fills its answer: those with the least buffered first."""
    return sorted(flows, key=lambda flow: flow.buffered_bytes)
