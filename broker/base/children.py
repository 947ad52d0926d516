"""Child processes: ours wherever they start, never outliving their parent, asked to stop before they are made to."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from broker.base.time_limits import timeout

PR_SET_PDEATHSIG: Final = 1
LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None
"""Loaded here: between fork and exec another thread of the parent may have held the loader's lock for good."""
GROUP_POLL_S: Final = 0.05
ROOT: Final = Path(__file__).parents[2]
"""The folder that our packages are in."""


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """What runs one of our modules in a child, with `module_environment`.

    -P: the folder that the operator stands in may have modules of our names, and is not looked in.
    """
    return (sys.executable, "-P", "-m", module, *arguments)


def module_environment(**changes: str) -> dict[str, str]:
    """This process's environment for a child that runs a module of ours, wherever it is started."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path} | changes


async def start_child(
    command: Sequence[str],
    *,
    stdin: int = asyncio.subprocess.DEVNULL,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> asyncio.subprocess.Process:
    """A child in a session of its own, which no Ctrl-C of ours reaches, and which never outlives this process. It can
    run modules of ours; `environment` is in place of `module_environment()`. Raises OSError.
    """
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds,
        start_new_session=True,
        preexec_fn=die_with_parent,
        env=module_environment() if environment is None else environment,
    )


def die_with_parent() -> None:
    """Between fork and exec: have the kernel end the child when its parent ends, however it ends (Linux)."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


async def stop_child(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    """SIGTERM (to a held child as well), and SIGKILL after `timeout_s`; returns when it has ended."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        process.send_signal(signal.SIGCONT)
    try:
        with contextlib.suppress(TimeoutError):
            async with timeout(timeout_s):
                await process.wait()
    finally:  # also when the wait itself is cancelled
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    await process.wait()


async def stop_group(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    """End a child that leads a session of its own, and all that it has started there.

    SIGTERM to each, and SIGKILL to those that are left after `timeout_s`, or when the wait itself is cancelled.
    """
    try:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with timeout(timeout_s):
                await process.wait()
                # The others are not ours to wait for.
                while _signal_group(process.pid, 0):
                    await asyncio.sleep(GROUP_POLL_S)
    finally:
        _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(leader: int, number: int) -> bool:
    """Whether there was anybody in the group; 0 only asks."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return False
    return True


def stop_child_now(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """`stop_child` for code that is not on an event loop."""
    process.terminate()
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
