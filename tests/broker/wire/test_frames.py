"""Frames against bytes written by hand from the protocol's description."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.wire.api import ApiKey, request_header_version, response_header_version
from broker.wire.errors import ErrorCode, MalformedMessage, UnsupportedVersion, WireError
from broker.wire.frames import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.wire.schema import Message

REQUESTS = [
    pytest.param(
        RequestHeader(18, 0, 7, "c"),
        ApiVersionsRequest(),
        "0000000b 0012 0000 00000007 0001 63",
        id="ApiVersions v0",
    ),
    pytest.param(
        RequestHeader(18, 3, 7, None),
        ApiVersionsRequest("ab", "1.0"),
        "00000013 0012 0003 00000007 ffff 00 03 6162 04 312e30 00",
        id="ApiVersions v3, no client id",
    ),
    pytest.param(
        RequestHeader(10, 0, 1, ""),
        FindCoordinatorRequest("g"),
        "0000000d 000a 0000 00000001 0000 0001 67",
        id="FindCoordinator v0",
    ),
    pytest.param(
        RequestHeader(12, 4, 2, "c"),
        HeartbeatRequest("g", 5, "m", None),
        "00000016 000c 0004 00000002 0001 63 00 02 67 00000005 02 6d 00 00",
        id="Heartbeat v4",
    ),
]

RESPONSES = [
    pytest.param(
        18,
        0,
        ApiVersionsResponse(0, [ApiVersion(18, 0, 4)]),
        "00000010 00000007 0000 00000001 0012 0000 0004",
        id="ApiVersions v0",
    ),
    pytest.param(
        18,
        3,
        ApiVersionsResponse(0, [ApiVersion(18, 0, 4)]),
        "00000013 00000007 0000 02 0012 0000 0004 00 00000000 00",
        id="ApiVersions v3 has the header of v0",
    ),
    pytest.param(12, 4, HeartbeatResponse(0, 27), "0000000c 00000007 00 00000000 001b 00", id="Heartbeat v4"),
    pytest.param(12, 0, HeartbeatResponse(0, 27), "00000006 00000007 001b", id="Heartbeat v0"),
]


@pytest.mark.parametrize(("header", "message", "expected"), REQUESTS)
def test_request_bytes(header: RequestHeader, message: Message, expected: str) -> None:
    frame = b"".join(encode_request(header, message))
    assert frame == bytes.fromhex(expected)
    assert decode_request(frame[4:]) == (header, message)


@pytest.mark.parametrize(("key", "version", "message", "expected"), RESPONSES)
def test_response_bytes(key: int, version: int, message: Message, expected: str) -> None:
    frame = b"".join(encode_response(key, version, 7, message))
    assert frame == bytes.fromhex(expected)
    assert decode_response(key, version, frame[4:]) == (7, message)


def test_an_answer_to_an_unknown_version_of_api_versions_is_read() -> None:
    """The broker answers in v0, the client has asked in v4."""
    answer = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(18, 0, 3)])
    frame = b"".join(encode_response(ApiKey.API_VERSIONS, 0, 3, answer))
    assert decode_response(ApiKey.API_VERSIONS, 4, frame[4:]) == (3, answer)


def test_the_size_counts_the_records_too() -> None:
    records = [b"x" * 1000, b"y" * 500]
    response = FetchResponse(responses=[FetchableTopicResponse("t", [PartitionData(records=records)])])
    buffers = encode_response(ApiKey.FETCH, 12, 9, response)
    assert int.from_bytes(bytes(buffers[0][:4]), "big") == sum(map(len, buffers)) - 4
    assert [buffer for buffer in buffers if buffer in records] == records


def test_the_header_of_an_unknown_api_or_version_is_read() -> None:
    """The broker has to know whom to answer, and what."""
    frame = bytes.fromhex("03e7 0001 00000005 0001 63 ffff")
    assert decode_request_header(frame) == (RequestHeader(999, 1, 5, "c"), 11)
    with pytest.raises(UnsupportedVersion):
        decode_request(frame)
    newer = bytes.fromhex("0012 0063 00000005 0001 63 00 02 61 02 62 00")
    header, offset = decode_request_header(newer)
    assert header == RequestHeader(18, 99, 5, "c")
    assert offset == 12
    with pytest.raises(UnsupportedVersion):
        decode_request(newer)


def test_tags_in_headers_are_stepped_over() -> None:
    frame = bytes.fromhex("000c 0004 00000002 0001 63 01 09 02 ffff 02 67 00000005 02 6d 00 00")
    assert decode_request(frame)[1] == HeartbeatRequest("g", 5, "m", None)
    answer = bytes.fromhex("00000007 01 09 02 ffff 00000000 001b 00")
    assert decode_response(12, 4, answer) == (7, HeartbeatResponse(0, 27))


@pytest.mark.parametrize("frame", ["", "0012", "0012 0000 00000007 0005 63", "000c 0004 00000002 ffff"])
def test_damaged_headers(frame: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_request_header(bytes.fromhex(frame))


def test_header_versions() -> None:
    assert request_header_version(ApiKey.PRODUCE, 8) == 1
    assert request_header_version(ApiKey.PRODUCE, 9) == 2
    assert response_header_version(ApiKey.PRODUCE, 9) == 1
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0
    with pytest.raises(UnsupportedVersion):
        request_header_version(999, 0)


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.tuples(st.sampled_from(list(ApiKey)), st.binary(max_size=60)))
def test_random_frames_raise_nothing_but_wire_errors(data: bytes | tuple[int, bytes]) -> None:
    frame = data if isinstance(data, bytes) else data[0].to_bytes(2, "big") + b"\x00\x01" + data[1]
    try:
        decode_request(frame)
    except WireError:
        return
