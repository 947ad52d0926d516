"""Why an audit did not compare what it did not compare, or compares again what was proved."""

from __future__ import annotations

import enum


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
    BEFORE_SINCE = "before_since"
    NOT_ASKED = "not_asked"
    NOT_SAMPLED = "not_sampled"

    @property
    def is_finding(self) -> bool:
        """True where the reason is itself a fault: an operator must act before the copy can be trusted."""
        return self in _FAULTS

    @property
    def is_in_flight(self) -> bool:
        """True where the mirror brings it in time, by itself."""
        return self in _IN_FLIGHT

    @property
    def stops_a_move(self) -> bool:
        """False where nobody who moves loses anything by it: it comes in time, or is no value of its key any more."""
        return not (self.is_in_flight or self is Reason.COMPACTED)

    @property
    def hides_records(self) -> bool:
        """True where the records may be at both sites still: what an earlier audit found there may be so still."""
        return self in _HIDING

    @property
    def explanation(self) -> str:
        return _EXPLANATIONS[self]


_FAULTS = frozenset({Reason.NEVER_MIRRORED, Reason.TARGET_MISSING, Reason.SOURCE_TRUNCATED, Reason.SOURCE_RECREATED})
_IN_FLIGHT = frozenset({Reason.NOT_MIRRORED_YET, Reason.NOT_REACHED_YET, Reason.OPEN_TRANSACTION})
_HIDING = frozenset(
    {Reason.NOT_READABLE, Reason.RECORDS_NOT_READABLE, Reason.EXPIRED_WHILE_READ, Reason.TIMESTAMP_NOT_READABLE}
    | {Reason.OPEN_TRANSACTION, Reason.BEFORE_SINCE, Reason.NOT_ASKED, Reason.NOT_SAMPLED}
)
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
    Reason.COMPACTED: "only one site has them still: older values of their keys, tombstones, or records without a key",
    Reason.GAP_ACCEPTED: "in the gap ledger: an operator accepted that these are not mirrored",
    Reason.WRITTEN_BY_OTHERS: "between the offset map's intervals, where others write, too: not this link's to prove",
    Reason.NOT_READABLE: "a site could not say where the partition stands (no leader, or refused)",
    Reason.OPEN_TRANSACTION: "behind the beginning of a transaction that was open at the freeze: no consumer reads it",
    Reason.EXPIRED_WHILE_READ: "records were deleted (retention) while, or each time that, the partition was read",
    Reason.TIMESTAMP_NOT_READABLE: "it has a timestamp beyond what Spark holds (292,277 years): nanoseconds, perhaps",
    Reason.BEFORE_SINCE: "older than --since, and no earlier run has proved it",
    Reason.NOT_ASKED: "of a topic that --topic does not name, and no earlier run has proved it",
    Reason.NOT_SAMPLED: "not among the ranges that --sample has chosen",
    Reason.RECORDS_NOT_READABLE: "Spark could not read the partition; the log has its words",
}


class ProofLoss(enum.StrEnum):
    """Why what was proved of a partition holds no more."""

    TOPIC_RECREATED = "topic_recreated"
    LOG_CUT = "log_cut"
    EPOCHS_UNKNOWN = "epochs_unknown"
    STATE_RECREATED = "state_recreated"
    MAP_CHANGED = "map_changed"
    LINK_CHANGED = "link_changed"
    TIMES_NOT_COMPARED = "times_not_compared"
