"""What is made of files on disk, and made anew when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from broker.base.errors import FarshoreError

log = logging.getLogger(__name__)

T = TypeVar("T")


class AccessInvalid(FarshoreError):
    """Files of certificates or users that cannot be taken."""

    hint = "correct the file; what it must hold is in docs/security.md"


class Reloaded(Generic[T]):
    """A change that cannot be taken keeps what there was, and is told once: nobody is locked out by half a file."""

    def __init__(self, files: Sequence[Path], load: Callable[[], T]) -> None:
        """Raises what `load` raises: AccessInvalid."""
        self._files, self._load = tuple(files), load
        self._stamps = self._look()
        self._value = load()
        self._is_old = False

    def current(self) -> T:
        """Looks at the files' stamps, and reads them where these are others."""
        stamps = self._look()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._value = self._load()
            except AccessInvalid as error:
                self._is_old = True
                log.warning("%s; what was read before goes on until that is mended", error)
            else:
                log.warning("%s was read anew%s", self._names, ": it is in order again" if self._is_old else "")
                self._is_old = False
        return self._value

    @property
    def _names(self) -> str:
        return ", ".join(map(str, self._files))

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stamp, self._files))


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
