"""What a link's state keeps of gaps that an operator has accepted and the link has not seen yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

NEVER_ASKED: Final = -1


@dataclass(frozen=True, slots=True)
class Acceptance:
    """An operator lets the link go on behind the gap that stopped a partition at `stopped_at_ms`.

    The first four fields and that name one gap (`kind`: a GapKind); `source_to` is where it goes on, for kinds that
    leave a choice. The one entry that the link's owner does not write: it takes it back, and says what came of it.
    Of the kind MIRRORED_ANEW no gap is there before: it was asked for then, where the mirror stood at `source_from`,
    and counts while the newest of its kind is the one of `after_ms`: who hears it twice, or of two who asked at once,
    makes one copy.
    """

    topic: str
    partition: int
    source_from: int
    kind: str
    stopped_at_ms: int
    source_to: int
    operation_id: str
    after_ms: int = NEVER_ASKED


def acceptance_key(entry: Acceptance) -> list[object]:
    return ["accepted", entry.topic, entry.partition, entry.source_from, entry.kind]


def unpack_acceptance(key: list[Any], fields: Mapping[str, Any]) -> Acceptance:
    """Raises ValueError, TypeError for what is none."""
    _, topic, partition, source_from, _ = key
    return Acceptance(topic=topic, partition=partition, source_from=source_from, **fields)
