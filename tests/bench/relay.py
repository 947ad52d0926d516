"""The limit a Python mirror cannot pass: frames moved from one socket to another, peeked at and checksummed, no Kafka.

Three processes, as in a real mirror: a source that answers requests with frames of the given size, the relay, and a
sink that acknowledges each frame. The relay keeps five frames in flight. Its CPU time per GB is the bare cost of moving
bytes through Python; `measure_relay` returns it.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
from typing import cast

import uvloop
from crc32c import crc32c

from tests.bench.measure import Measured, cpu_seconds, spawn_python, wait_for_line

IN_FLIGHT = 5
SIZE = struct.Struct(">I")
GB = 1_000_000_000


class Framed(asyncio.BufferedProtocol):
    """Receives size-prefixed frames, each straight into a buffer of its own."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytearray] = asyncio.Queue()
        self._head = bytearray(4)
        self._head_filled = 0
        self._body: bytearray | None = None
        self._filled = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._body is None:
            return memoryview(self._head)[self._head_filled :]
        return memoryview(self._body)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._body is None:
            self._head_filled += nbytes
            if self._head_filled == 4:
                self._body, self._filled, self._head_filled = bytearray(SIZE.unpack(self._head)[0]), 0, 0
            return
        self._filled += nbytes
        if self._filled == len(self._body):
            self.frames.put_nowait(self._body)
            self._body = None


async def serve_frames(frame_bytes: int) -> None:
    """Source: every 4-byte request is answered with one frame."""
    frame = SIZE.pack(frame_bytes) + os.urandom(frame_bytes)

    class Source(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)

        def data_received(self, data: bytes) -> None:
            for _ in range(len(data) // 4):
                self.transport.write(frame)

    await _serve(Source)


async def acknowledge_frames() -> None:
    """Sink: every frame is answered with four bytes."""

    class Sink(Framed):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)

        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            while not self.frames.empty():
                self.frames.get_nowait()
                self.transport.write(b"\x00\x00\x00\x01\x00")

    await _serve(Sink)


async def _serve(protocol: type[asyncio.BaseProtocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def relay(source_port: int, sink_port: int, frames: int) -> None:
    """Move `frames` frames; five requests and five unacknowledged frames at a time."""
    loop = asyncio.get_running_loop()
    source, fetched = await loop.create_connection(Framed, "127.0.0.1", source_port)
    sink, acked = await loop.create_connection(Framed, "127.0.0.1", sink_port)
    source.write(b"next" * IN_FLIGHT)
    unacknowledged = 0
    for number in range(frames):
        frame = await fetched.frames.get()
        if number + IN_FLIGHT < frames:
            source.write(b"next")
        struct.pack_into(">I", frame, 0, crc32c(memoryview(frame)[21:]))
        sink.writelines([SIZE.pack(len(frame)), frame])
        unacknowledged += 1
        while unacknowledged >= IN_FLIGHT:
            await acked.frames.get()
            unacknowledged -= 1
    while unacknowledged:
        await acked.frames.get()
        unacknowledged -= 1
    print(cpu_seconds(os.getpid()), flush=True)


def measure_relay(frame_bytes: int, total_bytes: int) -> Measured:
    """CPU seconds and wall seconds for `total_bytes` through the relay."""
    frames = max(1, total_bytes // frame_bytes)
    with (
        spawn_python("tests.bench.relay", "source", str(frame_bytes)) as source,
        spawn_python("tests.bench.relay", "sink") as sink,
    ):
        ports = wait_for_line(source), wait_for_line(sink)
        with spawn_python("tests.bench.relay", "relay", *ports, str(frames)) as mover:
            started = cpu_seconds(mover.pid), time.monotonic()
            cpu = float(wait_for_line(mover))
            return Measured(frames * frame_bytes, cpu - started[0], time.monotonic() - started[1])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["source", size]:
            uvloop.run(serve_frames(int(size)))
        case ["sink"]:
            uvloop.run(acknowledge_frames())
        case ["relay", source_port, sink_port, count]:
            uvloop.run(relay(int(source_port), int(sink_port), int(count)))
