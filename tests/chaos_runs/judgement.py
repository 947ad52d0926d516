"""Whether one topic ended in correct mirroring, from all that was done, shown and found. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from broker.wire.records import Record
from mirror.offsets.entries import Gap, GapKind, GapStatus
from mirror.outlook import GapOutlook
from tests.chaos_runs.looking import content_of
from tests.chaos_runs.oracle import Content, compare
from tests.chaos_runs.stage import Topic

CONSENTED = frozenset({GapStatus.ACCEPTED, GapStatus.PASSED})
REPEATING_KINDS = frozenset({GapKind.TARGET_TRUNCATED, GapKind.TARGET_NOT_EMPTY})
SOURCE_LOSES = frozenset(
    {
        "source-delete",
        "source-recreate",
        "source-refill",
        "source-rename",
        "source-cut-end",
        "source-restore",
        "source-disk",
    }
)
"""What of the source was not mirrored yet is gone with it; nobody can mirror that."""
START_MOVES = frozenset({"source-cut-start", "source-retention"})


def judge(
    topic: Topic, action: str, source: Sequence[Record], target: Sequence[Record], gaps: Sequence[Gap]
) -> list[str]:
    """What is wrong, in words. `action` is what happened to the topic, or to its whole site."""
    at_source = [content_of(record) for record in source]
    at_target = [content_of(record) for record in target]
    offsets = {content_of(record): record.offset for record in source}
    consented = {content for content, offset in offsets.items() if shown_as_repeated(topic.outlooks, offset)}
    found = compare(at_source, newest_copies(at_target, consented))
    there = set(at_target)
    wrong: list[str] = []

    lost = [content for content in found.lost if content not in topic.cut_away]
    _note(wrong, "records at the source are not at the target", lost, offsets)
    twice = found.twice + [content for content in set(found.extra) if at_target.count(content) > 1]
    _note(wrong, "records are at the target twice, and nobody consented", twice, offsets)
    if found.reordered:
        wrong.append(f"{found.reordered} records are at the target in another order")
    known = {sent.content for sent in topic.sent} | topic.foreign
    invented = [content for content in found.extra if content not in known and not is_unacknowledged(topic, content)]
    _note(wrong, "records at the target that nobody wrote", invented, offsets)
    if not action.startswith("target-"):
        vanished = [content for content in topic.mirrored_before if content not in there]
        _note(wrong, "records were at the target and are not any more", vanished, offsets)
    wrong += [f"{gap.kind} is said of what happened to the other site" for gap in gaps if is_misplaced(gap, action)]
    if action not in SOURCE_LOSES:
        gone = [sent for sent in topic.sent if sent.content not in there and sent.content not in topic.cut_away]
        ledger = [gap for gap in gaps if gap.kind is GapKind.TRUNCATED_START and gap.status in CONSENTED]
        unsaid = [sent for sent in gone if not any(gap.source_from <= sent.offset < gap.source_to for gap in ledger)]
        if action.startswith("target-"):  # what the source's own retention removed is not told apart from a loss
            unsaid = [sent for sent in unsaid if sent.content in offsets]
        _note(wrong, "acknowledged records are nowhere, and no gap says so", [sent.content for sent in unsaid], offsets)
        if action in START_MOVES:
            wrong += wrongly_said(ledger, topic, there)
    return wrong


def is_misplaced(gap: Gap, action: str) -> bool:
    """Whether a site is said to have lost records to which nothing was done; a gap that went away said nothing."""
    other = {GapKind.TARGET_TRUNCATED: "source-", GapKind.TRUNCATED_END: "target-"}.get(gap.kind)
    return other is not None and action.startswith(other) and gap.status is not GapStatus.GONE


def newest_copies(target: Sequence[Content], consented: set[Content]) -> list[Content]:
    """The target without the older copies of what was mirrored again by consent."""
    last = {content: at for at, content in enumerate(target)}
    return [content for at, content in enumerate(target) if content not in consented or at == last[content]]


def shown_as_repeated(outlooks: Sequence[GapOutlook], offset: int) -> bool:
    """Whether somebody was told, before saying yes, that this source offset would be mirrored again."""
    for shown in outlooks:
        if shown.kind is GapKind.TARGET_NOT_EMPTY and offset >= shown.goes_on_at:
            return True
        if shown.kind not in REPEATING_KINDS or shown.repeated_from is None or shown.repeated_to is None:
            continue
        if shown.repeated_from <= offset < shown.repeated_to:
            return True
    return False


def wrongly_said(ledger: Sequence[Gap], topic: Topic, there: set[Content]) -> list[str]:
    """Records of a passed gap that are at the target all the same: it named more than was skipped."""
    return [
        f"offset {sent.offset} stands in the gap {gap.source_from}-{gap.source_to}, and was mirrored"
        for gap in ledger
        for sent in topic.sent
        if gap.source_from <= sent.offset < gap.source_to and sent.content in there
    ]


def is_unacknowledged(topic: Topic, content: Content) -> bool:
    """A record of the run's own writer whose answer got lost: it may be anywhere, or nowhere."""
    value = content[2]
    return isinstance(value, bytes) and value.startswith(f"r-{topic.name}-".encode())


def _note(wrong: list[str], what: str, contents: Sequence[Content], offsets: dict[Content, int]) -> None:
    if contents:
        first = [(offsets.get(content), content[2][:40]) for content in contents[:3]]
        last = (offsets.get(contents[-1]), contents[-1][2][:40])
        wrong.append(f"{len(contents)} {what}: {first} to {last}")
