"""Every message and version against two other implementations: same bytes, same values, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.wire.api import API, ApiKey
from broker.wire.codec import decode, encode, encode_bytes
from broker.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from broker.wire.messages.own_fields import OWN_TAG
from broker.wire.schema import Message, Struct
from tests.broker.wire.oracles import kafka_python_has, kafka_python_reads, kafka_python_writes, kio_reads
from tests.broker.wire.strategies import kafkas, plain, project, structs, versions_of
from tests.worlds import first_worlds

MESSAGES = [cls for api in API.values() for cls in (api.request, api.response)]
MESSAGES += [ConsumerProtocolSubscription, ConsumerProtocolAssignment]

BETWEEN_BROKERS = [
    cls
    for key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN)
    for cls in (API[key].request, API[key].response)
]
"""Kafka 4 has these no more, and so no oracle: see test_between_brokers.py."""

EVERY_VERSION = settings(max_examples=first_worlds(6, of=30), suppress_health_check=list(HealthCheck))


def _only(fields: dict[str, Any], cls: type[Struct], version: int) -> dict[str, Any]:
    """The part of a plain message that stands on the wire in `version`."""
    out: dict[str, Any] = {}
    for spec in cls.FIELDS:
        if not spec.is_in(version) or spec.tag == OWN_TAG:
            continue
        value = fields[spec.name]
        struct = spec.struct
        if struct is not None and isinstance(value, list):
            value = [_only(item, struct, version) for item in value]
        elif struct is not None and value is not None:
            value = _only(value, struct, version)
        out[spec.name] = value
    return out


@pytest.mark.parametrize("cls", [cls for cls in MESSAGES if cls not in BETWEEN_BROKERS], ids=lambda cls: cls.__name__)
def test_all_versions_agree_with_both_oracles(cls: type[Message]) -> None:
    @EVERY_VERSION
    @given(structs(cls))
    def agree(message: Message) -> None:
        for version in versions_of(cls):
            expected = kafkas(project(message, version))
            data = encode_bytes(expected, version)
            decoded, end = decode(cls, version, data)
            assert plain(decoded) == plain(expected)
            assert end == len(data)
            values = _only(plain(expected), cls, version)
            read, written = kio_reads(cls, version, data)
            assert read == values
            assert written == data
            if kafka_python_has(cls):
                assert kafka_python_reads(cls, version, data) == values
                assert kafka_python_writes(expected, version) == data

    agree()


def test_kafka_python_lacks_only_the_newest_messages() -> None:
    lacking = {cls.__name__ for cls in MESSAGES if not kafka_python_has(cls)} - {
        cls.__name__ for cls in BETWEEN_BROKERS
    }
    assert lacking == {
        f"{what}{kind}"
        for what in ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe")
        for kind in ("Request", "Response")
    }


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_fields_of_other_versions_are_left_out(cls: type[Message]) -> None:
    @EVERY_VERSION
    @given(structs(cls), st.sampled_from(versions_of(cls)))
    def left_out(message: Message, version: int) -> None:
        """Null in a field that `version` lacks must not matter, so only those that it has are made legal."""
        expected = project(message, version)
        for spec in cls.FIELDS:
            if spec.is_in(version):
                setattr(message, spec.name, getattr(expected, spec.name))
        assert encode_bytes(message, version) == encode_bytes(expected, version)

    left_out()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_message_inside_of_a_larger_buffer_of_any_type(cls: type[Message]) -> None:
    @EVERY_VERSION
    @given(structs(cls), st.sampled_from(versions_of(cls)), st.sampled_from([bytes, bytearray, memoryview]))
    def found(message: Message, version: int, make: Any) -> None:
        expected = project(message, version)
        data = b"".join(encode(expected, version))
        buffer = make(b"before" + data + b"after")
        decoded, end = decode(cls, version, buffer, 6)
        assert plain(decoded) == plain(expected)
        assert end == 6 + len(data)

    found()
