"""Codecs: what other writers make is read, and no input makes more output than is allowed."""

from __future__ import annotations

import tracemalloc
import zlib

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.wire.compression import Compression, compress, decompress
from broker.wire.errors import CorruptBatch

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
ALLOWED = 1 << 24


@settings(max_examples=30)
@given(st.sampled_from(list(Compression)), st.binary(max_size=100), st.integers(0, 3_000))
def test_there_and_back(codec: Compression, data: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, memoryview(data * times)), ALLOWED) == data * times


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("size", [1, 32_767, 32_768, 100_000])
def test_aiokafka_reads_ours_and_we_read_its(codec: Compression, size: int) -> None:
    data = bytes(index * index % 251 for index in range(size))
    name = codec.name.lower()
    decode = getattr(aiokafka_codec, f"{name}_decode")
    encode = getattr(aiokafka_codec, f"{name}_encode")
    assert decode(compress(codec, data)) == data
    assert decompress(codec, encode(data), ALLOWED) == data


def test_levels_are_passed_on() -> None:
    data = b"".join(b"N%d UA%d EWR " % (index * index % 9_973, index % 577) for index in range(20_000))
    for codec, low, high in ((Compression.GZIP, 1, 9), (Compression.ZSTD, 1, 19), (Compression.LZ4, 1, 9)):
        fast, small = compress(codec, data, low), compress(codec, data, high)
        assert fast != small
        assert decompress(codec, small, ALLOWED) == decompress(codec, fast, ALLOWED) == data


def test_snappy_of_other_clients_is_one_plain_block() -> None:
    data = b"flights" * 1_000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), ALLOWED) == data
    assert compress(Compression.SNAPPY, data).startswith(b"\x82SNAPPY\x00" + bytes.fromhex("00000001 00000001"))


def test_lz4_frames_are_such_as_java_reads() -> None:
    """Version 1 with independent blocks, and neither a content size nor a dictionary."""
    flags = compress(Compression.LZ4, b"x" * 100_000)[4]
    assert flags >> 6 == 1
    assert flags & 0x20
    assert not flags & 0x09


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_bomb_is_defused(codec: Compression) -> None:
    """64 MiB of zeros: refused at 1 MiB without ever being held."""
    bomb = compress(codec, bytes(1 << 26))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, bomb, 1 << 20)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20
    assert len(decompress(codec, bomb, 1 << 26)) == 1 << 26


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name)
def test_the_limit_itself_is_allowed(codec: Compression) -> None:
    data = compress(codec, bytes(1_000))
    assert decompress(codec, data, 1_000) == bytes(1_000)
    with pytest.raises(CorruptBatch):
        decompress(codec, data, 999)


def test_a_snappy_block_that_claims_too_much_is_refused_before_it_is_read() -> None:
    with pytest.raises(CorruptBatch, match="claims 4294967295"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f", ALLOWED)
    header = compress(Compression.SNAPPY, b"")
    for chunk in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00"):
        with pytest.raises(CorruptBatch):
            decompress(Compression.SNAPPY, header + chunk, ALLOWED)


def test_gzip_of_several_members() -> None:
    member = zlib.compressobj(wbits=31)
    data = member.compress(b"one") + member.flush()
    assert decompress(Compression.GZIP, data + compress(Compression.GZIP, b"two"), ALLOWED) == b"onetwo"


@settings(max_examples=300)
@given(st.sampled_from(CODECS), st.binary(max_size=80), st.integers(0, 60), st.integers(0, 255))
def test_damage_raises_nothing_but_corrupt_batch(codec: Compression, data: bytes, at: int, byte: int) -> None:
    damaged = bytearray(compress(codec, data))
    damaged[at % len(damaged)] = byte
    for candidate in (bytes(damaged), data):
        try:
            decompress(codec, candidate, 1 << 20)
        except CorruptBatch:
            continue
