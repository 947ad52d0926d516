"""Where one partition goes on when a session starts: a pure decision over what both clusters and the state say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import (
    NO_TOPIC_IDS,
    Block,
    Checkpoint,
    Gap,
    GapKind,
    GapStatus,
    TopicIds,
    VoidBlock,
    Writer,
)
from mirror.offsets.histories import newest_epochs
from mirror.offsets.intervals import End, Interval
from mirror.offsets.left_out import LeftOut
from mirror.offsets.limits import BLOCK_INTERVALS_MAX
from mirror.offsets.paged import Intervals
from mirror.offsets.pages import Page, VoidPage
from mirror.offsets.recovery import Recovered, recover, step_over
from mirror.offsets.state_writer import Change
from mirror.offsets.tail import Tail
from mirror.worker.comparison import NO_DOUBT, Comparison

RETRIED_KINDS = frozenset({GapKind.UNREADABLE_BATCH, GapKind.REFUSED_BATCH, GapKind.MIXED_ORIGINS})
"""A new session tries these again by itself: the batch may be readable, or the target willing, by now."""
UNDECIDED_KINDS = RETRIED_KINDS | {GapKind.DELETED, GapKind.LEFT_OUT}
"""A gap of these kinds that is not there any more needs nobody's decision: a topic that is back was only hidden, and a
direct link that is back brings what was left to it."""
_GOES_ON: Final = "; it goes on to "


class SourceLog(NamedTuple):
    """The source partition: log start and end, its topic's id now and when it was first mirrored ("" for no id)."""

    start: int
    end: int
    topic_id: str
    known_topic_id: str

    @property
    def is_recreated(self) -> bool:
        return bool(self.topic_id and self.known_topic_id and self.topic_id != self.known_topic_id)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that decides. `tail` is the target's log behind the checkpoint, read after the fence if `fenced`."""

    where: TopicPartition
    shared: bool
    source: SourceLog
    tail: Tail
    recorded: Intervals
    blocks: tuple[Block, ...]
    checkpoint: Checkpoint | None
    now_ms: int
    gaps: tuple[Gap, ...] = ()
    target_topic_id: str = ""
    fenced: bool = True
    occupant: str = ""
    """Who wrote into the target before the link did, or behind its checkpoint from the same source, in words."""
    comparison: Comparison = NO_DOUBT
    sequence: int = 0
    """Of the writer's next record: above 0 only where it goes on in the session that wrote there before."""
    left_behind: tuple[LeftOut, ...] = ()
    """What was left to direct links of which none is there any more."""
    pages: tuple[Page, ...] = ()
    """All that the state has, those of `recorded` among them."""

    @property
    def target_is_recreated(self) -> bool:
        known = self.checkpoint.topic_ids.target if self.checkpoint else ""
        return bool(self.target_topic_id and known and self.target_topic_id != known)

    @property
    def lost_from(self) -> int | None:
        """Where the target once ended before what was acknowledged, and nothing has gone on behind it; None: nowhere.

        A log that lost no more than markers has grown past that when it is looked at, and nothing in it tells.
        """
        ends = [gap.target_offset for gap in self.gaps if gap.kind is GapKind.TARGET_TRUNCATED]
        first = min(ends, default=None)
        return first if self.checkpoint and first is not None and first < self.checkpoint.end.target_next else None

    def of(self, status: GapStatus) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.gaps if gap.status is status) if self.gaps else ()


@dataclass(frozen=True, slots=True)
class Opening:
    """The decision: the map so far, where to go on, what to write first; a `gap` means: stand still.

    `passed` are the accepted gaps that this opening steps over. `checkpoint` is where it goes on, None where it stands
    still; `epochs_stand`: its leader epochs are the source's, up to its position.
    """

    end: End
    position: int
    intervals: Intervals
    changes: tuple[Change, ...]
    gap: Gap | None = None
    passed: tuple[Gap, ...] = ()
    checkpoint: Checkpoint | None = None
    epochs_stand: bool = False


def recover_partition(evidence: Evidence) -> Recovered:
    """Where the target stands by the state and the tail. There must be a checkpoint."""
    assert evidence.checkpoint is not None
    return recover(evidence.recorded, evidence.blocks, evidence.checkpoint, evidence.tail.batches)


def open_partition(evidence: Evidence, writer: Writer) -> Opening:
    """Decide. Every gap that is there now must have been accepted; then they are stepped over as they are now."""
    if evidence.checkpoint is None:
        return _open_first(evidence, writer)
    found = recover_partition(evidence)
    gaps = find_gaps(evidence, evidence.checkpoint, found)
    accepted = {gap.kind: gap for gap in evidence.of(GapStatus.ACCEPTED)}
    stopping = next((gap for gap in gaps if gap.kind not in accepted), None)
    if stopping is None and not gaps:
        waiting = (gap for gap in evidence.of(GapStatus.STOPPED) if _waits(gap, evidence))
        stopping = next((_as_it_is_now(gap, evidence) for gap in waiting), None)
    if stopping is not None:
        return _stand_still(evidence, found, stopping)
    passed = [_passed(gap, accepted[gap.kind], evidence.source) for gap in gaps]
    asked = (gap for gap in evidence.of(GapStatus.ACCEPTED) if gap.kind is GapKind.MIRRORED_ANEW)
    passed += [replace(gap, status=GapStatus.PASSED, target_offset=evidence.tail.log_end) for gap in asked]
    return _proceed(evidence, writer, found, passed)


def _passed(gap: Gap, accepted: Gap, source: SourceLog) -> Gap:
    """The gap as it is now, from where it was accepted; where another link came between, up to the chosen start."""
    # In a source that is another log by now, a start that nobody chose says nothing.
    counts = accepted.source_to > accepted.source_from or gap.source_to >= gap.source_from
    if gap.kind is GapKind.TARGET_NOT_EMPTY and counts:
        gap = replace(gap, source_to=max(gap.source_to, min(accepted.source_to, source.end)))
    return replace(gap, source_from=accepted.source_from, status=GapStatus.PASSED)


def _open_first(evidence: Evidence, writer: Writer) -> Opening:
    """The partition was never mirrored: begin at the source's start, unless somebody wrote into the target."""
    kind, start = GapKind.TARGET_NOT_EMPTY, evidence.source.start
    accepted = next((gap for gap in evidence.of(GapStatus.ACCEPTED) if gap.kind is kind), None)
    left = [gap for gap in evidence.of(GapStatus.ACCEPTED) if gap.kind is GapKind.STRANDED]
    beyond = ""
    if accepted is not None and accepted.source_to > evidence.source.end:
        beyond = f"; it was to begin at {accepted.source_to}, and the source's log ends at {evidence.source.end}"
    if evidence.occupant and (accepted is None or beyond):
        gap = _gap(evidence, kind, (start, start), evidence.tail.log_end, evidence.occupant + beyond)
        opening = _stand_still(evidence, Recovered(End(start, evidence.tail.log_end), start, Intervals(), (), 0), gap)
        stays = {(kind, start), *((old.kind, old.source_from) for old in left)}
        stale = [_gone(old) for old in evidence.of(GapStatus.ACCEPTED) if (old.kind, old.source_from) not in stays]
        return replace(opening, changes=(*opening.changes, *stale))
    passed: tuple[Gap, ...] = ()
    if evidence.occupant and accepted is not None:
        start = max(start, accepted.source_to)
        passed = (replace(accepted, status=GapStatus.PASSED, source_to=start),)
    if left:
        start = max(start, *(min(old.source_to, evidence.source.end) for old in left))
        passed = (*passed, *(replace(old, status=GapStatus.PASSED) for old in left))
    opening = _go_on(evidence, writer, Recovered(End(start, evidence.tail.log_end), start, Intervals(), (), 0))
    done = {(gap.kind, gap.source_from) for gap in passed}
    gone = [_gone(gap) for gap in evidence.gaps if (gap.kind, gap.source_from) not in done]
    return replace(opening, changes=(*opening.changes, *passed, *gone), passed=passed)


def _waits(gap: Gap, evidence: Evidence) -> bool:
    """Whether a gap that stopped the partition before, and does not show now, still needs a person's decision."""
    explained = gap.kind is GapKind.FOREIGN_WRITER and evidence.shared  # by a link back that was not known then
    regained = gap.kind is GapKind.TRUNCATED_END and evidence.comparison.is_whole
    return gap.kind not in UNDECIDED_KINDS and not explained and not regained


def _as_it_is_now(gap: Gap, evidence: Evidence) -> Gap:
    """A source that was short once, and is as long again: what was seen of it does not say all any more."""
    if gap.kind is not GapKind.TRUNCATED_END:
        return gap
    seen = gap.detail.partition(_GOES_ON)[0]
    text = f"{_GOES_ON}{evidence.source.end} now, and nothing proves that it is again the one that was read"
    return replace(gap, detail=seen + text)


def find_gaps(evidence: Evidence, checkpoint: Checkpoint, found: Recovered) -> list[Gap]:
    """What keeps the partition from going on at `found.position`, the worst first. Pure."""
    source, comparison = evidence.source, evidence.comparison
    position, target_next = found.position, found.end.target_next
    if source.is_recreated:
        detail = f"the source topic's id was {source.known_topic_id} and is {source.topic_id}"
        return [_gap(evidence, GapKind.RECREATED, (position, source.start), target_next, detail)]
    gaps: list[Gap] = []
    agreed_to = max(min(comparison.agreed_to, position), source.start)
    if comparison.target_lost:
        detail = comparison.target_lost
        if lost := lost_for_good(evidence, found, agreed_to):
            detail += f"; {lost}"
        ends = (target_next, evidence.tail.log_end, evidence.lost_from)
        target_offset = min(end for end in ends if end is not None)
        gaps.append(_gap(evidence, GapKind.TARGET_TRUNCATED, (position, agreed_to), target_offset, detail))
    if comparison.source_parted:
        gaps.append(_gap(evidence, GapKind.TRUNCATED_END, (position, agreed_to), target_next, comparison.source_parted))
    if source.start > max(position, _left_at_source(evidence, found)[1]):
        detail = f"the source's log starts at {source.start}"
        gaps.append(_gap(evidence, GapKind.TRUNCATED_START, (position, source.start), target_next, detail))
    if (occupant := evidence.occupant or evidence.tail.unclear) and not comparison.target_lost:
        goes_on_at = agreed_to if comparison.source_parted else position
        gaps.append(_gap(evidence, GapKind.TARGET_NOT_EMPTY, (position, goes_on_at), target_next, occupant))
    elif found.foreign and not evidence.shared and not comparison.target_lost:
        first, last = found.foreign[0].first, found.foreign[-1].last
        detail = f"another producer wrote target offsets {first} to {last}"
        gaps.append(_gap(evidence, GapKind.FOREIGN_WRITER, (position, position), target_next, detail))
    if evidence.left_behind:
        gaps.append(_left_behind(evidence, checkpoint, found))
    return gaps


def _left_at_source(evidence: Evidence, found: Recovered) -> tuple[list[Gap], int]:
    """The stranded records that were left, range behind range, if the link stands before them; their end, or 0."""
    left, end = list[Gap](), found.position
    accepted = [gap for gap in evidence.of(GapStatus.ACCEPTED) if gap.kind is GapKind.STRANDED]
    for gap in sorted(accepted, key=lambda gap: gap.source_from) if not evidence.comparison.is_doubted else ():
        if (gap.source_from, gap.target_offset) == (end, found.end.target_next):
            left, end = [*left, gap], min(gap.source_to, evidence.source.end)
    return left, end if left else 0


def lost_for_good(evidence: Evidence, found: Recovered, mirrored_from: int) -> str:
    """What the target has lost, and the source has no more, where `mirrored_from` is the first to be mirrored again."""
    start = evidence.source.start
    if found.intervals and found.intervals[0].source_start < start == mirrored_from:
        return f"what was mirrored from before the source's offset {start} cannot be mirrored again"
    return ""


def _left_behind(evidence: Evidence, checkpoint: Checkpoint, found: Recovered) -> Gap:
    """Behind the checkpoint more may have been left out, of the same sites: it says of each when that begins."""
    left = evidence.left_behind
    sites = ", ".join(one.site for one in left)
    source_to = max(one.source_to for one in left)
    if found.position > checkpoint.position:
        source_to = max(source_to, found.position)
    span = (min(one.source_from for one in left), source_to)
    detail = f"records of {sites} were left to a link that brings them directly, and no such link is there any more"
    return _gap(evidence, GapKind.LEFT_OUT, span, found.end.target_next, detail)


def _gap(evidence: Evidence, kind: GapKind, span: tuple[int, int], target_offset: int, detail: str) -> Gap:
    """A gap that is there now; one that was there before keeps its time."""
    known = (gap.at_ms for gap in evidence.gaps if (gap.kind, gap.source_from) == (kind, span[0]))
    return Gap(
        topic=evidence.where.topic,
        partition=evidence.where.partition,
        kind=kind,
        source_from=span[0],
        source_to=span[1],
        target_offset=target_offset,
        status=GapStatus.STOPPED,
        at_ms=next(known, evidence.now_ms),
        detail=detail,
    )


def _stand_still(evidence: Evidence, found: Recovered, gap: Gap) -> Opening:
    """Stop at the gap; what stopped the partition before, and is not there any more, is closed."""
    at = (gap.kind, gap.source_from)
    others = (open_gap for open_gap in evidence.of(GapStatus.STOPPED) if (open_gap.kind, open_gap.source_from) != at)
    return Opening(found.end, found.position, found.intervals, (gap, *(_gone(other) for other in others)), gap)


def _gone(gap: Gap) -> Gap:
    return replace(gap, status=GapStatus.GONE)


def _proceed(evidence: Evidence, writer: Writer, found: Recovered, passed: list[Gap]) -> Opening:
    """Go on behind all that was accepted, at the first source record that is not at the target."""
    source, kinds = evidence.source, {gap.kind for gap in passed}
    anew = GapKind.RECREATED in kinds or GapKind.MIRRORED_ANEW in kinds or evidence.target_is_recreated
    position = source.start if anew else found.position
    if not anew and kinds & {GapKind.TRUNCATED_END, GapKind.TARGET_TRUNCATED}:
        position = min(position, evidence.comparison.agreed_to)
    started = (gap.source_to for gap in passed if gap.kind is GapKind.TARGET_NOT_EMPTY)
    position = max(position, source.start, *started)
    left, left_to = ([], 0) if anew else _left_at_source(evidence, found)
    passed = [*passed, *(replace(gap, status=GapStatus.PASSED) for gap in left)]
    position = max(position, left_to)
    if position == found.position:
        refused = [gap for gap in evidence.of(GapStatus.ACCEPTED) if gap.kind in RETRIED_KINDS]
        # The target's end must be the one at which it stopped: else records before the gap were lost there since, and
        # stepping over would lose them at the source, too. Then it is not passed, but met again.
        end = found.end.target_next
        ahead = [gap for gap in refused if gap.source_from >= position and gap.target_offset == end]
        ahead.sort(key=lambda gap: gap.source_from)
        passed = [*passed, *(replace(gap, status=GapStatus.PASSED) for gap in ahead[:1])]
        position = ahead[0].source_to if ahead else position
    behind = found
    if passed:
        log_end = evidence.tail.log_end
        kept = Intervals() if anew else step_over(found, log_end).intervals.cut(position, log_end)
        last = None if anew else evidence.comparison.last if evidence.comparison.is_doubted else found.last
        behind = Recovered(End(position, log_end), position, kept, (), 0, last)
    opening = _go_on(evidence, writer, behind, force=bool(passed), anew=anew)
    if not passed and not evidence.gaps:
        return opening
    done = {(gap.kind, gap.source_from) for gap in passed}
    gone = [_gone(gap) for gap in evidence.gaps if (gap.kind, gap.source_from) not in done]
    return replace(opening, changes=(*opening.changes, *passed, *gone), passed=tuple(passed))


def _go_on(evidence: Evidence, writer: Writer, found: Recovered, *, force: bool = False, anew: bool = False) -> Opening:
    """Start at `found`: void what was written ahead and never landed, record what landed otherwise than recorded."""
    where = evidence.where
    found = step_over(found, evidence.tail.log_end)
    start = Interval(*found.end)
    if force or not found.intervals:
        found.intervals.put(start)
    intervals = found.intervals.without_spent(evidence.tail.log_start)
    first, packed_to = intervals[0].source_start, max((page.to for page in evidence.pages), default=0)
    changes, cut = list[Change](), list[Interval]()
    for block in evidence.blocks:
        kept = () if anew else _still_before(block, found.end)
        if not kept or kept[-1].source_start < max(first, packed_to):
            changes.append(VoidBlock(where.topic, where.partition, block.key_source))
        elif kept != block.intervals:  # or they would be believed again once the end has passed them
            changes.append(replace(block, intervals=kept))
            cut += kept
    # A block that is written again is the newest, and counts. What is right in it is left to it: was this start cut
    # short before the end is written, the next one finds these batches by the block's own writer.
    wrong = {one.source_start for one in set(cut).difference(intervals.open)}
    recorded = {start, *evidence.recorded.open}
    corrected = [one for one in intervals.open if one not in recorded or one.source_start in wrong]
    for at in range(0, len(corrected), BLOCK_INTERVALS_MAX):  # before the pages they come from go
        some = tuple(corrected[at : at + BLOCK_INTERVALS_MAX])
        changes.append(Block(where.topic, where.partition, writer, 0, some))
    standing = set(map(id, intervals.pages))
    changes += [
        VoidPage(where.topic, where.partition, page.key_source)
        for page in reversed(evidence.pages)  # what a larger one has taken in goes before that
        if id(page) not in standing
    ]
    changes.append(Block(where.topic, where.partition, writer, evidence.sequence, (start,)))
    before = evidence.checkpoint
    gone = {one.site for one in evidence.left_behind}  # accepted, or it would not go on
    read = before.leader_epochs if before and not anew and not evidence.comparison.epochs_denied else ()
    checkpoint = Checkpoint(
        topic=where.topic,
        partition=where.partition,
        end=found.end,
        position=found.position,
        writer=writer,
        sequence=evidence.sequence,
        source_end_offset=evidence.source.end,
        source_timestamp_ms=before.source_timestamp_ms if before else -1,
        observed_at_ms=evidence.now_ms,
        leader_epochs=newest_epochs(read, found.position),
        last=found.last,
        topic_ids=_topic_ids(evidence),
        epochs_to=before.epochs_end if read and before and before.epochs_end < found.position else -1,
        left_out=tuple(one for one in before.left_out if one.site not in gone) if before and not anew else (),
    )
    changes.append(checkpoint)
    stand = evidence.comparison.epochs_stand and not force
    return Opening(found.end, found.position, intervals, tuple(changes), checkpoint=checkpoint, epochs_stand=stand)


def _topic_ids(evidence: Evidence) -> TopicIds:
    """As they are now; one that a cluster did not tell is still the one that is known: or any later one would do."""
    known = evidence.checkpoint.topic_ids if evidence.checkpoint is not None else NO_TOPIC_IDS
    return TopicIds(
        evidence.source.topic_id or evidence.source.known_topic_id, evidence.target_topic_id or known.target
    )


def _still_before(block: Block, end: End) -> tuple[Interval, ...]:
    """The block's intervals before the end, which may have gone back; none where its first is not."""
    source_next, target_next = end
    for at, (source_start, target_start) in enumerate(block.intervals):
        if source_start >= source_next or target_start > target_next:
            return block.intervals[:at]
    return block.intervals
