"""However the demo ends, it says why in a line and leaves nothing running and no folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from broker.base.children import die_with_parent
from deploy.cli.terminal import ExitCode
from deploy.demo.results import DemoResult
from deploy.demo.stage import stage
from deploy.errors import DemoFailed, ServiceDied
from deploy.local.processes import services
from tests.interop.servers import wait_until

ROOT = Path(__file__).parents[3]
DEADLINE_S = 300.0
QUIET = Console(stderr=True, quiet=True)


def left_below(folder: Path) -> list[str]:
    """Processes that were started with a file below the folder, and what is still in it (Linux)."""
    found = [str(path) for path in folder.glob("farshore-demo-*")]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended between the listing and the reading
            line = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if f"{folder}/farshore-demo-" in line:
                found.append(line)
    return found


# Behind the writing of all flights, of which half a minute goes, another process of the same kind is there, a reader.
LATER = pytest.param("reads 120,000 of them", marks=pytest.mark.slow)


@pytest.mark.parametrize("at", ["start two sites", "write 336,776 flights", LATER])
def test_ctrl_c_leaves_nothing(tmp_path: Path, at: str) -> None:
    log = tmp_path / "said.log"
    folder = tmp_path / "tmp"
    folder.mkdir()
    with log.open("wb") as said:
        demo = subprocess.Popen(
            [sys.executable, "-m", "deploy.cli", "demo"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "COLUMNS": "120"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    with demo:
        try:
            wait_until(lambda: at in log.read_text() or demo.poll() is not None, DEADLINE_S, at)
            demo.send_signal(signal.SIGINT)
            assert demo.wait(DEADLINE_S) == ExitCode.INTERRUPTED, log.read_text()
        finally:
            demo.kill()
    assert left_below(folder) == []
    assert "Traceback" not in log.read_text()


async def test_a_service_that_dies_is_named_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    async def story() -> None:
        async with services(tmp_path / "farshore.toml", tmp_path, 120) as processes:
            await processes.start("east", ["broker", "run", "--no-such-option"], lambda: True)
            await asyncio.Event().wait()

    with pytest.raises(ServiceDied, match=r"east ended by itself with 2; its log ends:(.|\n)*no-such-option"):
        await story()


async def test_a_killed_broker_ends_the_demo_with_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def story() -> None:
        async with stage(QUIET, DemoResult("now")) as scene:
            await scene.start_site("west")
            pid = scene.processes.pid("west")
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await asyncio.Event().wait()

    with pytest.raises(ServiceDied, match="west ended by itself with -9"):
        await story()
    assert left_below(tmp_path) == []


async def test_a_service_that_is_killed_by_the_story_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with stage(QUIET, DemoResult("now")) as scene:
        await scene.start_site("east")
        await scene.processes.kill9("east")
        await scene.start_site("east")
    assert left_below(tmp_path) == []


async def test_a_wait_in_vain_says_for_what(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def story() -> None:
        async with stage(QUIET, DemoResult("now")) as scene, scene.within(0.01, "west had every flight"):
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as failed:
        await story()
    assert failed.group_contains(DemoFailed, match="waited 0 s in vain until west had every flight")
    assert left_below(tmp_path) == []
