"""What can go wrong while moving applications to another site.

FailoverError
├── GateRefused        a safety gate said no; nothing was changed (exit 3)
│   └── NotDrained     the source is still written to, or the mirror is behind
└── JournalDamaged     the operations journal does not match its own hashes
"""

from __future__ import annotations

from broker.base.errors import FarshoreError


class FailoverError(FarshoreError):
    """Root of this folder's errors."""


class GateRefused(FailoverError):
    """A safety gate refused the operation before anything was changed."""


class NotDrained(GateRefused):
    """The mirror did not reach the source's end in time; nothing was changed."""

    retriable = True


class JournalDamaged(FailoverError):
    """A journal file was changed or cut after it was written."""
