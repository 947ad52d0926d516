"""What was really written at a site: the oracle's own books, kept beside the logs and never read back from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from broker.wire.records import Headers, Record

TAG_SEPARATOR = b"/"


class Content(NamedTuple):
    """All of a record that a mirror keeps."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def site(self) -> str:
        """Where the record was first written."""
        return (self.value or self.key or b"").split(TAG_SEPARATOR)[0].decode()

    def __str__(self) -> str:
        return (self.value or self.key or b"").decode()


def content_of(record: Record) -> Content:
    return Content(*record[1:])


class Fortune(Enum):
    """What became of a written record."""

    PENDING = "pending"
    """In a transaction that is still open."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    EXPIRED = "expired"
    """Retention took it: it was mirrored before, or the ledger says that it is missing."""
    COMPACTED = "compacted"
    """Compaction took it: it may have been mirrored before, or not."""


@dataclass(slots=True)
class Written:
    """One record as it was written by a local producer."""

    offset: int
    content: Content
    fortune: Fortune


class Copy(NamedTuple):
    """A record of the source, at the target."""

    source_offset: int
    target_offset: int
