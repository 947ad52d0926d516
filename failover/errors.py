"""What can go wrong while moving applications to another site.

FailoverError
├── GateRefused        a safety gate said no; nothing was changed (exit 3)
│   └── NotDrained     the source is still written to, or the mirror is behind
└── JournalDamaged     the operations journal does not match its own hashes
"""

from __future__ import annotations


class FailoverError(Exception):
    """Root of this folder's errors."""

    retriable: bool = False
    exit_code: int = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class GateRefused(FailoverError):
    """A safety gate refused the operation before anything was changed."""

    exit_code = 3


class NotDrained(GateRefused):
    """The mirror did not reach the source's end in time; nothing was changed."""

    retriable = True


class JournalDamaged(FailoverError):
    """A journal file was changed or cut after it was written."""
