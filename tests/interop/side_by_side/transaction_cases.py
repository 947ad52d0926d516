"""Producer ids and transactions."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from broker.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.wire_client import batch_of, fetch_request, produce_request
from tests.interop.side_by_side.asking import Case, Peer

TIMEOUT_MS = 60_000


async def _init(peer: Peer, name: str) -> tuple[int, int]:
    await peer.coordinator(name, 1)
    request = InitProducerIdRequest(name, TIMEOUT_MS)
    answer = await peer.until_loaded(request, 4, InitProducerIdResponse, lambda given: given.error_code)
    assert answer.error_code == 0, answer
    return answer.producer_id, answer.producer_epoch


async def init_producer_id(peer: Peer) -> None:
    name = peer.name("x")
    producer, epoch = await _init(peer, name)
    for version in range(6):
        await peer.ask(f"idempotent, v{version}", InitProducerIdRequest(None, TIMEOUT_MS), version)
        await peer.ask(f"transactional, v{version}", InitProducerIdRequest(peer.name(f"v{version}"), 5000), version)
    for label, request in (
        ("id without epoch", InitProducerIdRequest(name, TIMEOUT_MS, producer, -1)),
        ("epoch without id", InitProducerIdRequest(name, TIMEOUT_MS, -1, epoch)),
        ("another's id", InitProducerIdRequest(name, TIMEOUT_MS, producer + 100_000, epoch)),
        ("newer epoch", InitProducerIdRequest(name, TIMEOUT_MS, producer, epoch + 5)),
        ("its id and epoch", InitProducerIdRequest(name, TIMEOUT_MS, producer, epoch)),
        ("the same again", InitProducerIdRequest(name, TIMEOUT_MS, producer, epoch)),
        ("old epoch", InitProducerIdRequest(name, TIMEOUT_MS, producer, epoch)),
        ("afresh", InitProducerIdRequest(name, TIMEOUT_MS)),
        ("unknown, with id and epoch", InitProducerIdRequest(peer.name("y"), TIMEOUT_MS, 55, 3)),
        ("empty name", InitProducerIdRequest("", TIMEOUT_MS)),
        ("timeout 0", InitProducerIdRequest(peer.name("z"), 0)),
        ("timeout -1", InitProducerIdRequest(peer.name("z"), -1)),
        ("timeout too long", InitProducerIdRequest(peer.name("z"), 900_001)),
        ("idempotent id without epoch", InitProducerIdRequest(None, TIMEOUT_MS, 5, -1)),
        ("idempotent epoch without id", InitProducerIdRequest(None, TIMEOUT_MS, -1, 5)),
        ("idempotent with id and epoch", InitProducerIdRequest(None, TIMEOUT_MS, producer, epoch)),
        ("idempotent, timeout -1", InitProducerIdRequest(None, -1)),
        ("very negative", InitProducerIdRequest(name, TIMEOUT_MS, -2, -2)),
    ):
        await peer.ask(label, request, 4)
    await peer.ask("old epoch, v3", InitProducerIdRequest(name, TIMEOUT_MS, producer, 0), 3)


def _add(name: str, producer: int, epoch: int, topic: str, *partitions: int) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(name, producer, epoch, [AddPartitionsToTxnTopic(topic, list(partitions))])


async def transactions(peer: Peer) -> None:
    name = peer.name("x")
    topic = await peer.topic(partitions=2)
    producer, epoch = await _init(peer, name)
    await peer.ask("end before it begins", EndTxnRequest(name, producer, epoch, True), 3)
    await peer.ask("abort before it begins", EndTxnRequest(name, producer, epoch, False), 3)
    for version in (1, 3):
        for label, request in (
            ("unknown topic", _add(name, producer, epoch, peer.name("unknown"), 0)),
            ("unknown partition", _add(name, producer, epoch, topic, 0, 9)),
            ("unknown name", _add(peer.name("other"), producer, epoch, topic, 0)),
            ("another's id", _add(name, producer + 100_000, epoch, topic, 0)),
            ("newer epoch", _add(name, producer, epoch + 1, topic, 0)),
            ("empty name", _add("", producer, epoch, topic, 0)),
        ):
            await peer.ask(f"add, {label}, v{version}", request, version)
    batch = batch_of("a", transactional=True, producer_id=producer, producer_epoch=epoch, base_sequence=0)
    await peer.ask("produce before it is added", produce_request(topic, batch, transactional_id=name), 9)
    await peer.ask("add", _add(name, producer, epoch, topic, 0), 3)
    await peer.ask("add again", _add(name, producer, epoch, topic, 0), 3)
    await peer.ask("add nothing", AddPartitionsToTxnRequest(name, producer, epoch, []), 3)
    await peer.ask("produce", produce_request(topic, batch, transactional_id=name), 9)
    await peer.ask("produce again", produce_request(topic, batch, transactional_id=name), 9)
    await peer.ask("produce to the other", produce_request(topic, batch, partition=1, transactional_id=name), 9)
    await peer.ask("fetch committed while open", fetch_request(topic, 0, isolation_level=1), 12)
    for timestamp in (-1, -2, -3, 1_500_000_000_000, 1_700_000_000_000):
        for isolation in (0, 1):
            asked = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=timestamp)])
            listing = ListOffsetsRequest(-1, isolation, [asked])
            await peer.ask(f"list {timestamp} while open, isolation {isolation}", listing, 7)
    await peer.ask("producers while open", DescribeProducersRequest([TopicRequest(topic, [0, 1, 9])]), 0)
    await peer.ask("end, newer epoch", EndTxnRequest(name, producer, epoch + 1, True), 3)
    await peer.ask("end, another's id", EndTxnRequest(name, producer + 100_000, epoch, True), 3)
    await peer.ask("end, unknown name", EndTxnRequest(peer.name("other"), producer, epoch, True), 3)
    await peer.ask("end, empty name", EndTxnRequest("", producer, epoch, True), 3)
    await peer.ask("abort", EndTxnRequest(name, producer, epoch, False), 3)
    await peer.ask("not an open one", produce_request(topic, batch), 9)


async def _until_ended(peer: Peer, name: str) -> None:
    """The markers are written after the answer to EndTxn."""
    deadline = time.monotonic() + 60
    while True:
        answer = await peer.prepare(DescribeTransactionsRequest([name]), 0, DescribeTransactionsResponse)
        if answer.transaction_states[0].transaction_state.startswith("Complete"):
            return
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.05)


async def describe_transactions(peer: Peer) -> None:
    name, idle = peer.name("x"), peer.name("idle")
    topic = await peer.topic(partitions=2)
    producer, epoch = await _init(peer, name)
    await _init(peer, idle)

    async def see(when: str) -> None:
        asked = DescribeTransactionsRequest([name, idle, "", peer.name("other")])
        await peer.ask(f"described {when}", asked, 0)
        for label, states, producers, longer in (
            ("all", [], [], -1),
            ("ongoing", ["Ongoing"], [], -1),
            ("ended or new", ["CompleteAbort", "Empty"], [], -1),
            ("an unknown state", ["ongoing", "PrepareCommit", "Dead", "PrepareEpochFence"], [], -1),
            ("its producer", [], [producer], -1),
            ("another producer", [], [producer + 100_000], -1),
            ("for long", [], [], 3_600_000),
            ("for a moment", [], [], 0),
            ("since ever", [], [], -2),
            ("open and its producer", ["Ongoing"], [producer], -1),
            ("open and another producer", ["Ongoing"], [producer + 100_000], -1),
            ("open and for long", ["Ongoing"], [producer], 3_600_000),
            ("a known and an unknown state", ["Ongoing", "Strange", ""], [], -1),
            ("a state twice", ["Ongoing", "Ongoing", "no", "no"], [producer, producer], -1),
        ):
            request = ListTransactionsRequest(states, producers, longer)
            answer = await peer.prepare(request, 1, ListTransactionsResponse)
            found = [t for t in answer.transaction_states if t.transactional_id in (name, idle)]
            said = [f"{t.transactional_id} {t.transaction_state}" for t in found]
            peer.note(f"{label} {when}", [answer.error_code, sorted(answer.unknown_state_filters), sorted(said)])

    await see("before")
    await peer.ask("add", _add(name, producer, epoch, topic, 0, 1), 3)
    await see("while open")
    await peer.ask("abort", EndTxnRequest(name, producer, epoch, False), 3)
    await _until_ended(peer, name)
    await see("after")


async def transactional_offsets(peer: Peer) -> None:
    name, group = peer.name("x"), peer.name("g")
    topic = await peer.topic()
    producer, epoch = await _init(peer, name)
    await peer.coordinator(group, 0)

    def commit(of: int = producer, at: int = epoch, *, to: str = topic, **fields: Any) -> TxnOffsetCommitRequest:
        rows = [TxnOffsetCommitRequestTopic(to, [TxnOffsetCommitRequestPartition(0, 5, -1, "m")])]
        given = {"group_id": group, "generation_id": -1, **fields}
        return TxnOffsetCommitRequest(name, producer_id=of, producer_epoch=at, topics=rows, **given)

    await peer.ask("add, empty name", AddOffsetsToTxnRequest("", producer, epoch, group), 3)
    await peer.ask("add to an empty group", AddOffsetsToTxnRequest(name, producer, epoch, ""), 3)
    await peer.ask("add, newer epoch", AddOffsetsToTxnRequest(name, producer, epoch + 1, group), 3)
    await peer.ask("add, unknown name", AddOffsetsToTxnRequest(peer.name("other"), producer, epoch, group), 3)
    await peer.ask("add", AddOffsetsToTxnRequest(name, producer, epoch, group), 3)
    await peer.ask("commit", commit(), 3)
    await peer.ask("commit, newer epoch", commit(at=epoch + 1), 3)
    await peer.ask("commit, empty group", commit(group_id=""), 3)
    await peer.ask("commit, unknown topic", commit(to=peer.name("unknown")), 3)
    await peer.ask("commit, a generation", commit(generation_id=4, member_id="x"), 3)


async def write_txn_markers(peer: Peer) -> None:
    topic = await peer.topic()

    async def mark(label: str, producer: int, epoch: int, name: str = topic, partition: int = 0, at: int = 0) -> None:
        rows = [WritableTxnMarkerTopic(name, [partition])]
        await peer.ask(label, WriteTxnMarkersRequest([WritableTxnMarker(producer, epoch, False, rows, at)]), 1)

    await mark("of nobody", 4242, 3)
    await mark("old epoch", 4242, 2)
    await mark("unknown topic", 4242, 3, peer.name("unknown"))
    await mark("unknown partition", 4242, 3, partition=9)
    await peer.ask("none", WriteTxnMarkersRequest([]), 1)
    await peer.ask("what is there", fetch_request(topic, 0), 12)
    await peer.ask("producers", DescribeProducersRequest([TopicRequest(topic, [0])]), 0)
    await peer.ask("no producers", DescribeProducersRequest([]), 0)
    await peer.ask("producers, unknown", DescribeProducersRequest([TopicRequest(peer.name("unknown"), [0])]), 0)


CASES: tuple[Case, ...] = (
    init_producer_id, transactions, describe_transactions, transactional_offsets, write_txn_markers,
)  # fmt: skip
