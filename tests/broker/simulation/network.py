"""TCP between nodes in memory: in order and slow; what is cut off arrives when the way is mended, or never."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from types import SimpleNamespace
from typing import Any, Final, cast

from broker.base.address import Address
from broker.base.door import Came
from tests.broker.simulation.loop import LIFE, NOBODY, ClusterLoop, Life, context_of

CLIENTS: Final = "clients"
DIAL_AGAIN_S: Final = 0.05
_END: Final = object()
_RESET: Final = object()


def name_of(life: Life | None) -> str:
    """Of the host that a life is on."""
    return CLIENTS if life is None else f"node-{life.node_id}"


class Network:
    """`slow`: how often something is long on its way."""

    def __init__(self, loop: ClusterLoop, rng: random.Random, slow: float) -> None:
        self.loop = loop
        self._rng = rng
        self._slow = slow
        self._cuts: set[tuple[str, str]] = set()
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._ends: list[Transport] = []
        self._ports = 20_000
        loop.connect = self.dial

    def latency_s(self, *_ends: str) -> float:
        """`_ends`: the two between which something goes, where they have names."""
        if self._rng.random() < self._slow:
            return self._rng.uniform(0.02, 0.3)
        return self._rng.choice([0.0002, 0.0005, 0.001, 0.001, 0.003])

    # -- faults

    def is_cut(self, here: str, there: str) -> bool:
        return (here, there) in self._cuts

    def cut(self, here: str, there: str) -> None:
        """Nothing goes this way, and nobody is told."""
        self._cuts.add((here, there))

    def mend(self, here: str, there: str) -> None:
        self._cuts.discard((here, there))
        for end in list(self._ends):
            if (end.here, end.there) == (here, there):
                end.send_again()

    def reset(self, here: str, there: str) -> None:
        """Every connection between them breaks, for both."""
        for end in list(self._ends):
            if {end.here, end.there} == {here, there}:
                end.broken()

    def die(self, life: Life) -> None:
        """Its host ends what the process had open."""
        self._listeners = {at: one for at, one in self._listeners.items() if one.life is not life}
        for end in [end for end in self._ends if end.life is life]:
            end.vanish()

    # -- the loop's

    async def dial(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any:
        here = name_of(LIFE.get())
        await asyncio.sleep(self.latency_s(here, host))
        while self.is_cut(here, host) or self.is_cut(host, here):
            await asyncio.sleep(DIAL_AGAIN_S)
        listener = self._listeners.get((host, port))
        if listener is None or not listener.serves:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        mine = Transport(self, LIFE.get(), copy_context(), here, host)
        theirs = Transport(self, listener.life, listener.context, host, here)
        mine.peer, theirs.peer = theirs, mine
        self._ends += [mine, theirs]
        self.loop.call_soon(listener.came, theirs, here, context=theirs.context)
        protocol = factory()
        mine.begin(protocol)
        return mine, protocol

    async def bind(self, wanted: Address, came: Came) -> Listener:
        """What a broker has in place of a door."""
        host, port = wanted
        if port == 0:
            self._ports += 1
            port = self._ports
        listener = Listener(self, came, (host, port), LIFE.get())
        self._listeners[host, port] = listener
        return listener

    def closed(self, listener: Listener) -> None:
        if self._listeners.get(listener.at) is listener:
            del self._listeners[listener.at]

    def over(self, end: Transport) -> None:
        if end in self._ends:
            self._ends.remove(end)


class Listener:
    def __init__(self, network: Network, came: Came, at: tuple[str, int], life: Life | None) -> None:
        self._network = network
        self.came: Callable[..., None] = came  # with an end of a connection, where a door has a socket
        self.at = at
        self.life = life
        self.context = context_of(life)
        self.serves = False

    @property
    def port(self) -> int:
        return self.at[1]

    def open(self) -> None:
        self.serves = True

    def close(self) -> None:
        self._network.closed(self)


class Transport(asyncio.Transport):
    """One end of a connection."""

    peer: Transport

    def __init__(self, network: Network, life: Life | None, context: Context, here: str, there: str) -> None:
        super().__init__()
        self.life = life
        self.context = context
        self.here = here
        self.there = there
        self._network = network
        self._protocol: asyncio.BufferedProtocol | None = None
        self._due_s = 0.0
        self._held: list[object] = []
        self._inbox: deque[object] = deque()
        self._reading = True
        self._closing = False
        self._gone = False

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.BufferedProtocol, protocol)
        self._protocol.connection_made(self)
        self._feed()

    def fileno(self) -> int:
        return 0

    # -- what protocols use

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return SimpleNamespace(fileno=self.fileno) if name == "socket" else (self.there, 0)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """What is written is on its way."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        if not self._closing:
            self._send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._network.loop.call_soon(self._feed)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._send(_END)
            self._closing = True
            self._network.loop.call_soon(self._lost, None, context=self.context)

    def abort(self) -> None:
        if not self._closing:
            self._send(_RESET)
            self._closing = True
            self._network.loop.call_soon(self._lost, None, context=self.context)

    # -- what happens to it

    def broken(self) -> None:
        self._closing = True
        self._network.loop.call_soon(self._lost, ConnectionResetError("reset"), context=self.context)

    def vanish(self) -> None:
        """The process is dead, and its host says so to whoever can hear it."""
        if not self._closing:
            self._send(_RESET)
        self._closing = self._gone = True

    def send_again(self) -> None:
        held, self._held = self._held, []
        for item in held:
            self._send(item)

    # -- the way

    def _send(self, item: object) -> None:
        loop = self._network.loop
        self._due_s = max(self._due_s, loop.time() + self._network.latency_s(self.here, self.there))
        loop.call_at(self._due_s, self._arrive, item, context=NOBODY)

    def _arrive(self, item: object) -> None:
        if self._held or self._network.is_cut(self.here, self.there):
            self._held.append(item)
        else:
            self._network.loop.call_soon(self.peer.take, item, context=self.peer.context)

    def take(self, item: object) -> None:
        self._inbox.append(item)
        self._feed()

    def _feed(self) -> None:
        protocol = self._protocol
        while protocol is not None and self._inbox and self._reading and not self._closing:
            item = self._inbox.popleft()
            if item is _RESET:
                self.broken()
            elif item is _END:
                protocol.eof_received()
                self._closing = True
                self._network.loop.call_soon(self._lost, None, context=self.context)
            else:
                data = memoryview(cast(bytes, item))
                while data and not self._closing:
                    room = memoryview(protocol.get_buffer(len(data)))
                    count = min(len(room), len(data))
                    room[:count] = data[:count]
                    room.release()
                    data = data[count:]
                    protocol.buffer_updated(count)

    def _lost(self, error: Exception | None) -> None:
        if not self._gone:
            self._gone = True
            self._network.over(self)
            if self._protocol is not None:
                self._protocol.connection_lost(error)
