"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch."""

from __future__ import annotations

import struct
import time
import zlib

from broker.wire.batch import HEADER_BYTES, LOG_OVERHEAD, pack_header, peek
from broker.wire.compression import Compression
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire.records import Record, encode_batch
from tests.broker.wire_client import batch_of, fetch_request, produce_request
from tests.interop.side_by_side.asking import SHORT_PATIENCE_SECONDS, Case, Peer

HOUR_MS = 3_600_000


def _message_set(magic: int, value: bytes = b"old") -> bytes:
    """One message of format 0 or 1, as in KIP-32: CRC over all that follows it."""
    body = struct.pack(">bb", magic, 0)
    body += struct.pack(">q", 1_600_000_000_000) if magic == 1 else b""
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


async def produce(peer: Peer) -> None:
    topic = await peer.topic()
    await peer.coordinator(peer.name(), 0)
    for version in range(3, 12):
        await peer.ask(f"v{version}", produce_request(topic, batch_of("a", "b")), version)
    await peer.ask("acks 1", produce_request(topic, batch_of("a"), acks=1), 9)
    await peer.ask("acks 2", produce_request(topic, batch_of("a"), acks=2), 9)
    await peer.ask("acks -2", produce_request(topic, batch_of("a"), acks=-2), 9)
    await peer.ask("unknown topic", produce_request(peer.name("unknown"), batch_of("a")), 9)
    await peer.ask("bad name", produce_request("a b", batch_of("a")), 9)
    await peer.ask("unknown partition", produce_request(topic, batch_of("a"), partition=9), 9)
    await peer.ask("negative partition", produce_request(topic, batch_of("a"), partition=-1), 9)
    await peer.ask("internal topic", produce_request("__consumer_offsets", batch_of("a", key=b"k")), 9)
    await peer.ask("no topic", ProduceRequest(None, -1, 5000, []), 9)
    await peer.ask("no partition", ProduceRequest(None, -1, 5000, [TopicProduceData(topic, [])]), 9)
    null = ProduceRequest(None, -1, 5000, [TopicProduceData(topic, [PartitionProduceData(0, None)])])
    await peer.ask("null records", null, 9, SHORT_PATIENCE_SECONDS)
    await peer.ask("what is there", fetch_request(topic, 0), 12)
    twice = [PartitionProduceData(0, memoryview(batch_of("a"))), PartitionProduceData(0, memoryview(batch_of("b")))]
    await peer.ask("a partition twice", ProduceRequest(None, -1, 5000, [TopicProduceData(topic, twice)]), 9)
    await peer.ask("acks 0, failing, closes", produce_request(peer.name("unknown"), batch_of("a"), acks=0), 9)


async def produce_formats(peer: Peer) -> None:
    topic = await peer.topic()
    for magic in (0, 1):
        for version in (3, 9):
            await peer.ask(f"magic {magic}, v{version}", produce_request(topic, _message_set(magic)), version)
    for version in (3, 6, 7):
        await peer.ask(
            f"zstd, v{version}", produce_request(topic, batch_of("a", compression=Compression.ZSTD)), version
        )
    for name, batch in _broken_batches().items():
        await peer.ask(name, produce_request(topic, batch), 9)
    await peer.ask("what is there", fetch_request(topic, 0), 12)
    await peer.ask("bytes behind", produce_request(topic, batch_of("a") + b"xyz"), 9)


def _broken_batches() -> dict[str, bytearray]:
    whole = batch_of("a", "b")
    broken = {"empty": bytearray(), "short": whole[:30], "header only": whole[:HEADER_BYTES], "cut": whole[:-1]}
    broken["two batches"] = whole + batch_of("c")
    for position in (7, 8, 11, 23, 26, 57, 60):
        broken[f"byte {position} flipped"] = bytearray(whole)
        broken[f"byte {position} flipped"][position] ^= 0x81
    for name, position, value in (("magic 3", 16, 3), ("crc", 17, 0xAA), ("no such codec", 22, 7)):
        broken[name] = bytearray(whole)
        broken[name][position] = value
    broken["control"] = batch_of("a", control=True)
    broken["base offset 7"] = batch_of("a", base_offset=7)
    broken["transactional without an id"] = batch_of("a", transactional=True)
    broken["producer without epoch"] = batch_of("a", producer_id=5)
    broken["epoch without producer"] = batch_of("a", producer_epoch=5)
    broken["append time"] = batch_of("a", log_append_time_ms=1_600_000_000_000)
    return broken


# Records by hand: length, attributes, time delta, offset delta, key length -1, value "a", headers.
ONE_RECORD = b"\x0e\0\0\0\1\2a\0"
NULL_HEADER_KEY = b"\x12\0\0\0\1\2a\2\1\1"
HEADER_NOT_UTF8 = b"\x14\0\0\0\1\2a\2\2\xff\1"


def _with_records(records: bytes, **fields: int) -> bytearray:
    """A batch of one record whose body is these bytes, with a right length and CRC."""
    batch = batch_of("a")[:HEADER_BYTES] + records
    header = peek(batch_of("a"))._replace(batch_length=len(batch) - LOG_OVERHEAD, **fields)
    pack_header(batch, header)
    return batch


async def produce_bodies(peer: Peer) -> None:
    topic = await peer.topic()
    compacted = await peer.topic("compacted", cleanup_policy="compact")
    for label, batch in (
        ("whole", _with_records(ONE_RECORD)),
        ("a header that is not UTF-8", _with_records(HEADER_NOT_UTF8)),
        ("more counted than there are", _with_records(ONE_RECORD, record_count=3, last_offset_delta=2)),
        ("fewer counted than there are", _with_records(ONE_RECORD * 2)),
        ("a count that the offsets deny", _with_records(ONE_RECORD, record_count=1, last_offset_delta=4)),
        ("no record", _with_records(b"", record_count=0, last_offset_delta=-1)),
        ("offsets that are not in order", _with_records(ONE_RECORD * 2, record_count=2, last_offset_delta=1)),
        ("bytes behind the last record", _with_records(ONE_RECORD + b"xyz")),
        ("a record beyond the batch", _with_records(b"\x7e" + ONE_RECORD[1:])),
        ("a codec that it is not", _with_records(ONE_RECORD, attributes=1)),
        ("a time before all times", _with_records(ONE_RECORD, base_timestamp=-5, max_timestamp=-5)),
        ("a largest time that no record has", _with_records(ONE_RECORD, max_timestamp=1_600_000_009_999)),
    ):
        await peer.ask(label, produce_request(topic, batch), 9)
        await peer.ask(f"{label}, compacted", produce_request(compacted, batch), 9)
    await peer.ask("what is there", fetch_request(topic, 0), 12)
    batch = _with_records(NULL_HEADER_KEY)
    await peer.ask("a header without a key, compacted", produce_request(compacted, batch), 9)
    await peer.ask("a header without a key", produce_request(topic, batch), 9)


async def produce_rules(peer: Peer) -> None:
    now_ms = int(time.time() * 1000)
    compacted = await peer.topic("compacted", cleanup_policy="compact")
    await peer.ask("no key into compacted", produce_request(compacted, batch_of("a", "b")), 9)
    mixed = encode_batch([Record(0, now_ms, b"k", b"v"), Record(1, now_ms, None, b"v")])
    await peer.ask("some keys into compacted", produce_request(compacted, mixed), 9)
    small = await peer.topic("small", max_message_bytes="200")
    await peer.ask("too large", produce_request(small, batch_of("x" * 200)), 9)
    stamped = await peer.topic("stamped", message_timestamp_type="LogAppendTime")
    await peer.ask("append time", produce_request(stamped, batch_of("a")), 9)
    marked = batch_of("a", log_append_time_ms=1_600_000_000_000)
    await peer.ask("append time, marked already", produce_request(stamped, marked), 9)
    topic = await peer.topic(message_timestamp_before_max_ms=str(HOUR_MS), message_timestamp_after_max_ms=str(HOUR_MS))
    await peer.ask("too old", produce_request(topic, batch_of("a", timestamp=now_ms - 2 * HOUR_MS)), 9)
    await peer.ask("too new", produce_request(topic, batch_of("a", timestamp=now_ms + 2 * HOUR_MS)), 9)
    await peer.ask("no time", produce_request(topic, encode_batch([Record(0, -1, None, b"v")])), 9)
    recoded = await peer.topic("recoded", compression_type="gzip")
    await peer.ask("recoded", produce_request(recoded, batch_of("a")), 9)


async def min_insync_replicas(peer: Peer) -> None:
    topic = await peer.topic(min_insync_replicas="2")
    for acks in (-1, 1):
        await peer.ask(f"acks {acks}", produce_request(topic, batch_of("a"), acks=acks), 9)
    many = await peer.topic("many", min_insync_replicas="2147483647")
    await peer.ask("the largest", produce_request(many, batch_of("a")), 9)


async def idempotence(peer: Peer) -> None:
    topic = await peer.topic()

    def batch(*values: str, sequence: int, epoch: int = 0, producer: int = 4242) -> bytearray:
        return batch_of(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)

    for label, made in (
        ("first", batch("a", "b", sequence=0)),
        ("next", batch("c", sequence=2)),
        ("repeat", batch("c", sequence=2)),
        ("gap", batch("d", sequence=5)),
        ("overlap", batch("c", "d", sequence=2)),
        ("new epoch, not from 0", batch("e", sequence=3, epoch=1)),
        ("new epoch", batch("e", sequence=0, epoch=1)),
        ("old epoch", batch("f", sequence=3)),
        ("unknown producer in the middle", batch("g", sequence=9, producer=4243)),
        ("negative sequence", batch("h", sequence=-5, producer=4244)),
    ):
        await peer.ask(label, produce_request(topic, made), 9)


async def fetch(peer: Peer) -> None:
    topic = await peer.topic(partitions=2)
    for values in (("a", "b"), ("c",), ("d", "e", "f")):
        await peer.produce(topic, batch_of(*values))
    for version in range(4, 13):
        await peer.ask(f"v{version}", fetch_request(topic, 1), version)
    for label, offset, fields in (
        ("end", 6, {}),
        ("beyond the end", 7, {}),
        ("negative", -1, {}),
        ("very negative", -5, {}),
        ("one byte", 0, {"partition_max_bytes": 1}),
        ("no byte", 0, {"partition_max_bytes": 0}),
        ("negative bytes", 0, {"partition_max_bytes": -1}),
        ("request of one byte", 0, {"max_bytes": 1}),
        ("request of no byte", 0, {"max_bytes": 0}),
        ("negative request", 0, {"max_bytes": -1}),
        ("negative wait", 0, {"max_wait_ms": -1}),
        ("negative min bytes", 6, {"min_bytes": -1}),
        ("committed", 0, {"isolation_level": 1}),
        ("isolation 2", 0, {"isolation_level": 2}),
        ("isolation -1", 0, {"isolation_level": -1}),
        ("unknown partition", 0, {"partition": 9}),
        ("negative partition", 0, {"partition": -1}),
        ("newer epoch", 0, {"current_leader_epoch": 9}),
        ("this epoch", 0, {"current_leader_epoch": 0}),
        ("fetched epoch", 0, {"last_fetched_epoch": 0}),
        ("fetched epoch beyond", 0, {"last_fetched_epoch": 5}),
        ("fetched epoch beyond the end", 7, {"last_fetched_epoch": 0}),
        ("replica -2", 0, {"replica_id": -2}),
        ("a follower", 0, {"replica_id": 5}),
    ):
        await peer.ask(label, fetch_request(topic, offset, **fields), 12)
    await peer.ask("unknown topic", fetch_request(peer.name("unknown"), 0), 12)
    await peer.ask("bad name", fetch_request("a b", 0), 12)
    await peer.ask("nothing", FetchRequest(max_wait_ms=0, topics=[]), 12)
    rows = [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]
    rows.append(FetchPartition(1, fetch_offset=0, partition_max_bytes=1 << 20))
    await peer.ask("two partitions", FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic, rows)]), 12)
    await peer.ask("a partition twice", FetchRequest(topics=[FetchTopic(topic, [rows[0], rows[0]])]), 12)
    await peer.ask("a topic twice", FetchRequest(topics=[FetchTopic(topic, rows[:1])] * 2), 12)
    await peer.ask("no partition", FetchRequest(topics=[FetchTopic(topic, [])]), 12)
    await peer.ask("another cluster", FetchRequest("x", topics=[FetchTopic(topic, rows[:1])]), 12)


async def list_offsets(peer: Peer) -> None:
    topic = await peer.topic()
    empty = await peer.topic("empty")
    for start in (1000, 5000, 3000):
        await peer.produce(topic, batch_of("a", "b", timestamp=1_600_000_000_000 + start))

    async def ask(label: str, name: str, timestamp: int, version: int = 7, partition: int = 0, **fields: int) -> None:
        epoch = fields.pop("epoch", -1)
        asked = ListOffsetsTopic(name, [ListOffsetsPartition(partition, epoch, timestamp)])
        fields.setdefault("replica_id", -1)
        await peer.ask(label, ListOffsetsRequest(topics=[asked], **fields), version)

    for version in range(1, 10):
        for timestamp in (-1, -2, 1_600_000_001_001, 1_600_000_004_000, 1_700_000_000_000, 0):
            await ask(f"{timestamp}, v{version}", topic, timestamp, version)
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 2**63 - 1, -(2**63)):
        for version in (6, 7, 8, 9):
            await ask(f"{timestamp} of an empty one, v{version}", empty, timestamp, version)
            await ask(f"{timestamp} committed, v{version}", topic, timestamp, version, isolation_level=1)
    await ask("isolation 2", topic, -1, isolation_level=2)
    await ask("newer epoch", topic, -1, epoch=9)
    await ask("this epoch", topic, -1, epoch=0)
    await ask("unknown topic", peer.name("unknown"), -1)
    await ask("bad name", "a b", -1)
    await ask("unknown partition", topic, -1, partition=9)
    await ask("negative partition", topic, -1, partition=-1)
    await ask("from a debugger", topic, -1, replica_id=-2)
    await peer.ask("none", ListOffsetsRequest(-1), 7)
    await peer.ask("no partition", ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, [])]), 7)
    twice = [ListOffsetsPartition(0, timestamp=-1), ListOffsetsPartition(0, timestamp=-2)]
    await peer.ask("a partition twice", ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, twice)]), 7)


async def offset_for_leader_epoch(peer: Peer) -> None:
    topic = await peer.topic()
    empty = await peer.topic("empty")
    await peer.produce(topic, batch_of("a", "b"))

    async def ask(label: str, name: str, epoch: int, current: int = -1, partition: int = 0, version: int = 4) -> None:
        asked = OffsetForLeaderTopic(name, [OffsetForLeaderPartition(partition, current, epoch)])
        await peer.ask(label, OffsetForLeaderEpochRequest(-1, [asked]), version)

    for version in (2, 3, 4):
        await ask(f"v{version}", topic, 0, version=version)
    for epoch in (-1, 1, -2, 100):
        await ask(f"epoch {epoch}", topic, epoch)
        await ask(f"epoch {epoch} of an empty one", empty, epoch)
    await ask("epoch 0 of an empty one", empty, 0)
    await ask("newer", topic, 0, current=9)
    await ask("unknown topic", peer.name("unknown"), 0)
    await ask("unknown partition", topic, 0, partition=9)
    await peer.ask("none", OffsetForLeaderEpochRequest(-1, []), 4)


CASES: tuple[Case, ...] = (
    produce, produce_formats, produce_bodies, produce_rules, min_insync_replicas, idempotence, fetch, list_offsets,
    offset_for_leader_epoch,
)  # fmt: skip
