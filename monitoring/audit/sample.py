"""A share of the ranges in place of all of them, and what it says of those that were not read: pure functions.

The ranges with the lowest hashes of (seed, topic, partition, beginning) are chosen: so many of all that are to be
compared, each as likely as any other, the same ones at both sites. What expires is gone whatever its hash, so what is
left of the sample is a random sample of what is left.
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, lgamma, log
from typing import Final

from monitoring import limits
from monitoring.audit.model import ComparablePartition, NotCompared, Place, Side, Span
from monitoring.audit.reasons import Reason

CONFIDENCE_PERCENT: Final = 95
ROUNDING: Final = 1e-6
"""By so much of itself a probability may be wrong; whatever it is, the bound is not too low."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`percent` of all ranges, at least one. The same `seed` chooses the same ones."""

    percent: float
    seed: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a sample says. `at_most` ranges of all differ, with CONFIDENCE_PERCENT; None where one was found to."""

    percent: float
    seed: str
    ranges: int
    ranges_compared: int
    ranges_differing: int

    @property
    def at_most(self) -> int | None:
        if self.ranges_differing or not self.ranges_compared:
            return None
        return differing_at_most(self.ranges, self.ranges_compared)


Chosen = Mapping[Place, Sequence[int]]
"""The beginnings of the chosen ranges, sorted."""


def ranges_of(partition: ComparablePartition) -> Sequence[int]:
    """The beginnings of all ranges that a record of the partition can be in, sorted; some may have none."""
    source = partition.source
    found = set(range(_floor(source.start), source.end, limits.AUDIT_RANGE_OFFSETS)) if source.offsets else set()
    last = partition.segments[-1] if partition.segments else None
    # Behind the last interval a record is in the range of that one's end, without any in that of offset 0.
    if last is None and partition.target.offsets:
        found.add(0)
    elif last is not None and partition.target.end > last.target_start + last.length:
        found.add(_floor(last.source_start + last.length))
    return sorted(found)


def choose(partitions: Sequence[ComparablePartition], sample: Sample) -> Chosen:
    """Of all partitions together. Compacted ones have no part in it: no range of theirs can be judged alone."""
    ranges = [
        (_hash(sample.seed, item, start), item.topic, item.partition, start)
        for item in partitions
        if not item.compacted
        for start in ranges_of(item)
    ]
    chosen: dict[Place, list[int]] = defaultdict(list)
    for _, topic, partition, start in heapq.nsmallest(ceil(len(ranges) * sample.percent / 100), ranges):
        chosen[topic, partition].append(start)
    return {place: sorted(starts) for place, starts in chosen.items()}


def spans_of_ranges(partition: ComparablePartition, starts: Collection[int], side: Side) -> list[Span]:
    """The offsets at one site of these ranges, sorted and apart; those without any are not there."""
    width = limits.AUDIT_RANGE_OFFSETS
    spans: list[Span] = []
    for start in sorted(starts):
        if side is Side.SOURCE:
            whole = partition.source
            found = Span(max(start, whole.start), min(start + width, whole.end))
        else:
            found = Span(_target_from(partition, start), _target_from(partition, start + width))
        if not found.offsets:
            continue
        if spans and spans[-1].end >= found.start:
            spans[-1] = Span(spans[-1].start, found.end)
        else:
            spans.append(found)
    return spans


def not_sampled(partitions: Sequence[ComparablePartition], chosen: Chosen) -> list[NotCompared]:
    """What of the partitions is in no chosen range."""
    told = []
    for item in partitions:
        for side, span in ((Side.SOURCE, item.source), (Side.TARGET, item.target)):
            read = spans_of_ranges(item, chosen.get((item.topic, item.partition), ()), side)
            left = span.offsets - sum(part.offsets for part in read)
            if left > 0 and not item.compacted:
                told.append(NotCompared(item.topic, item.partition, side, span, Reason.NOT_SAMPLED, left))
    return told


def sampled(
    sample: Sample, partitions: Sequence[ComparablePartition], chosen: Chosen, ranges_differing: int
) -> Sampled:
    """What was read of the partitions, and of how many ranges."""
    number = compared = 0
    for item in partitions:
        if not item.compacted:
            ranges = set(ranges_of(item))
            number += len(ranges)
            compared += len(ranges.intersection(chosen.get((item.topic, item.partition), ())))
    return Sampled(sample.percent, sample.seed, number, compared, ranges_differing)


def differing_at_most(ranges: int, compared: int) -> int:
    """The largest number of differing ranges that such a sample would have missed with 5 % or more.

    Hypergeometric: of `ranges` with D differing ones, C(ranges - D, compared) / C(ranges, compared) samples have none.
    """
    missed_log = log(1 - CONFIDENCE_PERCENT / 100) + log(1 - ROUNDING)
    all_samples = _choices_log(ranges, compared)
    low, high = 0, ranges - compared
    while low < high:
        middle = (low + high + 1) // 2
        if _choices_log(ranges - middle, compared) - all_samples >= missed_log:
            low = middle
        else:
            high = middle - 1
    return low


def missed_with(ranges: int, compared: int, differing: int) -> float:
    """The probability that a sample has none of the differing ranges."""
    if differing > ranges - compared:
        return 0.0
    return exp(_choices_log(ranges - differing, compared) - _choices_log(ranges, compared))


def _choices_log(number: int, chosen: int) -> float:
    return lgamma(number + 1) - lgamma(chosen + 1) - lgamma(number - chosen + 1)


def _target_from(partition: ComparablePartition, source_offset: int) -> int:
    """The first target offset whose place by the map is `source_offset` or behind it, as `look_up` places it."""
    whole, segments = partition.target, partition.segments
    nth = bisect_left(segments, source_offset, key=lambda segment: segment.source_start + segment.length)
    if nth == len(segments):
        return whole.end if segments or source_offset > 0 else whole.start
    segment = segments[nth]
    if source_offset > segment.source_start:
        found = segment.target_start + source_offset - segment.source_start
    else:
        found = segment.target_start if nth else whole.start
    return min(max(found, whole.start), whole.end)


def _floor(offset: int) -> int:
    return offset - offset % limits.AUDIT_RANGE_OFFSETS


def _hash(seed: str, item: ComparablePartition, start: int) -> bytes:
    text = f"{seed}\0{item.topic}\0{item.partition}\0{start}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
