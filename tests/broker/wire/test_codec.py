"""The codec's edges: bad input, unknown tags, uncopied records, values that have no form on the wire."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.wire import messages
from broker.wire.api import API, ApiKey
from broker.wire.codec import decode, decode_prefixed, encode, encode_bytes, encode_prefixed
from broker.wire.errors import MalformedMessage, UnsupportedVersion, WireError
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from broker.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.list_groups import ListGroupsRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.wire.schema import Message
from tests.broker.wire.strategies import plain, project, structs, versions_of
from tests.worlds import first_worlds

MESSAGES = [cls for api in API.values() for cls in (api.request, api.response)]
CASES = [(cls, version) for cls in MESSAGES for version in versions_of(cls)]
FUZZ = settings(max_examples=first_worlds(80, of=300), suppress_health_check=list(HealthCheck))


def _read(cls: type[Message], version: int, data: bytes) -> None:
    """Whatever the bytes are: a message, or an error of ours."""
    try:
        _, end = decode(cls, version, data)
    except WireError:
        return
    assert 0 <= end <= len(data)


@FUZZ
@given(st.sampled_from(CASES), st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_wire_errors(case: tuple[type[Message], int], data: bytes) -> None:
    _read(*case, data)


@FUZZ
@given(st.data())
def test_damaged_messages_raise_nothing_but_wire_errors(data: st.DataObject) -> None:
    cls, version = data.draw(st.sampled_from(CASES))
    encoded = bytearray(encode_bytes(project(data.draw(structs(cls)), version), version))
    for _ in range(data.draw(st.integers(1, 4))):
        if encoded:
            position = data.draw(st.integers(0, len(encoded) - 1))
            encoded[position] = data.draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))
    _read(cls, version, bytes(encoded))


@FUZZ
@given(st.data())
def test_every_shortened_message_is_malformed(data: st.DataObject) -> None:
    cls, version = data.draw(st.sampled_from(CASES))
    encoded = encode_bytes(project(data.draw(structs(cls)), version), version)
    if encoded:
        with pytest.raises(MalformedMessage):
            decode(cls, version, encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xff\xff\xff\x07", id="two thousand million topics, compact"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="a varint without end"),
        pytest.param(b"\xff\xff\xff\xff\x7f", id="a varint beyond 32 bits"),
    ],
)
def test_a_huge_count_costs_no_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode(MetadataRequest, 12, data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_a_count_is_weighed_by_the_least_size_of_an_element() -> None:
    """100 metadata topics of v12 need at least 100 * 18 bytes; 1000 bytes cannot hold them."""
    with pytest.raises(MalformedMessage, match="topics"):
        decode(MetadataRequest, 12, b"\x65" + bytes(1000))


@pytest.mark.parametrize("length", [b"\xff\xfe", b"\x80\x00"])
def test_a_negative_length_other_than_null_is_malformed(length: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(ProduceRequest, 3, length + bytes(20))


def test_null_where_there_is_none_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="key is null"):
        decode(FindCoordinatorRequest, 0, b"\xff\xff")


def test_text_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        decode(FindCoordinatorRequest, 0, b"\x00\x01\xff")


def test_unknown_tags_are_stepped_over() -> None:
    plain_request = encode_bytes(ApiVersionsRequest("farshore", "1"), 3)
    assert plain_request.endswith(b"\x00")
    tagged = plain_request[:-1] + b"\x02" + b"\x05\x03abc" + b"\x80\x01\x00"
    message, end = decode(ApiVersionsRequest, 3, tagged)
    assert message == ApiVersionsRequest("farshore", "1")
    assert end == len(tagged)


def test_a_known_tag_that_ends_early_is_malformed() -> None:
    response = ApiVersionsResponse(finalized_features_epoch=7)
    data = encode_bytes(response, 3)
    tag = b"\x01\x08" + (7).to_bytes(8, "big")
    assert data.endswith(tag)
    with pytest.raises(MalformedMessage, match="does not end where it says"):
        decode(ApiVersionsResponse, 3, data[: -len(tag)] + b"\x01\x09" + tag[2:] + b"\x00")


def test_many_tags_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="tagged fields"):
        decode(ListGroupsRequest, 3, b"\xff\xff\x7f" + bytes(100_000))


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_not_copied(version: int) -> None:
    first, second = b"a" * 1000, memoryview(bytearray(b"b" * 500))
    request = ProduceRequest(
        topic_data=[TopicProduceData("t", [PartitionProduceData(0, first), PartitionProduceData(1, [first, second])])]
    )
    buffers = encode(request, version)
    assert [buffer for buffer in buffers if buffer is first] == [first, first]
    assert any(buffer is second for buffer in buffers)
    frame = bytearray(b"".join(buffers))
    decoded, _ = decode(ProduceRequest, version, frame)
    partitions = decoded.topic_data[0].partition_data
    assert isinstance(partitions[1].records, memoryview)
    assert bytes(partitions[1].records) == first + second
    assert isinstance(partitions[0].records, memoryview)
    frame[frame.index(b"aaaa")] = ord("X")
    assert partitions[0].records[0] == ord("X")


def test_null_and_empty_records_differ() -> None:
    for records in (None, b""):
        data = encode_bytes(ProduceRequest(topic_data=[TopicProduceData("t", [PartitionProduceData(0, records)])]), 9)
        decoded, _ = decode(ProduceRequest, 9, data)
        found = decoded.topic_data[0].partition_data[0].records
        assert found is None if records is None else found == b""


def test_a_tagged_struct_is_none_when_absent() -> None:
    partition = PartitionData(3, diverging_epoch=EpochEndOffset(4, 100))
    response = FetchResponse(responses=[FetchableTopicResponse("t", [partition, PartitionData(4)])])
    decoded, _ = decode(FetchResponse, 12, encode_bytes(response, 12))
    first, second = decoded.responses[0].partitions
    assert first.diverging_epoch == EpochEndOffset(4, 100)
    assert first.current_leader is None
    assert second.diverging_epoch is None


@pytest.mark.parametrize(
    "message",
    [
        FetchResponse(throttle_time_ms=1 << 31),
        FetchResponse(throttle_time_ms="soon"),  # type: ignore[arg-type]  # no field holds it
        FetchResponse(responses=None),  # type: ignore[arg-type]  # no field holds it
        FindCoordinatorRequest(key="\ud800"),
        FindCoordinatorRequest(key="x" * 40_000),
        FindCoordinatorRequest(key=None),  # type: ignore[arg-type]  # no field holds it
    ],
)
def test_values_without_a_form_on_the_wire(message: Message) -> None:
    version = 4 if isinstance(message, FetchResponse) else 0
    with pytest.raises(MalformedMessage, match="cannot be encoded"):
        encode(message, version)


@pytest.mark.parametrize(("cls", "version"), [(ProduceRequest, 2), (ProduceRequest, 14), (MetadataResponse, -1)])
def test_versions_outside_of_the_tables(cls: type[Message], version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        decode(cls, version, b"")
    with pytest.raises(UnsupportedVersion):
        encode(cls(), version)


def test_every_key_and_every_module_of_messages_is_in_the_table() -> None:
    assert list(API) == list(ApiKey)
    modules = {path.stem for path in Path(messages.__path__[0]).glob("*.py")} - {
        "__init__",
        "consumer_protocol",
        "own_fields",
    }
    assert {key.name.lower() for key in ApiKey} == modules


def test_api_keys_and_versions() -> None:
    """The versions that a broker of this protocol level advertises."""
    assert (API[ApiKey.PRODUCE].min_version, API[ApiKey.PRODUCE].max_version) == (0, 13)
    assert ProduceRequest.VERSIONS == ProduceResponse.VERSIONS == (3, 13)
    for api in API.values():
        assert api.request.API_KEY == api.response.API_KEY == api.key
        assert api.request.VERSIONS == api.response.VERSIONS
        assert api.request.FLEXIBLE_SINCE == api.response.FLEXIBLE_SINCE == api.flexible_since
        assert api.max_version == api.request.VERSIONS[1]


def test_consumer_protocol_of_a_newer_version_is_read_as_the_newest() -> None:
    subscription = ConsumerProtocolSubscription(["t"], b"data", [TopicPartition("t", [1, 2])], 5, "rack")
    data = encode_prefixed(subscription, 3)
    assert decode_prefixed(ConsumerProtocolSubscription, data) == (subscription, 3)
    newer = b"\x00\x09" + data[2:] + b"what comes later"
    assert decode_prefixed(ConsumerProtocolSubscription, newer) == (subscription, 9)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x00", b"\x00\x03\x7f"])
def test_damaged_consumer_protocol(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_prefixed(ConsumerProtocolSubscription, data)


def test_defaults_are_not_shared() -> None:
    one, other = MetadataRequest(), MetadataRequest()
    assert one.topics is not None
    one.topics.append(MetadataRequestTopic(name="t"))
    assert other.topics == []
    first: Any = decode(MetadataRequest, 0, bytes(4))[0]
    second: Any = decode(MetadataRequest, 0, bytes(4))[0]
    assert plain(first) == plain(second)
    assert first.topics is not second.topics
