"""The operations journal: what was decided, when, on what evidence, and how it ended.

One append-only file of JSON lines per operation. Every line carries the SHA-256 of the line before it, so a
line that was changed, dropped or reordered afterwards is found by `read_journal`. Lines reach the disk before the
step they announce runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failover.errors import JournalDamaged, OperationUnderWay

GENESIS_HASH = "0" * 64
FINISHED = "finished"
"""The last event of an operation that ran to its end, verified or not."""
WHO_MAX_BYTES = 1024


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One line: `event` is what happened, `detail` its evidence."""

    sequence: int
    at: str
    operation_id: str
    event: str
    detail: Mapping[str, Any]
    previous_hash: str

    def line(self) -> str:
        return json.dumps(
            {
                "sequence": self.sequence,
                "at": self.at,
                "operation_id": self.operation_id,
                "event": self.event,
                "detail": self.detail,
                "previous_hash": self.previous_hash,
            },
            sort_keys=True,
            separators=(",", ":"),
        )


class Journal:
    """The writing end; one per operation, one writer."""

    def __init__(self, directory: Path, operation_id: str, now: Callable[[], str]) -> None:
        """`now` gives the time as ISO 8601 in UTC. A used operation id is refused with FileExistsError."""
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{operation_id}.jsonl"
        self.operation_id = operation_id
        self._now = now
        self._hash = GENESIS_HASH
        self._sequence = 0
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        directory_fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(directory_fd)
        finally:
            os.close(directory_fd)

    def record(self, event: str, detail: Mapping[str, Any]) -> JournalEntry:
        """Append one line and wait until the disk has it."""
        entry = JournalEntry(self._sequence, self._now(), self.operation_id, event, detail, self._hash)
        line = entry.line()
        os.write(self._fd, line.encode() + b"\n")
        os.fsync(self._fd)
        self._hash = hashlib.sha256(line.encode()).hexdigest()
        self._sequence += 1
        return entry

    def close(self) -> None:
        os.close(self._fd)


def read_journal(path: Path) -> list[JournalEntry]:
    """Every entry of one operation, checked against the chain.

    A torn last line (the machine died while writing it) is left out; anything else that does not fit raises
    JournalDamaged.
    """
    entries: list[JournalEntry] = []
    expected = GENESIS_HASH
    lines = path.read_bytes().split(b"\n")
    for number, raw in enumerate(lines):
        if not raw:
            continue
        try:
            fields = json.loads(raw)
            entry = JournalEntry(**fields)
        except (ValueError, TypeError) as error:
            if number == len(lines) - 1:
                break
            raise JournalDamaged(f"{path}: line {number + 1} is not a journal entry") from error
        if entry.previous_hash != expected or entry.sequence != len(entries):
            raise JournalDamaged(
                f"{path}: line {number + 1} does not follow line {number}",
                hint="the file was edited or lines were lost; compare it with a copy",
            )
        entries.append(entry)
        expected = hashlib.sha256(raw).hexdigest()
    return entries


def is_unfinished(directory: Path, operation_id: str) -> bool:
    """Whether an operation's journal is here and it never came to its end, verified. Raises JournalDamaged."""
    path = directory / f"{operation_id}.jsonl"
    return path.is_file() and not any(
        entry.event == FINISHED and entry.detail.get("verified", True) for entry in read_journal(path)
    )


@contextmanager
def sole_operation(directory: Path, link: str, who: str) -> Iterator[None]:
    """No other operation of the link runs from this folder while the context is open; `who` tells others of this one.

    Raises OperationUnderWay, which says who it is. The lock ends with the process that has it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / f"{link}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            other = os.pread(descriptor, WHO_MAX_BYTES, 0).decode("utf-8", "replace") or "somebody"
            raise OperationUnderWay(
                f"an operation of link {link} is under way: {other}", hint="wait until it has ended, then look again"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, who.encode()[:WHO_MAX_BYTES], 0)
        yield
    finally:
        os.close(descriptor)
