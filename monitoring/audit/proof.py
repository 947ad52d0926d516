"""What earlier runs proved of a link, and whether it still holds: pure functions, and the file that keeps it.

A log grows at its end and goes at its beginning; nothing in between changes (of compacted topics nothing is kept). So
what was equal once stays equal while neither log was cut and the offset map says the same. A log is the same one while
its topic has the same id, begins no earlier than it did, and the leader epoch that its end was of ends no earlier than
what was proved: whoever cuts a log goes on in a higher epoch, and the epoch before ends at the cut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from monitoring import limits
from monitoring.audit.files import held, replace_file
from monitoring.audit.link_file import read_link_file
from monitoring.audit.model import FrozenPartition, LogMark, Marks, NotCompared, Place, ProvedPart, Side, Span
from monitoring.audit.outcome import AuditResult, PartitionResult
from monitoring.audit.reasons import ProofLoss
from monitoring.errors import AuditResultDamaged

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Proof:
    """Of one partition, part behind part. `is_timed`: timestamps were compared; `is_shared` as in FrozenPartition.

    `shift` is by how much target offsets were ahead of the source's at the end; None: the map knew no record before it.
    """

    topic: str
    partition: int
    target_topic: str
    marks: Marks
    is_timed: bool
    is_shared: bool
    shift: int | None
    parts: tuple[ProvedPart, ...]

    @property
    def end(self) -> tuple[int, int]:
        """The next (source offset, target offset)."""
        return self.parts[-1].source.end, self.parts[-1].target.end


@dataclass(frozen=True, slots=True)
class LinkProof:
    """All that is proved of a link."""

    link: str
    partitions: tuple[Proof, ...]
    version: int = VERSION

    def by_place(self) -> dict[Place, Proof]:
        return {(proof.topic, proof.partition): proof for proof in self.partitions}


@dataclass(frozen=True, slots=True)
class LogNow:
    """A log as it is now: its mark, its end, and the end of the epoch that the proof's mark names; None: not known."""

    mark: LogMark | None
    end: int
    epoch_end: int | None


def why_lost(
    proof: Proof, frozen: FrozenPartition, logs: Mapping[Side, LogNow], state_topic_id: str | None
) -> ProofLoss | None:
    """None where all that was proved of the partition still holds, as far as its logs still have it."""
    if proof.target_topic != frozen.target_topic or proof.is_shared != frozen.shared_target:
        return ProofLoss.LINK_CHANGED
    if proof.marks.state_topic_id != state_topic_id:
        return ProofLoss.STATE_RECREATED
    if frozen.timestamps_comparable and not proof.is_timed:
        return ProofLoss.TIMES_NOT_COMPARED
    for side, known, end in (
        (Side.SOURCE, proof.marks.source, proof.end[0]),
        (Side.TARGET, proof.marks.target, proof.end[1]),
    ):
        if (loss := _log_loss(known, end, logs[side])) is not None:
            return loss
    return None if _is_same_map(proof, frozen) else ProofLoss.MAP_CHANGED


def _is_same_map(proof: Proof, frozen: FrozenPartition) -> bool:
    """What the map adds lies behind the end at both sites, and up to there it says what it said."""
    source_next, target_next = proof.end
    if frozen.mirrored_end is not None and frozen.mirrored_end[0] < source_next:
        return False
    behind = next((step for step in frozen.steps if step.source_start >= source_next), None)
    added = behind is None or behind.target_start >= target_next
    return added and _shift_at(frozen, source_next) == proof.shift


def _shift_at(frozen: FrozenPartition, source_next: int) -> int | None:
    index = bisect_left(frozen.steps, source_next, key=lambda step: step.source_start) - 1
    return None if index < 0 else frozen.steps[index].target_start - frozen.steps[index].source_start


def _log_loss(known: LogMark, proved_end: int, now: LogNow) -> ProofLoss | None:
    if now.mark is None or now.mark.topic_id != known.topic_id:
        return ProofLoss.TOPIC_RECREATED
    if now.mark.start < known.start or now.end < proved_end:
        return ProofLoss.LOG_CUT
    if now.mark.start >= proved_end:
        return None  # nothing that was proved is there any more
    if now.epoch_end is None:
        return ProofLoss.EPOCHS_UNKNOWN
    return ProofLoss.LOG_CUT if now.epoch_end < proved_end else None


def next_proof(result: AuditResult) -> LinkProof:
    """What holds after a run: what held before it, and behind that what it found to be equal."""
    left_out: dict[Place, list[NotCompared]] = {}
    for told in result.not_compared:
        left_out.setdefault((told.topic, told.partition), []).append(told)
    found = []
    for item, part in zip(result.frozen.partitions, result.partitions, strict=True):
        parts = _parts(result, item, part, left_out.get((item.topic, item.partition), ()))
        if item.marks is not None and parts and not item.compacted:
            found.append(
                Proof(
                    item.topic,
                    item.partition,
                    item.target_topic,
                    item.marks,
                    item.timestamps_comparable,
                    item.shared_target,
                    _shift_at(item, parts[-1].source.end),
                    parts,
                )
            )
    return LinkProof(result.frozen.link, tuple(found))


def as_far_as_kept(proof: LinkProof, result: AuditResult, now: LinkProof) -> LinkProof:
    """Without what the run carries on and another run has taken back since it was frozen: `now` is what is kept."""
    carried = {(item.topic, item.partition) for item in result.partitions if item.proved}
    gone = carried - now.by_place().keys()
    kept = tuple(item for item in proof.partitions if (item.topic, item.partition) not in gone)
    return replace(proof, partitions=kept)


def without_what_differs(proof: LinkProof, result: AuditResult) -> LinkProof:
    """What a run has found to differ counts as proved no more; what it has found equal adds nothing here."""
    differing = {
        (item.topic, item.partition) for item in result.partitions if item.ranges_differing + item.ranges_moved
    }
    kept = tuple(item for item in proof.partitions if (item.topic, item.partition) not in differing)
    return replace(proof, partitions=kept)


def _parts(
    result: AuditResult, item: FrozenPartition, found: PartitionResult, left_out: Iterable[NotCompared]
) -> tuple[ProvedPart, ...]:
    known = item.proved if found.proved else ()
    ends = (known[-1].source.end, known[-1].target.end) if known else (found.source.start, found.target.start)
    goes_on = _reaches(ends[0], found.source) and _reaches(ends[1], found.target)
    is_proved = found.verdict.is_equal and not any(told.reason.is_finding for told in left_out)
    if not (is_proved and goes_on and found.source.offsets + found.target.offsets):
        # Where a differing partition was read from its beginning, nothing of it counts as proved any more.
        return tuple(known)
    added = ProvedPart(
        found.source,
        found.target,
        found.source_records,
        found.target_records,
        result.frozen.frozen_at_ms,
        result.run_id,
    )
    return _fewer((*known, added))


def _reaches(end: int, following: Span) -> bool:
    return following.start <= end


def _fewer(parts: Sequence[ProvedPart]) -> tuple[ProvedPart, ...]:
    """AUDIT_PROOF_PARTS at most: the oldest become one, as old as the first of them."""
    number = len(parts) - limits.AUDIT_PROOF_PARTS + 1
    if number < 2:
        return tuple(parts)
    old = parts[:number]
    joined = replace(
        old[0],
        source=Span(old[0].source.start, old[-1].source.end),
        target=Span(old[0].target.start, old[-1].target.end),
        source_records=sum(part.source_records for part in old),
        target_records=sum(part.target_records for part in old),
    )
    return joined, *parts[number:]


_FILE: Final = TypeAdapter(LinkProof)


def proof_held(directory: Path, link: str) -> AbstractContextManager[None]:
    """Until its end no other run, of whatever process, reads a proof that it will replace. Raises OSError."""
    return held(_path(directory, link).with_suffix(".lock"))


def write_proof(proof: LinkProof, directory: Path) -> None:
    """Keep it for the next run. Raises OSError."""
    replace_file(_path(directory, proof.link), _FILE.dump_json(proof, indent=1).decode())


def read_proof(directory: Path, link: str) -> LinkProof:
    """Empty where there is none. Raises AuditResultDamaged."""
    hint = f"prove all of it anew: farshore audit run --link {link} --full"
    proof = read_link_file(_path(directory, link), _FILE, VERSION, "the proof of an audit", hint)
    return LinkProof(link, ()) if proof is None else proof


def read_proof_if_any(directory: Path, link: str) -> LinkProof:
    """Nothing is proved by what cannot be read."""
    try:
        return read_proof(directory, link)
    except AuditResultDamaged:
        return LinkProof(link, ())


def _path(directory: Path, link: str) -> Path:
    return directory / "proofs" / f"{link}.json"
