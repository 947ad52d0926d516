"""What Kafka 3.9's brokers say to each other: Kafka 4 has it no more, so Kafka's own classes are the oracle."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from broker.wire.codec import decode, encode_bytes
from broker.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from broker.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from broker.wire.messages.own_fields import SetConfig, TopicConfigs
from broker.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from broker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from broker.wire.schema import Message

WRITTEN_BY_KAFKA = {
    line.split()[0]: (int(line.split()[1]), bytes.fromhex(line.split()[2]))
    for line in (Path(__file__).parent / "between_brokers.txt").read_text().splitlines()
}
"""By the classes of Kafka 3.9.1: `java -cp JARS BetweenBrokers.java > between_brokers.txt`."""
ID = uuid.UUID("00112233-4455-6677-1899-aabbccddeeff")

LEADER_STATE = LeaderAndIsrPartitionState(4, 5, 6, 7, [6, 8], 9, [6, 8, 10], [11], [12, 13], True, 1)
TOLD_STATE = UpdateMetadataPartitionState(4, 5, 6, 7, [6, 8], 9, [6, 8, 10], [10])
LIVE = [
    UpdateMetadataBroker(6, [UpdateMetadataEndpoint(9094, "host", "INTERNAL", 3)], "a"),
    UpdateMetadataBroker(8, []),
]
MESSAGES: list[Message] = [
    LeaderAndIsrRequest(
        1,
        True,
        2,
        3 << 33,
        2,
        [LeaderAndIsrTopicState("t", ID, [LEADER_STATE])],
        [LeaderAndIsrLiveLeader(6, "host", 9094)],
    ),
    LeaderAndIsrResponse(11, [LeaderAndIsrTopicError(ID, [LeaderAndIsrPartitionError(4, 56)])]),
    StopReplicaRequest(1, True, 2, 3, [StopReplicaTopicState("t", [StopReplicaPartitionState(4, 5, True)])]),
    StopReplicaResponse(77, [StopReplicaPartitionError("t", 4, 74)]),
    UpdateMetadataRequest(1, True, 2, 2, 3, [UpdateMetadataTopicState("t", ID, [TOLD_STATE])], LIVE),
    UpdateMetadataResponse(11),
    ControlledShutdownRequest(1, 3),
    ControlledShutdownResponse(41, [RemainingPartition("t", 4)]),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_it_is_written_and_read_as_by_kafka(message: Message) -> None:
    version, data = WRITTEN_BY_KAFKA[type(message).__name__]
    assert encode_bytes(message, version) == data
    assert decode(type(message), version, data) == (message, len(data))


def test_what_only_farshore_says_is_tagged_and_far_from_kafkas_tags() -> None:
    configs = TopicConfigs(3, [SetConfig("retention.ms", "1")])
    request = LeaderAndIsrRequest(1, topic_states=[LeaderAndIsrTopicState("t", ID, configs=configs)])
    request.unreadable_topics = ["damaged"]
    data = encode_bytes(request, 7)
    assert decode(LeaderAndIsrRequest, 7, data) == (request, len(data))
    plain = encode_bytes(LeaderAndIsrRequest(1, topic_states=[LeaderAndIsrTopicState("t", ID)]), 7)
    # No tag, and the same but for the tags: 10,000 as a varint.
    assert data.count(b"\x90\x4e") == 2
    assert plain.count(b"\x90\x4e") == 0
