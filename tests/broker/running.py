"""A real broker in this process: the server, its sockets and its files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.base.clock import Clock
from broker.config import BrokerConfig
from broker.outside import Outside
from broker.server import Server, serving

TIMEOUT_MS = 60_000
"""For requests to the controller: no test waits for it to pass."""


@asynccontextmanager
async def running_server(data_dir: Path, clock: Clock | None = None, **config: Any) -> AsyncIterator[Server]:
    """A server on a free port; `config` are fields of BrokerConfig."""
    outside = Outside(clock) if clock else Outside()
    somewhere = {} if "listeners" in config else {"listen_port": 0}
    async with serving(BrokerConfig(**{"data_dir": data_dir, **somewhere, **config}), outside) as server:
        yield server


@asynccontextmanager
async def running_broker(data_dir: Path, **config: Any) -> AsyncIterator[str]:
    """As `running_server`, for those who only need the address ("host:port")."""
    async with running_server(data_dir, **config) as server:
        yield server.address
