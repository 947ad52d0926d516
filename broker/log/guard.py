"""What a log does when its disk fails, or its files turn out not to be as they were written."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker.errors import LogDamaged, LogStorageError

DISK_FAILED = (
    "%s: the disk failed: %s; partition %s keeps what it acknowledged and refuses records with KAFKA_STORAGE_ERROR, "
    "which clients try again, until the disk takes them"
)
FEW_FILES = (
    "%s: nearly all files that the broker may have are open, so the last segment of %s grows beyond its limits; raise "
    "that limit (ulimit -Hn, LimitNOFILE= of the service) and start the broker again"
)
DISK_GONE: Final = (
    errno.EIO, errno.ENXIO, errno.ENODEV, errno.EROFS, errno.EUCLEAN, errno.ESTALE, errno.ENOENT,
)  # fmt: skip
"""What time alone does not mend, as it does a full disk or too many open files."""
log = logging.getLogger(__name__)


class Unfinished(OSError):
    """The disk failed (`__cause__`) in the middle of a change that cannot be left half done: the log has ended, its
    files are as a crash would leave them.
    """


@contextmanager
def all_of_it() -> Iterator[None]:
    """Around what cannot be left half done. Raises Unfinished where the disk fails in it."""
    try:
        yield
    except OSError as error:
        raise Unfinished(*error.args) from error


def may_pass(error: BaseException) -> bool:
    """Whether time alone may mend what a disk refused."""
    refused = error if isinstance(error, OSError) else error.__cause__
    return isinstance(refused, OSError) and refused.errno not in DISK_GONE


class StorageGuard:
    """`release` lets go of the files. `damage_listeners` are called once: the log has ended then. `failure_listeners`
    are called each time that the disk fails in a way that time alone does not mend.
    """

    def __init__(self, directory: Path, release: Callable[[], None]) -> None:
        self.damage_listeners: list[Callable[[LogDamaged], None]] = []
        self.failure_listeners: list[Callable[[OSError], None]] = []
        self._directory = directory
        self._release = release
        self._disk_failed = False
        self._few_files = False

    @contextmanager
    def errors(self, concerns_log: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Raises LogStorageError for OSError; LogDamaged ends the log. What does not concern what the log now has, as
        of a file that was removed meanwhile, is told to whoever asked, and does nothing else.
        """
        try:
            yield
        except OSError as error:
            if not concerns_log():
                raise LogStorageError(f"{self._directory} has changed meanwhile: {error}") from error
            raise self.failed(error) from error
        except LogDamaged as error:
            if concerns_log():
                self.end_damaged(error)
            raise

    def end_damaged(self, error: LogDamaged) -> None:
        self._release()
        while self.damage_listeners:
            self.damage_listeners.pop()(error)

    def failed(self, error: OSError) -> LogStorageError:
        """The line in the log comes once, and one more when it is over. What is unfinished ends the log."""
        if not self._disk_failed:
            self._disk_failed = True
            log.error(DISK_FAILED, self._directory, error, self._directory.name)
        if error.errno in DISK_GONE:
            for listener in self.failure_listeners:
                listener(error)
        if isinstance(error, Unfinished):
            ended = LogDamaged(f"its disk failed in the middle of a change: {error.__cause__}")
            ended.__cause__ = error
            self.end_damaged(ended)
        return LogStorageError(f"{self._directory}: {error}")

    def told_of_files(self, few: bool) -> None:
        """Whether few are left; as `failed`."""
        if few and not self._few_files:
            log.error(FEW_FILES, self._directory, self._directory.name)
        self._few_files = few

    def written(self) -> None:
        if self._disk_failed:
            self._disk_failed = False
            log.warning("%s: the disk takes records again", self._directory)
