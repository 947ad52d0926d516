"""Processes that live as long as the run of the tests, whichever of its threads asks for them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from broker.base.children import die_with_parent

_starter = ThreadPoolExecutor(1)
"""To the kernel a process's parent is the thread that started it. This one lives as long as the whole run: a server
that a test starts in a thread of its own outlives that thread, and none outlives a run that is killed."""


def start_process(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """With options of `subprocess.Popen`, in a session of its own."""
    options |= {"start_new_session": True, "preexec_fn": die_with_parent}
    return _starter.submit(lambda: subprocess.Popen(command, **options)).result()
