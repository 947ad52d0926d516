"""Message sets of formats 0 and 1, written by two independent encoders, come out as batches of magic 2."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from broker.wire.batch import iter_batches, verify_crc
from broker.wire.compression import Compression, compress
from broker.wire.errors import CorruptBatch
from broker.wire.message_sets import iter_fetched
from broker.wire.records import Record, decode_records, encode_batch
from broker.wire.xxhash import xxhash32

WRITTEN_BY_KAFKA = [line.split() for line in (Path(__file__).parent / "message_sets.txt").read_text().splitlines()]
"""By Kafka 3.9.1's own MemoryRecordsBuilder: `java -cp JARS OldFormats.java > message_sets.txt`."""
BASE = 100
APPEND_TIME_MS = 1_500_000_000_777
Shape = tuple[int, bytes | None, bytes | None]
"""Timestamp, key, value."""


def fetched(data: bytes) -> list[Record]:
    records: list[Record] = []
    for header, batch in iter_fetched(bytearray(data)):
        verify_crc(batch)
        found = decode_records(batch)
        assert found[-1].offset <= header.last_offset
        records += found
    return records


def written_by_kafka(magic: int, times: str) -> list[Record]:
    """What OldFormats.java appends, as a reader of the log must see it."""
    records = []
    for at in range(7):
        timestamp = 1_500_000_000_000 + at * 10 - (at % 3) * 1000
        if magic == 0:
            timestamp = -1
        elif times == "LogAppendTime":
            timestamp = APPEND_TIME_MS
        key = None if at % 3 == 1 else b"k%d" % at
        value = None if at % 4 == 2 else (b"v%d" % at) * (at * 40)
        records.append(Record(BASE + at, timestamp, key, value))
    return records


@pytest.mark.parametrize(("magic", "codec", "times", "data"), WRITTEN_BY_KAFKA, ids=lambda at: at[:12])
def test_what_kafka_wrote_is_read_whole(magic: str, codec: str, times: str, data: str) -> None:
    assert fetched(bytes.fromhex(data)) == written_by_kafka(int(magic), times)
    (header, _), *more = iter_fetched(bytes.fromhex(data))
    assert not more, "uncompressed messages that follow each other are one batch"
    assert (header.base_offset, header.last_offset, header.compression.name.lower()) == (BASE, BASE + 6, codec)


def encoded(magic: int, shapes: Sequence[Shape], offsets: Sequence[int], codec: int = 0) -> bytes:
    """By kafka-python."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for offset, (timestamp, key, value) in zip(offsets, shapes, strict=True):
        assert builder.append(offset, timestamp, key, value) is not None
    return bytes(builder.build())


def wrapped(magic: int, codec: Compression, inner: bytes, offset: int, *, append_time_ms: int | None = None) -> bytes:
    """A compressed message of any codec, with the offset that a broker gives it."""
    attributes = int(codec) | (0x08 if append_time_ms is not None else 0)
    return message(magic, offset, attributes, append_time_ms or 7, None, compress(codec, inner))


def message(magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


texts = st.none() | st.binary(max_size=30)
shapes = st.lists(st.tuples(st.integers(0, 2**41), texts, texts), min_size=1, max_size=8)


@given(shapes, st.sampled_from([0, 1]), st.lists(st.integers(1, 3), min_size=8, max_size=8), st.integers(0, 2**40))
def test_uncompressed_messages_keep_what_they_hold(
    written: list[Shape], magic: int, steps: list[int], base: int
) -> None:
    """With the offset gaps that compaction leaves."""
    offsets = [base + sum(steps[:n]) for n in range(len(written))]
    expected = [Record(o, t if magic else -1, k, v) for o, (t, k, v) in zip(offsets, written, strict=True)]
    assert fetched(encoded(magic, written, offsets)) == expected


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@given(shapes, st.sampled_from([0, 1]), st.integers(0, 2**40), st.booleans())
def test_offsets_inside_are_relative_in_format_1_and_absolute_in_format_0(
    codec: Compression, written: list[Shape], magic: int, base: int, by_append: bool
) -> None:
    first = 0 if magic else base
    inner = encoded(magic, written, range(first, first + len(written)))
    append_time_ms = APPEND_TIME_MS if by_append and magic else None
    data = wrapped(magic, codec, inner, base + len(written) - 1, append_time_ms=append_time_ms)
    times = [append_time_ms if append_time_ms is not None else t if magic else -1 for t, _, _ in written]
    expected = [Record(base + n, times[n], k, v) for n, (_, k, v) in enumerate(written)]
    assert fetched(data) == expected


def test_gzip_of_another_client() -> None:
    written: list[Shape] = [(5, b"k", b"v" * 100), (6, None, b""), (7, b"", None)]
    data = bytearray(encoded(1, written, [0, 1, 2], codec=1))
    data[:8] = (42).to_bytes(8, "big")
    assert fetched(bytes(data)) == [Record(40 + n, t, k, v) for n, (t, k, v) in enumerate(written)]


def test_compaction_leaves_gaps_inside_of_a_compressed_message() -> None:
    inner = encoded(1, [(5, b"a", b"1"), (6, b"b", b"2")], [1, 4])
    ((header, batch),) = iter_fetched(wrapped(1, Compression.GZIP, inner, 104))
    assert [record.offset for record in decode_records(batch)] == [101, 104]
    assert (header.base_offset, header.last_offset) == (101, 104)


def test_an_upgraded_log_holds_all_three_formats() -> None:
    old = encoded(0, [(0, b"a", b"0")], [0])
    middle = encoded(1, [(5, b"b", b"1"), (6, b"c", b"2")], [1, 2])
    new = bytes(encode_batch([Record(0, 7, b"d", b"3")], base_offset=3))
    found = fetched(old + middle + new + new[:30])
    assert [(r.offset, r.timestamp, r.key, r.value) for r in found] == [
        (0, -1, b"a", b"0"), (1, 5, b"b", b"1"), (2, 6, b"c", b"2"), (3, 7, b"d", b"3"),
    ]  # fmt: skip


def test_each_format_and_each_step_back_begins_a_batch() -> None:
    """Formats differ in what a timestamp is; offsets that do not go on are another producer's damage, not ours."""
    data = encoded(0, [(0, b"a", b"0")], [3]) + b"".join(encoded(1, [(5, b"b", b"")], [n]) for n in (4, 5, 5, 6))
    spans = [(header.base_offset, header.last_offset) for header, _ in iter_fetched(data)]
    assert spans == [(3, 3), (4, 5), (5, 6)]


def test_a_batch_reaches_as_far_as_the_message_that_held_it() -> None:
    """Also where compaction took the last of what is inside: the next fetch begins behind it."""
    ((header, _),) = iter_fetched(wrapped(0, Compression.GZIP, encoded(0, [(0, b"k", b"v")], [39]), 41))
    assert (header.base_offset, header.last_offset, header.record_count) == (39, 41, 1)


def test_batches_of_magic_2_pass_as_they_are() -> None:
    data = bytearray()
    for at in range(3):
        data += encode_batch([Record(0, 7, b"k", b"v")], base_offset=at)
    assert list(iter_fetched(data)) == list(iter_batches(data))
    ((_, first), *_) = iter_fetched(data)
    first[0] = 9
    assert data[0] == 9, "they are views of the frame, to be patched in place"


@given(st.integers(0, 2**20))
def test_an_answer_that_ends_inside_of_a_message_ends_before_it(cut: int) -> None:
    whole = [encoded(magic, [(5, b"key", b"value")], [at]) for at, magic in enumerate((0, 0, 1, 1))]
    data = b"".join(whole)
    cut %= len(data) + 1
    complete = sum(len(b"".join(whole[: n + 1])) <= cut for n in range(4))
    assert [record.offset for record in fetched(data[:cut])] == list(range(complete))


def damaged(change: Callable[[bytearray], None]) -> bytes:
    data = bytearray(message(1, 41, 0, 5, b"k", b"v"))
    change(data)
    return bytes(data)


def lie(data: bytearray, position: int, value: int) -> None:
    """Change a field and renew the CRC: not damage but a wrong writer."""
    data[position : position + 4] = struct.pack(">i", value)
    data[12:16] = struct.pack(">I", zlib.crc32(bytes(data[16:])))


def with_more_behind(data: bytes) -> bytes:
    """One byte more than key and value say, and a size and CRC that hold for it."""
    body = data[16:] + b"?"
    return data[:8] + struct.pack(">iI", len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (damaged(lambda d: d.__setitem__(-1, 0)), "CRC"),
        (damaged(lambda d: d.__setitem__(12, d[12] ^ 1)), "CRC"),
        (damaged(lambda d: lie(d, 26, 2)), "more than it holds|behind its value|ends inside"),
        (damaged(lambda d: lie(d, 26, -2)), "more than it holds"),
        (with_more_behind(message(1, 41, 0, 5, b"k", b"v")), "1 bytes behind its value"),
        (message(1, 41, 4, 5, None, b""), "codec 4"),
        (message(1, 41, 1, 5, None, None), "null"),
        (message(1, 41, 1, 5, None, b"not gzip"), "decompressed"),
        (wrapped(1, Compression.GZIP, b"", 41), "empty"),
        (wrapped(1, Compression.GZIP, message(1, 0, 0, 5, None, b"v")[:-1], 41), "ends inside"),
        (wrapped(1, Compression.GZIP, message(0, 0, 0, 5, None, b"v"), 41), "format 0"),
        (wrapped(1, Compression.GZIP, wrapped(1, Compression.GZIP, b"x", 0), 41), "compressed by GZIP"),
        (wrapped(0, Compression.GZIP, message(0, 42, 0, 5, None, b"v"), 41), "up to offset 42"),
        (wrapped(1, Compression.GZIP, message(1, 3, 0, 5, None, b"") + message(1, 3, 0, 5, None, b""), 41), "order"),
        (wrapped(1, Compression.GZIP, message(1, 0, 0, 5, None, b"") + message(1, 50, 0, 5, None, b""), 41), "up to"),
    ],
)  # fmt: skip
def test_damage_is_named_with_the_offset_behind_it(data: bytes, words: str) -> None:
    good = message(1, 40, 0, 5, b"before", b"it")
    found = iter_fetched(good + data)
    _, batch = next(found)
    assert decode_records(batch)[0].key == b"before", "what is before the damage is not lost with it"
    with pytest.raises(CorruptBatch, match=words) as raised:
        next(found)
    assert raised.value.next_offset == 42


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"0123456789abcde", None)],
)
def test_xxhash(data: bytes, expected: int | None) -> None:
    """The published values, and what an LZ4 library puts into its own frames."""
    if expected is not None:
        assert xxhash32(data) == expected
    frame = bytes(cramjam.lz4.compress(data * 100))
    descriptor = frame[4 : 6 + (8 if frame[4] & 8 else 0)]
    assert frame[4 + len(descriptor)] == xxhash32(descriptor) >> 8 & 0xFF
