"""The fetch end: one long-polling loop per source leader, over all of its partitions at once."""

from __future__ import annotations

from broker.client.connection import Connection
from broker.client.errors import KafkaError
from broker.client.log import FetchLimits, fetch_request, records_of
from broker.wire.errors import ErrorCode
from broker.wire.messages.fetch import FetchResponse, PartitionData
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.offsets.entries import GapKind
from mirror.worker.budget import Lease
from mirror.worker.flow import Flow
from mirror.worker.limits import WorkerLimits
from mirror.worker.plan import Obstacle, Outgoing, plan_batches
from mirror.worker.session import Session, idle_first


async def run_fetcher(session: Session, node_id: int, flows: list[Flow]) -> None:
    """Fetch and plan for ever. Raises ClientError: then everything is in doubt, and the session ends."""
    connection = await session.source.connection(node_id, "fetch")
    limits = session.limits
    clock = session.source.clock
    wanted_bytes = limits.fetch_start_bytes
    while True:
        free_bytes = await session.budget.wait_room()
        moving = [flow for flow in flows if flow.is_moving]
        open_flows = [flow for flow in moving if flow.buffered_bytes < limits.partition_buffer_max_bytes]
        if not open_flows:
            await session.budget.wait_release()
            continue
        crowded = len(open_flows) < len(moving)
        fetch_limits = FetchLimits(
            max_bytes=min(wanted_bytes, free_bytes),
            partition_max_bytes=limits.fetch_partition_max_bytes,
            max_wait_ms=limits.fetch_crowded_wait_ms if crowded else limits.fetch_max_wait_ms,
        )
        started = clock.monotonic()
        brought_bytes = await _fetch(session, connection, open_flows, fetch_limits)
        wanted_bytes = next_fetch_bytes(limits, wanted_bytes, brought_bytes, 1000 * (clock.monotonic() - started))


def next_fetch_bytes(limits: WorkerLimits, asked_bytes: int, brought_bytes: int, took_ms: float) -> int:
    """How much to ask for next: large answers over long round trips, small ones nearby.

    One fetch per leader is under way, so over a distance its size is the throughput; nearby a small answer costs less,
    since its memory is used again while it is warm.
    """
    if brought_bytes * 4 >= asked_bytes * 3 and took_ms > limits.fetch_slow_ms:
        return min(2 * asked_bytes, limits.fetch_max_bytes)
    if brought_bytes and took_ms < limits.fetch_fast_ms:
        return max(asked_bytes // 2, limits.fetch_start_bytes)
    return asked_bytes


async def _fetch(session: Session, connection: Connection, flows: list[Flow], limits: FetchLimits) -> int:
    """One fetch -> the bytes of records that it brought."""
    positions = {flow.source: flow.cursor.position for flow in idle_first(flows)}
    response: FetchResponse = await connection.request(fetch_request(positions, limits, IsolationLevel.READ_COMMITTED))
    if response.error_code:
        raise KafkaError(response.error_code, f"fetch from {session.link.source.name}")
    brought: list[tuple[Flow, PartitionData, memoryview]] = []
    size_bytes = 0
    for topic in response.responses:
        for data in topic.partitions:
            flow = session.flows[TopicPartition(topic.topic, data.partition_index)]
            if data.error_code:
                _refuse(session, flow, data)
                continue
            records = records_of(data)
            size_bytes += len(records)
            brought.append((flow, data, records))
            if session.registry is not None and len(records):
                await session.registry.learn(records)
    _plan(session, brought, size_bytes)
    return size_bytes


def _plan(session: Session, brought: list[tuple[Flow, PartitionData, memoryview]], size_bytes: int) -> None:
    lease = Lease(session.budget, size_bytes)
    planned: list[tuple[Flow, list[Outgoing]]] = []
    obstacles: list[tuple[Flow, Obstacle]] = []
    for flow, data, records in brought:
        if not flow.is_moving:
            continue  # it was stopped while this fetch was under way: nothing may follow what it forgot
        if data.high_watermark != flow.source_end_offset:
            flow.source_end_offset = data.high_watermark
            flow.changed = True
        if not len(records):
            continue
        plan = plan_batches(records, data.aborted_transactions or (), flow.cursor, flow.rules)
        if plan.outgoing:
            planned.append((flow, plan.outgoing))
        if plan.obstacle is not None:
            obstacles.append((flow, plan.obstacle))
        flow.settle()
    session.enqueue(planned, lease)
    lease.release()
    for flow, obstacle in obstacles:
        session.hold_at(flow, obstacle)


def _refuse(session: Session, flow: Flow, data: PartitionData) -> None:
    """An error for one partition: retention passed the position (stop it), or anything else (raise it)."""
    position = flow.cursor.position
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset > position:
        detail = f"the source's log starts at {data.log_start_offset}"
        session.hold_at(flow, Obstacle(GapKind.TRUNCATED_START, position, data.log_start_offset, detail))
        return
    raise KafkaError(data.error_code, f"fetch of {flow.source} from {session.link.source.name} at offset {position}")
