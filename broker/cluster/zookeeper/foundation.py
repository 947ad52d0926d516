"""What a cluster always has in ZooKeeper: made by who begins it, and put back where a hand took it away.

Put back is only what holds nothing by itself. The controller's epoch and the block of producer ids must never begin
anew: whoever writes those next finds them missing, and goes on above all that was ever given out (`membership.elect`,
`requests.ProducerIds`).
"""

from __future__ import annotations

import contextlib
import logging
from typing import Final

from broker.cluster.metadata import new_cluster_id
from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.acls import ACL_PATHS
from broker.cluster.zookeeper.deletions import OWN_PATHS
from broker.cluster.zookeeper.errors import NodeExists, NoNode
from broker.cluster.zookeeper.session import ZooKeeper

RESTORE: Final = (
    "restore what ZooKeeper had; the brokers keep their records, and go on by themselves when it is there again"
)

EVERY_PATH: Final = (*layout.PERSISTENT_PATHS, *ACL_PATHS, *OWN_PATHS)

log = logging.getLogger(__name__)


async def laid(zk: ZooKeeper, cluster_id: str | None) -> str:
    """Makes what is missing; of a cluster that has no id yet, all -> its id. Raises MetadataUnreadable."""
    for path in EVERY_PATH:
        with contextlib.suppress(NodeExists):
            await zk.create(path)
    if await zk.exists(layout.CLUSTER_ID) is None:
        with contextlib.suppress(NodeExists):
            await zk.create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(layout.FIRST_CONTROLLER_EPOCH))
        with contextlib.suppress(NodeExists):
            await zk.create(layout.PRODUCER_ID_BLOCK)
        # Last: a cluster that has its id has everything.
        with contextlib.suppress(NodeExists):
            await zk.create(layout.CLUSTER_ID, layout.encode_cluster_id(cluster_id or new_cluster_id()))
    return await read_cluster_id(zk)


async def mend(zk: ZooKeeper) -> None:
    """Of a cluster that is there; while a hand goes on removing, whoever misses something asks again."""
    for path in EVERY_PATH:
        if await zk.exists(path) is None:
            with contextlib.suppress(NodeExists, NoNode):
                await zk.create(path)
                log.error("znode %s was removed by another hand; it is made again, empty", path)


async def read_cluster_id(zk: ZooKeeper) -> str:
    """Raises MetadataUnreadable, also where there is none."""
    try:
        data, _ = await zk.get(layout.CLUSTER_ID)
    except NoNode:
        raise MetadataUnreadable(
            "ZooKeeper has no cluster, but this broker was in one",
            hint="check the addresses and the chroot in zookeeper, or restore what ZooKeeper had; a broker that is to "
            "begin a new cluster wants an empty data directory",
        ) from None
    return layout.decode_cluster_id(data)
