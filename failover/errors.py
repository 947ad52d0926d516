"""What can go wrong while moving applications to another site.

FailoverError
├── GateRefused        a safety gate said no; nothing was changed (exit 3)
│   ├── NotDrained     the source is still written to, or the mirror is behind
│   ├── NotMovable     also after the drain it is not known where a group goes on
│   ├── GroupsRead     after the drain groups still read at the source
│   ├── HookFailed     a hook of the operator's own did not do its part
│   ├── StrandedUnknown   a transaction is open in what only the source has
│   ├── ExportRefused  the folder is not empty, or the source's log changes
│   ├── ReplayRefused  the records may come, or are there, in another way
│   └── OperationUnderWay   somebody else moves this link
├── StillFrozen        given up before anything was moved, and writes at the source could not be let in again (exit 1)
├── CutShort           behind the gates a site stopped answering; the same command finishes it (exit 1)
├── ExportDamaged      files of stranded records are not as they were written
└── JournalDamaged     the operations journal does not match its own hashes
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from broker.base.errors import FarshoreError


class FailoverError(FarshoreError):
    """Root of this folder's errors."""


class GateRefused(FailoverError):
    """A safety gate refused the operation before anything was changed."""


class NotDrained(GateRefused):
    """The mirror did not reach the source's end in time; nothing was changed."""

    retriable = True


class NotMovable(GateRefused):
    """With everything mirrored, it is still not known where these groups go on; nothing was changed."""

    def __init__(self, groups: Sequence[str]) -> None:
        self.groups = tuple(groups)
        super().__init__(
            f"it is not known where {', '.join(groups)} would go on at the target; nothing was changed",
            hint=f"see `farshore group describe`; to go on without: {leave_options(groups)}",
        )


class GroupsRead(GateRefused):
    """After the drain these groups read at the source, or that cannot be told; nothing was changed."""

    retriable = True

    def __init__(self, groups: Sequence[str]) -> None:
        self.groups = tuple(groups)
        super().__init__(
            f"after the drain {', '.join(groups)} still read at the source, or it cannot be told; nothing was changed",
            hint="stop their consumers, then try again",
        )


class HookFailed(GateRefused):
    """A hook did not end with 0: whether clients are kept from writing is not known, and nothing was moved."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(
            f"the {name} {problem}; nothing was changed",
            hint="run it by hand, or see [failover] in farshore.toml",
        )


class StillFrozen(FailoverError):
    """The operation was given up before it moved anything, and clients of the source may still be kept from writing."""


def leave_options(groups: Iterable[str]) -> str:
    """The options that consent to leaving these groups behind."""
    return " ".join(f"--leave-group {shlex.quote(group)}" for group in groups)


class OperationUnderWay(GateRefused):
    """Somebody else moves this link, or has moved it since the plan was made; nothing was changed."""

    retriable = True


class StrandedUnknown(GateRefused):
    """What of an open transaction will be records is not known yet; nothing was changed."""

    retriable = True
    hint = "it ends by its own time-out (transaction.timeout.ms) at the latest: try again then"


class ExportRefused(GateRefused):
    """Stranded records were not exported; what is in the folder is as it was."""


class ReplayRefused(GateRefused):
    """Stranded records were not replayed: nothing was appended."""


class ExportDamaged(FailoverError):
    """An export's manifest or files are missing, or are not as they were written."""

    hint = "copy the export again from where it was whole; the source's log has the records as long as it keeps them"


class CutShort(FailoverError):
    """A site did not answer any more when the move had begun; started anew, the operation goes on."""

    retriable = True


class JournalDamaged(FailoverError):
    """A journal file was changed or cut after it was written."""
