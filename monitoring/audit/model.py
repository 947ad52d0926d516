"""The values of an audit: what was frozen, what may be compared, what was found.

Offsets are half-open spans everywhere: a log with the records 0, 1 and 2 has the span [0, 3).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from broker.client.security.settings import PLAINTEXT, Security
from broker.client.site import Site

# First value hashed, one per hash: two independent 64-bit hashes of the same record, and one of its position.
CONTENT_SEEDS = (1, 2)
POSITION_SEED = 3


Place: TypeAlias = tuple[str, int]
"""(source topic, partition)"""


class Side(enum.StrEnum):
    SOURCE = "source"
    TARGET = "target"


class Reason(enum.StrEnum):
    """Why a span of offsets was not compared. What was not compared is never called equal."""

    NOT_MIRRORED_YET = "not_mirrored_yet"
    BEYOND_THE_MIRROR = "beyond_the_mirror"
    BEFORE_THE_MIRROR = "before_the_mirror"
    EXPIRED_AT_SOURCE = "expired_at_source"
    EXPIRED_AT_TARGET = "expired_at_target"
    NOT_REACHED_YET = "not_reached_yet"
    NEVER_MIRRORED = "never_mirrored"
    TARGET_MISSING = "target_missing"
    SOURCE_TRUNCATED = "source_truncated"
    SOURCE_RECREATED = "source_recreated"
    SOURCE_DELETED = "source_deleted"
    GAP_ACCEPTED = "gap_accepted"
    COMPACTED = "compacted"
    WRITTEN_BY_OTHERS = "written_by_others"
    NOT_READABLE = "not_readable"
    OPEN_TRANSACTION = "open_transaction"
    EXPIRED_WHILE_READ = "expired_while_read"
    RECORDS_NOT_READABLE = "records_not_readable"
    TIMESTAMP_NOT_READABLE = "timestamp_not_readable"

    @property
    def is_finding(self) -> bool:
        """True where the reason is itself a fault: an operator must act before the copy can be trusted."""
        return self in _FAULTS

    @property
    def explanation(self) -> str:
        return _EXPLANATIONS[self]


_FAULTS = frozenset({Reason.NEVER_MIRRORED, Reason.TARGET_MISSING, Reason.SOURCE_TRUNCATED, Reason.SOURCE_RECREATED})
_EXPLANATIONS = {
    Reason.NOT_MIRRORED_YET: "written at the source after the mirror's position at the time of the freeze",
    Reason.BEYOND_THE_MIRROR: "at the target after the mirrored end: landed after the freeze, or written by others",
    Reason.BEFORE_THE_MIRROR: "older than the first mirrored record",
    Reason.EXPIRED_AT_SOURCE: "already deleted at the source (retention), still at the target",
    Reason.EXPIRED_AT_TARGET: "already deleted at the target (retention), still at the source",
    Reason.NOT_REACHED_YET: "in flight: the mirror has run, and not come to this partition yet",
    Reason.NEVER_MIRRORED: "the link selects this partition, but the offset map knows nothing of it",
    Reason.TARGET_MISSING: "the partition does not exist at the target",
    Reason.SOURCE_TRUNCATED: "the source's log ends before the mirrored position: the source lost these records",
    Reason.SOURCE_RECREATED: "the source topic is not the one that was mirrored (its topic id changed)",
    Reason.SOURCE_DELETED: "mirrored before, and no more at the source: nothing is left to compare it with",
    Reason.COMPACTED: "the topic is compacted: each site drops older values of a key at a time of its own",
    Reason.GAP_ACCEPTED: "in the gap ledger: an operator accepted that these are not mirrored",
    Reason.WRITTEN_BY_OTHERS: "between the offset map's intervals, where others write, too: not this link's to prove",
    Reason.NOT_READABLE: "a site could not say where the partition stands (no leader, or refused)",
    Reason.OPEN_TRANSACTION: "behind the beginning of a transaction that was open at the freeze: no consumer reads it",
    Reason.EXPIRED_WHILE_READ: "records were deleted (retention) each time that the partition was read",
    Reason.TIMESTAMP_NOT_READABLE: "it has a timestamp beyond what Spark holds (292,277 years): nanoseconds, perhaps",
    Reason.RECORDS_NOT_READABLE: "Spark could not read the partition; the log has its words",
}


class AuditVerdict(enum.StrEnum):
    """On a range, a partition or a run; `MOVED`: the same records, but not where the offset map says.

    EQUAL: everything was compared. EQUAL_AS_FAR_AS_COMPARED: something was left out, and the rest is equal.
    """

    EQUAL = "equal"
    EQUAL_AS_FAR_AS_COMPARED = "equal_as_far_as_compared"
    DIFFERS = "differs"
    MOVED = "moved"
    NOT_COMPARED = "not_compared"

    @property
    def is_equal(self) -> bool:
        """No difference was found; how much was compared is the coverage's to say."""
        return self in (AuditVerdict.EQUAL, AuditVerdict.EQUAL_AS_FAR_AS_COMPARED)


class Kind(enum.StrEnum):
    """How one record differs."""

    LOST = "lost"
    EXTRA = "extra"
    DUPLICATED = "duplicated"
    CHANGED = "changed"
    RETIMED = "retimed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Offsets from `start` up to, and not including, `end`."""

    start: int
    end: int

    @property
    def offsets(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Step:
    """One interval of the offset map: from here on, source and target offsets grow together."""

    source_start: int
    target_start: int


@dataclass(frozen=True, slots=True)
class FrozenPartition:
    """One mirrored partition as both sites and the offset map showed it at the freeze.

    `source` ends at the last stable offset: what is still inside an open transaction is nobody's yet. What its log has
    behind that is `open_at_source`. `target` is its whole log, of which `open_at_target` is behind an open transaction.
    `target` is None when the partition does not exist there. `mirrored_end` is (next source offset, next target
    offset), None when the map knows nothing. `gaps` are source offsets that the gap ledger gives up. `shared_target`:
    others write at the target, too, and what they write there comes back to the source and is not mirrored again;
    `local_tail`: they may write behind what was mirrored (also after a promotion). `compacted`: at one site at least.
    `timestamps_comparable` is False where the target stamps records itself (LogAppendTime). `left_out`: why nothing of
    it can be compared, where the freeze itself has found that out.
    """

    topic: str
    partition: int
    target_topic: str
    source: Span
    target: Span | None
    steps: tuple[Step, ...]
    mirrored_end: tuple[int, int] | None
    timestamps_comparable: bool = True
    recreated: bool = False
    compacted: bool = False
    shared_target: bool = False
    local_tail: bool = False
    gaps: tuple[Span, ...] = ()
    left_out: Reason | None = None
    open_at_source: Span | None = None
    open_at_target: Span | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Target offsets [target_start, target_start + length) hold the source's from `source_start` on, one for one."""

    target_start: int
    source_start: int
    length: int


@dataclass(frozen=True, slots=True)
class ComparablePartition:
    """Both sites' spans that must hold the same records, but for `left_out` (at the source) and `foreign` (at the
    target, written by others). `segments` are the offset map inside of the spans."""

    topic: str
    partition: int
    target_topic: str
    source: Span
    target: Span
    segments: tuple[Segment, ...]
    timestamps_comparable: bool = True
    left_out: tuple[Span, ...] = ()
    foreign: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class NotCompared:
    """`offsets` of the span were left out, and what lies between them was compared. No more records than offsets."""

    topic: str
    partition: int
    side: Side
    span: Span
    reason: Reason
    offsets: int


@dataclass(frozen=True, slots=True)
class FrozenSite:
    """A site as in the configuration (`address_map`, `security` as in `Site`), and the cluster that was found there."""

    name: str
    bootstrap_servers: str
    cluster_id: str | None
    address_map: dict[str, str] = field(default_factory=dict)
    security: Security = PLAINTEXT

    def site(self) -> Site:
        return Site(self.name, self.bootstrap_servers, self.address_map, self.security)


@dataclass(frozen=True, slots=True)
class FrozenLink:
    """Everything the job needs to know; with it, a run can be repeated and gives the same answer."""

    link: str
    source: FrozenSite
    target: FrozenSite
    frozen_at_ms: int
    partitions: tuple[FrozenPartition, ...]


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
    """How much was compared: records of both sites, and offsets of both that were left out.

    `is_full`: nothing was left out, not even a partition without a record.
    """

    records: int
    offsets_left_out: int
    is_full: bool

    @property
    def percent(self) -> float:
        """At least so much of all records, cut to two decimals: an offset that was left out may have no record."""
        if self.is_full:
            return 100.0
        whole = self.records + self.offsets_left_out
        return min(9_999, 10_000 * self.records // whole) / 100 if whole else 0.0


def coverage_of(records: int, left_out: Iterable[NotCompared]) -> Coverage:
    """The coverage of a partition or a run. `records` were compared, of both sites."""
    offsets = [item.offsets for item in left_out]
    return Coverage(records, sum(offsets), not offsets)


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """`source` and `target` are the spans that were compared, empty where the verdict is NOT_COMPARED."""

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


@dataclass(frozen=True, slots=True)
class PlotBar:
    """Records of one topic, of all partitions, from the source offset `start` on, for the plot."""

    topic: str
    start: int
    source_records: int
    target_records: int
    differs: bool


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The outcome of a run. `ranges` and `differences` are cut at the limits; `found` counts all differences, by kind.

    `records_missing` counts source records without their equal at the target, `records_surplus` the reverse: a changed
    record counts once in each, a moved one in neither. `digest_bytes` is what phase two had of both sites to compare.
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

    @property
    def verdict(self) -> AuditVerdict:
        """EQUAL only when everything was compared and is equal. A finding among what was left out is a difference."""
        found = {partition.verdict for partition in self.partitions}
        if AuditVerdict.DIFFERS in found or any(item.reason.is_finding for item in self.not_compared):
            return AuditVerdict.DIFFERS
        if not found - {AuditVerdict.NOT_COMPARED}:
            return AuditVerdict.NOT_COMPARED
        if AuditVerdict.MOVED in found:
            return AuditVerdict.MOVED
        return AuditVerdict.EQUAL if self.coverage.is_full else AuditVerdict.EQUAL_AS_FAR_AS_COMPARED

    @property
    def coverage(self) -> Coverage:
        return coverage_of(self.source_records + self.target_records, self.not_compared)

    @property
    def source_records(self) -> int:
        return sum(partition.source_records for partition in self.partitions)

    @property
    def target_records(self) -> int:
        return sum(partition.target_records for partition in self.partitions)

    @property
    def audited_bytes(self) -> int:
        """Keys, values and headers of both sites."""
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
