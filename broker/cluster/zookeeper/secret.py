"""What the brokers of a cluster know and nobody else: a znode that only farshore has."""

from __future__ import annotations

import contextlib
from typing import Final

from broker.cluster.metadata import SECRET_BYTES, new_secret
from broker.cluster.zookeeper.errors import BadVersion, NodeExists, NoNode
from broker.cluster.zookeeper.session import ZooKeeper

SECRET: Final = "/farshore/secret"


async def read_secret(zk: ZooKeeper) -> bytes:
    """Of several brokers that find none the first one's counts; what is too short for one, a hand put there."""
    while True:
        try:
            data, stat = await zk.get(SECRET)
        except NoNode:
            with contextlib.suppress(NodeExists):
                await zk.create(SECRET, new_secret())
            continue
        if len(data) >= SECRET_BYTES:
            return data
        with contextlib.suppress(BadVersion, NoNode):
            await zk.set(SECRET, new_secret(), stat.version)
