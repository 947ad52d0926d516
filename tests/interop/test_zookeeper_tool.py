"""`python -m deploy.tools.zookeeper` as a process: what it says, what it keeps, and how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.interop.servers import ROOT
from tests.ports import free_port

PATIENCE_S = 120.0
STARTED = re.compile(r"^20\d\d-\S+ INFO .*Starting server", re.MULTILINE)


@asynccontextmanager
async def running(folder: Path, port: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """-> the process and what it says, from its ready line on."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.tools.zookeeper", str(folder), "--port", str(port),
        cwd=ROOT, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await process.stderr.readline() == f"log of 127.0.0.1:{port}: {folder}/1/zookeeper.log\n".encode()
            assert await process.stderr.readline() == f"zookeeper: 127.0.0.1:{port}\n".encode()
        yield process, process.stderr
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def server_of(process: asyncio.subprocess.Process) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])


async def test_a_log_is_kept_over_runs_and_a_server_that_is_killed_is_told(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "zk" / "1" / "zookeeper.log"
    async with running(tmp_path / "zk", port) as (process, said):
        process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            assert (await said.read(), await process.wait()) == (b"", 0)
    assert len(STARTED.findall(log.read_text())) == 1
    async with running(tmp_path / "zk", port) as (process, said):
        os.kill(server_of(process), signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            told = (await said.read()).decode()
            assert await process.wait() == 1
    assert told.startswith(f"error: the server 127.0.0.1:{port} ended with -9; its log ends:\n20")
    assert len(STARTED.findall(log.read_text())) == 2
