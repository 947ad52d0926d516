"""Fetch sessions, and topics by their ids in Fetch and Produce."""

from __future__ import annotations

import uuid
from typing import Any

from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.wire_client import batch_of
from tests.interop.side_by_side.asking import Case, Peer

UNKNOWN_ID = uuid.UUID(int=77)
NAMED, BY_ID = 12, 17


async def _id_of(peer: Peer, topic: str) -> uuid.UUID:
    request = MetadataRequest([MetadataRequestTopic(name=topic)])
    return (await peer.prepare(request, 12, MetadataResponse)).topics[0].topic_id


def _row(partition: int, offset: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(partition, fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **fields})


def _fetch(session: int, epoch: int, *topics: FetchTopic, **fields: Any) -> FetchRequest:
    given = {"max_wait_ms": 0, "min_bytes": 1, **fields}
    return FetchRequest(session_id=session, session_epoch=epoch, topics=list(topics), **given)


async def fetch_sessions(peer: Peer) -> None:
    topic = await peer.topic(partitions=3)
    await peer.produce(topic, batch_of("a"))
    rows = [_row(0), _row(1), _row(2)]
    begun = await peer.ask("begin", _fetch(0, 0, FetchTopic(topic, rows)), NAMED)
    session = begun.session_id
    await peer.ask("the same data again", _fetch(session, 1), NAMED)
    await peer.ask("go on behind it", _fetch(session, 2, FetchTopic(topic, [_row(0, 1)])), NAMED)
    await peer.ask("nothing new", _fetch(session, 3), NAMED)
    await peer.produce(topic, batch_of("b"), partition=1)
    await peer.ask("another partition has news", _fetch(session, 4), NAMED)
    await peer.ask("an old epoch", _fetch(session, 4), NAMED)
    await peer.ask("a later epoch", _fetch(session, 9), NAMED)
    await peer.ask("its epoch", _fetch(session, 5, FetchTopic(topic, [_row(1, 1)])), NAMED)
    await peer.ask("an unknown session", _fetch(session ^ 1, 6), NAMED)
    await peer.ask("by ids", _fetch(session, 6, FetchTopic(topic_id=UNKNOWN_ID, partitions=[_row(0)])), 13)
    await peer.ask("by ids at a wrong epoch", _fetch(session, 7, FetchTopic(topic_id=UNKNOWN_ID)), 13)
    await peer.ask("an unknown partition is added", _fetch(session, 6, FetchTopic(topic, [_row(9)])), NAMED)
    await peer.ask("it is still unknown", _fetch(session, 7), NAMED)
    forgotten = [ForgottenTopic(topic, [9, 8]), ForgottenTopic(peer.name("unknown"), [0])]
    await peer.ask("it is forgotten", _fetch(session, 8, forgotten_topics_data=forgotten), NAMED)
    await peer.ask("beyond the end", _fetch(session, 9, FetchTopic(topic, [_row(2, 5)])), NAMED)
    await peer.ask("still beyond the end", _fetch(session, 10), NAMED)
    await peer.ask("within again", _fetch(session, 11, FetchTopic(topic, [_row(2)])), NAMED)
    await peer.ask("nothing new again", _fetch(session, 12), NAMED)
    forgotten = [ForgottenTopic(topic, [0, 1])]
    again = FetchTopic(topic, [_row(0)])
    await peer.ask("added and forgotten at once", _fetch(session, 13, again, forgotten_topics_data=forgotten), NAMED)
    forgotten = [ForgottenTopic(topic, [0, 1, 2])]
    await peer.ask("all is forgotten", _fetch(session, 14, forgotten_topics_data=forgotten), NAMED)
    await peer.ask("after the end", _fetch(session, 15), NAMED)


async def fetch_sessions_ended(peer: Peer) -> None:
    topic = await peer.topic(partitions=2)
    asked = FetchTopic(topic, [_row(0), _row(1)])
    for version in (7, 11, 12):
        begun = await peer.ask(f"begin, v{version}", _fetch(0, 0, asked), version)
        await peer.ask(f"nothing new, v{version}", _fetch(begun.session_id, 1), version)
        await peer.ask(f"end, v{version}", _fetch(begun.session_id, -1, asked), version)
        await peer.ask(f"after the end, v{version}", _fetch(begun.session_id, 2), version)
    begun = await peer.ask("begin", _fetch(0, 0, asked), NAMED)
    renewed = await peer.ask("begin in place of it", _fetch(begun.session_id, 0, asked), NAMED)
    await peer.ask("the old one", _fetch(begun.session_id, 1), NAMED)
    await peer.ask("the new one", _fetch(renewed.session_id, 1), NAMED)
    await peer.ask("begin with nothing", _fetch(0, 0), NAMED)
    await peer.ask("without a session", _fetch(0, -1, asked), NAMED)
    await peer.ask("no session, an epoch", _fetch(0, 3, asked), NAMED)
    await peer.ask("a negative epoch", _fetch(0, -2, asked), NAMED)
    await peer.ask("begin with an unknown one", _fetch(0, 0, FetchTopic(peer.name("unknown"), [_row(0)])), NAMED)
    await peer.ask("end of no session", _fetch(12345, -1, asked), NAMED)


async def fetch_sessions_told(peer: Peer) -> None:
    """What is news, and to whom it is told first."""
    topic = await peer.topic(partitions=2)
    for partition in (0, 0, 1):
        await peer.produce(topic, batch_of("a"), partition=partition)
    begun = await peer.ask("begin at the ends", _fetch(0, 0, FetchTopic(topic, [_row(0, 2), _row(1, 1)])), NAMED)
    session = begun.session_id
    await peer.ask("nothing new", _fetch(session, 1), NAMED)
    gone = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 1)])], 30_000)
    await peer.prepare(gone, 2, DeleteRecordsResponse)
    await peer.ask("the log start moved", _fetch(session, 2), NAMED)
    await peer.ask("it is told once", _fetch(session, 3), NAMED)
    await peer.ask("below the log start", _fetch(session, 4, FetchTopic(topic, [_row(0)])), NAMED)
    await peer.ask("back again", _fetch(session, 5, FetchTopic(topic, [_row(0, 2)])), NAMED)
    await peer.ask("nothing new, committed", _fetch(session, 6, isolation_level=1), NAMED)
    for partition in (0, 1):
        await peer.produce(topic, batch_of("b"), partition=partition)
    for epoch in range(7, 10):
        await peer.ask(f"room for one batch, {epoch}", _fetch(session, epoch, max_bytes=1), NAMED)
    await peer.ask("room for all, committed", _fetch(session, 10, isolation_level=1), NAMED)
    await peer.ask("behind them", _fetch(session, 11, FetchTopic(topic, [_row(0, 3), _row(1, 2)])), NAMED)
    await peer.ask("nothing new again", _fetch(session, 12), NAMED)


async def fetch_by_id(peer: Peer) -> None:
    topic = await peer.topic(partitions=2)
    await peer.produce(topic, batch_of("a", "b"))
    topic_id = await _id_of(peer, topic)
    for version in range(13, 18):
        for label, asked in (
            ("its id", FetchTopic(topic_id=topic_id, partitions=[_row(0), _row(1)])),
            ("unknown id", FetchTopic(topic_id=UNKNOWN_ID, partitions=[_row(0)])),
            ("no id", FetchTopic(topic, [_row(0)])),
            ("unknown partition", FetchTopic(topic_id=topic_id, partitions=[_row(9)])),
            ("newer epoch", FetchTopic(topic_id=topic_id, partitions=[_row(0, current_leader_epoch=9)])),
            ("beyond the end", FetchTopic(topic_id=topic_id, partitions=[_row(0, 9)])),
        ):
            await peer.ask(f"{label}, v{version}", _fetch(0, -1, asked), version)
    asked = FetchTopic(topic_id=topic_id, partitions=[_row(0)])
    follower = _fetch(0, -1, asked, replica_state=ReplicaState(5, 1))
    await peer.ask("a follower", follower, 17)
    begun = await peer.ask("begin", _fetch(0, 0, asked), BY_ID)
    await peer.ask("by names", _fetch(begun.session_id, 1), NAMED)
    await peer.ask("go on", _fetch(begun.session_id, 1, FetchTopic(topic_id=UNKNOWN_ID, partitions=[_row(0)])), BY_ID)
    forgotten = [ForgottenTopic(topic_id=UNKNOWN_ID, partitions=[0])]
    await peer.ask("forget", _fetch(begun.session_id, 2, forgotten_topics_data=forgotten), BY_ID)
    other = FetchTopic(topic_id=await _id_of(peer, await peer.topic("other")), partitions=[_row(0)])
    forgotten = [ForgottenTopic(topic_id=topic_id, partitions=[0])]
    moved = await peer.ask("begin another", _fetch(0, 0, asked), BY_ID)
    going = _fetch(moved.session_id, 1, other, forgotten_topics_data=forgotten)
    await peer.ask("one id in the place of another", going, BY_ID)
    await peer.prepare(DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=30_000), 6, DeleteTopicsResponse)
    while not (await peer.prepare(_fetch(0, -1, asked), BY_ID, FetchResponse)).responses[0].partitions[0].error_code:
        pass  # KRaft answers when the controller knows of the deletion, the broker hears of it a little later
    await peer.ask("deleted, asked anew", _fetch(0, -1, asked), BY_ID)
    await peer.ask("deleted while in a session", _fetch(begun.session_id, 3), BY_ID)


async def produce_by_id(peer: Peer) -> None:
    """Against Kafka 4.3: 3.9 has no Produce v12 and v13."""
    topic = await peer.topic()
    topic_id = await _id_of(peer, topic)

    async def ask(label: str, named: TopicProduceData, version: int = 13) -> None:
        named.partition_data = [PartitionProduceData(9 if label == "unknown partition" else 0, batch_of("a"))]
        await peer.ask(label, ProduceRequest(None, -1, 5000, [named]), version)

    await ask("by name, v12", TopicProduceData(topic), 12)
    await ask("by id", TopicProduceData(topic_id=topic_id))
    await ask("unknown id", TopicProduceData(topic_id=UNKNOWN_ID))
    await ask("no id", TopicProduceData(topic))
    await ask("unknown partition", TopicProduceData(topic_id=topic_id))


CASES: tuple[Case, ...] = (fetch_sessions, fetch_sessions_ended, fetch_sessions_told, fetch_by_id)
CASES_OF_KAFKA_43: tuple[Case, ...] = (produce_by_id,)
