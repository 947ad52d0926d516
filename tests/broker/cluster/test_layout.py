"""The znodes' contents. What Kafka 3.9.1 wrote in ZooKeeper's mode is read, and written again to equal JSON; that a
real one still writes the same is tested in tests/interop/test_kafka_znodes.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.cluster.metadata import NO_TOPIC_ID, BrokerRegistration, Endpoint, PartitionState
from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper import layout
from broker.wire.vocabulary import TopicPartition
from tests.broker.cluster.znodes import rewritten

TOPIC_ID = "htphNu4MSu6IdyiP6lj-GQ"
TOPIC = (
    '{"partitions":{"0":[1,2],"1":[2]},"topic_id":"' + TOPIC_ID + '","adding_replicas":{"0":[2]},'
    '"removing_replicas":{},"version":3}'
)
KAFKAS = {
    "/cluster/id": '{"version":"1","id":"6Xe-WjYGTkmzPAU_yBbCiw"}',
    "/brokers/ids/1": '{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":'
    '["PLAINTEXT://127.0.0.1:57995"],"jmx_port":-1,"port":57995,"host":"127.0.0.1","version":5,'
    '"timestamp":"1795291512811"}',
    "/brokers/ids/2": '{"features":{},"listener_security_protocol_map":{"INTERNAL":"SSL","CLIENTS":"SASL_SSL"},'
    '"endpoints":["INTERNAL://[::1]:9093","CLIENTS://b2.example:9092"],"rack":"east","jmx_port":-1,"port":-1,'
    '"host":null,"version":5,"timestamp":"1795291512811"}',
    "/brokers/topics/t": TOPIC,
    "/brokers/topics/t/partitions/0/state": '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}',
    "/brokers/topics/t/partitions/1/state": '{"controller_epoch":4,"leader":-1,"version":1,"leader_epoch":3,"isr":[2],'
    '"leader_recovery_state":1}',
    "/controller": '{"version":2,"brokerid":1,"timestamp":"1795291513085","kraftControllerEpoch":-1}',
    "/controller_epoch": "1",
    "/config/topics/t": '{"version":1,"config":{"cleanup.policy":"compact","retention.ms":"1000"}}',
    "/config/brokers/<default>": '{"version":1,"config":{"log.retention.ms":"5000"}}',
    "/config/changes/config_change_0000000000": '{"version":2,"entity_path":"brokers/<default>"}',
    "/latest_producer_id_block": '{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}',
    "/isr_change_notification/isr_change_0000000000": '{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    "/log_dir_event_notification/log_dir_event_0000000000": '{"version":1,"broker":1,"event":1}',
    "/admin/reassign_partitions": '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',
    "/admin/preferred_replica_election": '{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    "/admin/delete_topics/gone": "",
    "/brokers/seqid": "",
}


@pytest.mark.parametrize("path", KAFKAS)
def test_what_kafka_wrote_is_written_again(path: str) -> None:
    again = rewritten(path, KAFKAS[path].encode())
    assert layout.decode(again, path) == layout.decode(KAFKAS[path].encode(), path) if again[:1] == b"{" else True
    assert bool(again) == bool(KAFKAS[path])


def test_what_is_read_is_what_it_means() -> None:
    topic_id, (first, second) = layout.decode_topic("t", TOPIC.encode())
    assert layout.encode_uuid(topic_id) == TOPIC_ID
    assert (first.replicas, first.adding_replicas, second.replicas) == ((1, 2), (2,), (2,))
    assert (first.leader, first.leader_epoch, first.version) == (-1, -1, -1)
    where = TopicPartition("t", 1)
    state = layout.decode_partition_state(where, KAFKAS[layout.partition_state(where)].encode(), 7, second)
    assert state == PartitionState(-1, 3, (2,), (2,), controller_epoch=4, recovering=True, version=7)
    registration, at_ms = layout.decode_broker(2, KAFKAS["/brokers/ids/2"].encode())
    endpoints = (Endpoint("INTERNAL", "::1", 9093, "SSL"), Endpoint("CLIENTS", "b2.example", 9092, "SASL_SSL"))
    assert registration == BrokerRegistration(2, endpoints, "east")
    assert at_ms == 1795291512811
    assert layout.decode_producer_ids(b"") == (-1, range(0))
    assert layout.decode_configs("/config/topics/t", b"") == {}


def test_in_which_lives_the_isr_was_found_stands_beside_what_kafka_reads() -> None:
    where, state = TopicPartition("t", 0), PartitionState(1, 3, (1, 2), (1, 2), isr_epochs=((1, 70), (2, 95)))
    data = layout.encode_partition_state(state)
    assert layout.decode_partition_state(where, data, 7, state).isr_epochs == state.isr_epochs
    assert b"epochs" not in layout.encode_partition_state(replace(state, isr_epochs=()))


def test_what_earlier_kafkas_wrote_is_read() -> None:
    """Topics without an id, before 2.8, and without reassignments in their znode, before 2.4."""
    for text in (
        '{"version":1,"partitions":{"0":[1,2],"1":[2]}}',
        '{"version":2,"partitions":{"0":[1,2],"1":[2]},"adding_replicas":{},"removing_replicas":{}}',
    ):
        topic_id, states = layout.decode_topic("t", text.encode())
        assert (topic_id, [state.replicas for state in states]) == (NO_TOPIC_ID, [(1, 2), (2,)])
    named = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert layout.decode_config_change(named, "/config/changes/config_change_0000000001") == "topics/t"


@pytest.mark.parametrize("data", ["{", "[]", "{}", "3", '{"partitions":7}', '{"partitions":[{}]}', '{"config":[1]}'])
def test_lists_and_configs_that_are_none_are_refused_by_name(data: str) -> None:
    for decode in (
        lambda: layout.decode_partitions("/admin/preferred_replica_election", data.encode()),
        lambda: layout.decode_reassignments(data.encode()),
        lambda: layout.decode_configs("/config/topics/t", data.encode()),
        lambda: layout.decode_producer_ids(data.encode()),
    ):
        with pytest.raises(MetadataUnreadable, match="znode /"):
            decode()


@pytest.mark.parametrize("data", ["", "{", "[]", "{}", "3", '{"partitions":[]}', '{"partitions":{"1":[1]}}'])
def test_what_is_no_such_znode_is_refused_by_name(data: str) -> None:
    for decode in (
        lambda: layout.decode_topic("t", data.encode()),
        lambda: layout.decode_broker(1, data.encode()),
        lambda: layout.decode_controller(data.encode()),
        lambda: layout.decode_cluster_id(data.encode()),
        lambda: layout.decode_partition_state(TopicPartition("t", 0), data.encode(), 0, PartitionState(1, 0, (), ())),
        lambda: layout.decode_config_change(data.encode(), "/config/changes/config_change_0000000000"),
        lambda: layout.decode_log_dir_event(data.encode()),
    ):
        with pytest.raises(MetadataUnreadable, match="znode /"):
            decode()
