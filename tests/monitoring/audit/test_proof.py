"""What was proved stays proved while it is true, by content: random histories of two logs, audited again and again.

The world below has what Kafka says of a log (topic id, spans, where a leader epoch ends) and the records themselves, of
which the audit's decisions know nothing. Whatever an audit carries on is then held against the records.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from monitoring import limits
from monitoring.audit import proof
from monitoring.audit.model import (
    AuditVerdict,
    ComparablePartition,
    FrozenLink,
    FrozenPartition,
    FrozenSite,
    LogMark,
    Marks,
    NotCompared,
    ProvedPart,
    Side,
    Span,
    Step,
)
from monitoring.audit.outcome import AuditResult, Coverage, PartitionResult, coverage_of
from monitoring.audit.proof import LinkProof, LogNow, Proof, next_proof, read_proof, why_lost, write_proof
from monitoring.audit.ranges import comparable
from monitoring.audit.reasons import ProofLoss
from monitoring.errors import AuditResultDamaged

SITE = FrozenSite("east", "localhost:1", None)
SEEDS = 400


@dataclass
class Log:
    """Records with the epoch that each was written in; `start` of them are gone."""

    topic_id: int = 0
    start: int = 0
    epoch: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)

    def append(self, content: int) -> None:
        self.records.append((self.epoch, content))

    def cut(self, end: int) -> None:
        """A leader that had less than the one before it: it goes on in an epoch of its own."""
        del self.records[max(end, self.start) :]
        self.epoch += 1

    def epoch_end(self, epoch: int) -> int:
        return sum(1 for written, _ in self.records if written <= epoch)

    def now(self, proved_epoch: int | None) -> LogNow:
        mark = LogMark(str(self.topic_id), self.start, self.epoch)
        return LogNow(mark, len(self.records), None if proved_epoch is None else self.epoch_end(proved_epoch))

    def contents(self, span: Span) -> list[int]:
        return [content for _, content in self.records[span.start : span.end]]


class World:
    """A source, its copy, and the map between them: the target is ahead by what others wrote there first."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.logs = {Side.SOURCE: Log(), Side.TARGET: Log()}
        self.mirrored = (0, 0)
        self.steps = (Step(0, 0),)
        self.state_id = 0
        self.written = 0
        self.known: Proof | None = None
        self.carried = 0

    def happen(self) -> None:
        deeds: list[Callable[[], None]] = [self.write, self.write, self.mirror, self.mirror, self.mirror, self.expire]
        deeds += [self.cut_both, self.cut_one, self.recreate, self.begin_anew, self.damage]
        self.rng.choices(deeds, [6, 6, 6, 6, 6, 2, 1, 1, 0.5, 0.5, 2])[0]()

    def write(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            self.written += 1
            self.logs[Side.SOURCE].append(self.written)

    def mirror(self) -> None:
        source, target = self.logs[Side.SOURCE], self.logs[Side.TARGET]
        if self.mirrored != (min(self.mirrored[0], len(source.records)), len(target.records)):
            return  # something was lost: a mirror stops there
        for content in source.contents(Span(max(self.mirrored[0], source.start), len(source.records))):
            target.append(content)
        self.mirrored = (len(source.records), len(target.records))

    def expire(self) -> None:
        log = self.logs[self.rng.choice(list(Side))]
        log.start = self.rng.randrange(log.start, len(log.records) + 1)

    def cut_one(self) -> None:
        """And what comes then has the same offsets, and other content."""
        log = self.logs[self.rng.choice(list(Side))]
        length = len(log.records)
        log.cut(self.rng.randrange(length + 1))
        while len(log.records) < length + self.rng.randrange(2):
            self.written += 1
            log.append(self.written)

    def cut_both(self) -> None:
        at = self.rng.randrange(len(self.logs[Side.SOURCE].records) + 1)
        for log in self.logs.values():
            log.cut(at)
        self.mirrored = (min(at, self.mirrored[0]), min(at, self.mirrored[1]))

    def recreate(self) -> None:
        side = self.rng.choice(list(Side))
        length = len(self.logs[side].records)
        self.logs[side] = Log(topic_id=self.logs[side].topic_id + 1)
        for _ in range(length):
            self.written += 1
            self.logs[side].append(self.written)

    def begin_anew(self) -> None:
        self.state_id += 1
        self.logs = {side: Log(topic_id=log.topic_id + 1) for side, log in self.logs.items()}
        self.mirrored = (0, 0)

    def damage(self) -> None:
        """What the mirror brings next is wrong."""
        if self.mirrored[0] < len(self.logs[Side.SOURCE].records):
            self.mirror()
            records = self.logs[Side.TARGET].records
            if records:
                records[-1] = (records[-1][0], -self.written)

    def audit(self, number: int) -> None:
        source, target = self.logs[Side.SOURCE], self.logs[Side.TARGET]
        marks = self.known.marks if self.known else None
        now = {
            Side.SOURCE: source.now(marks.source.leader_epoch if marks else None),
            Side.TARGET: target.now(marks.target.leader_epoch if marks else None),
        }
        here, there = now[Side.SOURCE].mark, now[Side.TARGET].mark
        assert here is not None
        assert there is not None
        item = FrozenPartition(
            "t",
            0,
            "t",
            Span(source.start, len(source.records)),
            Span(target.start, len(target.records)),
            self.steps,
            self.mirrored,
            marks=Marks(here, there, str(self.state_id)),
            since=self.rng.choice((None, None, self.rng.randrange(len(source.records) + 1))),
            is_asked=self.rng.random() < 0.9,
        )
        if self.known is not None and why_lost(self.known, item, now, str(self.state_id)) is None:
            item = replace(item, proved=self.known.parts)
        found, left_out = comparable(item)
        assert found is not None
        self.check(found)
        kept = next_proof(self.judged(item, found, left_out, number)).partitions
        self.known = kept[0] if kept else None

    def check(self, found: ComparablePartition) -> None:
        """What is carried on, and still there at both sites, is equal. There is nothing between parts."""
        low = [max(self.logs[side].start, part) for side, part in zip(Side, (0, 0), strict=True)]
        for part in found.proved:
            span = Span(max(part.source.start, *low), part.source.end)
            contents = [self.logs[side].contents(span) for side in Side]
            assert contents[0] == contents[1]
            assert (part.source_records, part.target_records) <= (part.source.offsets, part.target.offsets)
            self.carried += span.offsets

    def judged(
        self, item: FrozenPartition, found: ComparablePartition, left_out: tuple[NotCompared, ...], number: int
    ) -> AuditResult:
        """As phases one and two would, by the records themselves."""
        same = self.logs[Side.SOURCE].contents(found.source) == self.logs[Side.TARGET].contents(found.target)
        part = PartitionResult(
            "t",
            0,
            "t",
            found.source,
            found.target,
            found.source.offsets,
            found.target.offsets,
            0,
            0,
            1,
            0,
            0,
            AuditVerdict.EQUAL if same else AuditVerdict.DIFFERS,
            coverage_of(found.source.offsets + found.target.offsets, left_out, found.proved),
            found.proved,
        )
        link = FrozenLink("east-west", SITE, SITE, number, (item,))
        return AuditResult(f"run-{number}", link, number, (part,), left_out, (), (), {}, (), {}, {})


def live(seeds: range) -> int:
    """Histories without a wrong word; how much they carried on in all."""
    carried = 0
    for seed in seeds:
        world = World(random.Random(seed))
        for number in range(30):
            for _ in range(world.rng.randrange(4)):
                world.happen()
            world.audit(number)
        carried += world.carried
    return carried


def test_what_is_carried_on_is_true() -> None:
    assert live(range(SEEDS)) > 10 * SEEDS, "little was carried on: the worlds prove nothing"


def without(*losses: ProofLoss) -> Callable[..., ProofLoss | None]:
    """A check that forgets some."""

    def check(*arguments: object) -> ProofLoss | None:
        found = proof.why_lost(*arguments)  # type: ignore[arg-type]  # as they came
        return None if found in losses else found

    return check


@pytest.mark.parametrize("forgotten", [ProofLoss.LOG_CUT, ProofLoss.TOPIC_RECREATED])
def test_a_check_that_is_forgotten_is_found(forgotten: ProofLoss, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "why_lost", without(forgotten))
    with pytest.raises(AssertionError):
        live(range(SEEDS))


def test_a_proof_that_takes_in_what_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AuditVerdict, "is_equal", True)
    with pytest.raises(AssertionError):
        live(range(SEEDS))


PART = ProvedPart(Span(0, 10), Span(0, 12), 10, 10, 5, "run-1")
MARKS = Marks(LogMark("a", 0, 3), LogMark("b", 0, 4), "s")
KNOWN = Proof("t", 0, "t", MARKS, True, False, 2, (PART,))
FROZEN = FrozenPartition("t", 0, "t", Span(0, 20), Span(0, 22), (Step(0, 2),), (20, 22))
NOW = {Side.SOURCE: LogNow(MARKS.source, 20, 20), Side.TARGET: LogNow(MARKS.target, 22, 22)}


def test_each_loss_has_its_reason() -> None:
    def why(
        known: Proof = KNOWN,
        frozen: FrozenPartition = FROZEN,
        state: str | None = "s",
        logs: Mapping[Side, LogNow] = NOW,
    ) -> ProofLoss | None:
        return why_lost(known, frozen, logs, state)

    assert why() is None
    assert why(frozen=replace(FROZEN, target_topic="other")) is ProofLoss.LINK_CHANGED
    assert why(frozen=replace(FROZEN, shared_target=True)) is ProofLoss.LINK_CHANGED
    assert why(state="other") is why(state=None) is ProofLoss.STATE_RECREATED
    assert why(replace(KNOWN, is_timed=False)) is ProofLoss.TIMES_NOT_COMPARED
    assert why(replace(KNOWN, is_timed=False), replace(FROZEN, timestamps_comparable=False)) is None
    for side in Side:
        log = NOW[side]
        assert log.mark is not None
        for changed, loss in (
            (replace(log, mark=None), ProofLoss.TOPIC_RECREATED),
            (replace(log, mark=replace(log.mark, topic_id="other")), ProofLoss.TOPIC_RECREATED),
            (replace(log, end=9), ProofLoss.LOG_CUT),
            (replace(log, epoch_end=9), ProofLoss.LOG_CUT),
            (replace(log, epoch_end=None), ProofLoss.EPOCHS_UNKNOWN),
            (replace(log, mark=replace(log.mark, start=20), epoch_end=None), None),
        ):
            assert why(logs={**NOW, side: changed}) is loss, (side, changed)
    moved_back = replace(KNOWN, marks=replace(MARKS, source=replace(MARKS.source, start=5)))
    assert why(moved_back) is ProofLoss.LOG_CUT
    for frozen in (
        replace(FROZEN, mirrored_end=(9, 11)),
        replace(FROZEN, steps=(Step(0, 1),)),
        replace(FROZEN, steps=(Step(0, 2), Step(10, 11))),
        replace(FROZEN, steps=()),
    ):
        assert why(frozen=frozen) is ProofLoss.MAP_CHANGED
    assert why(frozen=replace(FROZEN, steps=(Step(0, 2), Step(15, 19)))) is None


def test_what_is_gone_is_not_counted_and_what_is_left_is_a_floor() -> None:
    item = replace(FROZEN, proved=(PART,), source=Span(4, 20))
    found, left_out = comparable(item)
    assert found is not None
    (part,) = found.proved
    assert (part.source, part.target) == (Span(4, 10), Span(6, 12))
    assert (part.source_records, part.target_records) == (6, 4)
    assert (found.source, found.target) == (Span(10, 20), Span(12, 22))
    coverage = coverage_of(20, left_out, found.proved)
    assert (coverage.records, coverage.records_earlier, coverage.oldest_ms) == (30, 10, 5)
    assert Coverage(30, 0, is_full=True).percent == 100


def test_many_parts_become_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_PROOF_PARTS", 3)
    parts = [ProvedPart(Span(n, n + 1), Span(n, n + 1), 1, 1, n, f"run-{n}") for n in range(6)]
    assert proof._fewer(parts) == (
        ProvedPart(Span(0, 4), Span(0, 4), 4, 4, 0, "run-0"),
        parts[4],
        parts[5],
    )


def test_a_proof_is_kept(tmp_path: Path) -> None:
    assert read_proof(tmp_path, "east-west") == LinkProof("east-west", ())
    known = LinkProof("east-west", (KNOWN,))
    write_proof(known, tmp_path)
    assert read_proof(tmp_path, "east-west") == known
    for damage in ("", "[]", '{"link": "east-west", "partitions": [], "version": 99}'):
        (tmp_path / "proofs" / "east-west.json").write_text(damage)
        with pytest.raises(AuditResultDamaged, match="not the proof"):
            read_proof(tmp_path, "east-west")
