"""The values of an audit: what was frozen, and what of it may be compared (what was found: `outcome.py`).

Offsets are half-open spans everywhere: a log with the records 0, 1 and 2 has the span [0, 3).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypeAlias

from broker.client.security.settings import PLAINTEXT, Security
from broker.client.site import Site
from monitoring.audit.groups import FrozenGroups
from monitoring.audit.missing_rights import MissingRight
from monitoring.audit.reasons import ProofLoss, Reason

# First value hashed, one per hash: two independent 64-bit hashes of the same record, and one of its position.
CONTENT_SEEDS = (1, 2)
POSITION_SEED = 3


Place: TypeAlias = tuple[str, int]
"""(source topic, partition)"""


class Side(enum.StrEnum):
    SOURCE = "source"
    TARGET = "target"


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
class LogMark:
    """What tells a log from another one under its name; `leader_epoch` is the one that its end is of."""

    topic_id: str
    start: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Marks:
    """Both logs of a partition at a freeze, and the topic that the link's state stands in."""

    source: LogMark
    target: LogMark
    state_topic_id: str


@dataclass(frozen=True, slots=True)
class ProvedPart:
    """What one run proved of a partition: these spans hold the same records."""

    source: Span
    target: Span
    source_records: int
    target_records: int
    at_ms: int
    run_id: str


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

    `proved` is what earlier runs proved and what still holds, part behind part; `marks` are None where nothing that is
    proved now can be known again. What is not proved is compared from the source offset `since` on, if `is_asked`;
    and from `read_from` on, where what lies before it was deleted at a site while that was read.
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
    marks: Marks | None = None
    proved: tuple[ProvedPart, ...] = ()
    since: int | None = None
    is_asked: bool = True
    read_from: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Target offsets [target_start, target_start + length) hold the source's from `source_start` on, one for one."""

    target_start: int
    source_start: int
    length: int


@dataclass(frozen=True, slots=True)
class ComparablePartition:
    """Both sites' spans that must hold the same records, but for `left_out` (at the source) and `foreign` (at the
    target, written by others). `segments` are the offset map inside of the spans. `proved` is what needs no reading:
    parts before the spans, cut to what both logs still have. `compacted`: each site may have dropped older values of
    keys (`compacted.py`)."""

    topic: str
    partition: int
    target_topic: str
    source: Span
    target: Span
    segments: tuple[Segment, ...]
    timestamps_comparable: bool = True
    left_out: tuple[Span, ...] = ()
    foreign: tuple[Span, ...] = ()
    proved: tuple[ProvedPart, ...] = ()
    compacted: bool = False


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
class LostProof:
    """A partition that is read anew, though an earlier run had proved some of it."""

    topic: str
    partition: int
    why: ProofLoss


@dataclass(frozen=True, slots=True)
class FrozenLink:
    """Everything the job needs to know; with it, a run can be repeated and gives the same answer."""

    link: str
    source: FrozenSite
    target: FrozenSite
    frozen_at_ms: int
    partitions: tuple[FrozenPartition, ...]
    lost: tuple[LostProof, ...] = ()
    groups: FrozenGroups | None = None
    """Where the link's groups stood; None where it carries none."""
    refused: tuple[MissingRight, ...] = ()
    """On topics."""

    @property
    def missing_rights(self) -> tuple[MissingRight, ...]:
        """All that farshore lacked when both sites were asked."""
        return (*self.refused, *(() if self.groups is None else self.groups.refused))

    @property
    def principals(self) -> dict[str, str]:
        """As whom farshore comes to each site, in words."""
        return {site.name: site.security.comes_as for site in (self.source, self.target)}
