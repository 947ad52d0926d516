"""What goes on beside the event loop: a watch that listens, and a lease that is renewed. They reach the loop by
`call_soon_threadsafe` alone.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import suppress
from typing import Any, Final, TypeAlias

import etcd3
from etcd3 import etcdrpc

from broker.base.clock import Clock
from mirror.fleet.errors import HistoryCompacted, StoreRefused, StoreUnreachable
from mirror.fleet.etcd.requests import change_of, prefix_range
from mirror.fleet.etcd.servers import Servers
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import Changes

RENEWALS_PER_LEASE: Final = 5
LEASE_MARGIN: Final = 0.1
"""The part of a lease that a worker leaves unused: clocks run at slightly different speeds."""
WITH_LEADER: Final = (("hasleader", "true"),)
"""A server without a leader ends a watch with this, instead of saying nothing."""

Told: TypeAlias = Changes | HistoryCompacted | StoreUnreachable | StoreRefused


class WatchThread:
    def __init__(
        self,
        servers: Servers,
        prefix: str,
        after: int,
        loop: asyncio.AbstractEventLoop,
        told: asyncio.Queue[Told],
    ) -> None:
        self._servers, self._prefix, self._after, self._loop, self._told = servers, prefix, after, loop, told
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call: Any = None
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="etcd-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._call is not None:
            self._call.cancel()

    def _run(self) -> None:
        try:
            self._servers.watch(self._open, self._listen)
        except (HistoryCompacted, StoreUnreachable, StoreRefused) as error:
            self._tell(error)
        finally:
            self._tell(StoreUnreachable("etcd ended a watch"))  # whatever it was: nobody hears of changes by this one
            self._requests.put(None)  # or grpc's own thread would wait for the next request for ever

    def _open(self, client: etcd3.Etcd3Client) -> Any:
        key, end = prefix_range(self._prefix)
        create = etcdrpc.WatchCreateRequest(key=key, range_end=end, start_revision=self._after + 1)
        self._requests.put(etcdrpc.WatchRequest(create_request=create))
        metadata = (*(client.metadata or ()), *WITH_LEADER)
        stub = etcdrpc.WatchStub(client.channel)
        return stub.Watch(iter(self._requests.get, None), metadata=metadata)

    def _listen(self, call: Any) -> None:
        self._call = call
        if self._stopped.is_set():
            call.cancel()
        for answer in call:
            if answer.compact_revision:
                raise HistoryCompacted(f"etcd has forgotten what was before revision {answer.compact_revision}")
            if answer.canceled:
                raise StoreUnreachable(f"etcd ended a watch: {answer.cancel_reason}")
            if answer.events:
                # Not the header's revision: it may be ahead of events that are still to come.
                changes = tuple(change_of(event) for event in answer.events)
                self._tell(Changes(answer.events[-1].kv.mod_revision, changes))

    def _tell(self, told: Told) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._told.put_nowait, told)


class LeaseThread:
    """Renews a lease, whatever the event loop is busy with, unless it does nothing else for `settings.still_seconds`.

    To be made on that loop.
    """

    def __init__(
        self, servers: Servers, clock: Clock, settings: FleetSettings, lease_id: int, granted_s: int, asked_at: float
    ) -> None:
        self._servers, self._clock, self._settings = servers, clock, settings
        self._loop, self._turned_at = asyncio.get_running_loop(), asked_at
        self.lease_id, self.granted_s = lease_id, granted_s
        self.alive_until = asked_at + granted_s * (1 - LEASE_MARGIN)
        self.is_over = False
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="etcd-lease", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        try:
            self._renew_on()
        finally:
            self.is_over = True

    def _renew_on(self) -> None:
        """Until stopped, or until the lease is over."""
        while not self._stopped.wait(self.granted_s / RENEWALS_PER_LEASE):
            asked_at = self._clock.boottime()
            stands_still = asked_at - self._turned_at > self._settings.still_seconds
            self._ask_loop()
            if stands_still:
                continue  # it is to lose what it holds to a worker that does not
            try:
                left_s = self._servers.first(self._renew)
            except (StoreUnreachable, StoreRefused):
                continue  # alive_until stays where it is
            if left_s is None:
                continue
            if left_s <= 0:
                return
            self.alive_until = asked_at + left_s * (1 - LEASE_MARGIN)

    def _ask_loop(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        self._turned_at = self._clock.boottime()

    def _renew(self, client: etcd3.Etcd3Client) -> int | None:
        """Seconds that the lease has from now on, 0: it is over; None where that is not sure.

        A leader that was deposed, and does not know it yet, renews leases, too, and that counts for nothing with its
        successor. A read of the whole cluster in the same term, behind the renewal, shows that it led still.
        """
        timeout_s = self.granted_s / RENEWALS_PER_LEASE * 2
        metadata = client.metadata
        requests = iter([etcdrpc.LeaseKeepAliveRequest(ID=self.lease_id)])
        answers = client.leasestub.LeaseKeepAlive(requests, timeout_s, metadata=metadata)
        answer = next(iter(answers), None)
        if answer is None:
            return None
        if answer.TTL > 0:
            look = etcdrpc.RangeRequest(key=self._settings.prefix.encode(), count_only=True)
            seen = client.kvstub.Range(look, timeout_s, metadata=metadata)
            if seen.header.raft_term != answer.header.raft_term:
                return None
        return int(answer.TTL)
