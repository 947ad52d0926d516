"""What the demo found, as values; `report.py` draws them."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitoring.audit.model import AuditVerdict


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of the demo and how long it took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """Records mirrored `at_s` seconds after the first was written, of `written_records`."""

    at_s: float
    mirrored_records: int
    written_records: int


@dataclass(frozen=True, slots=True)
class LeaderKill:
    """A broker that was killed while it led, and how many records were acknowledged by then."""

    site: str
    node_id: int
    led_partitions: int
    acknowledged_records: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """A link whose worker was killed: who ran it, who runs it now, and when after the kill its first record came."""

    link: str
    before: str
    after: str
    seconds: float


@dataclass(frozen=True, slots=True)
class FleetContent:
    """What a target has of the records that were acknowledged at the source while a worker was killed."""

    acknowledged: int
    records: int
    lost_records: int
    repeated_records: int
    reordered_partitions: int
    """Those that are not, record by record, what the source's are."""

    @property
    def holds(self) -> bool:
        return self.acknowledged > 0 and self.lost_records == self.repeated_records == self.reordered_partitions == 0


@dataclass(frozen=True, slots=True)
class SiteContent:
    """What was read at a site of what had been acknowledged at the source: each record by its row number."""

    site: str
    records: int
    lost_records: int
    repeated_records: int

    @property
    def holds(self) -> bool:
        return self.lost_records == self.repeated_records == 0


@dataclass(frozen=True, slots=True)
class TranslationProof:
    """Every offset of one partition, translated there and back and compared by content."""

    partition: int
    offsets: int
    wrong_forward: int
    wrong_back: int
    intervals: int

    @property
    def holds(self) -> bool:
        return self.offsets > 0 and self.wrong_forward == self.wrong_back == 0


@dataclass(frozen=True, slots=True)
class GroupProof:
    """A group's committed offset at both sites, and the rows of the records it would read next (None: at the end)."""

    partition: int
    source_offset: int
    target_offset: int
    source_next_row: int | None
    target_next_row: int | None

    @property
    def holds(self) -> bool:
        return self.source_next_row == self.target_next_row


@dataclass(frozen=True, slots=True)
class GroupContinuity:
    """The group read `before_records` at the source and `after_records` at the target."""

    before_records: int
    after_records: int
    lost_records: int
    repeated_records: int

    @property
    def holds(self) -> bool:
        return self.lost_records == self.repeated_records == 0


@dataclass(frozen=True, slots=True)
class LossProof:
    """One partition's loss: what the failover said, and what the lost broker's disk showed afterwards."""

    partition: int
    acknowledged_records: int
    mirrored_records: int
    stated_offsets: int | None
    stated_certainty: str
    true_records: int

    @property
    def holds(self) -> bool:
        """A statement is honest when an exact one is the truth, and a lower bound is not above it."""
        if self.stated_offsets is None:
            return self.stated_certainty == "unknown"
        if self.stated_certainty == "exact":
            return self.stated_offsets == self.true_records
        return self.stated_offsets <= self.true_records


@dataclass(slots=True)
class DemoResult:
    """Everything the demo shows."""

    started_at: str
    flights: int = 0
    steps: list[StepTime] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    brokers: int = 1
    kills: list[LeaderKill] = field(default_factory=list)
    write_pause_seconds: float = 0.0
    workers: int = 1
    is_locked: bool = False
    """Whether both sites were reached by TLS and a login alone."""
    takeovers: list[Takeover] = field(default_factory=list)
    fleet_content: FleetContent | None = None
    contents: list[SiteContent] = field(default_factory=list)
    translation: list[TranslationProof] = field(default_factory=list)
    groups: list[GroupProof] = field(default_factory=list)
    continuity: GroupContinuity | None = None
    losses: list[LossProof] = field(default_factory=list)
    stated_loss: str = ""
    """In the words of `farshore failover`."""
    seen_offsets: int = 0
    """Of what was lost, those that were seen at the source: the statement's lower bound."""
    likely_offsets: int | None = None
    """How many the failover called likely at most; None: it could not say."""
    takeover_seconds: float = 0.0
    audit_seconds: float = 0.0
    audit_verdict: AuditVerdict = AuditVerdict.NOT_COMPARED
    audit_records: int = 0
    audit_coverage_percent: float = 0.0
    audit_report: str = ""

    @property
    def loss_in_words(self) -> str:
        """What was really lost, beside what had been said of it."""
        lost = sum(loss.true_records for loss in self.losses)
        told = f"{lost:,} records are only there: {self.seen_offsets:,} had been seen"
        if self.likely_offsets is None:
            return f"{told}, {lost - self.seen_offsets:,} came after the last look"
        return f"{told}, and {self.seen_offsets:,} to {self.likely_offsets:,} were called likely"

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)
