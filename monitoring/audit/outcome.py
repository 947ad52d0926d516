"""The values of an audit: what was found, and how much was compared."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from monitoring.audit.groups import FrozenGroups
from monitoring.audit.model import AuditVerdict, FrozenLink, Kind, NotCompared, ProvedPart, Span
from monitoring.audit.sample import Sampled


@dataclass(frozen=True, slots=True)
class RangeResult:
    """One range of source offsets of one partition, from `range_start` on."""

    topic: str
    partition: int
    range_start: int
    source_records: int
    target_records: int
    source_bytes: int
    target_bytes: int
    source_fingerprint: str
    target_fingerprint: str
    verdict: AuditVerdict


@dataclass(frozen=True, slots=True)
class RecordDifference:
    """One record that differs. Offsets and timestamps are None at the side where there is no such record."""

    topic: str
    partition: int
    kind: Kind
    range_start: int
    source_offset: int | None
    target_offset: int | None
    source_timestamp_ms: int | None
    target_timestamp_ms: int | None
    key: str | None
    source_value: str | None
    target_value: str | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much is proved: records of both sites, and offsets of both that were left out.

    `is_full`: nothing was left out, not even a partition without a record, nor, of a run, a group's offset.
    `is_full_but_in_flight`: nothing but what the mirror has yet to bring, and what compaction has taken. Of the records
    `records_earlier` are known from earlier runs, the first at `oldest_ms`.
    """

    records: int
    offsets_left_out: int
    is_full: bool
    is_full_but_in_flight: bool = False
    records_earlier: int = 0
    oldest_ms: int | None = None

    @property
    def percent(self) -> float:
        """At least so much of all records, cut to two decimals: an offset that was left out may have no record."""
        if self.is_full:
            return 100.0
        whole = self.records + self.offsets_left_out
        return min(9_999, 10_000 * self.records // whole) / 100 if whole else 0.0


def coverage_of(records: int, left_out: Collection[NotCompared], proved: Iterable[ProvedPart]) -> Coverage:
    """The coverage of a partition or a run. `records` were compared now, of both sites."""
    parts = list(proved)
    earlier = sum(part.source_records + part.target_records for part in parts)
    return Coverage(
        records + earlier,
        sum(item.offsets for item in left_out),
        is_full=not left_out,
        is_full_but_in_flight=not any(item.reason.stops_a_move for item in left_out),
        records_earlier=earlier,
        oldest_ms=min((part.at_ms for part in parts), default=None),
    )


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """`source` and `target` are the spans that were compared now, empty where the verdict is NOT_COMPARED; `proved` is
    what is known from before. Of both sites' records `records_unopened` are proved by batches that nobody opened."""

    topic: str
    partition: int
    target_topic: str
    source: Span
    target: Span
    source_records: int
    target_records: int
    source_bytes: int
    target_bytes: int
    ranges: int
    ranges_differing: int
    ranges_moved: int
    verdict: AuditVerdict
    coverage: Coverage
    proved: tuple[ProvedPart, ...] = ()
    records_unopened: int = 0


@dataclass(frozen=True, slots=True)
class PlotBar:
    """Records of one topic, of all partitions, from the source offset `start` on, for the plot."""

    topic: str
    start: int
    source_records: int
    target_records: int
    differs: bool


@dataclass(frozen=True, slots=True)
class Apart:
    """What had to come from where each site was digested for itself: its digests by the site's name, and from the
    freeze the plan. And what was read of both sites besides: the ranges that were opened, and of compacted topics all.
    """

    plan_id: str
    plan_bytes: int
    digest_bytes: dict[str, int]
    records_opened: int
    bytes_opened: int
    records_compacted: int


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The outcome of a run. `ranges` and `differences` are cut at the limits; `found` counts all differences, by kind.

    `records_missing` counts source records without their equal at the target, `records_surplus` the reverse: a changed
    record counts once in each, a moved one in neither. `digest_bytes` is what phase two had of both sites to compare.
    What was sampled is never EQUAL, nor its coverage full, whatever was chosen.
    """

    run_id: str
    frozen: FrozenLink
    finished_at_ms: int
    partitions: tuple[PartitionResult, ...]
    not_compared: tuple[NotCompared, ...]
    ranges: tuple[RangeResult, ...]
    differences: tuple[RecordDifference, ...]
    found: dict[Kind, int]
    bars: tuple[PlotBar, ...]
    plot_step: dict[str, int]
    versions: dict[str, str]
    digest_bytes: int = 0
    sampled: Sampled | None = None
    apart: Apart | None = None

    @property
    def verdict(self) -> AuditVerdict:
        """EQUAL only when everything was compared and is equal. A finding among what was left out is a difference, and
        so is a group that would go on with another record."""
        found = {partition.verdict for partition in self.partitions}
        is_fault = any(item.reason.is_finding for item in self.not_compared)
        if AuditVerdict.DIFFERS in found or is_fault or (self.groups is not None and self.groups.findings):
            return AuditVerdict.DIFFERS
        if not found - {AuditVerdict.NOT_COMPARED}:
            return AuditVerdict.NOT_COMPARED
        if AuditVerdict.MOVED in found:
            return AuditVerdict.MOVED
        return AuditVerdict.EQUAL if self.coverage.is_full else AuditVerdict.EQUAL_AS_FAR_AS_COMPARED

    @property
    def coverage(self) -> Coverage:
        proved = [part for item in self.partitions for part in item.proved]
        found = coverage_of(self.source_records + self.target_records, self.not_compared, proved)
        if self.sampled is not None:
            found = replace(found, is_full=False, is_full_but_in_flight=False)
        if self.groups is None:
            return found
        return replace(
            found,
            is_full=found.is_full and self.groups.is_full,
            is_full_but_in_flight=found.is_full_but_in_flight and self.groups.is_full_but_in_flight,
        )

    @property
    def groups(self) -> FrozenGroups | None:
        return self.frozen.groups

    @property
    def source_records(self) -> int:
        return sum(partition.source_records for partition in self.partitions)

    @property
    def target_records(self) -> int:
        return sum(partition.target_records for partition in self.partitions)

    @property
    def records_unopened(self) -> int:
        return sum(partition.records_unopened for partition in self.partitions)

    @property
    def audited_bytes(self) -> int:
        """Keys, values and headers of both sites; of batches that nobody opened what they store of these."""
        return sum(partition.source_bytes + partition.target_bytes for partition in self.partitions)

    @property
    def topics_without_times(self) -> tuple[str, ...]:
        """Compared topics where a site stamps records itself: all but the timestamps was compared."""
        untimed = {(item.topic, item.partition) for item in self.frozen.partitions if not item.timestamps_comparable}
        compared = {item.topic for item in self.partitions if item.ranges and (item.topic, item.partition) in untimed}
        return tuple(sorted(compared))

    @property
    def ranges_found(self) -> int:
        """All that are not equal, also those that are not listed."""
        return sum(partition.ranges_differing + partition.ranges_moved for partition in self.partitions)

    @property
    def differences_found(self) -> int:
        return sum(self.found.values())

    @property
    def records_missing(self) -> int:
        return sum(self.found.get(kind, 0) for kind in (Kind.LOST, Kind.CHANGED, Kind.RETIMED))

    @property
    def records_surplus(self) -> int:
        return sum(self.found.get(kind, 0) for kind in (Kind.EXTRA, Kind.DUPLICATED, Kind.CHANGED, Kind.RETIMED))
