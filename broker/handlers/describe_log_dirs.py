"""DescribeLogDirs, v1-4: the one data directory, and how large each partition is. v4 the disk's size (KIP-827).

Who asks for everything is also told what was set aside, in a field that Kafka does not have.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from broker.broker import Broker
from broker.handlers.handler import Handler, RequestContext
from broker.topics.folders import PartitionFolders
from broker.topics.partition import Partition
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    StrayFolder,
)
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    if not context.rights.may(AclOperation.DESCRIBE, AclResource.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    path = str(broker.config.data_dir.absolute())
    folders = PartitionFolders(Path(path))
    try:
        usage = shutil.disk_usage(path)
        strays = await asyncio.to_thread(folders.strays) if request.topics is None else []
    except OSError:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path)])
    asked = ((name, _online(broker, name, indexes)) for name, indexes in _asked(broker, request))
    topics = [DescribeLogDirsTopic(name, [_size(each) for each in online]) for name, online in asked if online]
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                error_code=0,
                log_dir=path,
                topics=topics,
                total_bytes=usage.total,
                usable_bytes=usage.free,
                strays=[StrayFolder(each.topic, each.partition, str(each.folder), each.size_bytes) for each in strays],
            )
        ]
    )


def _asked(broker: Broker, request: DescribeLogDirsRequest) -> list[tuple[str, list[int]]]:
    """Null asks for everything."""
    if request.topics is None:
        return [(topic.name, list(topic.partitions)) for topic in broker.topics.values()]
    return [(topic.topic, topic.partitions) for topic in request.topics]


def _online(broker: Broker, topic: str, indexes: list[int]) -> list[Partition]:
    """Of those that are here, whoever leads them."""
    found = [broker.partition(topic, index) for index in indexes]
    return [partition for partition in found if partition is not None and partition.offline is None]


def _size(partition: Partition) -> DescribeLogDirsPartition:
    # The lag is that behind this log's own high watermark, as in Kafka: no log of ours ends below that.
    return DescribeLogDirsPartition(partition.index, partition.log.size_bytes, offset_lag=0)


HANDLER = Handler(api=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 4), handle=handle)
