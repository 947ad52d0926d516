"""How a broker that starts comes to its cluster's metadata, also where ZooKeeper goes away in the middle of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, TypeVar

from broker.base.address import parse_address
from broker.base.clock import Clock
from broker.base.waiting import told_if_long
from broker.cluster.embedded import EmbeddedMetadataStore
from broker.cluster.metadata_store import MetadataStore, OutcomeUnknown
from broker.cluster.zookeeper.errors import ZooKeeperUnreachable
from broker.cluster.zookeeper.seen import Seen
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from broker.config import BrokerConfig
from broker.data_dir import DataDirectory
from broker.outside import Outside

PAUSE_S: Final = 0.5

T = TypeVar("T")

log = logging.getLogger(__name__)


async def when_back(clock: Clock, step: Callable[[], Awaitable[T]]) -> T:
    """What `step` returns; it is taken again for as long as a store that has answered is away. Raises what else it
    raises, and ZooKeeperUnreachable before anything was reached.
    """
    is_told = False
    while True:
        try:
            return await step()
        except (OutcomeUnknown, ZooKeeperUnreachable) as error:
            if isinstance(error, ZooKeeperUnreachable) and not is_told:
                raise
            if not is_told:
                log.warning("the start goes on when ZooKeeper is back: %s", error)
            is_told = True
        await clock.sleep(PAUSE_S)


async def open_store(config: BrokerConfig, outside: Outside, data: DataDirectory) -> MetadataStore:
    """Raises DataDirectoryError, MetadataUnreadable, LogStorageError, ZooKeeperError."""
    if config.zookeeper is None:
        data.check_metadata()
        return EmbeddedMetadataStore.open(config.data_dir, config.cluster_id)
    timeout_ms, connect_ms = config.zookeeper_session_timeout_ms, config.zookeeper_connection_timeout_ms
    clock = outside.clock
    open_session = outside.opener(config.zookeeper_access)
    connect = partial(open_session, config.zookeeper, timeout_ms, clock, connect_ms)
    _tell_of_zookeeper(config)
    seen = Seen(data.path, outside.disk)
    opened = partial(
        ZooKeeperMetadataStore.open, connect, clock, config.cluster_id, may_be_new=not data.claimed, seen=seen
    )
    with told_if_long(log.info, f"for ZooKeeper at {config.zookeeper} to answer, {connect_ms / 1000:g} s at most"):
        store = await when_back(clock, opened)
    async with AsyncExitStack() as unclaimed:
        unclaimed.push_async_callback(store.close)
        data.claim(store.cluster_id, config.node_id)
        unclaimed.pop_all()
    return store


def _tell_of_zookeeper(config: BrokerConfig) -> None:
    """Where what keeps ZooKeeper's znodes passes unencrypted between machines."""
    access, servers = config.zookeeper_access, (config.zookeeper or "").partition("/")[0]
    if access is None or access.username is None or access.tls is not None:
        return
    if any(parse_address(server).is_open_to_others for server in servers.split(",")):
        log.warning("the password for ZooKeeper at %s passes unencrypted: give zookeeper_security a ca_file", servers)
