"""One TCP connection to one broker: frames in, frames out, answers matched by correlation id.

Large responses are received straight into a buffer of their own, which the decoded message's `records` point into and
which is writable: the mirror patches batch headers in place and sends the same bytes on. Requests go out by
`writelines`, record bytes uncopied, so a caller must not change a buffer before its answer came or the connection
ended.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from broker.base.address import Address
from broker.base.time_limits import timeout
from broker.client.errors import (
    AccessRefused,
    ClientError,
    ConnectionLost,
    NotConnected,
    RequestTimedOut,
    ResponseTooLarge,
    TlsRefused,
    UnsupportedByCluster,
)
from broker.client.limits import RECEIVE_HEAD_BYTES, ClientLimits
from broker.client.security.login import Login
from broker.client.security.settings import Access
from broker.client.security.tls import context_of, tls_refusal
from broker.wire.api import API, ApiKey
from broker.wire.buffers import receive_buffer
from broker.wire.errors import ErrorCode, WireError
from broker.wire.frame_head import BegunFrame, FrameHead, FrameRefused
from broker.wire.frames import RequestHeader, decode_response, encode_request
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.schema import Message

SOFTWARE_NAME: Final = "farshore"
SOFTWARE_VERSION: Final = "0.1.0"

UNREADABLE_HINT: Final = "see in that broker's log what it is and whether it runs well: its answer is not Kafka's"

TLS_ALERT: Final = 0x1503
"""How a listener that speaks TLS begins to answer one who does not."""
SPEAKS_TLS_HINT: Final = 'write protocol = "SSL" or "SASL_SSL" into the site\'s security in farshore.toml'

_SIZE = struct.Struct(">i")
_CORRELATION_AND_ERROR = struct.Struct(">ih")

_OPEN: Final = Access()

R = TypeVar("R", bound=Message)


@dataclass(slots=True)
class _Pending:
    """A request that waits for its answer."""

    api_key: int
    api_version: int
    answer: asyncio.Future[Message]
    timer: asyncio.TimerHandle


class Connection(asyncio.BufferedProtocol):
    """Made by `connect`. Not a queue: what is sent is on its way, what is lost is lost together with the connection."""

    def __init__(self, address: Address, client_id: str, limits: ClientLimits, access: Access) -> None:
        self.address = address
        self._access = access
        self._client_id = client_id
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._versions: dict[int, int] = {}
        self._offered: dict[int, tuple[int, int]] = {}
        self.features: frozenset[str] = frozenset()
        """What the whole cluster is sure to have (KIP-584)."""
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._reason: ClientError | None = None
        self._head = FrameHead(RECEIVE_HEAD_BYTES, size_min_bytes=1, size_max_bytes=limits.max_frame_bytes)
        self._frame: bytearray | None = None
        self._frame_filled = 0
        self._login: Login | None = None

    # -- what callers use

    @property
    def is_open(self) -> bool:
        """Whether a request can still be sent."""
        return self._reason is None and self._transport is not None

    @property
    def in_flight_requests(self) -> int:
        return len(self._pending)

    def version(self, api_key: int) -> int:
        """The version in which this broker is asked. Raises UnsupportedByCluster."""
        version = self._versions.get(api_key)
        if version is None:
            raise UnsupportedByCluster(f"the broker at {self.address} offers no version of {_api_name(api_key)}")
        return version

    def offers(self, api_key: int, version: int) -> bool:
        """Whether the broker can be asked in this very version, also one above what this client speaks by itself."""
        low, high = self._offered.get(api_key, (0, -1))
        return low <= version <= high

    def supports(self, api_key: int) -> bool:
        """Whether the broker and this client have a common version of the API."""
        return api_key in self._versions

    async def send(
        self, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        """Send a request -> an awaitable of its response.

        Waits only while too much is unsent, and where the login must be renewed. Requests are sent, and answered, in
        the order of the calls. The awaitable raises RequestTimedOut, or ConnectionLost, also for an answer that cannot
        be read: the connection is closed then. Raises AccessRefused where the login is not renewed.
        """
        await self._writable.wait()
        if self._login is not None and self._login.is_due and self._reason is None:
            await self._log_in_again(self._login)
        return self._send(message, version, timeout_ms)

    def _send(self, message: Message, version: int | None, timeout_ms: int | None) -> Awaitable[Any]:
        transport = self._transport
        if self._reason is not None or transport is None:
            raise ConnectionLost(f"the connection to {self.address} is closed") from self._reason
        api_key = message.API_KEY
        if version is None:
            version = self.version(api_key)
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        buffers = encode_request(RequestHeader(api_key, version, correlation_id, self._client_id), message)
        answer: asyncio.Future[Message] = self._loop.create_future()
        delay = (timeout_ms or self._limits.request_timeout_ms) / 1000
        timer = self._loop.call_later(delay, self._time_out, correlation_id)
        self._pending[correlation_id] = _Pending(api_key, version, answer, timer)
        transport.writelines(buffers)
        return answer

    async def request(self, message: Message, version: int | None = None, *, timeout_ms: int | None = None) -> Any:
        """Send a request and wait for its response; see `send` for what it raises."""
        return await (await self.send(message, version, timeout_ms=timeout_ms))

    def abort(self, reason: ClientError | None = None) -> None:
        """Drop the connection now; every request in flight fails with ConnectionLost."""
        self._end(reason or ConnectionLost(f"the connection to {self.address} was closed"))
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Drop the connection and wait until its buffers are free."""
        self.abort()
        if self._transport is not None:
            await asyncio.shield(self._closed)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_water_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):  # by TLS 1.3 a client's certificate is judged behind the handshake
            self._end(tls_refusal(exc, self.address, self._access))
        else:
            why = "was closed by the broker" if exc is None else f"was lost: {exc}"
            self._end(ConnectionLost(f"the connection to {self.address} {why}"))
        if not self._closed.done():
            self._closed.set_result(None)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return self._head.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is None:
            self._head.add(nbytes)
            self._take_head()
            return
        self._frame_filled += nbytes
        if self._frame_filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._receive(frame)

    # -- receiving

    def _take_head(self) -> None:
        """Hand on the whole frames in the head; give a larger one its own buffer and begin it."""
        try:
            while self._reason is None and (frame := self._head.next_frame()) is not None:
                if isinstance(frame, BegunFrame):
                    self._frame = receive_buffer(frame.size_bytes)
                    self._frame_filled = len(frame.beginning)
                    self._frame[: self._frame_filled] = frame.beginning
                else:
                    self._receive(frame)
        except FrameRefused as refused:
            if refused.size_bytes >> 16 == TLS_ALERT and self._access.security.tls is None:
                self.abort(TlsRefused(f"site {self._access.site} at {self.address} speaks TLS", SPEAKS_TLS_HINT))
            else:
                self.abort(ResponseTooLarge(f"{self.address} announced a response of {refused.size_bytes} bytes"))

    def _receive(self, frame: bytearray) -> None:
        """Match a frame (without its size) to the request that it answers."""
        correlation_id = _SIZE.unpack_from(frame, 0)[0] if len(frame) >= _SIZE.size else -1
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            self.abort(ConnectionLost(f"{self.address} answered a request that was not asked ({correlation_id})"))
            return
        pending.timer.cancel()
        if pending.answer.done():
            return
        try:
            version = pending.api_version
            if pending.api_key == ApiKey.API_VERSIONS and _refuses_version(frame):
                version = 0
            _, response = decode_response(pending.api_key, version, frame)
        except WireError as error:
            lost = ConnectionLost(f"{self.address} sent what cannot be read: {error}", UNREADABLE_HINT)
            _fail(pending.answer, lost)
            self.abort(lost)
            return
        pending.answer.set_result(response)

    # -- ending

    def _time_out(self, correlation_id: int) -> None:
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            return
        error = RequestTimedOut(f"{self.address} did not answer {_api_name(pending.api_key)} in time")
        _fail(pending.answer, error)
        self.abort(error)

    def _end(self, reason: ClientError) -> None:
        """Fail everything in flight; from here on nothing is sent. The first reason is the one that is told."""
        if self._reason is not None:
            return
        self._reason = reason
        self._writable.set()
        pending, self._pending = self._pending, {}
        for request in pending.values():
            request.timer.cancel()
            refused = isinstance(reason, AccessRefused)
            _fail(request.answer, reason if refused else ConnectionLost(f"{_api_name(request.api_key)}: {reason}"))

    async def handshake(self, heard: Callable[[], None]) -> None:
        """Agree on versions: for each API the highest that both sides have (KIP-35, KIP-511). `heard` is called when
        the broker has said something.
        """
        request = ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION)
        timeout_ms = self._limits.connect_timeout_ms
        response: ApiVersionsResponse = await self.request(request, 3, timeout_ms=timeout_ms)
        heard()
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = {api.api_key: api.max_version for api in response.api_keys}
            version = min(theirs.get(ApiKey.API_VERSIONS, 0), 3)
            response = await self.request(request, version, timeout_ms=timeout_ms)
        if response.error_code:
            code = ErrorCode.of(response.error_code).name
            raise UnsupportedByCluster(f"{self.address} answered ApiVersions with {code}")
        self._offered = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        self._versions = common_versions(self._offered)
        self.features = frozenset(feature.name for feature in response.finalized_features)
        if self._access.security.sasl is not None:
            where = f"site {self._access.site} at {self.address}"
            host = self._access.server_name or self.address.host
            self._login = Login(self._access.security.sasl, where, host, self._ask_for_login, self._loop.time)
            await self._login.perform()

    async def _ask_for_login(self, message: Message, version: int | None) -> Any:
        return await self._send(message, version, self._limits.connect_timeout_ms)

    async def _log_in_again(self, login: Login) -> None:
        """Once for all that wait: the broker takes nothing else meanwhile, so what is under way is answered first."""
        async with login.lock:
            if not login.is_due or self._reason is not None:
                return
            while self._pending:
                await asyncio.wait([request.answer for request in self._pending.values()])
            try:
                await login.perform()
            except ClientError as error:
                self.abort(error)
                raise


SPOKEN_MAX: Final[dict[int, int]] = {ApiKey.PRODUCE: 11, ApiKey.FETCH: 12, ApiKey.ADD_PARTITIONS_TO_TXN: 3}
"""Later versions name topics by their ids: only for callers that know those. Produce v12 is for transactions v2, later
AddPartitionsToTxn between brokers.
"""


def common_versions(theirs: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Per API key the highest version that both sides have; keys without one are left out."""
    chosen = {}
    for key, api in API.items():
        if key not in theirs:
            continue
        low = max(api.request.VERSIONS[0], theirs[key][0])
        high = min(SPOKEN_MAX.get(key, api.request.VERSIONS[1]), theirs[key][1])
        if low <= high:
            chosen[key] = high
    return chosen


def _unheeded() -> None:
    """For who waits for the whole."""


async def connect(
    address: Address,
    *,
    client_id: str,
    limits: ClientLimits,
    access: Access = _OPEN,
    heard: Callable[[], None] = _unheeded,
) -> Connection:
    """Open a connection, agree on versions, and log in where `access` says so. `heard` is called when the broker has
    said something: a slow one takes as long again for each further answer of a login.

    Raises ConnectionLost (NotConnected where nothing took the connection), RequestTimedOut, UnsupportedByCluster,
    AccessRefused, SecurityInvalid, SecretUnreadable.
    """
    loop = asyncio.get_running_loop()
    tls = access.security.tls
    safely: dict[str, Any] = {}
    if tls is not None:
        context = await asyncio.to_thread(context_of, tls)  # reads files, and may run a command for the key's password
        safely = {"ssl": context, "server_hostname": access.server_name or address.host}
    try:
        async with timeout(limits.connect_timeout_ms / 1000):
            _, connection = await loop.create_connection(
                lambda: Connection(address, client_id, limits, access), address.host, address.port, **safely
            )
    except ssl.SSLError as error:
        raise tls_refusal(error, address, access) from error
    except TimeoutError as error:
        raise RequestTimedOut(f"{address} did not accept a connection in time") from error
    except OSError as error:
        if tls is not None and isinstance(error, ConnectionResetError):
            raise ConnectionLost(f"{address} broke off the handshake of TLS (is it a listener for SSL?)") from error
        raise NotConnected(f"{address} cannot be reached: {error}") from error
    with ExitStack() as unknown:  # to everybody else
        unknown.callback(connection.abort)
        if tls is not None:
            heard()
        await connection.handshake(heard)
        unknown.pop_all()
    return connection


def _fail(answer: asyncio.Future[Message], error: Exception) -> None:
    """Hand the error to whoever waits. A caller that was cancelled never looks: asyncio must not complain of that."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()


def _refuses_version(frame: bytearray) -> bool:
    """Whether this ApiVersions response has error 35, and hence a v0 body."""
    size = _CORRELATION_AND_ERROR.size
    code = _CORRELATION_AND_ERROR.unpack_from(frame, 0)[1] if len(frame) >= size else 0
    return bool(code == ErrorCode.UNSUPPORTED_VERSION)


def _api_name(api_key: int) -> str:
    return API[api_key].name if api_key in API else f"API {api_key}"
