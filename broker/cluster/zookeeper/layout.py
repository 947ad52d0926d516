"""The znodes of a cluster: paths and contents as Apache Kafka 3.9 has them (kafka.zk.ZkData), so that its tools and its
operators' knowledge hold. Contents are JSON in UTF-8; what is read may have fields that are not known here.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from broker.cluster.metadata import NO_TOPIC_ID, BrokerRegistration, Endpoint, PartitionState
from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper.values import as_text, int32, node_ids
from broker.wire.vocabulary import TopicPartition

CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CONFIGS: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "/log_dir_event_notification/log_dir_event_"
TOPIC_DELETIONS: Final = "/admin/delete_topics"
REASSIGNMENTS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTIONS: Final = "/admin/preferred_replica_election"

PERSISTENT_PATHS: Final = (
    "/cluster",
    "/consumers",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    CONFIGS,
    CONFIG_CHANGES,
    "/config/topics",
    "/config/brokers",
    "/config/clients",
    "/config/users",
    "/config/ips",
    "/admin",
    TOPIC_DELETIONS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
)
"""Parents first."""

BROKER_VERSION: Final = 5
TOPIC_VERSION: Final = 3
STATE_VERSION: Final = 1
CONTROLLER_VERSION: Final = 2
CONFIG_CHANGE_VERSION: Final = 2
FIRST_VERSION: Final = 1
NO_KRAFT_EPOCH: Final = -1
FIRST_CONTROLLER_EPOCH: Final = 0


def broker(node_id: int) -> str:
    return f"{BROKER_IDS}/{node_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{topic(name)}/partitions"


def partition(where: TopicPartition) -> str:
    return f"{partitions(where.topic)}/{where.partition}"


def partition_state(where: TopicPartition) -> str:
    return f"{partition(where)}/state"


def config(path: str) -> str:
    """Of a ConfigResource.path."""
    return f"{CONFIGS}/{path}"


def topic_deletion(name: str) -> str:
    return f"{TOPIC_DELETIONS}/{name}"


def encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def decode(data: bytes, path: str) -> dict[str, Any]:
    """Raises MetadataUnreadable, naming the znode."""
    with reading(path):
        document = json.loads(data)
        if not isinstance(document, dict):
            raise TypeError(f"{document!r} is no JSON object")
        return document


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Raises MetadataUnreadable for whatever is not as it should be in the document."""
    try:
        yield
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        # Errors name what they are about: of a user that may be a key.
        is_secret = path.startswith(f"{CONFIGS}/users/")
        why = type(error).__name__ if is_secret else repr(error)
        raise MetadataUnreadable(
            f"znode {path} cannot be read: {why}", hint="restore it with ZooKeeper's own tools"
        ) from (None if is_secret else error)


# -- /cluster/id -------------------------------------------------------------------------------------------------------


def encode_cluster_id(cluster_id: str) -> bytes:
    # This version is a text in Kafka.
    return encode({"version": str(FIRST_VERSION), "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    with reading(CLUSTER_ID):
        return str(decode(data, CLUSTER_ID)["id"])


# -- /brokers/ids/<id> -------------------------------------------------------------------------------------------------


def encode_broker(registration: BrokerRegistration, now_ms: int) -> bytes:
    plaintext = registration.endpoint("PLAINTEXT")
    rack = {} if registration.rack is None else {"rack": registration.rack}
    return encode(
        {
            "features": {},
            "listener_security_protocol_map": {e.listener: e.security_protocol for e in registration.endpoints},
            "endpoints": [f"{e.listener}://{_host(e.host)}:{e.port}" for e in registration.endpoints],
            "jmx_port": -1,
            # Of the PLAINTEXT listener, for clients that know only one.
            "port": plaintext.port if plaintext else -1,
            "host": plaintext.host if plaintext else None,
            "version": BROKER_VERSION,
            "timestamp": str(now_ms),
            **rack,
        }
    )


def decode_broker(node_id: int, data: bytes) -> tuple[BrokerRegistration, int]:
    """With the Unix time of the registration in milliseconds."""
    path = broker(node_id)
    document = decode(data, path)
    with reading(path):
        protocols = document.get("listener_security_protocol_map", {})
        endpoints = []
        for text in document["endpoints"]:
            listener, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            protocol = as_text(protocols.get(listener, listener))
            endpoints.append(Endpoint(listener, host.strip("[]"), int32(port), protocol))
        rack = document.get("rack")
        registration = BrokerRegistration(node_id, tuple(endpoints), None if rack is None else as_text(rack))
        return registration, int(document.get("timestamp", -1))


def decode_node_id(name: str) -> int:
    """Of a znode under /brokers/ids."""
    with reading(f"{BROKER_IDS}/{name}"):
        return int32(name)


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# -- /brokers/topics/<topic> -------------------------------------------------------------------------------------------


def encode_topic(topic_id: uuid.UUID, states: Sequence[PartitionState]) -> bytes:
    return encode(
        {
            "partitions": {str(index): list(state.replicas) for index, state in enumerate(states)},
            "topic_id": encode_uuid(topic_id),
            "adding_replicas": {str(i): list(s.adding_replicas) for i, s in enumerate(states) if s.adding_replicas},
            "removing_replicas": {
                str(i): list(s.removing_replicas) for i, s in enumerate(states) if s.removing_replicas
            },
            "version": TOPIC_VERSION,
        }
    )


def decode_topic(name: str, data: bytes) -> tuple[uuid.UUID, list[PartitionState]]:
    """The assignment: states without a leader. Versions 1 and 2, of Kafka before 2.8, have no topic id: NO_TOPIC_ID.

    Raises MetadataUnreadable, also where partitions are not 0, 1, 2...
    """
    path = topic(name)
    document = decode(data, path)
    with reading(path):
        assigned = {int(index): node_ids(replicas) for index, replicas in document["partitions"].items()}
        if not all(assigned.values()):
            raise ValueError("a partition has no replicas")
        adding, removing = document.get("adding_replicas", {}), document.get("removing_replicas", {})
        states = [
            PartitionState(
                leader=-1,
                leader_epoch=-1,
                replicas=assigned[index],
                isr=(),
                adding_replicas=node_ids(adding.get(str(index), [])),
                removing_replicas=node_ids(removing.get(str(index), [])),
            )
            for index in range(len(assigned))
        ]
        topic_id = document.get("topic_id")
        return NO_TOPIC_ID if topic_id is None else decode_uuid(topic_id), states


def encode_uuid(value: uuid.UUID) -> str:
    """As Kafka writes ids: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> uuid.UUID:
    """Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


# -- /brokers/topics/<topic>/partitions/<partition>/state --------------------------------------------------------------


def encode_partition_state(state: PartitionState) -> bytes:
    document: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": STATE_VERSION,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.recovering:
        document["leader_recovery_state"] = 1
    if state.isr_epochs:
        # Kafka's brokers pass over what they do not know.
        document["isr_broker_epochs"] = [list(each) for each in state.isr_epochs]
    return encode(document)


def decode_partition_state(
    where: TopicPartition, data: bytes, version: int, assigned: PartitionState
) -> PartitionState:
    """`assigned` with the leader, epochs and ISR of the znode."""
    path = partition_state(where)
    document = decode(data, path)
    with reading(path):
        return PartitionState(
            leader=int32(document["leader"]),
            leader_epoch=int32(document["leader_epoch"]),
            replicas=assigned.replicas,
            isr=node_ids(document["isr"]),
            adding_replicas=assigned.adding_replicas,
            removing_replicas=assigned.removing_replicas,
            controller_epoch=int32(document["controller_epoch"]),
            recovering=document.get("leader_recovery_state", 0) == 1,
            version=version,
            isr_epochs=tuple((int(node), int(epoch)) for node, epoch in document.get("isr_broker_epochs", ())),
        )


# -- the controller ----------------------------------------------------------------------------------------------------


def encode_controller(node_id: int, now_ms: int) -> bytes:
    return encode(
        {
            "version": CONTROLLER_VERSION,
            "brokerid": node_id,
            "timestamp": str(now_ms),
            "kraftControllerEpoch": NO_KRAFT_EPOCH,
        }
    )


def decode_controller(data: bytes) -> int:
    with reading(CONTROLLER):
        return int(decode(data, CONTROLLER)["brokerid"])


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    with reading(CONTROLLER_EPOCH):
        return int(data)


# -- configs -----------------------------------------------------------------------------------------------------------


def encode_configs(values: Mapping[str, str]) -> bytes:
    return encode({"version": FIRST_VERSION, "config": dict(values)})


def decode_configs(path: str, data: bytes) -> dict[str, str]:
    """An empty znode sets nothing."""
    with reading(path):
        values = decode(data, path)["config"] if data else {}
        return {name: as_text(value) for name, value in values.items()}


def encode_config_change(path: str) -> bytes:
    return encode({"version": CONFIG_CHANGE_VERSION, "entity_path": path})


def decode_config_change(data: bytes, path: str) -> str:
    """The ConfigResource.path; version 1 of Kafka before 0.10.1 names the resource in two fields."""
    document = decode(data, path)
    with reading(path):
        if document["version"] == FIRST_VERSION:
            return f"{document['entity_type']}/{document['entity_name']}"
        return str(document["entity_path"])


# -- notifications and requests ----------------------------------------------------------------------------------------


def encode_partitions(asked: Collection[TopicPartition]) -> bytes:
    """Of ISR change notifications and preferred elections."""
    listed = [{"topic": where.topic, "partition": where.partition} for where in sorted(asked)]
    return encode({"version": FIRST_VERSION, "partitions": listed})


def decode_partitions(path: str, data: bytes) -> set[TopicPartition]:
    document = decode(data, path)
    with reading(path):
        return {TopicPartition(str(each["topic"]), int(each["partition"])) for each in document["partitions"]}


def encode_reassignments(wanted: Mapping[TopicPartition, Iterable[int]]) -> bytes:
    listed = [
        {"topic": where.topic, "partition": where.partition, "replicas": list(replicas)}
        for where, replicas in sorted(wanted.items())
    ]
    return encode({"version": FIRST_VERSION, "partitions": listed})


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    document = decode(data, REASSIGNMENTS)
    with reading(REASSIGNMENTS):
        listed = document["partitions"]
        return {TopicPartition(str(e["topic"]), int(e["partition"])): node_ids(e["replicas"]) for e in listed}


def encode_log_dir_event(node_id: int) -> bytes:
    """A log directory of this broker failed."""
    return encode({"version": FIRST_VERSION, "broker": node_id, "event": 1})


def decode_log_dir_event(data: bytes) -> int:
    with reading(LOG_DIR_EVENTS):
        return int(decode(data, LOG_DIR_EVENTS)["broker"])


def encode_producer_ids(node_id: int, ids: range) -> bytes:
    return encode(
        {
            "version": FIRST_VERSION,
            "broker": node_id,
            "block_start": str(ids.start),
            "block_end": str(ids.stop - 1),
        }
    )


def decode_producer_ids(data: bytes) -> tuple[int, range]:
    """The block that was given out last, and the broker that has it; nobody and none of an empty znode."""
    if not data:
        return -1, range(0)
    document = decode(data, PRODUCER_ID_BLOCK)
    with reading(PRODUCER_ID_BLOCK):
        first, last = int(document["block_start"]), int(document["block_end"])
        return int(document.get("broker", -1)), range(first, last + 1)
