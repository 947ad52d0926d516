"""Free TCP ports for the servers that tests start."""

from __future__ import annotations

import socket

_given: set[int] = set()


def free_port() -> int:
    """A port of the loopback interface that nothing listens on now, and that was not given before in this run."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in _given:
            _given.add(port)
            return port
