"""What a run says of each partition: its sums, and how much of it was compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from monitoring.audit.model import (
    AuditVerdict,
    ComparablePartition,
    FrozenLink,
    FrozenPartition,
    Kind,
    NotCompared,
    Place,
    Span,
)
from monitoring.audit.outcome import PartitionResult, coverage_of
from monitoring.audit.reasons import Reason


def partition_results(
    frozen: FrozenLink,
    partitions: Sequence[ComparablePartition],
    not_compared: Sequence[NotCompared],
    totals: Mapping[Place, Any],
    kinds: Mapping[Place, Collection[Kind]],
) -> tuple[PartitionResult, ...]:
    """One for each frozen partition, also where nothing of it was compared. `kinds`: of the records named in each."""
    compared = {(item.topic, item.partition): item for item in partitions}
    left_out: dict[tuple[str, int], list[NotCompared]] = defaultdict(list)
    for item in not_compared:
        left_out[item.topic, item.partition].append(item)
    return tuple(
        _compared(found, totals.get(place), left_out[place], kinds.get(place, ()))
        if (found := compared.get(place := (item.topic, item.partition))) is not None
        else _nothing_compared(item, left_out[place])
        for item in frozen.partitions
    )


_UNASKED = (Reason.NOT_ASKED, Reason.NOT_SAMPLED)


def _nothing_compared(item: FrozenPartition, left_out: Sequence[NotCompared]) -> PartitionResult:
    """Of a partition that was left out as a whole; or that has no record at either site."""
    none = Span(item.source.start, item.source.start)
    coverage = coverage_of(0, left_out, ())
    verdict = AuditVerdict.EQUAL if coverage.is_full else AuditVerdict.NOT_COMPARED
    return PartitionResult(
        item.topic, item.partition, item.target_topic, none, Span(0, 0), 0, 0, 0, 0, 0, 0, 0, verdict, coverage
    )


def _compared(
    item: ComparablePartition, row: Any, left_out: Sequence[NotCompared], kinds: Collection[Kind]
) -> PartitionResult:
    """`row` has the sums over the partition's ranges; None: it has none."""
    found: dict[str, int] = {} if row is None else row.asDict()
    counts = defaultdict(int, found)
    coverage = coverage_of(counts["source_records"] + counts["target_records"], left_out, item.proved)
    verdict = AuditVerdict.EQUAL if coverage.is_full else AuditVerdict.EQUAL_AS_FAR_AS_COMPARED
    if not coverage.records and any(told.reason in _UNASKED for told in left_out):
        verdict = AuditVerdict.NOT_COMPARED
    # Records that changed places between two ranges make both differ, and are named as moved.
    only_moved = counts["differs"] and set(kinds) == {Kind.MOVED}
    if counts["differs"] and not only_moved:
        verdict = AuditVerdict.DIFFERS
    elif counts["moved"] or only_moved:
        verdict = AuditVerdict.MOVED
    return PartitionResult(
        item.topic,
        item.partition,
        item.target_topic,
        item.source,
        item.target,
        counts["source_records"],
        counts["target_records"],
        counts["source_bytes"],
        counts["target_bytes"],
        counts["ranges"],
        counts["differs"],
        counts["moved"],
        verdict,
        coverage,
        item.proved,
        counts["records_unopened"],
    )
