"""Reading until what was read is what was frozen: one partition that changes meanwhile does not fail the others.

Each round reads, then asks both sites where their logs begin now. Where records of a partition were deleted since its
freeze, nothing that was read of it is relied on: it is frozen anew and read again, and left out when that goes on. A
round that fails is repeated without the partitions that are gone, or that the error names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from monitoring import limits
from monitoring.audit.model import ComparablePartition, FrozenLink, FrozenPartition, Place, Side, Span
from monitoring.audit.ranges import comparable
from monitoring.audit.reasons import Reason
from monitoring.errors import SparkFailed

T = TypeVar("T")

LogStarts: TypeAlias = Mapping[tuple[Side, str, int], int]
"""By (site, topic there, partition) the first offset that is still there; without those that could not be asked."""


@dataclass(frozen=True, slots=True)
class Round(Generic[T]):
    """What one reading found, and the partitions for which it holds: of others it may say something, too."""

    partitions: Mapping[Place, ComparablePartition]
    found: T


def read_until_settled(
    frozen: FrozenLink,
    read: Callable[[Sequence[ComparablePartition]], T],
    look: Callable[[Sequence[ComparablePartition]], LogStarts],
    report: Callable[[str], None],
) -> tuple[FrozenLink, list[Round[T]]]:
    """-> what the rounds hold for: the link as it is frozen at last, and the rounds, one for each partition compared.

    Raises what `look` raises, and the SparkFailed of a reading that no partition explains.
    """
    settled: dict[Place, FrozenPartition] = {}
    rounds: list[Round[T]] = []
    pending = list(frozen.partitions)
    for attempt in range(1, limits.AUDIT_READ_ATTEMPTS + 1):
        readable = {_place(item): found for item in pending if (found := comparable(item)[0]) is not None}
        settled |= {_place(item): item for item in pending if _place(item) not in readable}
        pending = [item for item in pending if _place(item) in readable]
        if not pending:
            break
        failure: SparkFailed | None = None
        try:
            what = read(list(readable.values()))
        except SparkFailed as error:
            failure = error
        starts = look(list(readable.values()))
        anew = {_place(item): now for item in pending if (now := _anew(item, readable[_place(item)], starts))}
        if failure is not None:
            anew |= {_place(item): _unreadable(item) for item in pending if is_named(item, failure)}
            if not anew or attempt == limits.AUDIT_READ_ATTEMPTS:
                raise failure
            pending = [anew.get(_place(item), item) for item in pending]
        else:
            kept = {place: item for place, item in readable.items() if place not in anew}
            settled |= {_place(item): item for item in pending if _place(item) in kept}
            rounds.append(Round(kept, what))
            pending = list(anew.values())
        if pending:
            report(f"reading again: {len(anew)} partitions changed while they were read")
    settled |= {_place(item): replace(item, left_out=item.left_out or Reason.EXPIRED_WHILE_READ) for item in pending}
    return replace(frozen, partitions=tuple(settled[_place(item)] for item in frozen.partitions)), rounds


def _place(item: FrozenPartition) -> Place:
    return item.topic, item.partition


def _anew(item: FrozenPartition, read: ComparablePartition, starts: LogStarts) -> FrozenPartition | None:
    """The partition as it is frozen now, where that is not what was read."""
    source = starts.get((Side.SOURCE, item.topic, item.partition)) if read.source.offsets else read.source.start
    target = starts.get((Side.TARGET, item.target_topic, item.partition)) if read.target.offsets else read.target.start
    if source is None or target is None:
        return replace(item, left_out=Reason.NOT_READABLE)
    if source <= read.source.start and target <= read.target.start:
        return None
    assert item.target is not None
    return replace(item, source=_from(item.source, source), target=_from(item.target, target))


def _from(span: Span, start: int) -> Span:
    start = max(span.start, start)
    return Span(start, max(start, span.end))


def is_named(item: FrozenPartition, failure: SparkFailed) -> bool:
    """Whether the error, as Java told it, is about this partition at either site."""
    text = str(failure.__cause__ or failure)
    return any(
        re.search(rf"(?<![\w.-]){re.escape(topic)}-{item.partition}(?!\d)", text)
        for topic in (item.topic, item.target_topic)
    )


def _unreadable(item: FrozenPartition) -> FrozenPartition:
    return replace(item, left_out=Reason.RECORDS_NOT_READABLE)
