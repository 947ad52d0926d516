"""Free TCP ports for the servers that tests start."""

from __future__ import annotations

import os
import random
import socket
from dataclasses import dataclass

FIRST_PORT, END_PORT = 10_000, 32_768
"""Below those that a system gives to whoever asks for any: one of these would be another's before its server starts."""
BLOCK_PORTS = 256


@dataclass
class _Block:
    """A process's own ports: while it lives it holds the first one, and runs side by side look elsewhere."""

    process_id: int
    claim: socket.socket
    left: list[int]


_blocks: list[_Block] = []


def free_port() -> int:
    """A port of the loopback interface that nothing listens on now, and that no run was given before."""
    while True:
        # A forked process has its parent's block, and shares it with the parent.
        if not _blocks or _blocks[-1].process_id != os.getpid() or not _blocks[-1].left:
            _blocks.append(_claimed_block())
        port = _blocks[-1].left.pop()
        if (probe := _bound(port)) is not None:
            probe.close()
            return port


def free_ports_in_a_row(count: int) -> int:
    """The first of so many."""
    row = [free_port()]
    while len(row) < count:
        port = free_port()
        row = [port, *row] if port == row[0] - 1 else [port]
    return row[0]


def _claimed_block() -> _Block:
    starts = list(range(FIRST_PORT, END_PORT - BLOCK_PORTS + 1, BLOCK_PORTS))
    random.SystemRandom().shuffle(starts)
    for start in starts:
        if (claim := _bound(start)) is not None:
            return _Block(os.getpid(), claim, list(range(start + 1, start + BLOCK_PORTS)))
    raise AssertionError(f"no {BLOCK_PORTS} ports in a row are free between {FIRST_PORT} and {END_PORT}")


def _bound(port: int) -> socket.socket | None:
    bound = socket.socket()
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        return None
    return bound
