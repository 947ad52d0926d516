"""A stated loss held against the lost site's disk. Pure.

A mirror copies a partition in order, so what is lost of it is what its source committed behind the last record that is
at the target; that one no compaction takes. Where both sites write, the target has written some of it: who wrote a
record its value says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from tests.chaos_runs.loss_writers import FROM_TARGET

SEEN_WITHIN_MS = 5_000
"""So long after its birth a partition may not be known yet to who looks at the source's ends."""


@dataclass(frozen=True)
class OnDisk:
    """One partition as it was found: what the source committed, where its log ended, and what is at the target.

    `offsets`: of the values that the source ever acknowledged, also of those that compaction took since.
    """

    source: Sequence[Record]
    source_end: int
    target: Sequence[Record]
    offsets: Mapping[bytes, int] = field(default_factory=dict)
    born_ms: int = 0

    def last_copied(self) -> int:
        """The source offset of the last record at the target; -1: none is there. KeyError: nobody wrote it."""
        copies = [record for record in self.target if not _is_of_target(record)]
        if not copies:
            return -1
        known = {record.value: record.offset for record in self.source} | dict(self.offsets)
        return known[copies[-1].value]

    def lost(self) -> list[Record]:
        last = self.last_copied()
        return [record for record in self.source if record.offset > last and not _is_of_target(record)]

    def lost_offsets(self) -> int:
        """Also markers, and aborted and compacted records; what the target wrote it has."""
        last = self.last_copied()
        came_back = sum(record.offset > last and _is_of_target(record) for record in self.source)
        return max(0, self.source_end - last - 1 - came_back)


def _is_of_target(record: Record) -> bool:
    return (record.value or b"").startswith(FROM_TARGET)


@dataclass
class Verdict:
    """What became of the statements of one run."""

    certainties: Counter[str] = field(default_factory=Counter)
    lost_records: int = 0
    stated_offsets: int = 0
    unclear_offsets: int = 0
    lost_offsets: int = 0
    in_likely_range: bool | None = None
    unknowable: int = 0
    """Partitions that were born too late to be seen before the source went, and are not stated."""
    wrong: list[str] = field(default_factory=list)


def judge(result: Mapping[str, Any], found: Mapping[TopicPartition, OnDisk], *, is_source_lost: bool) -> Verdict:
    """`result`: what `farshore failover -o json` says, of all partitions of the link that the source has."""
    verdict = Verdict()
    stated = {TopicPartition(loss["topic"], loss["partition"]): loss for loss in result["losses"]}
    seen_at_ms = _ms(result["loss"]["seen_at"])
    for where, disk in sorted(found.items()):
        lost = disk.lost()
        verdict.lost_records += len(lost)
        verdict.lost_offsets += disk.lost_offsets()
        if where in stated:
            verdict.certainties[stated[where]["certainty"]] += 1
            verdict.stated_offsets += stated[where]["offsets"] or 0
            verdict.unclear_offsets += stated[where]["unclear_offsets"]
            verdict.wrong += [f"{where}: {text}" for text in _false(stated[where], disk, lost)]
        elif is_source_lost and (seen_at_ms is None or disk.born_ms + SEEN_WITHIN_MS > seen_at_ms):
            verdict.unknowable += 1
        else:
            verdict.wrong.append(f"{where} is missing: {len(lost)} records are lost of it")
    verdict.wrong += [f"{where} is stated, and the source has no such partition" for where in stated.keys() - found]
    verdict.wrong += _false_total(result["loss"], verdict, is_source_lost)
    likely = result["loss"]["likely_offsets"]
    if likely is not None:
        verdict.in_likely_range = result["loss"]["offsets"] <= verdict.lost_offsets <= likely
    return verdict


def _false(loss: Mapping[str, Any], disk: OnDisk, lost: Sequence[Record]) -> list[str]:
    if loss["certainty"] == "unknown":
        return [] if loss["offsets"] is None else [f"unknown, and with offsets: {loss}"]
    wrong = []
    first, end, last = loss["first_offset"], loss["end_offset"], disk.last_copied()
    if first <= last:
        wrong.append(f"{last} is at the target, and said to be lost: {loss}")
    if lost and first > lost[0].offset:
        wrong.append(f"{lost[0].offset} is lost, and said to be there: {loss}")
    if end > max(disk.source_end, first):
        wrong.append(f"the source ends at {disk.source_end}: {loss}")
    if loss["offsets"] > disk.lost_offsets():
        wrong.append(f"more is stated than {disk.lost_offsets()} offsets: {loss}")
    if loss["records"] is None and loss["offsets"] + loss["unclear_offsets"] != max(0, end - first):
        wrong.append(f"not all that was seen is stated: {loss}")
    within = sum(first <= record.offset < end for record in lost)
    if loss["records"] is not None and loss["records"] != within:
        wrong.append(f"{within} records are lost there: {loss}")
    if loss["certainty"] == "exact" and within != len(lost):
        wrong.append(f"{len(lost)} records are lost, {within} of them there: {loss}")
    if loss["certainty"] == "exact" and loss["offsets"] and loss["records"] is None:
        wrong.append(f"exact, and not counted: {loss}")
    return wrong


def _false_total(total: Mapping[str, Any], verdict: Verdict, is_source_lost: bool) -> list[str]:
    wrong = []
    if total["offsets"] > verdict.lost_offsets:
        wrong.append(f"in all {verdict.lost_offsets} offsets are lost: {total}")
    if total["certainty"] == "exact" and total["records"] not in (None, verdict.lost_records):
        wrong.append(f"in all {verdict.lost_records} records are lost: {total}")
    if is_source_lost and total["certainty"] == "exact":
        wrong.append(f"of a source that is gone nothing is exact: {total}")
    return wrong


def _ms(text: str | None) -> int | None:
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1000)
