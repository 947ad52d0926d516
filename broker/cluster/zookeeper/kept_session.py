"""One ZooKeeper session at a time, the broker's registration in it, and what is asked of it.

Requests that a broken connection cut off are repeated for as long as a session's timeout, each after reading what an
earlier try may have done. When the session is over, `run` opens the next one and registers the broker anew; what was
asked of the old one is refused, never carried over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

from broker.base.clock import Clock
from broker.base.time_limits import timeout
from broker.cluster.metadata import (
    BrokerRegistration,
    Change,
    ChangeKind,
)
from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper import foundation, membership, requests
from broker.cluster.zookeeper.errors import (
    MISSING,
    ConnectionLost,
    NoNode,
    NotAllowed,
    SessionExpired,
    ZooKeeperUnreachable,
)
from broker.cluster.zookeeper.seen import MetadataWentBack, Seen
from broker.cluster.zookeeper.session import ZooKeeper
from broker.cluster.zookeeper.watching import Changes
from broker.errors import BrokerError

Connect = Callable[[], Awaitable[ZooKeeper]]
"""Opens a session. Raises ZooKeeperUnreachable, NotAllowed."""

CONNECT_PAUSE_S: Final = 0.5
SEEN_SAVED_S: Final = 15.0

T = TypeVar("T")

log = logging.getLogger(__name__)


class KeptSession:
    def __init__(self, connect: Connect, zk: ZooKeeper, clock: Clock, seen: Seen) -> None:
        self._connect = connect
        self._seen = seen
        self._zk = zk
        self._clock = clock
        self._cluster_id = ""
        self._broker_epoch = 0
        self._producer_ids = requests.ProducerIds()
        self._registration: BrokerRegistration | None = None
        self._registered_by: ZooKeeper | None = None
        self._opened = asyncio.Condition()
        self._watching: dict[Changes, None] = {}
        self._told = ""  # why the session that was opened last is of no use: once

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def alive_until(self) -> float:
        is_unregistered = self._registration is not None and self._registered_by is not self._zk
        return -math.inf if is_unregistered or self._seen.went_back else self._zk.alive_until

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch

    async def run(self) -> None:
        while True:
            async with asyncio.TaskGroup() as tasks:
                noting = self._seen.note_on(lambda: self._zk, self.cluster_id, self._clock, SEEN_SAVED_S)
                beside = [tasks.create_task(self._stay_registered(self._zk)), tasks.create_task(noting)]
                await self._zk.run()
                for task in beside:
                    task.cancel()
            await self._zk.close()
            zk = await self._connect_again()
            async with contextlib.AsyncExitStack() as of_no_use:
                of_no_use.push_async_callback(zk.close)
                try:
                    is_ours = await self._is_ours(zk)
                    if is_ours and self._registration is not None:
                        self._broker_epoch = await self._registered(zk, self._registration)
                except (ConnectionLost, SessionExpired):
                    continue
                if is_ours:
                    of_no_use.pop_all()
            if not is_ours:
                await self._clock.sleep(CONNECT_PAUSE_S)
                continue
            self._told = ""
            log.warning("ZooKeeper answers: this broker has a new session, the one before is over")
            async with self._opened:
                self._zk = self._registered_by = zk
                self._opened.notify_all()
            for changes in self._watching:
                changes.tell(Change(ChangeKind.SESSION))

    async def close(self) -> None:
        try:
            with contextlib.suppress(BrokerError):  # what is not known at the end was known a moment before
                await self._seen.note(self._zk, self.cluster_id)
            self._seen.save()
        finally:
            await self._zk.close()

    async def _stay_registered(self, zk: ZooKeeper) -> None:
        """Where somebody removed the registration it is made again, in a new epoch; until then the broker leads
        nothing, for others may. Ends with the session. Raises NodeIdTaken.
        """
        while True:
            async with self._opened:
                await self._opened.wait_for(lambda: self._registered_by is zk and self._registration is not None)
            registration = cast("BrokerRegistration", self._registration)
            try:
                await membership.unregistered(zk, registration.node_id)
                self._registered_by = None
                log.error("broker %d was taken off ZooKeeper by another hand; it registers anew", registration.node_id)
                epoch = await self._registered(zk, registration)
            except SessionExpired:
                return
            async with self._opened:
                self._registered_by, self._broker_epoch = zk, epoch

    async def _registered(self, zk: ZooKeeper, registration: BrokerRegistration) -> int:
        """The new epoch. Raises NodeIdTaken, SessionExpired."""
        while True:
            try:
                await zk.wait_connected()
                return await membership.register(zk, registration, self._clock)
            except NoNode:
                await self._mended(zk)
            except ConnectionLost:
                await self._clock.sleep(CONNECT_PAUSE_S)

    async def _mended(self, zk: ZooKeeper) -> None:
        """Puts back what a cluster always has; waits for it where our cluster is not there. Raises SessionExpired."""
        while True:
            with contextlib.suppress(ConnectionLost):  # asked again after the pause
                await zk.wait_connected()
                if await self._is_ours(zk):
                    await foundation.mend(zk)
                    return
            await self._clock.sleep(CONNECT_PAUSE_S)

    async def _connect_again(self) -> ZooKeeper:
        while True:
            try:
                return await self._connect()
            except ZooKeeperUnreachable:
                pass
            except NotAllowed as error:
                self._tell_once(self._not_for_us(error))
            await self._clock.sleep(CONNECT_PAUSE_S)

    async def _is_ours(self, zk: ZooKeeper) -> bool:
        """Whether our cluster is there. In another one, also in one that was made anew where ours was lost, all that
        this broker has would be set aside.
        """
        try:
            if (found := await foundation.read_cluster_id(zk)) == self._cluster_id:
                await self._seen.note(zk, self.cluster_id)
                return True
            told = f"cluster {self._cluster_id} is not in ZooKeeper any more, but {found}"
        except MetadataWentBack as error:
            told = str(error)
        except MetadataUnreadable as error:
            told = f"cluster {self._cluster_id} is not in ZooKeeper any more: {error}"
        except NotAllowed as error:  # until the login is as that of the other brokers
            told = self._not_for_us(error)
        self._tell_once(told)
        return False

    def _not_for_us(self, error: NotAllowed) -> str:
        return f"cluster {self._cluster_id} is in ZooKeeper, and not for this broker: {error}; {error.hint}"

    def _tell_once(self, told: str) -> None:
        if told != self._told:
            log.error("%s; until our cluster is there as it was this broker leads nothing, and keeps what it has", told)
        self._told = told

    async def _session(self) -> ZooKeeper:
        async with self._opened:
            await self._opened.wait_for(lambda: not self._zk.expired)
        return self._zk

    async def _asked(self, ask: Callable[[ZooKeeper, bool], Awaitable[T]]) -> T:
        """`ask` with the session, and whether it was tried before and may have been carried out. Raises ConnectionLost,
        when there was no connection for a session's timeout, and SessionExpired.
        """
        zk = self._zk
        give_up_at = self._clock.monotonic() + zk.session_timeout_ms / 1000
        again = False
        while True:
            try:
                return await self._tried(zk, ask, again)
            except ConnectionLost:
                again = True
                left_s = give_up_at - self._clock.monotonic()
                if left_s <= 0:
                    raise
                try:
                    async with timeout(left_s):
                        await zk.wait_connected()
                except TimeoutError:
                    raise ConnectionLost("no connection to ZooKeeper: it is not known what became of it") from None

    async def _tried(self, zk: ZooKeeper, ask: Callable[[ZooKeeper, bool], Awaitable[T]], again: bool) -> T:
        """Where a znode may rightly be missing, `ask` knows it: any other is put back, if it is one that holds nothing.
        Raises MetadataUnreadable.
        """
        try:
            return await ask(zk, again)
        except MISSING as missing:
            if not await self._is_ours(zk):
                raise MetadataUnreadable(f"{self._told}: {missing}", hint=foundation.RESTORE) from missing
        await foundation.mend(zk)
        try:
            return await ask(zk, True)
        except MISSING as missing:
            raise MetadataUnreadable(str(missing), hint=foundation.RESTORE) from missing
