"""Records against the record code of two clients, for every codec, both ways; and damaged records."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from broker.wire.batch import HEADER_BYTES, peek, renew_crc, verify_crc
from broker.wire.compression import Compression
from broker.wire.errors import CorruptBatch
from broker.wire.records import (
    Control,
    ControlKind,
    OpeningLimits,
    Record,
    control_batch,
    decode_control,
    decode_record_at,
    decode_records,
    encode_batch,
)
from broker.wire.varint import SMALL_VARINTS, read_varint, varint
from tests.worlds import first_worlds

CODECS = list(Compression)
BUILT_IN = (Compression.NONE, Compression.GZIP)
"""kafka-python needs further libraries for the other codecs; aiokafka has them all."""
WRITERS = [(AioBuilder, codec) for codec in CODECS] + [(KafkaPythonBuilder, codec) for codec in BUILT_IN]
SLOW = settings(max_examples=40, suppress_health_check=list(HealthCheck))

_optional_bytes = st.none() | st.binary(max_size=40) | st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 9_000])
_headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
_record = st.builds(Record, st.just(0), st.integers(0, 1 << 45), _optional_bytes, _optional_bytes, _headers)
records_lists = st.lists(_record, min_size=1, max_size=90)


def _numbered(records: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


def _theirs(batch: Any) -> list[Record]:
    return [Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in batch]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_clients_read_our_batches(codec: Compression) -> None:
    @SLOW
    @given(records_lists, st.integers(0, 1 << 50))
    def read(records: list[Record], base_offset: int) -> None:
        data = bytes(encode_batch(records, compression=codec, base_offset=base_offset))
        expected = _numbered(records, base_offset)
        verify_crc(data)
        assert decode_records(data) == expected
        for oracle in (AioBatch, KafkaPythonBatch) if codec in BUILT_IN else (AioBatch,):
            batch = oracle(data)
            assert batch.validate_crc()
            assert _theirs(batch) == expected

    read()


@SLOW
@given(st.data(), records_lists, st.sampled_from(CODECS))
def test_one_record_is_the_one_that_opening_all_shows(
    data: st.DataObject, records: list[Record], codec: Compression
) -> None:
    numbered = _numbered(records, 100)
    kept = [record for record in numbered if data.draw(st.booleans())] if data.draw(st.booleans()) else numbered
    last_offset = numbered[-1].offset + data.draw(st.integers(0, 1))
    batch = encode_batch(kept, compression=codec, base_offset=100, dense=False, last_offset=last_offset)
    there = {record.offset: record for record in decode_records(batch)}
    assert len(there) == len(kept)
    for offset in range(99, 100 + len(numbered) + 2):
        assert decode_record_at(batch, offset) == there.get(offset)


def test_one_record_of_a_damaged_batch_is_no_record() -> None:
    whole = encode_batch([Record(at, 1, b"k" * 5, b"v" * 300) for at in range(6)])
    for position in range(HEADER_BYTES, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        try:
            found = decode_record_at(damaged, 4)
        except CorruptBatch:
            continue
        assert found is not None
        assert found.offset == 4


@pytest.mark.parametrize(
    ("builder", "codec"), WRITERS, ids=[f"{builder.__module__}-{codec.name}" for builder, codec in WRITERS]
)
def test_we_read_the_batches_of_clients(builder: Any, codec: Compression) -> None:
    @SLOW
    @given(records_lists)
    def read(records: list[Record]) -> None:
        made = builder(
            magic=2,
            compression_type=int(codec),
            is_transactional=0,
            producer_id=5,
            producer_epoch=1,
            base_sequence=9,
            batch_size=1 << 26,
        )
        for index, record in enumerate(records):
            made.append(
                index,
                timestamp=record.timestamp,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
            )
        data = bytes(made.build())
        verify_crc(data)
        assert decode_records(data) == _numbered(records, 0)
        header = peek(data)
        # A client may leave a batch uncompressed that compression would make larger.
        assert header.compression in (codec, Compression.NONE)
        again = encode_batch(records, compression=header.compression, producer_id=5, producer_epoch=1, base_sequence=9)
        assert peek(again)._replace(crc=0, batch_length=0) == header._replace(
            crc=0, batch_length=0, partition_leader_epoch=-1
        )
        if header.compression is Compression.NONE:
            assert again[HEADER_BYTES:] == data[HEADER_BYTES:]

    read()


def test_offsets_with_gaps_are_kept() -> None:
    records = [Record(103, 5, b"a", None), Record(107, 6, b"b", b"x")]
    data = encode_batch(records, base_offset=100, last_offset=109, dense=False)
    assert decode_records(data) == records
    assert (peek(data).base_offset, peek(data).last_offset, peek(data).record_count) == (100, 109, 2)
    empty = encode_batch([], base_offset=100, last_offset=109)
    assert decode_records(empty) == []
    assert peek(empty).next_offset == 110


def test_offsets_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError):
        encode_batch([Record(99, 5, None, None)], base_offset=100, dense=False)
    with pytest.raises(ValueError):
        encode_batch([Record(105, 5, None, None)], base_offset=100, last_offset=104, dense=False)
    with pytest.raises(ValueError):
        encode_batch([])


def test_a_log_append_time_batch() -> None:
    data = encode_batch([Record(0, 5, None, b"x"), Record(0, 4, None, b"y")], log_append_time_ms=777)
    assert [record.timestamp for record in decode_records(data)] == [777, 777]
    assert peek(data).max_timestamp == 777
    assert _theirs(AioBatch(bytes(data))) == decode_records(data)


@pytest.mark.parametrize("kind", [ControlKind.ABORT, ControlKind.COMMIT])
def test_transaction_markers(kind: ControlKind) -> None:
    data = control_batch(
        kind, coordinator_epoch=12, producer_id=4000, producer_epoch=3, timestamp_ms=99, base_offset=50
    )
    assert decode_control(data) == Control(kind, 12)
    header = peek(data)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 3, -1)
    assert decode_records(data)[0].key == bytes([0, 0, 0, kind])
    assert decode_records(data)[0].value == bytes([0, 0, 0, 0, 0, 12])
    oracle = AioBatch(bytes(data))
    assert oracle.validate_crc()
    assert oracle.is_control_batch


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (None, None), (b"\x00\x00\x00\x63", b""), (b"\x00\x00\x00\x01", b"\x00")]
)
def test_damaged_markers(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        decode_control(encode_batch([Record(0, 0, key, value)], control=True))
    with pytest.raises(CorruptBatch, match="not a control"):
        decode_control(encode_batch([Record(0, 0, key, value)]))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints(value: int) -> None:
    assert read_varint(b"?" + varint(value), 1) == (value, 1 + len(varint(value)))


def test_varint_limits() -> None:
    assert SMALL_VARINTS[300] == varint(300)
    with pytest.raises(ValueError):
        varint(1 << 63)
    for endless in (b"\xff" * 20, b"\xff" * 9 + b"\x02"):
        with pytest.raises(CorruptBatch):
            read_varint(endless, 0)


@settings(max_examples=first_worlds(100, of=400))
@given(st.data())
def test_damaged_records_raise_nothing_but_corrupt_batch(data: st.DataObject) -> None:
    """With a right CRC, as a malicious producer would send them."""
    codec = data.draw(st.sampled_from(CODECS))
    batch = encode_batch(data.draw(records_lists.map(lambda records: records[:5])), compression=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(57, len(batch) - 1))
        batch[position] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    if data.draw(st.booleans()):
        del batch[data.draw(st.integers(HEADER_BYTES, len(batch))) :]
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    renew_crc(batch)
    try:
        records = decode_records(batch, OpeningLimits(1 << 20))
    except CorruptBatch:
        return
    assert len(records) == peek(batch).record_count


@settings(max_examples=first_worlds(100, of=400))
@given(st.sampled_from(CODECS), st.integers(-2, 50), st.binary(max_size=120))
def test_random_records_raise_nothing_but_corrupt_batch(codec: Compression, count: int, body: bytes) -> None:
    batch = encode_batch([Record(0, 0, None, None)])[:HEADER_BYTES] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = codec
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    try:
        records = decode_records(batch, OpeningLimits(1 << 20))
    except CorruptBatch:
        return
    assert len(records) == count


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 1 << 30])
def test_a_wrong_record_count_is_found(count: int) -> None:
    batch = encode_batch([Record(0, 0, b"k", b"v")] * 3)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch):
        decode_records(batch)
