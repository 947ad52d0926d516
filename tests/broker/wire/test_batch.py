"""Batch headers: reading, walking, checking, patching in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from broker.wire import batch as batches
from broker.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    compute_crc,
    iter_batches,
    patch_base_offset,
    patch_leader_epoch,
    patch_log_append_time,
    patch_producer,
    peek,
    verify_crc,
)
from broker.wire.compression import Compression
from broker.wire.errors import CorruptBatch
from broker.wire.records import Record, decode_records, encode_batch

RECORDS = [Record(0, 1_000 + index, b"k%d" % index, b"v" * index) for index in range(5)]


def _batch(base_offset: int = 0, *, transactional: bool = False) -> bytearray:
    return encode_batch(
        RECORDS,
        base_offset=base_offset,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        transactional=transactional,
        compression=Compression.LZ4,
    )


def test_peek_reads_every_field() -> None:
    data = b"before" + bytes(_batch(100, transactional=True))
    header = peek(data, 6)
    assert header.base_offset == 100
    assert header.size_bytes == len(data) - 6
    assert header.batch_length == header.size_bytes - 12
    assert header.partition_leader_epoch == -1
    assert header.magic == 2
    assert header.crc == compute_crc(data[6:])
    assert header.compression is Compression.LZ4
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert (header.last_offset_delta, header.last_offset, header.next_offset) == (4, 104, 105)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_004)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert header.last_sequence == 44
    assert header.record_count == 5


def test_sequences_wrap_to_zero() -> None:
    header = peek(encode_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2))
    assert header.last_sequence == 2
    assert peek(encode_batch(RECORDS)).last_sequence == -1


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_magics_are_refused(magic: int) -> None:
    data = _batch()
    data[batches.MAGIC_OFFSET] = magic
    with pytest.raises(CorruptBatch, match="magic"):
        peek(data)


@pytest.mark.parametrize("length", [-1, 0, 48, 10_000, 2_147_483_647])
def test_impossible_lengths_are_refused(length: int) -> None:
    data = _batch()
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match="batch length"):
        peek(data)


@pytest.mark.parametrize("position", [-1, -61, 10**6])
def test_a_position_outside_of_the_buffer_is_refused(position: int) -> None:
    with pytest.raises(CorruptBatch):
        peek(_batch(), position)


def test_unknown_codecs_are_refused() -> None:
    data = _batch()
    data[22] |= 7
    with pytest.raises(CorruptBatch, match="codec 7"):
        _ = peek(data).compression


def test_batches_are_walked_without_copies() -> None:
    data = bytearray(_batch(0) + _batch(5) + _batch(10))
    found = list(iter_batches(data))
    assert [header.base_offset for header, _ in found] == [0, 5, 10]
    for header, view in found:
        assert len(view) == header.size_bytes
        verify_crc(view)
    patch_base_offset(found[1][1], 77)
    assert [header.base_offset for header, _ in iter_batches(data)] == [0, 77, 10]
    assert list(iter_batches(b"")) == []


@given(st.integers(1, 400))
def test_a_partial_tail_is_the_end_or_an_error(cut: int) -> None:
    whole = bytes(_batch(0) + _batch(5))
    data = whole[: max(len(whole) - cut, 0)]
    complete = 1 if len(data) >= len(whole) // 2 else 0
    assert len(list(iter_batches(data))) == complete
    if len(data) % (len(whole) // 2):
        with pytest.raises(CorruptBatch):
            list(iter_batches(data, strict=True))


def test_damage_is_no_partial_tail() -> None:
    data = bytearray(_batch(0) + _batch(5))
    data[len(data) // 2 + batches.MAGIC_OFFSET] = 9
    with pytest.raises(CorruptBatch):
        list(iter_batches(data))


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_the_crc_finds_every_flipped_bit_behind_it(where: int, bit: int) -> None:
    data = _batch()
    position = batches.ATTRIBUTES_OFFSET + where % (len(data) - batches.ATTRIBUTES_OFFSET)
    data[position] ^= 1 << bit
    with pytest.raises(CorruptBatch, match="CRC"):
        verify_crc(data)


def test_a_crc_needs_a_header() -> None:
    with pytest.raises(CorruptBatch):
        verify_crc(bytes(HEADER_BYTES - 1))


def _oracle_accepts(data: bytes | bytearray) -> None:
    found = MemoryRecords(bytes(data)).next_batch()
    assert found is not None
    assert found.validate_crc()


@pytest.mark.parametrize(
    "patch",
    [
        lambda data: patch_base_offset(data, (1 << 62) + 5),
        lambda data: patch_leader_epoch(data, 12),
        lambda data: patch_log_append_time(data, 9_999),
        lambda data: patch_producer(data, producer_id=99, producer_epoch=3, base_sequence=1_000),
    ],
    ids=["base offset", "leader epoch", "log append time", "producer"],
)
def test_patching_keeps_the_crc_right(patch: Callable[[bytearray | memoryview], None]) -> None:
    data = _batch(3)
    body = bytes(data[HEADER_BYTES:])
    patch(memoryview(data))
    verify_crc(data)
    _oracle_accepts(data)
    assert data[HEADER_BYTES:] == body


def test_patched_positions() -> None:
    data = _batch()
    before = peek(data)
    patch_base_offset(data, 1_000)
    patch_leader_epoch(data, 8)
    assert peek(data) == before._replace(base_offset=1_000, partition_leader_epoch=8)


def test_log_append_time_goes_for_every_record() -> None:
    data = _batch()
    patch_log_append_time(data, 55_555)
    assert peek(data).is_log_append_time
    assert peek(data).compression is Compression.LZ4
    assert {record.timestamp for record in decode_records(data)} == {55_555}


@pytest.mark.parametrize("clear", [True, False])
def test_a_batch_becomes_another_producers(clear: bool) -> None:
    data = _batch(500, transactional=True)
    patch_leader_epoch(data, 6)
    before = peek(data)
    patch_producer(data, producer_id=1 << 40, producer_epoch=9, base_sequence=123, clear_transactional=clear)
    after = peek(data)
    assert after.is_transactional is not clear
    assert after == before._replace(
        base_offset=0,
        partition_leader_epoch=-1,
        crc=compute_crc(data),
        attributes=before.attributes & ~0x10 if clear else before.attributes,
        producer_id=1 << 40,
        producer_epoch=9,
        base_sequence=123,
    )


@settings(max_examples=300)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_raise_nothing_but_corrupt_batch(data: bytes, strict: bool) -> None:
    try:
        for header, view in iter_batches(data, strict=strict):
            assert isinstance(header, BatchHeader)
            verify_crc(view)
    except CorruptBatch:
        return
