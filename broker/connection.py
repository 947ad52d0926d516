"""One client connection: bytes in, frames, handlers, responses in order.

The first stage of a produced batch: a frame is received straight into its own buffer, which goes to the handler,
the log and the disk as it is. Requests of a connection are handled one after another, and answered in turn; a Fetch
that waits holds back only this connection. Only Produce goes on while the one before it waits for its replicas: with
five in flight a follower then copies five at a time, and not one for each of its fetches. What a client can cost us is
bounded by `limits.py` and `memory.py`: it is not read from while it owes us room (requests that queue, memory, answers
it does not take).

Anything that is no request closes this connection only, as Kafka does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol, cast

from broker.access.authorizer import EVERYTHING, NotAuthorized
from broker.access.listeners import Entrance
from broker.access.logins import Login
from broker.access.principals import ANONYMOUS
from broker.broker import Broker
from broker.connection_errors import ended_by_errors
from broker.handlers.api_versions import unsupported_version
from broker.handlers.handler import Handler, RequestContext, Unfinished
from broker.handlers.table import HANDLERS, INTER_BROKER_HANDLERS
from broker.limits import (
    CONNECTION_REQUESTS_QUEUED_MAX,
    FRAME_FIRST_BYTES,
    FRAME_STALL_MS,
    ORDER_ITEMS_MAX,
    RECEIVE_HEAD_BYTES,
    REQUEST_ITEMS_MAX,
    WRITE_HIGH_WATER_BYTES,
)
from broker.memory import RequestMemory
from broker.quotas.client_quotas import ClientQuota
from broker.quotas.muting import Muted
from broker.wire.api import API, ApiKey
from broker.wire.buffers import Buffer, grow_buffer
from broker.wire.errors import MalformedMessage, UnsupportedVersion
from broker.wire.frame_head import BegunFrame, FrameHead, FrameRefused
from broker.wire.frames import decode_request_header, encode_response

log = logging.getLogger(__name__)

HEADER_BYTES_MIN: Final = 10
"""API key, version, correlation id, length of the client id: no request is smaller."""


class ConnectionServer(Protocol):
    """What a connection needs of the server it belongs to."""

    @property
    def broker(self) -> Broker: ...
    @property
    def memory(self) -> RequestMemory: ...

    def opened(self, connection: Connection) -> None:
        """The connection stands: from now on the server runs its `serve`, holds it until it does, or aborts it."""
        ...

    def lost(self, connection: Connection, held_bytes: int) -> None:
        """The connection has ended, holding `held_bytes` of the memory."""
        ...


class _Begun(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    unfinished: Unfinished
    quota: ClientQuota | None
    size_bytes: int


class Connection(asyncio.BufferedProtocol):
    """`serve` runs in the server's task group from `connection_made` on; the other methods are asyncio's callbacks."""

    def __init__(self, server: ConnectionServer, entrance: Entrance, host: str) -> None:
        """`host` is the peer's, as the listener was told it: who hangs up at once has no name any more."""
        self._server, self.memory = server, server.memory
        self._entrance = entrance
        self.principal, self.rights = ANONYMOUS, EVERYTHING
        self.inter_broker = entrance.inter_broker
        self._items_max = ORDER_ITEMS_MAX if self.inter_broker else REQUEST_ITEMS_MAX
        self._broker = server.broker
        self._login: Login | None = None
        self._queued_max, self._frame_first_bytes = CONNECTION_REQUESTS_QUEUED_MAX, FRAME_FIRST_BYTES
        self._held = False
        self._transport: asyncio.Transport | None = None
        self.host, self.fd = host, -1
        # Receiving. The head takes sizes and small frames; `_frame` is the larger frame that is coming in.
        size_max_bytes = self._broker.config.socket_request_max_bytes
        self._head = FrameHead(RECEIVE_HEAD_BYTES, size_min_bytes=HEADER_BYTES_MIN, size_max_bytes=size_max_bytes)
        self._frame: bytearray | None = None
        self._frame_filled, self._frame_bytes = 0, 0
        self._awaited_bytes, self._held_bytes = 0, 0
        # Handling.
        self._requests: deque[bytearray] = deque()
        self._behind_waiters: dict[asyncio.Event, None] = {}
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self._closed = False
        self._unsent_bytes = 0
        self._handling = False
        self._muted = Muted(self._go_on)
        # Begun, in the order in which they are to be answered; `_reply` runs while there are any.
        self._unfinished: deque[_Begun] = deque()
        self._replied = asyncio.Event()
        self.active_at = server.broker.clock.monotonic()

    # -- asyncio's callbacks ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self.fd = transport.get_extra_info("socket").fileno()
        self._server.opened(self)
        with ended_by_errors(self):
            self.identified(self._entrance.principal(transport))

    def identified(self, principal: str) -> None:
        """Raises NotAuthorized, for who comes as a broker of the cluster and is no super user."""
        self.principal = principal
        if not self.inter_broker or self._entrance.certificates is not None:
            self.rights = self._broker.acls.rights(principal, self.host)
        if self.inter_broker and self.rights.is_limited:
            raise NotAuthorized(f"{principal} is no super user, and comes as a broker")

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._arrived.set()
        self._writable.set()
        self._taken()
        self._frame = None
        self._requests.clear()
        self._muted.end()
        self._server.lost(self, self._held_bytes)
        self._held_bytes = 0
        # In no circle any more: what many connections leave would wait for a long look of the garbage collector.
        self._transport = None

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._taken()
        self.active_at = self._broker.clock.monotonic()
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self._frame
        if frame is None:
            return self._head.room()
        if self._frame_filled == len(frame):
            # Granted by `_ask_growth`. Not done in `buffer_updated`, where the loop still holds the buffer.
            grow_buffer(frame, self._growth_bytes())
        return memoryview(frame)[self._frame_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.active_at = self._broker.clock.monotonic()
        if self._frame is None:
            self._head.add(nbytes)
            self._take_frames_from_head()
        else:
            self._frame_filled += nbytes
            self._go_on_with_frame()
        self._pace_reading()

    # -- receiving --------------------------------------------------------------------------------------------

    def _take_frames_from_head(self) -> None:
        """Whole frames out of the head; the beginning of a larger one moves to its own buffer."""
        try:
            while not (self._closed or self._held) and (frame := self._head.next_frame()) is not None:
                if isinstance(frame, BegunFrame):
                    self._begin_frame(frame)
                else:
                    self.memory.charge(len(frame))
                    self._held_bytes += len(frame)
                    self._queue(frame)
        except FrameRefused as refused:
            self.abort(str(refused))

    def _begin_frame(self, begun: BegunFrame) -> None:
        self._frame, self._frame_bytes = bytearray(begun.beginning), begun.size_bytes
        self._frame_filled = len(self._frame)
        self.memory.charge(self._frame_filled)
        self._held_bytes += self._frame_filled
        self._ask_growth()

    def _go_on_with_frame(self) -> None:
        frame = self._frame
        if frame is not None and self._frame_filled == self._frame_bytes:
            self._frame = None
            self._queue(frame)
        elif frame is not None and self._frame_filled == len(frame):
            self._ask_growth()

    def _growth_bytes(self) -> int:
        """By how much the full buffer of a frame grows: announcing many bytes gets a client no more than sending
        them.
        """
        return min(max(self._frame_filled, self._frame_first_bytes), self._frame_bytes - self._frame_filled)

    def _ask_growth(self) -> None:
        """Reading stops until the memory is granted."""
        wanted_bytes = self._growth_bytes()
        if self.memory.acquire(self, wanted_bytes, self._granted):
            self._held_bytes += wanted_bytes
        else:
            self._awaited_bytes = wanted_bytes

    def _granted(self) -> None:
        self._held_bytes += self._awaited_bytes
        self._awaited_bytes = 0
        self._pace_reading()

    def _queue(self, frame: bytearray) -> None:
        self._requests.append(frame)
        self._arrived.set()
        for event in self._behind_waiters:
            event.set()

    def _pace_reading(self) -> None:
        """Read only while there is room for what comes."""
        if self._closed or self._transport is None:
            return
        room = not self._awaited_bytes and len(self._requests) < self._queued_max
        wanted = room and not self._held and not self._muted
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self.active_at = self._broker.clock.monotonic()
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # -- handling ---------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def is_stranger(self) -> bool:
        """Who has to log in, and has not."""
        return False

    @property
    def busy(self) -> bool:
        """With a request that is not answered."""
        return self._handling or bool(self._unfinished)

    def hold(self) -> None:
        """No more is read of it than a read's bytes, and nothing of that looked at, until it is served."""
        self._held = True
        # Not at once: uvloop begins to read behind `connection_made`, whatever that did.
        asyncio.get_running_loop().call_soon(self._pace_reading)

    async def serve(self) -> None:
        """Handle requests until the connection ends."""
        self._held = False
        self._take_frames_from_head()
        self._pace_reading()
        async with asyncio.TaskGroup() as tasks:
            with ended_by_errors(self):
                while not self._closed:
                    await self._writable.wait()
                    while (not self._requests or self._muted) and not self._closed:
                        self._arrived.clear()
                        await self._arrived.wait()
                    if self._requests:
                        await self._serve_one(self._requests.popleft(), tasks)

    async def _serve_one(self, frame: bytearray, tasks: asyncio.TaskGroup) -> None:
        self._handling = True
        try:
            response = await self._answer(frame, tasks)
        finally:
            self._handling = False
            self.active_at = self._broker.clock.monotonic()
            if not self._closed:
                self._held_bytes -= len(frame)
                self.memory.release(len(frame))
        self._write(response)
        self._pace_reading()

    async def _reply(self) -> None:
        """Answers what is unfinished, in turn."""
        with ended_by_errors(self):
            while self._unfinished and not self._closed:
                begun = self._unfinished[0]
                response = await begun.unfinished.wait()
                if begun.quota is not None:
                    self._muted.note(begun.quota, begun.api_key, begun.size_bytes, response)
                await self._writable.wait()
                self.active_at = self._broker.clock.monotonic()
                self._write(encode_response(begun.api_key, begun.api_version, begun.correlation_id, response))
                self._unfinished.popleft()
                self._replied.set()

    async def _until_replied(self, left: int = 0) -> None:
        """Until so many, or fewer, are unfinished."""
        while len(self._unfinished) > left and not self._closed:
            self._replied.clear()
            await self._replied.wait()

    def _write(self, response: list[Buffer]) -> None:
        if response and not self._closed and self._transport is not None:
            self._transport.writelines(response)
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self._broker.unsent_bytes += self._unsent_bytes
            if self._writable.is_set():
                # Little is left, of which nothing more is heard.
                self._taken()

    def _served(self) -> Mapping[int, Handler]:
        return INTER_BROKER_HANDLERS if self.inter_broker else HANDLERS

    async def _answer(self, frame: bytearray, tasks: asyncio.TaskGroup) -> list[Buffer]:
        """The response frame, empty when there is none, or `_reply` will write it. Raises WireError and BrokerError for
        what closes a connection.
        """
        header, offset = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        served = self._served()
        handler = served.get(key)
        begin = None if handler is None else handler.begin
        await self._until_replied(0 if begin is None else CONNECTION_REQUESTS_QUEUED_MAX - 1)
        if handler is None:
            raise UnsupportedVersion(f"API key {key} is not served")
        if not handler.versions[0] <= version <= handler.versions[1]:
            if key != ApiKey.API_VERSIONS:
                raise UnsupportedVersion(f"{handler.api.name} v{version} is not served")
            return encode_response(key, 0, header.correlation_id, unsupported_version(served))
        request, end = await self._broker.openings.request(API[key].request, version, frame, offset, self._items_max)
        if end > len(frame):
            raise MalformedMessage(f"{handler.api.name} v{version} reads beyond its frame")
        behind, waiters = self._requests if self.inter_broker else (), self._behind_waiters
        quotas, quota = self._broker.quotas, None
        if quotas.is_any and not (self.inter_broker or self.is_stranger):
            quota = quotas.of(self.principal, header.client_id)
        who = self._entrance.name, self._login, self.rights, quota
        context = RequestContext(version, header.client_id, self.host, served, self.inter_broker, behind, waiters, *who)
        handling = (begin or handler.handle)(self._broker, request, context)
        response = await (handling if quota is None else quota.timed(handling))
        if isinstance(response, Unfinished):
            self._unfinished.append(_Begun(key, version, header.correlation_id, response, quota, len(frame)))
            if len(self._unfinished) == 1:
                tasks.create_task(self._reply())
            return []
        await self._until_replied()
        if quota is not None:
            self._muted.note(quota, key, len(frame), response)
        return [] if response is None else encode_response(key, version, header.correlation_id, response)

    def _go_on(self) -> None:
        self._arrived.set()
        self._pace_reading()

    def _taken(self) -> None:
        """The client took what it was sent, or is gone."""
        self._broker.unsent_bytes -= self._unsent_bytes
        self._unsent_bytes = 0

    # -- the end ----------------------------------------------------------------------------------------------

    def abort(self, reason: str) -> None:
        """Close at once. May be called again."""
        if not self._closed and self._transport is not None:
            log.info("closing the connection of %s (%s): %s", self.host, self.principal, reason)
            self._closed = True
            self._arrived.set()
            self._writable.set()
            self._replied.set()
            self._transport.abort()

    def check(self, now: float) -> None:
        """Close it when it is idle for too long, or stands still in the middle of a frame or of an answer."""
        unread = not self._writable.is_set()
        if self.busy and not unread:
            return
        quiet_ms = (now - self.active_at) * 1000
        receiving = self._frame is not None or not self._head.is_empty
        if receiving and self._reading and not self._requests and quiet_ms > FRAME_STALL_MS:
            self.abort("a frame stopped coming in")
        elif quiet_ms > self._broker.config.connections_max_idle_ms and (unread or not self._requests):
            self.abort("idle")
