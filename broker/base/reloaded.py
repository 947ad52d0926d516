"""What is made of files on disk, and made anew when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from broker.base.errors import FarshoreError

log = logging.getLogger(__name__)

T = TypeVar("T")
AGAIN_S: Final = 1.0
"""So often what could not be read is tried again."""


class _Stamp(NamedTuple):
    modified_ns: int
    changed_ns: int
    """Also by other rights and another owner, which make readable what was not."""
    size_bytes: int
    inode: int


class AccessInvalid(FarshoreError):
    """Files of certificates or users that cannot be taken."""

    hint = "correct the file; what it must hold is in docs/security.md"


class Reloaded(Generic[T]):
    """A change that cannot be taken keeps what there was, and is told once: nobody is locked out by half a file. It is
    tried again until it can: that nothing else changes says nothing, where rights or descriptors were missing.
    """

    def __init__(self, files: Sequence[Path], load: Callable[[], T], now_s: Callable[[], float]) -> None:
        """`now_s` is a steady clock. Raises what `load` raises: AccessInvalid."""
        self._files, self._load, self._now_s = tuple(files), load, now_s
        # Those of what was read, and of what could not be, when that was tried last.
        self._stamps = self._look()
        self._refused: tuple[_Stamp | None, ...] | None = None
        self._tried_s = now_s()
        self._told = ""
        self._value = load()

    def current(self) -> T:
        """Looks at the files' stamps, and reads them where these are others; once in AGAIN_S where that failed."""
        stamps = self._look()
        if stamps == (self._stamps if self._refused is None else self._refused) and not self._is_due():
            return self._value
        self._tried_s = self._now_s()
        try:
            self._value = self._load()
        except AccessInvalid as error:
            self._refused = stamps
            if str(error) != self._told:
                log.warning("%s; what was read before goes on until that is mended", error)
            self._told = str(error)
        else:
            log.warning("%s was read anew%s", self._names, ": it is in order again" if self._told else "")
            self._stamps, self._refused, self._told = stamps, None, ""
        return self._value

    def _is_due(self) -> bool:
        return self._refused is not None and self._now_s() - self._tried_s >= AGAIN_S

    @property
    def _names(self) -> str:
        return ", ".join(map(str, self._files))

    def _look(self) -> tuple[_Stamp | None, ...]:
        return tuple(map(_stamp, self._files))


def _stamp(file: Path) -> _Stamp | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return _Stamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
