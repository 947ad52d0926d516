"""What a broker reaches outside of its own memory: passed in, so that a simulation can stand in its place."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial

from broker.base.clock import Clock, SystemClock
from broker.base.door import Bind, Door
from broker.cluster.zookeeper.access import ZooKeeperAccess
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from broker.cluster.zookeeper.session import OpenSession
from broker.log.disk import OS_DISK, Disk


@dataclass(frozen=True, slots=True)
class Outside:
    """Time, ZooKeeper, the disk, chance and who comes; the rest of the network is the event loop's."""

    clock: Clock = field(default_factory=SystemClock)
    open_session: OpenSession = KazooZooKeeper.connect
    disk: Disk = OS_DISK
    rng: random.Random = field(default_factory=random.SystemRandom)
    bind: Bind = Door.bound

    def opener(self, access: ZooKeeperAccess | None) -> OpenSession:
        """Of sessions with such a ZooKeeper; None: one that asks for nothing."""
        return self.open_session if access is None else partial(KazooZooKeeper.connect, access=access)
