"""The produce end: one pipeline per target leader. One batch per partition per request, as Kafka demands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

from broker.client.errors import KafkaError
from broker.client.log import ACKS_ALL
from broker.wire.errors import ErrorCode
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkFenced
from mirror.offsets.entries import GapKind
from mirror.offsets.state_writer import FENCED_CODES
from mirror.worker.flow import Flow, ForeignBatch
from mirror.worker.plan import Obstacle, Outgoing
from mirror.worker.session import Session, foreign_obstacle

REFUSED_CODES = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""The target refuses this batch for what is in it: trying again helps only after a person changed something."""

Sent = tuple[Awaitable[ProduceResponse], list[tuple[Flow, Outgoing]]]


async def run_producer(session: Session, node_id: int, flows: list[Flow]) -> None:
    """Send and acknowledge for ever. Raises LinkFenced, ClientError."""
    in_flight: asyncio.Queue[Sent] = asyncio.Queue()
    slots = asyncio.Semaphore(session.limits.produce_in_flight_requests)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_send(session, node_id, flows, in_flight, slots))
        tasks.create_task(_acknowledge(session, in_flight, slots))


async def _send(
    session: Session, node_id: int, flows: list[Flow], in_flight: asyncio.Queue[Sent], slots: asyncio.Semaphore
) -> None:
    connection = await session.target.connection(node_id, "produce")
    due = session.produce_due(node_id)
    while True:
        await due.wait()
        await slots.acquire()
        batches = _take(flows, session.limits.produce_max_bytes)
        if not batches:
            due.clear()
            slots.release()
            continue
        answer = await connection.send(_request(batches, session.limits.produce_timeout_ms))
        in_flight.put_nowait((answer, batches))


def _take(flows: list[Flow], max_bytes: int) -> list[tuple[Flow, Outgoing]]:
    """At most one batch of each flow, up to `max_bytes` (but at least one); the next call begins with those left."""
    batches: list[tuple[Flow, Outgoing]] = []
    size_bytes = 0
    for index, flow in enumerate(flows):
        if not flow.ready:
            continue
        size_bytes += len(flow.ready[0].batch)
        if batches and size_bytes > max_bytes:
            flows[:] = flows[index:] + flows[:index]
            break
        batches.append((flow, flow.send()))
    return batches


def _request(batches: Iterable[tuple[Flow, Outgoing]], timeout_ms: int) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for flow, outgoing in batches:
        data = PartitionProduceData(flow.target.partition, outgoing.batch)
        topics.setdefault(flow.target.topic, []).append(data)
    return ProduceRequest(None, ACKS_ALL, timeout_ms, [TopicProduceData(name, data) for name, data in topics.items()])


async def _acknowledge(session: Session, in_flight: asyncio.Queue[Sent], slots: asyncio.Semaphore) -> None:
    while True:
        answer, batches = await in_flight.get()
        response = await answer
        slots.release()
        answers = {
            (topic.name, answered.index): answered
            for topic in response.responses
            for answered in topic.partition_responses
        }
        for flow, outgoing in batches:
            if flow.gap is None:
                _settle(session, flow, outgoing, answers.get(flow.target))


def _settle(session: Session, flow: Flow, outgoing: Outgoing, answer: PartitionProduceResponse | None) -> None:
    """Account for the answer to one batch. Raises LinkFenced, and KafkaError for what is in doubt."""
    where: TopicPartition = flow.target
    what = f"produce to {where} at {session.link.target.name}"
    if answer is None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, what, "the answer does not name the partition")
    if not answer.error_code:
        try:
            session.acknowledge(flow, answer.base_offset, len(outgoing.batch))
        except ForeignBatch as foreign:
            session.stop_at(flow, foreign_obstacle(flow, str(foreign)))
        return
    refusal = KafkaError(answer.error_code, what, answer.error_message)
    if refusal.code in FENCED_CODES:
        text = f"link {session.link.name}: another owner took over"
        raise LinkFenced(text, writer=flow.writer) from refusal
    if refusal.code not in REFUSED_CODES:
        raise refusal
    source_from = outgoing.pieces[0].source_start
    session.stop_at(flow, Obstacle(GapKind.REFUSED_BATCH, source_from, outgoing.source_next, str(refusal)))
