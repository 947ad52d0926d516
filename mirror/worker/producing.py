"""The produce end: one pipeline per target leader. One batch per partition per request, as Kafka demands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

from broker.client.errors import KafkaError
from broker.wire.errors import ErrorCode
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.wire.vocabulary import ALL_REPLICAS
from mirror.errors import LinkFenced
from mirror.offsets.entries import GapKind
from mirror.offsets.state_writer import FENCED_CODES
from mirror.worker.plan import Blocker, ProducerBatch
from mirror.worker.replicator import Replicator
from mirror.worker.session import Session

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

Sent = tuple[Awaitable[ProduceResponse], list[tuple[Replicator, ProducerBatch]]]


async def run_producer(session: Session, node_id: int, replicators: list[Replicator]) -> None:
    """Send and acknowledge for ever. Raises LinkFenced, ClientError."""
    due = session.due_at[node_id]
    in_flight: asyncio.Queue[Sent] = asyncio.Queue()
    slots = asyncio.Semaphore(session.limits.produce_in_flight_requests)
    connection = await session.target.connection(node_id, "produce")
    timeout_ms, max_bytes = session.limits.produce_timeout_ms, session.limits.produce_max_bytes

    async def send() -> None:
        while True:
            await due.wait()
            await slots.acquire()
            batches = _take(replicators, max_bytes)
            if not batches:
                due.clear()
                slots.release()
                continue
            answer = await connection.send(_request(batches, timeout_ms))
            in_flight.put_nowait((answer, batches))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        tasks.create_task(_acknowledge(session, in_flight, slots))


def _take(replicators: list[Replicator], max_bytes: int) -> list[tuple[Replicator, ProducerBatch]]:
    """At most one batch of each, up to `max_bytes` (but at least one); the next call begins with those left."""
    batches: list[tuple[Replicator, ProducerBatch]] = []
    size_bytes = 0
    for index, replicator in enumerate(replicators):
        if not replicator.ready:
            continue
        size_bytes += len(replicator.ready[0].batch)
        if batches and size_bytes > max_bytes:
            replicators[:] = replicators[index:] + replicators[:index]
            break
        batches.append((replicator, replicator.send()))
    return batches


def _request(batches: Iterable[tuple[Replicator, ProducerBatch]], timeout_ms: int) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for replicator, batch in batches:
        data = PartitionProduceData(replicator.target.partition, batch.batch)
        topics.setdefault(replicator.target.topic, []).append(data)
    return ProduceRequest(
        None, ALL_REPLICAS, timeout_ms, [TopicProduceData(name, data) for name, data in topics.items()]
    )


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
        for replicator, batch in batches:
            replicator.unanswered -= 1
            if not replicator.is_stopped:
                _account(session, replicator, batch, answers.get(replicator.target))
            session.note_settled(replicator)


def _account(
    session: Session, replicator: Replicator, batch: ProducerBatch, answer: PartitionProduceResponse | None
) -> None:
    """Account for the answer to one batch; what is in doubt holds its partition. Raises LinkFenced."""
    what = f"produce to {replicator.target} at {session.link.target.name}"
    if answer is None:
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, what, "the answer does not name the partition")
        session.hold(replicator, error, at_source=False)
        return
    if not answer.error_code:
        replicator.acknowledge(answer.base_offset)
        if replicator.gap is None:
            session.count_acknowledged(len(batch.batch), batch.count)
        else:
            session.look_due.set()  # a link back that has just begun would explain another writer
        return
    refusal = KafkaError(answer.error_code, what, answer.error_message)
    if refusal.code in FENCED_CODES:
        text = f"link {session.link.name}: another owner took over"
        raise LinkFenced(text, writer=replicator.writer) from refusal
    if refusal.code not in REFUSED_CODES:
        session.hold(replicator, refusal, at_source=False)
        return
    source_from = batch.pieces[0].source_start
    replicator.stop_at(Blocker(GapKind.REFUSED_BATCH, source_from, batch.source_next, str(refusal)))
