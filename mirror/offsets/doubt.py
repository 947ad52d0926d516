"""Where an offset may mean another record than the one that the map speaks of: the one place that says so. Pure."""

from __future__ import annotations

from typing import Final

from mirror.offsets.entries import Gap, GapKind, GapStatus
from mirror.offsets.hold_entries import Hold, HoldReason

UNDECIDED: Final = frozenset({GapStatus.STOPPED, GapStatus.ACCEPTED})
"""The partition stands there, until a session has gone on behind it: also what was accepted."""
TRANSLATED_KINDS: Final = frozenset(
    {
        GapKind.TRUNCATED_START,
        GapKind.FOREIGN_WRITER,
        GapKind.UNREADABLE_BATCH,
        GapKind.REFUSED_BATCH,
        GapKind.MIXED_ORIGINS,
        GapKind.LEFT_OUT,
        GapKind.STRANDED,
        GapKind.DELETED,
        GapKind.MIRRORED_ANEW,
    }
)
"""What was mirrored before such a gap is at both sites, at the offsets that the map says. Of no other kind that is
known; a kind that comes later is in doubt until it is named here."""

DOUBTED_HOLDS: Final = frozenset(
    {HoldReason.NO_LEADER_AT_SOURCE, HoldReason.ERROR_AT_SOURCE, HoldReason.LOGS_NOT_COMPARED}
)
"""The source's log may be another one when it answers again (it was cut, or recreated): until a session has compared
both logs, what the source says from then on may not fit the map."""


def is_in_doubt(found: Gap | Hold) -> bool:
    """Whether the partition's offsets are, by this entry. An accepted gap counts until the link has passed it."""
    if isinstance(found, Hold):
        return found.reason in DOUBTED_HOLDS
    return found.status in UNDECIDED and found.kind not in TRANSLATED_KINDS


def in_words(found: Gap | Hold) -> str:
    """Why, without the partition."""
    if isinstance(found, Hold):
        return f"it is held ({found.reason.value}{': ' if found.detail else ''}{found.detail})"
    return f"it stands still ({found.kind.value}: {found.detail})"
