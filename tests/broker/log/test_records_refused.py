"""Batches whose header fits and whose records do not: what is refused without opening them, and what only then."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import RecordsRefused
from broker.log.config import LogConfig
from broker.log.validation import AppendOrigin, check_batch, check_records
from broker.wire.batch import HEADER_BYTES, pack_header, peek
from broker.wire.compression import Compression, compress
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, decode_records, encode_batch
from tests.broker.log.support import NOW_MS

CODECS = [codec for codec in Compression if codec is not Compression.NONE]


def with_records(batch: bytes | bytearray, body: bytes, **changes: int) -> bytearray:
    """The batch with other bytes for records, and a header and CRC that fit them."""
    changed = bytearray(batch[:HEADER_BYTES]) + body
    header = peek(batch)._replace(batch_length=len(changed) - 12, **changes)
    pack_header(changed, header)
    return changed


def three(codec: Compression = Compression.NONE, headers: tuple[tuple[str, bytes | None], ...] = ()) -> bytearray:
    return encode_batch([Record(0, NOW_MS, b"k", b"v" * 300, headers)] * 3, compression=codec)


def framed(batch: bytearray) -> None:
    check_batch(memoryview(batch), LogConfig(), AppendOrigin.CLIENT, NOW_MS)


def refused(check: object, batch: bytearray) -> RecordsRefused:
    assert callable(check)
    with pytest.raises(RecordsRefused) as error:
        check(memoryview(batch) if check is check_records else batch)
    return error.value


def plain(batch: bytes | bytearray) -> bytes:
    return bytes(batch[HEADER_BYTES:])


@pytest.mark.parametrize("check", [framed, check_records])
def test_a_count_that_is_not_that_of_the_records_is_refused(check: object) -> None:
    for count in (1, 2, 4):
        batch = with_records(three(), plain(three()), record_count=count, last_offset_delta=count - 1)
        assert refused(check, batch).error_code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("check", [framed, check_records])
@pytest.mark.parametrize("junk", [b"\x00", b"junk behind the last record", b"\xff" * 12])
def test_junk_behind_the_last_record_is_refused(check: object, junk: bytes) -> None:
    assert refused(check, with_records(three(), plain(three()) + junk)).error_code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("check", [framed, check_records])
@pytest.mark.parametrize("said", Compression)
@pytest.mark.parametrize("real", Compression)
def test_a_codec_that_is_not_the_headers_is_refused(check: object, said: Compression, real: Compression) -> None:
    body = compress(real, plain(three()))
    batch = with_records(three(), body, attributes=int(said))
    if said is real:
        assert callable(check)
        check(memoryview(batch) if check is check_records else batch)
    else:
        assert refused(check, batch).error_code is ErrorCode.INVALID_RECORD


def test_a_plain_snappy_block_is_accepted() -> None:
    chunked = compress(Compression.SNAPPY, plain(three()))
    (length,) = struct.unpack_from(">i", chunked, 16)
    batch = with_records(three(), chunked[20 : 20 + length], attributes=int(Compression.SNAPPY))
    framed(batch)
    check_records(memoryview(batch))


@pytest.mark.parametrize("codec", Compression)
def test_opening_finds_what_framing_does_not(codec: Compression) -> None:
    """A null header key, and in a compressed batch count and junk: refused where every batch is opened."""
    good = plain(three(headers=(("name", b"value"),)))
    null_key = good.replace(b"\x08name", b"\x01", 1)
    fixed = bytearray(null_key)
    fixed[0] -= 2 * 4  # zigzag: four bytes fewer
    hostile = with_records(three(), compress(codec, bytes(fixed)), attributes=int(codec))
    framed(hostile)
    assert refused(check_records, hostile).error_code is ErrorCode.INVALID_RECORD
    if codec is not Compression.NONE:
        for body, changes in ((good + b"junk", {}), (good, {"record_count": 2, "last_offset_delta": 1})):
            batch = with_records(three(), compress(codec, body), attributes=int(codec), **changes)
            framed(batch)
            assert refused(check_records, batch).error_code is ErrorCode.INVALID_RECORD


def test_a_record_later_than_its_batch_says_is_refused_when_opened() -> None:
    batch = with_records(three(), plain(three()), max_timestamp=NOW_MS - 1)
    assert refused(check_records, batch).error_code is ErrorCode.INVALID_TIMESTAMP


@given(st.binary(max_size=20))
def test_header_names_are_any_bytes_and_come_back_as_they_were(name: bytes) -> None:
    text = name.decode(errors="surrogateescape")
    batch = encode_batch([Record(0, NOW_MS, b"k", b"v", ((text, b"x"),))])
    assert name in bytes(batch)
    framed(batch)
    check_records(memoryview(batch))
    again = decode_records(batch)
    assert again[0].headers == ((text, b"x"),)
    assert encode_batch(again) == batch


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=4), st.sampled_from(Compression))
def test_what_a_client_encodes_is_accepted(sizes: list[int], codec: Compression) -> None:
    batch = encode_batch([Record(0, NOW_MS, None, b"v" * size) for size in sizes], compression=codec)
    framed(batch)
    check_records(memoryview(batch))
