"""What is forked is as what is started, and ends with the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos_runs.warm_commands import WarmCommands
from tests.forking import FARSHORE, ROOT, Forking, forking, start_farshore
from tests.interop.servers import FarshoreBroker, wait_until
from tests.ports import free_port


def serving(folder: Path) -> list[str]:
    return ["broker", "run", "--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{free_port()}"]


def about(pid: int) -> dict[str, object]:
    """What the kernel knows of a process that its program could notice."""
    at = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (at / "status").read_text().splitlines())
    masks = {name: status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt", "Umask")}
    files = sorted(os.readlink(file) for file in (at / "fd").iterdir() if int(file.name) < 3)
    return masks | {"session": os.getsid(pid) == pid, "files": files, "folder": os.readlink(at / "cwd")}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes so")
def test_a_forked_broker_is_to_the_kernel_as_a_started_one(tmp_path: Path) -> None:
    with FarshoreBroker(tmp_path / "forked") as forked:
        assert forked.process is not None
        seen = about(forked.process.pid)
        log, port = tmp_path / "forked" / "broker.log", free_port()
        command = [*FARSHORE, "broker", "run", "--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"]
        with (
            log.open("ab") as sink,
            subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            ) as started,
        ):  # fmt: skip
            try:
                wait_until(lambda: about(started.pid) == seen, 30, "the started one to be as the forked one")
            finally:
                started.kill()


def test_how_each_ends_is_told(tmp_path: Path) -> None:
    wrong = start_farshore(["broker", "run", "--no-such-option"], tmp_path, tmp_path / "log")
    assert wrong.wait(30) == 2
    assert "no-such-option" in (tmp_path / "log").read_text()
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        log = tmp_path / f"{number}"
        service = start_farshore(serving(tmp_path), tmp_path, log)
        wait_until(lambda: "listening on" in log.read_text(), 30, "the broker to serve")  # noqa: B023
        with pytest.raises(subprocess.TimeoutExpired):
            service.wait(0.01)
        assert service.poll() is None
        service.send_signal(number)
        assert (service.wait(30), service.poll(), service.returncode) == (code, code, code)
        service.kill()


def test_none_outlives_the_one_that_forks(tmp_path: Path) -> None:
    own = Forking()
    with open(os.devnull, "r+b") as nothing:
        file = nothing.fileno()
        service = own.start(serving(tmp_path), tmp_path, os.environ, (file, file, file))
    assert service.poll() is None
    own.close()
    assert service.wait(30) == -signal.SIGKILL


def test_a_forked_command_finds_its_own_environment_and_nothing_of_others(tmp_path: Path) -> None:
    with WarmCommands(Forking()) as commands:
        wide = commands.run(["--help"], tmp_path, {**os.environ, "COLUMNS": "200"})
        narrow = commands.run(["--help"], tmp_path, {**os.environ, "COLUMNS": "40"})
        assert wide.code == narrow.code == 0
        assert max(map(len, narrow.out.splitlines())) < max(map(len, wide.out.splitlines()))
    assert forking() is forking(), "one for the whole run"


def test_it_is_there_when_the_thread_that_began_it_has_gone(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        own = threads.submit(Forking).result()
    with WarmCommands(own) as commands:
        assert commands.run(["--version"], tmp_path).code == 0


def test_many_that_end_at_the_same_moment_are_each_told(tmp_path: Path) -> None:
    with WarmCommands(own := Forking()), open(os.devnull, "r+b") as nothing:
        file = nothing.fileno()
        for _ in range(2):
            asked = [serving(tmp_path / str(number)) for number in range(30)]
            services = [own.start(one, tmp_path, os.environ, (file, file, file)) for one in asked]
            for service in services:
                os.kill(service.pid, signal.SIGKILL)
            assert [service.wait(30) for service in services] == [-signal.SIGKILL] * len(services)
        wrong = own.start(["broker", "run", "--no-such-option"], tmp_path, os.environ, (file, file, file))
        assert wrong.wait(30) == 2, "the one that forks goes on"
