"""What a run's workload did and saw: the values that the checker judges.

Every write has one of three outcomes, as in Jepsen's histories: acknowledged, failed, or unknown (the client gave up
waiting: the record may be there or not).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """When a record was written, seen from the fault."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


class Outcome(StrEnum):
    """What the writer knows of its write."""

    ACKNOWLEDGED = "acknowledged"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Write:
    """One record written at the source; `sequence` is unique in the run and rises within its partition."""

    sequence: int
    partition: int
    phase: Phase
    sent_s: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Read:
    """One record seen at the target, in the order of its partition."""

    sequence: int
    partition: int
    read_s: float


@dataclass(slots=True)
class History:
    """Everything that happened; times are from one monotonic clock, in seconds."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
