"""The folder of a run, and whether its run lives: who runs holds a lock in it, which the kernel takes back then."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chaos.names import folder_of, run_of_folder

LOCK = "lock"


@contextmanager
def folder_of_run(run_id: str) -> Iterator[Path]:
    """A folder that only this user can read, locked while the context is open, and removed at its end."""
    folder = Path(tempfile.gettempdir()) / folder_of(run_id)
    folder.mkdir(mode=0o700)
    try:
        with (folder / LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder)


def folders_left() -> dict[str, Path]:
    """By run: this user's folders of runs that are not over, or were killed."""
    found = {}
    for path in Path(tempfile.gettempdir()).iterdir():
        run_id = run_of_folder(path.name)
        if run_id is None:
            continue
        with suppress(FileNotFoundError):  # its run is over by now
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                found[run_id] = path
    return found


def is_locked(folder: Path) -> bool:
    """Whether the folder's run lives. One without a lock begins or ends right now, or was killed then: look again."""
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
