"""Small files that others read while they are written."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_file(path: Path, text: str) -> Path:
    """Write a file so that a reader sees the old or the new one, never a half. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
    return path


@contextmanager
def held(path: Path, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock at `path`, behind whoever has it now. The kernel drops it with the process. Raises OSError:
    BlockingIOError where somebody has it, and this one does not wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
