"""The network between a worker and the simulated clusters: bytes in frames, with a fate for each request.

Requests of a connection are served in order, one after the other, and answered in order, as Kafka does. What a fate
does to one request it does to the connection: TCP loses no single frame.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from broker.wire.api import API, ApiKey
from broker.wire.buffers import Buffer
from broker.wire.codec import decode
from broker.wire.frames import SIZE_BYTES, decode_request_header, encode_response
from tests.mirror.simulation.loop import SimulatedLoop
from tests.mirror.simulation.trace import Trace

PROCESS: ContextVar[str] = ContextVar("PROCESS", default="observer")
"""Whose connections those are that a task opens."""
CURSED_FAILS = 0.3
AFTER_S = 1e-6
"""Between two frames of a connection: timers of one moment run in no order."""


class Fate(StrEnum):
    """What happens to one request."""

    SERVED = "served"
    SLOW = "slow"
    """Served, its answer comes late."""
    HELD = "held"
    """It reaches the broker late, perhaps when its sender is long gone."""
    LOST = "lost"
    """Not served; the connection is cut."""
    UNANSWERED = "unanswered"
    """Served; the connection is cut before the answer came."""
    SWALLOWED = "swallowed"
    """Not served, and no answer ever comes on this connection."""
    SILENT = "silent"
    """Served, and no answer ever comes on this connection."""
    REFUSED = "refused"
    """The broker answers that it cannot just now."""


BAD_FATES = tuple(fate for fate in Fate if fate is not Fate.SERVED)


class Respond(Protocol):
    def __call__(self, response: Any, /) -> None: ...


class Node(Protocol):
    """A broker: it answers by calling `respond`, at once or later."""

    name: str

    def serve(self, api_key: int, version: int, request: Any, respond: Respond, *, refuse: bool) -> None: ...


@dataclass
class Weather:
    """How bad the network is. Probabilities are per request and per connection; delays in seconds."""

    request_fails: float = 0.0
    connect_fails: float = 0.0
    cursed: ApiKey | None = None
    """A kind of request that fails far more often."""
    delay_max_s: float = 0.004
    answers_take_time: bool = True
    """False: an answer is there as soon as the request was served, which is quicker to simulate."""
    slow_max_s: float = 2.0
    held_max_s: float = 40.0
    fates: tuple[Fate, ...] = BAD_FATES


class Network:
    """All connections, and the weather."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, trace: Trace, weather: Weather) -> None:
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.weather = weather
        self.nodes: dict[tuple[str, int], Node] = {}
        self.connections: dict[int, Wire] = {}
        self.fates: Counter[str] = Counter()
        """How often each kind of request met each bad fate, as "Fetch silent"."""
        self._count = 0
        loop.connect = self.connect

    def calm(self) -> None:
        """From now on nothing goes wrong; what hangs already, hangs."""
        self.weather = replace(self.weather, request_fails=0.0, connect_fails=0.0, cursed=None)

    def delay(self) -> float:
        return self.rng.random() * self.weather.delay_max_s

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any:
        """As `loop.create_connection`. Raises OSError."""
        node = self.nodes[host, port]
        await asyncio.sleep(self.delay())
        if self.weather.connect_fails and self.rng.random() < self.weather.connect_fails:
            if self.rng.random() < 0.5:
                self.trace("connect", node.name, "hangs")
                await asyncio.sleep(1e6)
            self.trace("connect", node.name, "refused")
            raise ConnectionRefusedError(f"{node.name} refuses")
        protocol = factory()
        self._count += 1
        wire = Wire(self, node, protocol, self._count, PROCESS.get())
        self.connections[wire.number] = wire
        protocol.connection_made(wire)
        return wire, protocol

    def kill(self, process: str) -> None:
        """The process is gone at once: nothing that it sends from now on goes out, and it hears nothing more."""
        for wire in [wire for wire in self.connections.values() if wire.process == process]:
            wire.abandon()

    def hold(self, process: str, seconds: float) -> None:
        """The process's packets stand still for so long, in both directions."""
        for wire in self.connections.values():
            if wire.process == process:
                wire.hold(seconds)


class Wire(asyncio.Transport):
    """One connection, seen from the client's side."""

    def __init__(self, network: Network, node: Node, protocol: asyncio.BaseProtocol, number: int, process: str) -> None:
        super().__init__()
        self.number = number
        self.process = process
        self._network = network
        self._loop = network.loop
        self._node = node
        self._protocol: Any = protocol
        self._inbox: deque[tuple[bytes, Fate]] = deque()
        self._busy = False
        self._sends = True
        """The client's bytes still go out."""
        self._hears = True
        """The broker's bytes still come in."""
        self._open = True
        self._arrives_at = self._answered_at = 0.0

    # -- the client's side

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return not self._open

    def writelines(self, buffers: Any) -> None:
        if not self._sends:
            return
        frame = b"".join(buffers)
        network = self._network
        fate = Fate.SERVED
        weather = network.weather
        fails = weather.request_fails
        if weather.cursed is not None and int.from_bytes(frame[4:6], "big") == weather.cursed:
            fails = CURSED_FAILS
        if fails and network.rng.random() < fails:
            fate = network.rng.choice(weather.fates)
        delay = network.delay()
        if fate is Fate.HELD:
            delay += network.rng.random() * weather.held_max_s
        if fate in (Fate.LOST, Fate.SWALLOWED):
            self._sends = False
        self._arrives_at = max(self._arrives_at + AFTER_S, self._loop.now + delay)
        self._loop.call_at(self._arrives_at, self._arrive, frame, fate)

    def abort(self) -> None:
        """What was sent may still arrive, in order and up to some request; nobody hears the answers."""
        self._hears = False
        self._lose(None)

    close = abort

    def abandon(self) -> None:
        """The client's process is gone."""
        self._sends = self._hears = False
        self._network.connections.pop(self.number, None)

    def hold(self, seconds: float) -> None:
        """Nothing arrives, on either side, for so long."""
        until = self._loop.now + seconds
        self._arrives_at, self._answered_at = max(self._arrives_at, until), max(self._answered_at, until)

    def _lose(self, error: Exception | None) -> None:
        if not self._open:
            return
        self._open = self._sends = False
        self._network.connections.pop(self.number, None)
        self._loop.call_soon(self._protocol.connection_lost, error)

    # -- the broker's side

    def _arrive(self, frame: bytes, fate: Fate) -> None:
        self._inbox.append((frame, fate))
        if not self._busy:
            self._serve_next()

    def _serve_next(self) -> None:
        self._busy = bool(self._inbox)
        if not self._inbox:
            return
        frame, fate = self._inbox.popleft()
        if not self._open and self._network.rng.random() < 0.3:
            self._inbox.clear()  # the broker saw the connection's end before it came to this request
            self._busy = False
            return
        header, offset = decode_request_header(memoryview(frame)[SIZE_BYTES:])
        key, version = header.api_key, header.api_version
        self._network.trace(f"{self.process}>{self._node.name}", API[key].name, fate)
        if fate is not Fate.SERVED:
            self._network.fates[f"{API[key].name} {fate}"] += 1
        if fate is Fate.SWALLOWED:
            self._hears = False
            return
        if fate is Fate.LOST:
            self._cut()
            return
        request, _ = decode(API[key].request, version, memoryview(frame), SIZE_BYTES + offset)

        def respond(response: Any) -> None:
            self._respond(key, version, header.correlation_id, response, fate)

        self._node.serve(key, version, request, respond, refuse=fate is Fate.REFUSED)

    def _respond(self, key: int, version: int, correlation_id: int, response: Any, fate: Fate) -> None:
        if fate is Fate.SILENT:
            self._hears = False
        if fate is Fate.UNANSWERED:
            self._cut()
            return
        if self._hears:
            weather = self._network.weather
            delay = self._network.delay() if weather.answers_take_time else 0.0
            if fate is Fate.SLOW:
                delay += self._network.rng.random() * weather.slow_max_s
            frame = _frame(key, version, correlation_id, response)
            at = max(self._answered_at + AFTER_S, self._loop.now + delay)
            if delay or at > self._loop.now + AFTER_S:
                self._answered_at = at
                self._loop.call_at(at, self._deliver, frame)
            else:
                self._deliver(frame)
        self._serve_next()

    def _deliver(self, frame: bytes) -> None:
        protocol, position = self._protocol, 0
        while self._hears and self._open and position < len(frame):
            room = protocol.get_buffer(-1)
            count = min(len(room), len(frame) - position)
            room[:count] = frame[position : position + count]
            protocol.buffer_updated(count)
            position += count

    def _cut(self) -> None:
        """The connection breaks; what is behind this request never arrives."""
        self._inbox.clear()
        if self._hears:
            self._lose(ConnectionResetError("cut by the simulation"))


_versions_frames: dict[int, bytes] = {}
"""The body of an ApiVersions answer is always the same, and large."""


def _frame(key: int, version: int, correlation_id: int, response: Any) -> bytes:
    if key != ApiKey.API_VERSIONS:
        return _joined(encode_response(key, version, correlation_id, response))
    known = _versions_frames.get(id(response))
    if known is None:
        known = _versions_frames[id(response)] = _joined(encode_response(key, version, 0, response))
    return known[:SIZE_BYTES] + correlation_id.to_bytes(4, "big") + known[SIZE_BYTES + 4 :]


def _joined(buffers: list[Buffer]) -> bytes:
    return b"".join(buffers)
