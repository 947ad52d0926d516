"""Child processes: they never outlive their parent, and are asked to stop before they are made to."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import subprocess
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Between fork and exec: have the kernel end the child when its parent ends, however it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


async def stop_child(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    """SIGTERM (to a held child as well), and SIGKILL after `timeout_s`; returns when it has ended."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        process.send_signal(signal.SIGCONT)
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def stop_child_now(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """The same for code that is not on an event loop; it waits."""
    process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
