"""What a failover loses or leaves behind, stated per partition with how sure the statement is. Pure.

The source's log end is known exactly only while it answers. When it is gone, the mirror's last look at it gives a
lower bound: what was written after that look cannot be known, and is said to be unknown, never zero. How fast was
written before tells how much is likely, and no more than that.
Offsets are not records: transaction markers, aborted and compacted records take offsets, too. So records are stated
only where they were counted by reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from failover.observing.snapshot import PartitionView
from mirror.api import CLOCK_DIFFERENCE_MAX_MS, Ceased, LastLook

N = TypeVar("N", int, float)


class Certainty(StrEnum):
    """How much is known of where a loss ends."""

    EXACT = "exact"
    AT_LEAST = "at_least"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PartitionLoss:
    """Source offsets [first_offset, end_offset) that the target does not have: so many `offsets`, at the least.

    Where a link back writes there, too, `unclear_offsets` more may be of them, or hold records that it had brought from
    the target, which has those: nobody can tell. What is no record takes an offset, too: markers, also those of that
    link's fences. `records` are the committed ones, counted by reading; None where they were not counted. There are
    never more than offsets. With certainty AT_LEAST more may have been written after `seen_at_ms`, or a transaction is
    open there, which may end either way: what was counted ends where that begins, and `open_offsets` more are behind
    it, of which nobody can tell how many are records that count. With UNKNOWN nothing is known of the source's end at
    all, or not what the target lost of its own (`lacked_records` None). Timestamps are the records' own, Unix
    milliseconds, None where they cannot be known. `ceased`: the partition ceased to tell its end while others of the
    source went on; None: the source tells all, or nothing. `seen_beyond`: so far the end was seen to be beyond that of
    `seen_at_ms`, at a time that nobody knows: as many of the offsets that a pace makes likely since then, are seen.
    Among all that are `lacked_offsets` (and `lacked_records`) that the target itself had, and lost: they stand before
    those that the link was still to bring, and the offsets are from the first of either on.
    """

    topic: str
    partition: int
    certainty: Certainty
    offsets: int | None
    records: int | None
    first_offset: int | None
    end_offset: int | None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    seen_at_ms: int | None = None
    unclear_offsets: int = 0
    open_offsets: int = 0
    ceased: Ceased | None = None
    lacked_offsets: int = 0
    lacked_records: int | None = 0
    seen_beyond: int = 0

    @property
    def is_none(self) -> bool:
        """True only where it is known that nothing is lost."""
        return self.certainty is Certainty.EXACT and self.records == 0

    @property
    def is_uncompared(self) -> bool:
        """Whether it is not known what the target lost of its own, nor where that would be."""
        return self.lacked_records is None and not self.lacked_offsets

    @property
    def is_end_seen(self) -> bool:
        """Whether it is known how far the source's log went, at the least."""
        return self.certainty is not Certainty.UNKNOWN or (self.is_uncompared and self.offsets is not None)


def state_loss(view: PartitionView, taken_at_ms: int) -> PartitionLoss:
    """The loss statement of one partition, without what only reading the source can give."""
    if not view.trusted or view.unanswered:
        return PartitionLoss(view.topic, view.partition, Certainty.UNKNOWN, None, None, None, view.source_end)
    first = view.mirrored_source_next
    if first is None:
        first = view.source_start or 0
    is_seen_now = view.source_end is not None
    end = view.source_end if is_seen_now else view.seen_source_end
    if end is None:
        at = view.mirrored_source_next
        return PartitionLoss(view.topic, view.partition, Certainty.UNKNOWN, None, None, at, None)
    if not is_seen_now:
        first = max(first, view.source_start or 0)  # what retention took before is not lost with the source
    offsets = max(0, end - first)
    loss = PartitionLoss(
        topic=view.topic,
        partition=view.partition,
        certainty=Certainty.EXACT if is_seen_now else Certainty.AT_LEAST,
        offsets=offsets,
        records=None if offsets or not is_seen_now else 0,
        first_offset=first,
        end_offset=max(first, end),
        last_timestamp_ms=view.seen_timestamp_ms if offsets and not is_seen_now else None,
        seen_at_ms=taken_at_ms if is_seen_now else view.seen_at_ms,
        ceased=None if is_seen_now else view.ceased,
        seen_beyond=0 if is_seen_now else view.seen_beyond,
    )
    return loss if is_seen_now else with_returns(loss, view.returned_at_most)


def with_returns(loss: PartitionLoss, returned_at_most: int | None) -> PartitionLoss:
    """So many of the offsets may hold records that the target has (None: any of them), unless they were counted: then
    the records are known, and are all that is stated. One of which they were taken off before stays as it is.
    """
    if not loss.offsets or returned_at_most == 0 or loss.unclear_offsets:
        return loss
    if loss.records is not None:
        return replace(loss, offsets=loss.records)
    unclear = loss.offsets if returned_at_most is None else min(loss.offsets, returned_at_most)
    return replace(loss, certainty=Certainty.AT_LEAST, offsets=loss.offsets - unclear, unclear_offsets=unclear)


def with_records(loss: PartitionLoss, records: int | None) -> PartitionLoss:
    """Counted by reading all that it was seen to be, so that none of it is unclear any more; None: that failed."""
    if records is None:
        return loss
    return replace(loss, records=records, offsets=(loss.offsets or 0) + loss.unclear_offsets, unclear_offsets=0)


def with_end(loss: PartitionLoss, source_end: int | None) -> PartitionLoss:
    """After a later look: a source that has gone on since, or does not tell (None), may have more than was seen."""
    if loss.certainty is Certainty.EXACT and (source_end is None or source_end > (loss.end_offset or 0)):
        return replace(loss, certainty=Certainty.AT_LEAST)
    return loss


def with_stable_end(loss: PartitionLoss, stable_end: int | None) -> PartitionLoss:
    """A transaction that is open at the source, or not known not to be (None), may bring records there, or none: what
    is behind its start is told apart.
    """
    seen_end = loss.end_offset or 0
    if stable_end is not None and stable_end >= seen_end:
        return loss
    if loss.certainty is Certainty.EXACT:
        loss = replace(loss, certainty=Certainty.AT_LEAST)
    if stable_end is None or not loss.offsets or loss.unclear_offsets:
        return loss
    first = loss.first_offset or 0
    end = max(first, stable_end)
    records = loss.records if end > first else 0
    return replace(loss, records=records, offsets=end - first, end_offset=end, open_offsets=seen_end - end)


@dataclass(frozen=True, slots=True)
class LossTotal:
    """The sum over partitions, and whether more may be lost; `records` is None where those of one were not counted.

    Where it is not exact, `offsets` are those of what was seen, and what was written after `seen_at_ms`, when each end
    of the source was last seen, or later, is not among them; of `unseen_partitions` nothing is known. As of
    `stated_at_ms`. `likely_offsets`: so many at most, if the source went on as in the fastest second of its last minute
    (`fastest_per_s`) until it ceased to answer (`unanswered_at_ms`), or, where nobody saw that, until it was found dead
    (`found_dead_at_ms`: nobody listened there), or until now; None where clocks leave that open. Of a source that is
    there (`is_source_there`) all is told but of `ceased_partitions`: these
    count with their own fastest second (`ceased_per_s`: of all of them) until they ceased to answer, which nobody may
    have seen (None). `unclear_offsets` more were seen that may be lost, or that the target has: they count among the
    likely ones. `seen_seconds`: the time in which all that was seen was written, None where that is longer than was
    looked back. Where it is exact, and the source may write on, `fastest_per_s` alone is told. `open_offsets` more
    stand behind transactions that are open at the source. The pace is that of `pace_seconds` before `pace_at_ms`: of
    a worker that began within that minute they are fewer, and nobody knows what came before them.
    Among all, also the likely ones, are `lacked_offsets` (and `lacked_records`, None: not known) that the target itself
    had, and lost: no pace speaks of these; of `uncompared_partitions` it is not known whether there are any.
    `unasked_links`: so many more of which nothing could be asked.
    """

    offsets: int
    records: int | None
    partitions_with_loss: int
    certainty: Certainty
    seen_at_ms: int | None = None
    unseen_partitions: int = 0
    stated_at_ms: int | None = None
    likely_offsets: int | None = None
    seen_seconds: float | None = None
    unanswered_at_ms: int | None = None
    fastest_per_s: float | None = None
    unclear_offsets: int = 0
    open_offsets: int = 0
    pace_seconds: float | None = None
    pace_at_ms: int | None = None
    ceased_per_s: float | None = None
    ceased_partitions: int = 0
    is_source_there: bool = False
    lacked_offsets: int = 0
    lacked_records: int | None = 0
    uncompared_partitions: int = 0
    unasked_links: int = 0
    found_dead_at_ms: int | None = None

    @property
    def is_nothing_known(self) -> bool:
        """No partition was ever seen of a source that does not tell which it has."""
        return self.certainty is Certainty.UNKNOWN

    @property
    def seen_offsets(self) -> int:
        """All that were seen and that the mirror had not passed."""
        return self.offsets - self.lacked_offsets + self.unclear_offsets + self.open_offsets


def total_loss(
    losses: Iterable[PartitionLoss],
    stated_at_ms: int | None = None,
    last_look: LastLook | None = None,
    *,
    is_source_there: bool = False,
    found_dead_at_ms: int | None = None,
) -> LossTotal:
    """Sum the statements; one partition that is not exact makes the sum a lower bound. `is_source_there`: it answers,
    at least in part, and told all ends but those of what has `ceased`.
    """
    offsets = partitions = unseen = unclear = held = 0
    records: int | None = 0
    stated = list(losses)
    certainty = Certainty.EXACT
    seen_at_ms: list[int] = []
    is_any_known = False
    bounds: list[PartitionLoss] = []
    for loss in stated:
        is_any_known |= loss.is_end_seen
        offsets += loss.offsets or 0
        unclear += loss.unclear_offsets
        held += loss.open_offsets
        partitions += bool(loss.offsets) and loss.records != 0
        unseen += not loss.is_end_seen
        if loss.offsets is not None:
            records = None if records is None or loss.records is None else records + loss.records
        if loss.certainty is not Certainty.EXACT:
            certainty = Certainty.AT_LEAST
            bounds.append(loss)
            seen_at_ms += [loss.seen_at_ms] if loss.seen_at_ms is not None else []
    if not stated and not is_source_there:
        records, certainty = None, Certainty.UNKNOWN
    total = LossTotal(offsets, records, partitions, certainty, min(seen_at_ms, default=None), unseen, stated_at_ms)
    total = replace(total, unclear_offsets=unclear, open_offsets=held, is_source_there=is_source_there)
    total = replace(total, found_dead_at_ms=found_dead_at_ms)
    total = replace(total, ceased_partitions=sum(loss.ceased is not None for loss in bounds))
    total = replace(total, lacked_offsets=sum(loss.lacked_offsets for loss in stated))
    total = replace(total, uncompared_partitions=sum(loss.is_uncompared for loss in stated))
    total = replace(total, lacked_records=_folded(sum, [loss.lacked_records for loss in stated]))
    if last_look is None or not is_any_known:  # a pace says nothing of what is at the target
        return total
    if certainty is Certainty.EXACT:
        return _with_pace(total, last_look)
    return _with_likely(total, last_look, [loss for loss in bounds if loss.is_end_seen])


class LossGrowth(StrEnum):
    """What became of a loss since it was shown to somebody."""

    NONE = "none"
    LIKELY = "likely"
    """No more than the pace that was shown makes likely."""
    BEYOND = "beyond"


def growth(shown: LossTotal, now: LossTotal) -> LossGrowth:
    """A source that is written to does not stand still while a person reads. Pure."""
    if shown.certainty is Certainty.EXACT and now.certainty is not Certainty.EXACT:
        return LossGrowth.BEYOND
    if now.lacked_offsets > shown.lacked_offsets:  # no pace makes that likely
        return LossGrowth.BEYOND
    if now.seen_offsets <= shown.seen_offsets:
        return LossGrowth.NONE
    if shown.fastest_per_s is None or shown.stated_at_ms is None or now.stated_at_ms is None:
        return LossGrowth.BEYOND
    likely = math.ceil(shown.fastest_per_s * max(0, now.stated_at_ms - shown.stated_at_ms) / 1000)
    return LossGrowth.LIKELY if now.seen_offsets - shown.seen_offsets <= likely else LossGrowth.BEYOND


def _with_pace(total: LossTotal, last: LastLook) -> LossTotal:
    return replace(total, fastest_per_s=last.fastest_per_s, pace_seconds=last.watched_ms / 1000, pace_at_ms=last.at_ms)


def _with_likely(total: LossTotal, last: LastLook, bounds: Sequence[PartitionLoss]) -> LossTotal:
    """Between the last look and the first that was not answered (or was found to have nobody who listens; or now: the
    hours of who looks on are not those of the source), it may have written on: for how long
    nobody can tell where the look is of the future, by the worker's clock; nor how fast, where the worker had looked
    once. A partition whose broker is gone takes nothing, however long the others go on.
    """
    ends_ms = (last.unanswered_at_ms, total.found_dead_at_ms, total.stated_at_ms)
    until_ms = next((at_ms for at_ms in ends_ms if at_ms is not None), None)
    if until_ms is None:
        return total
    ceased = [loss for loss in bounds if loss.ceased is not None]
    others = [loss.seen_at_ms for loss in bounds if loss.ceased is None]
    seen_ms = [at_ms for at_ms in others if at_ms is not None]
    if not total.is_source_there:  # a checkpoint may say so later, of what was fetched before
        seen_ms.append(last.at_ms)
    unseen_ms = until_ms - min(seen_ms, default=until_ms) if others or not bounds else 0
    in_those = [_likely_where_ceased(loss) for loss in ceased]
    more = None if None in in_those else math.ceil(sum(filter(None, in_those)))
    is_open = unseen_ms < -CLOCK_DIFFERENCE_MAX_MS or not last.watched_ms or more is None
    seen_since = sum(loss.seen_beyond for loss in bounds if loss.ceased is None)
    of_source = max(0, math.ceil(last.fastest_per_s * max(0, unseen_ms) / 1000) - seen_since)
    all_seen_ms = [at_ms for at_ms in (total.seen_at_ms, *seen_ms) if at_ms is not None]
    return replace(
        _with_pace(total, last),
        seen_at_ms=min(all_seen_ms, default=last.at_ms),
        likely_offsets=None if is_open else total.seen_offsets + total.lacked_offsets + of_source + (more or 0),
        seen_seconds=None if ceased else last.seconds_of(total.seen_offsets),
        unanswered_at_ms=_ceased_at_ms(ceased) if ceased and not others else last.unanswered_at_ms,
        ceased_per_s=_folded(sum, [loss.ceased.fastest_per_s for loss in ceased if loss.ceased]) if ceased else None,
    )


def _likely_where_ceased(loss: PartitionLoss) -> float | None:
    """How many offsets came, likely, between the last look at its end and the first that was not answered, and were not
    seen all the same.
    """
    ceased = loss.ceased
    if ceased is None or ceased.unanswered_at_ms is None or ceased.fastest_per_s is None or loss.seen_at_ms is None:
        return None
    came = ceased.fastest_per_s * max(0, ceased.unanswered_at_ms - loss.seen_at_ms) / 1000
    return max(0.0, came - loss.seen_beyond)


def _ceased_at_ms(ceased: Iterable[PartitionLoss]) -> int | None:
    return _folded(min, [loss.ceased.unanswered_at_ms for loss in ceased if loss.ceased])


def sum_losses(totals: Iterable[LossTotal]) -> LossTotal:
    """Over several links, as of the one that was asked first. Where one is a lower bound the sum is one, as of the link
    that was seen to its end first.
    """
    found = list(totals)
    bounds = [one for one in found if one.certainty is not Certainty.EXACT]
    seconds = [one.seen_seconds for one in bounds if one.seen_offsets]
    ceased = [one.ceased_per_s for one in bounds if one.ceased_per_s is not None]
    return LossTotal(
        offsets=sum(one.offsets for one in found),
        records=_folded(sum, [one.records for one in found]),
        partitions_with_loss=sum(one.partitions_with_loss for one in found),
        certainty=Certainty.AT_LEAST if bounds else Certainty.EXACT,
        seen_at_ms=_folded(min, [one.seen_at_ms for one in bounds]) if bounds else None,
        unseen_partitions=sum(one.unseen_partitions for one in found),
        stated_at_ms=_folded(min, [one.stated_at_ms for one in found]) if found else None,
        likely_offsets=_folded(sum, [one.likely_offsets if one in bounds else one.offsets for one in found])
        if bounds
        else None,
        seen_seconds=(_folded(max, seconds) if seconds else 0.0) if bounds else None,
        unanswered_at_ms=_folded(min, [one.unanswered_at_ms for one in bounds]) if bounds else None,
        fastest_per_s=_folded(sum, [one.fastest_per_s for one in bounds or found]) if found else None,
        unclear_offsets=sum(one.unclear_offsets for one in found),
        open_offsets=sum(one.open_offsets for one in found),
        pace_seconds=_folded(min, [one.pace_seconds for one in bounds or found]) if found else None,
        pace_at_ms=_folded(min, [one.pace_at_ms for one in bounds or found]) if found else None,
        ceased_per_s=sum(ceased) if ceased else None,
        ceased_partitions=sum(one.ceased_partitions for one in found),
        is_source_there=bool(found) and all(one.is_source_there for one in found),
        lacked_offsets=sum(one.lacked_offsets for one in found),
        lacked_records=_folded(sum, [one.lacked_records for one in found]),
        uncompared_partitions=sum(one.uncompared_partitions for one in found),
        unasked_links=sum(one.unasked_links for one in found),
        found_dead_at_ms=_folded(max, [one.found_dead_at_ms for one in bounds]) if bounds else None,
    )


def with_unasked(total: LossTotal, links: int) -> LossTotal:
    """With so many links of which nothing could be asked, so that all is no more than a lower bound."""
    if not links:
        return total
    certainty = total.certainty if total.is_nothing_known else Certainty.AT_LEAST
    return replace(total, certainty=certainty, records=None, likely_offsets=None, unasked_links=links)


def _folded(fold: Callable[[list[N]], N], values: Iterable[N | None]) -> N | None:
    """None where one of them is not known."""
    given = list(values)
    known = [value for value in given if value is not None]
    return fold(known) if len(known) == len(given) else None
