"""Who is there, and who is the controller: ephemeral znodes, and the epoch that fences controllers."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from broker.base.address import Address
from broker.base.clock import Clock
from broker.base.time_limits import timeout
from broker.base.waiting import WAITING
from broker.cluster.metadata import BrokerRegistration, Controller, LiveBroker
from broker.cluster.metadata_store import MetadataUnreadable, NodeIdTaken
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.errors import BadVersion, ConnectionLost, NodeExists, NoNode
from broker.cluster.zookeeper.session import Check, Create, Delete, SetData, Watch, ZooKeeper
from broker.cluster.zookeeper.topics import read_each, read_topics

log = logging.getLogger(__name__)


async def register(zk: ZooKeeper, registration: BrokerRegistration, clock: Clock) -> int:
    """The broker's epoch. A registration of an earlier life goes with its session: it is waited for, twice the
    session's timeout at most, which is told with whose it is. Raises NodeIdTaken.
    """
    path = layout.broker(registration.node_id)
    data = layout.encode_broker(registration, clock.now_ms())
    patience_s = 2 * zk.session_timeout_ms / 1000
    give_up_at = clock.monotonic() + patience_s
    told = None
    while True:
        with contextlib.suppress(NodeExists):
            return (await zk.create(path, data, ephemeral=True))[1].czxid
        changed = asyncio.Event()
        try:
            theirs, stat = await zk.get(path, _setting(changed))
        except NoNode:
            continue
        if stat.ephemeral_owner == zk.session_id:
            return stat.czxid
        address = _address(registration.node_id, theirs)
        holder = f"{address} (session {stat.ephemeral_owner:#x})"
        if told != stat.ephemeral_owner:
            own = address == _client_address(registration)
            log.warning(
                f"{WAITING} until another session ends, {patience_s:g} s at most: broker {registration.node_id} is "
                f"registered already, {'by an earlier life at this address,' if own else 'by the one at'} {holder}"
            )
        told = stat.ephemeral_owner
        try:
            async with timeout(max(give_up_at - clock.monotonic(), 0)):
                await changed.wait()
        except TimeoutError:
            raise NodeIdTaken(
                f"broker {registration.node_id} runs already: it is registered by the one at {holder}, whose session "
                f"did not end in {patience_s:g} s"
            ) from None


def _client_address(registration: BrokerRegistration) -> str:
    found = next(iter(registration.endpoints), None)
    return "an unknown address" if found is None else str(Address(found.host, found.port))


def _address(node_id: int, data: bytes) -> str:
    """Where clients dial a broker that is registered with this."""
    try:
        return _client_address(layout.decode_broker(node_id, data)[0])
    except MetadataUnreadable:
        return "an unknown address"


async def unregistered(zk: ZooKeeper, node_id: int) -> None:
    """Returns when this session's registration is not there any more. Raises SessionExpired."""
    while True:
        changed = asyncio.Event()
        try:
            await zk.wait_connected()
            stat = await zk.exists(layout.broker(node_id), _setting(changed))
        except ConnectionLost:
            await asyncio.sleep(0)
            continue
        if stat is None or stat.ephemeral_owner != zk.session_id:
            return
        await changed.wait()


def _setting(event: asyncio.Event) -> Watch:
    return lambda _: event.set()


async def read_brokers(zk: ZooKeeper) -> dict[int, LiveBroker]:
    """Those that can be read: what a stranger's hand left there is no broker, and keeps none from working."""
    found = await read_each(await zk.children(layout.BROKER_IDS), lambda name: _read_broker(zk, name))
    return {broker.registration.node_id: broker for broker in found if broker is not None}


async def _read_broker(zk: ZooKeeper, name: str) -> LiveBroker | None:
    try:
        data, stat = await zk.get(f"{layout.BROKER_IDS}/{name}")
        return LiveBroker(layout.decode_broker(layout.decode_node_id(name), data)[0], stat.czxid)
    except NoNode:
        return None
    except MetadataUnreadable as error:
        log.error("%s: it counts as no broker", error)  # noqa: TRY400 - foreseen: the text says all
        return None


async def read_controller(zk: ZooKeeper) -> int | None:
    try:
        data, _ = await zk.get(layout.CONTROLLER)
    except NoNode:
        return None
    return layout.decode_controller(data)


async def read_controller_epoch(zk: ZooKeeper) -> tuple[int, int | None]:
    """The newest that is known, and the version of its znode. None: somebody removed that, and what the partitions were
    written in is the newest that is left.
    """
    try:
        data, stat = await zk.get(layout.CONTROLLER_EPOCH)
    except NoNode:
        states = [state for topic in (await read_topics(zk, None)).values() for state in topic.partitions]
        return max((state.controller_epoch for state in states), default=0), None
    return layout.decode_controller_epoch(data), stat.version


async def elect(zk: ZooKeeper, node_id: int, clock: Clock, after: int) -> Controller | None:
    """None: another one is. The epoch and the ephemeral znode come by one transaction, or neither does."""
    while True:
        # In this order: an epoch that was read first may be older than the holder.
        holder = await zk.exists(layout.CONTROLLER)
        if holder is not None and holder.ephemeral_owner != zk.session_id:
            return None
        newest, version = await read_controller_epoch(zk)
        if holder is not None and version is not None and newest > after:
            # Ours: an earlier try was carried out, and its answer lost. While it lives nobody else moves the epoch.
            return Controller(node_id, newest, version)
        epoch = max(newest, after) + 1
        own = Create(layout.CONTROLLER, layout.encode_controller(node_id, clock.now_ms()), ephemeral=True)
        data = layout.encode_controller_epoch(epoch)
        path = layout.CONTROLLER_EPOCH
        try:
            await zk.multi(
                [
                    own if holder is None else Check(layout.CONTROLLER, holder.version),
                    Create(path, data) if version is None else SetData(path, data, version),
                ]
            )
        except (NodeExists, BadVersion, NoNode):
            continue  # another one was quicker: is it still there?
        return Controller(node_id, epoch, 0 if version is None else version + 1)


async def resign(zk: ZooKeeper, controller: Controller) -> None:
    with contextlib.suppress(BadVersion, NoNode):
        await zk.multi([Check(layout.CONTROLLER_EPOCH, controller.version), Delete(layout.CONTROLLER)])
