"""DescribeCluster (API 60, KIP-700)."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, boolean, int8, int16, int32, message, string, struct


@message(key=60, versions=(0, 1), flexible=0)
class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(default=1, since=1)


@struct
class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable=0)


@message(key=60, versions=(0, 1), flexible=0)
class DescribeClusterResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    endpoint_type: int = int8(default=1, since=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
