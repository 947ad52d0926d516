"""The tests' own servers end with the run that started them, however it ends, and say why they do not serve."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop import servers
from tests.interop.servers import ROOT, FarshoreBroker, ServerFailed, wait_until

SCRIPT = """
import asyncio, sys, time
from pathlib import Path
from tests.interop.servers import Server

class Sleeper(Server):
    def command(self):
        return [sys.executable, "-c", "import time; time.sleep(600)"]

    def ready(self):
        return True

server = Sleeper(Path(sys.argv[1]))
if sys.argv[2] == "in a thread":
    asyncio.run(asyncio.to_thread(server.start))  # its threads end with the loop
else:
    server.start()
print(server.process.pid, server.process.poll(), flush=True)
time.sleep(600)
"""


def runs(pid: int) -> bool:
    """A zombie has ended: whose child it is now may take its time to bury it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent ended")
@pytest.mark.parametrize("where", ["in a thread", "in the main thread"])
def test_a_server_lives_as_long_as_the_run_and_not_longer(tmp_path: Path, where: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), where]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid, ended = run.stdout.readline().split()
        try:
            assert ended == "None"
            assert runs(int(pid)), "also when the thread that asked for it has ended"
            run.kill()
            run.wait()
            wait_until(lambda: not runs(int(pid)), 30, "the server to end with the run")
        finally:
            run.kill()
            if runs(int(pid)):
                os.kill(int(pid), signal.SIGKILL)


class StandsStill(FarshoreBroker):
    def command(self) -> Sequence[str]:
        return [sys.executable, "-c", "def busy():\n    while True: pass\nbusy()"]


def test_a_broker_that_stands_still_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "START_TIMEOUT_S", 1)
    with pytest.raises(ServerFailed, match=r"(?s)to serve.*in busy"), StandsStill(tmp_path):
        pass
