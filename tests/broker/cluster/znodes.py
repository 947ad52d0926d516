"""Every kind of znode, read by the layout and written again."""

from __future__ import annotations

import re
from collections.abc import Callable

from broker.cluster.metadata import PartitionState
from broker.cluster.zookeeper import layout
from broker.wire.vocabulary import TopicPartition

UNASSIGNED = PartitionState(leader=-1, leader_epoch=-1, replicas=(), isr=())
Rewrite = Callable[[bytes, re.Match[str]], bytes]


def _broker(data: bytes, path: re.Match[str]) -> bytes:
    return layout.encode_broker(*layout.decode_broker(int(path[1]), data))


def _topic(data: bytes, path: re.Match[str]) -> bytes:
    return layout.encode_topic(*layout.decode_topic(path[1], data))


def _state(data: bytes, path: re.Match[str]) -> bytes:
    where = TopicPartition(path[1], int(path[2]))
    return layout.encode_partition_state(layout.decode_partition_state(where, data, 0, UNASSIGNED))


def _controller(data: bytes, path: re.Match[str]) -> bytes:
    at_ms = int(layout.decode(data, path[0])["timestamp"])
    return layout.encode_controller(layout.decode_controller(data), at_ms)


KINDS: dict[str, Rewrite] = {
    r"/cluster/id": lambda data, path: layout.encode_cluster_id(layout.decode_cluster_id(data)),
    r"/brokers/ids/(\d+)": _broker,
    r"/brokers/topics/([^/]+)": _topic,
    r"/brokers/topics/([^/]+)/partitions/(\d+)/state": _state,
    r"/controller": _controller,
    r"/controller_epoch": lambda data, path: layout.encode_controller_epoch(layout.decode_controller_epoch(data)),
    r"/config/(?:topics|brokers)/[^/]+": lambda data, path: layout.encode_configs(layout.decode_configs(path[0], data)),
    r"/config/changes/.+": lambda data, path: layout.encode_config_change(layout.decode_config_change(data, path[0])),
    r"/latest_producer_id_block": lambda data, path: (
        layout.encode_producer_ids(*layout.decode_producer_ids(data)) if data else data
    ),
    r"/isr_change_notification/.+|/admin/preferred_replica_election": lambda data, path: layout.encode_partitions(
        layout.decode_partitions(path[0], data)
    ),
    r"/log_dir_event_notification/.+": lambda data, path: layout.encode_log_dir_event(
        layout.decode_log_dir_event(data)
    ),
    r"/admin/reassign_partitions": lambda data, path: layout.encode_reassignments(layout.decode_reassignments(data)),
}
UNKNOWN = {"/feature"}
"""Of Kafka's, and never read or written here."""


def rewritten(path: str, data: bytes) -> bytes:
    """Fails for a znode with contents that the layout does not know."""
    for pattern, rewrite in KINDS.items():
        found = re.fullmatch(pattern, path)
        if found is not None:
            return rewrite(data, found)
    assert not data or path in UNKNOWN, f"{path} has contents that nobody knows: {data!r}"
    return data
