"""DescribeLogDirs, v1-4: the one data directory, and how large each partition is. v4 the disk's size (KIP-827)."""

from __future__ import annotations

import shutil

from broker.broker import Broker
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(broker: Broker, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    path = str(broker.config.data_dir.absolute())
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path)])
    topics = [
        DescribeLogDirsTopic(name, [_size(broker, name, index) for index in indexes])
        for name, indexes in _asked(broker, request)
        if indexes
    ]
    return DescribeLogDirsResponse(
        results=[DescribeLogDirsResult(0, path, topics, total_bytes=usage.total, usable_bytes=usage.free)]
    )


def _asked(broker: Broker, request: DescribeLogDirsRequest) -> list[tuple[str, list[int]]]:
    """What is online of what was asked for; null asks for everything."""
    if request.topics is None:
        return [(t.name, [p.index for p in t.partitions.values() if p.offline is None]) for t in broker.topics.values()]
    return [
        (topic.topic, [index for index in topic.partitions if _is_online(broker, topic.topic, index)])
        for topic in request.topics
    ]


def _is_online(broker: Broker, topic: str, index: int) -> bool:
    partition = broker.partition(topic, index)
    return partition is not None and partition.offline is None


def _size(broker: Broker, topic: str, index: int) -> DescribeLogDirsPartition:
    log = broker.require_partition(topic, index).log
    return DescribeLogDirsPartition(index, log.size_bytes, log.log_end_offset - log.high_watermark)


HANDLER = Handler(api=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 4), handle=handle)
