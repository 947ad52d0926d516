"""What was lost, or is at the source alone, in sentences; what is only likely, or not known, is said to be so."""

from __future__ import annotations

from dataclasses import replace

from broker.base.documents import iso_time
from broker.base.durations import human_seconds
from deploy.cli.tables import counted
from failover.losses.statements import Certainty, LossGrowth, LossTotal
from mirror.api import CLOCK_DIFFERENCE_MAX_MS
from mirror.limits import HEARTBEAT_MAX_AGE_MS

BESIDE_LEFT = "beside what was left there before"
PACE_WHOLE_SECONDS = 59.0
"""The looks are a quarter of a second apart: the first of a whole minute may be a little younger."""


def headline(total: LossTotal, source: str, *, is_left: bool = False) -> str:
    """The loss in a few sentences; what is only likely is said to be so, and what the target itself had, and lost, is
    told apart: no pace speaks of it. `is_left`: what somebody left there before is not among it, and is told apart.
    """
    alone = f"{BESIDE_LEFT}, only at the source" if is_left else "only at the source"
    unknown = f"; of {counted(total.unasked_links, 'link')} nothing could be asked" if total.unasked_links else ""
    if total.uncompared_partitions:
        where = counted(total.uncompared_partitions, "partition")
        unknown = f"; in {where} the target may have lost records of its own, too: that could not be checked{unknown}"
    if not total.lacked_offsets:
        return _headline(total, source, alone) + unknown
    count = f"{counted(total.lacked_offsets, 'offset')}, at most as many records,"
    count = count if total.lacked_records is None else counted(total.lacked_records, "record")
    had = f"{count} that the target had before, and lost"
    if total.certainty is Certainty.EXACT:
        return f"{_headline(total, source, alone)}. Among what is only at the source: {had}"
    return f"{_headline(_without_lacked(total), source, alone)}. Beside that, {alone}: {had}{unknown}"


def _without_lacked(total: LossTotal) -> LossTotal:
    """The rest; in how many partitions that is, the total does not say."""
    is_counted = total.records is not None and total.lacked_records is not None
    return replace(
        total,
        offsets=total.offsets - total.lacked_offsets,
        records=(total.records or 0) - (total.lacked_records or 0) if is_counted else None,
        likely_offsets=None if total.likely_offsets is None else total.likely_offsets - total.lacked_offsets,
        partitions_with_loss=0,
        lacked_offsets=0,
        lacked_records=0,
    )


def _headline(total: LossTotal, source: str, alone: str) -> str:
    where = f" in {counted(total.partitions_with_loss, 'partition')}" if total.partitions_with_loss else ""
    missing = f"{counted(total.offsets, 'offset')}{where}, which are at most as many records"
    if total.records is not None or not total.offsets:
        missing = (
            "0 offsets, records unknown" if total.records is None else f"{counted(total.records, 'record')}{where}"
        )
    if total.certainty is Certainty.EXACT:
        if total.fastest_per_s is None or total.stated_at_ms is None:
            return f"{alone}: {missing}"
        return (
            f"{alone}: {missing}, as of {iso_time(total.stated_at_ms)}. What {source} takes from then on "
            f"is not among them; in the fastest second {_stretch(total, 'of its last minute')} "
            f"{total.fastest_per_s:,.0f} came"
        )
    if total.is_nothing_known:
        return f"lost: how much is unknown: nothing was ever seen of what {source} has"
    if total.seen_at_ms is None:
        least = f"at least {missing}; " if total.offsets else ""
        if not total.unseen_partitions:
            return f"lost: {least}how much cannot be known"
        return (
            f"lost: {least}how much cannot be known: of {counted(total.unseen_partitions, 'partition')} it was never "
            f"seen where it ended at {source}, or nobody can tell what the other site has of it"
        )
    seen = _with_age(total.seen_at_ms, total.stated_at_ms)
    unseen = f"; of {counted(total.unseen_partitions, 'partition')} nothing is known" if total.unseen_partitions else ""
    if total.likely_offsets is not None:
        told = _unwatched if _is_unwatched(total) else _likely
        return f"lost: {told(total, source, missing + _held(total), seen)}{unseen}"
    known = f"at least {missing}" if total.offsets else f"nothing of what was seen at {source}"
    if total.open_offsets and not total.offsets:
        known = f"no record of those that are committed at {source}"
    known += " for certain" if total.unclear_offsets and not total.offsets else ""
    known += _unclear(total) + _held(total)
    if _is_living(total):
        beyond = f"What {source} takes from then on, and what its leaders had alone, is not among them"
        return f"lost: {known}, as of {seen}. {beyond}{unseen}"
    return (
        f"lost: {known}, and whatever was written at {source} after it was last seen ({seen}): "
        f"how much that is cannot be known from here{unseen}"
    )


def paused_line(total: LossTotal, link: str, source: str, *, is_over: bool) -> str:
    """Of a failover of a link that was paused, in one line: what of its loss is older than the loss. `is_over`: it was
    carried out.
    """
    said = f"{link} {'was' if is_over else 'is'} paused: since then nothing was mirrored"
    if total.certainty is Certainty.EXACT:
        return said
    there = f"what of {source} does not answer" if total.is_source_there else source
    if total.seen_at_ms is None:
        return f"{said}, and nobody has seen how far {there} went"
    return (
        f"{said}, and {there} was last seen at {_with_age(total.seen_at_ms, total.stated_at_ms)}: what was written "
        "there after that is lost with it, and is none of what was seen"
    )


def behind_line(
    total: LossTotal, source: str, target: str, *, is_promoted: bool, lacks: int = 0, is_left: bool = False
) -> str:
    """Of a switchover, which loses nothing, what its drain is to wait for, as it is now. Of one that is refused since
    the target lacks records of its own, or may, in so many partitions: no more than that. Of a source that does not
    answer, or not wholly, what was last seen of it, and what is likely, as a failover says it: there is no now.
    `is_left`: as of `headline`.
    """
    if lacks:
        return (
            f"not all that {source} has would come to {target}: of {counted(lacks, 'partition')} {target} lacks what "
            "it had before, or may, and no link brings that"
        )
    if not total.is_source_there or total.ceased_partitions:
        moved = "the link was moved before, and brings nothing more; " if is_promoted else ""
        what = f"what {source} alone has" if is_promoted else f"how far {target} is behind {source}"
        answers = "does not answer wholly" if total.is_source_there else "does not answer"
        is_missing = headline(total, source).removeprefix("lost: ").removeprefix("only at the source: ")
        return f"{moved}{what} is not known now, as {source} {answers}. Missing at {target}: {is_missing}"
    seen_offsets = total.offsets + total.unclear_offsets
    missing = counted(seen_offsets, "offset") if total.records is None else counted(total.records, "record")
    missing += f" in {counted(total.partitions_with_loss, 'partition')}" if total.partitions_with_loss else ""
    as_of = f"as of {iso_time(total.stated_at_ms)}" if total.stated_at_ms is not None else "now"
    is_behind = bool(seen_offsets) and total.records != 0
    committed = " that is committed" if total.open_offsets else ""
    all_of_it = f"all that is committed at {source}" if committed else f"all that {source} has"
    none = f"{BESIDE_LEFT}, nothing is lost" if is_left else "nothing is lost"
    alone = f"{source} alone has nothing{' else' if is_left else ''}{committed}"
    all_of_it = all_of_it.replace("all that", "all else that") if is_left else all_of_it
    as_of += _held(total)
    unknown = counted(total.unseen_partitions, "partition")
    unseen = f"; of {unknown} that is not known" if total.unseen_partitions else ""
    unseen += f"; of {counted(total.unasked_links, 'link')} nothing could be asked" if total.unasked_links else ""
    if is_promoted:
        there = f"{missing} are at {source} alone" if is_behind else alone
        return (
            f"{none}: the link was moved before, and brings nothing more; {there}, {as_of}{unseen}. While "
            "nobody has decided about what is there, the switchover is refused"
        )
    has = f"{target} is {missing} behind {source}" if is_behind else f"{target} has {all_of_it}"
    return (
        f"{none}: {has}, {as_of}{unseen}. The drain waits until {target} has all that {source} takes until "
        "then, and if it waits in vain, the switchover is refused and changes nothing"
    )


def is_nothing_likely(total: LossTotal) -> bool:
    """Whether nothing was seen to be missing of all that is known, and the pace makes nothing likely."""
    is_all_known = not total.unseen_partitions and not total.uncompared_partitions and not _is_unwatched(total)
    return is_all_known and not total.seen_offsets and total.likely_offsets == 0


def _likely(total: LossTotal, source: str, missing: str, seen: str) -> str:
    """What was seen, what its pace makes likely behind that, and what is beyond knowing."""
    if _is_living(total):
        return (
            f"likely {_range(total)}. Seen at {source} ({seen}): {missing}{_unclear(total)}; it answers, and what it "
            f"takes from then on is not among them. In the fastest second {_stretch(total, 'of the minute before')}, "
            f"{total.fastest_per_s or 0:,.0f} came"
        )
    until, after = "nothing says when it ceased to answer", ""
    if total.unanswered_at_ms is not None and total.seen_at_ms is not None:
        after = f"{human_seconds(max(0, total.unanswered_at_ms - total.seen_at_ms) / 1000)} later"
        until = f"{after} it did not answer"
    elif total.found_dead_at_ms is not None:
        until = f"it was found dead at {iso_time(total.found_dead_at_ms)}, and {until}"
    if total.is_source_there:
        silent = counted(total.ceased_partitions, "partition")
        return (
            f"likely {_range(total)}. Seen at {source} ({seen}): {missing}{_unclear(total)}; {after} {silent} did not "
            f"answer any more. In their fastest seconds of the minute before, {total.ceased_per_s or 0:,.0f} came "
            "there. What was written there after that look cannot be known from here"
        )
    return (
        f"likely {_range(total)}. Seen at {source} ({seen}): {missing}{_behind(total, source)}; {until}. In the "
        f"fastest second {_stretch(total, 'of the minute before')}, {total.fastest_per_s or 0:,.0f} came. What it "
        f"wrote after that look cannot be known from here, nor topics and partitions made there since"
    )


def _with_age(seen_at_ms: int, stated_at_ms: int | None) -> str:
    if stated_at_ms is None:
        return iso_time(seen_at_ms)
    ago_ms = stated_at_ms - seen_at_ms
    ahead = f"by a clock {human_seconds(-ago_ms / 1000)} ahead of this one"
    age = ahead if ago_ms < -CLOCK_DIFFERENCE_MAX_MS else f"{human_seconds(max(ago_ms, 0) / 1000)} ago"
    return f"{iso_time(seen_at_ms)}, {age}"


def _is_living(total: LossTotal) -> bool:
    """Whether the source told all of its ends itself; more may come there, by a transaction that is open too."""
    return total.is_source_there and not total.ceased_partitions and not total.unseen_partitions


def _stretch(total: LossTotal, minute: str) -> str:
    """Of what time the pace is: of no minute that nobody watched to its begin, or that is long over."""
    if total.pace_seconds is None or total.pace_at_ms is None:
        return minute
    is_now = (total.certainty is not Certainty.EXACT and not total.is_source_there) or (
        total.stated_at_ms is None or total.stated_at_ms - total.pace_at_ms <= HEARTBEAT_MAX_AGE_MS
    )
    if is_now and total.pace_seconds >= PACE_WHOLE_SECONDS:
        return minute
    return f"of the {human_seconds(total.pace_seconds)} that a worker watched it until {iso_time(total.pace_at_ms)}"


def _is_unwatched(total: LossTotal) -> bool:
    """Whether no worker lived to see the source cease to answer: one that lives looks again and again."""
    if total.is_source_there or total.unanswered_at_ms is not None:
        return False
    seen_at_ms = total.pace_at_ms if total.ceased_partitions else total.seen_at_ms  # others were seen later than these
    until_ms = total.stated_at_ms if total.found_dead_at_ms is None else total.found_dead_at_ms
    return seen_at_ms is not None and until_ms is not None and until_ms - seen_at_ms > HEARTBEAT_MAX_AGE_MS


def _unwatched(total: LossTotal, source: str, missing: str, seen: str) -> str:
    """No figure is likely of a time in which nobody looked; what the pace would have come to is said as that."""
    until = "now,"
    if total.found_dead_at_ms is not None:
        until = f"{iso_time(total.found_dead_at_ms)}, when it was found dead,"
    return (
        f"how much is not known: nobody was watching {source} since {seen}, and what it wrote then, or which topics "
        f"and partitions were made there, cannot be known from here. Seen before that: {missing}"
        f"{_behind(total, source)}. In the fastest second {_stretch(total, 'of its last minute')}, "
        f"{total.fastest_per_s or 0:,.0f} came; had it gone on so until {until} {_range(total)} would be lost"
    )


def _range(total: LossTotal) -> str:
    low, high = total.offsets, total.likely_offsets or 0
    return f"{low:,} to {high:,} offsets" if high > low else counted(low, "offset")


def _behind(total: LossTotal, source: str) -> str:
    behind = ""
    if total.seen_offsets and total.seen_seconds is None:
        behind = f"more than {source} wrote in the minute before"
    elif total.seen_offsets and total.seen_seconds is not None:
        behind = f"what {source} wrote in {human_seconds(total.seen_seconds)}"
    if total.unclear_offsets:  # not all of it was written there
        behind = f"{_unclear(total)}; {behind.replace(f'{source} wrote', f'came to {source}')}"
    elif behind:
        behind = f", {behind}"
    return behind


def _held(total: LossTotal) -> str:
    if not total.open_offsets:
        return ""
    count = counted(total.open_offsets, "offset")
    return (
        f"; {count} more stand there behind the start of a transaction that is open, and how many of them are records "
        "that count nobody can tell before it ends"
    )


def _unclear(total: LossTotal) -> str:
    if not total.unclear_offsets:
        return ""
    count = f"{counted(total.unclear_offsets, 'offset')} more"
    return f"; {count} may be lost, or hold what a link back had brought there: nobody here can tell"


def growth_line(shown: LossTotal, now: LossTotal, source: str, grown: LossGrowth) -> str:
    """What was lost more, by now, than what was shown."""
    grown_by = now.seen_offsets + now.lacked_offsets - shown.seen_offsets - shown.lacked_offsets
    count = counted(max(0, grown_by), "offset")
    alone = "" if now.unclear_offsets else " alone"
    more = f"{count} more at {source}{alone} than when it was shown"
    if grown is LossGrowth.LIKELY:
        return f"{more}, no more than the pace that was shown makes likely: going on"
    if now.certainty is shown.certainty:
        return f"{more}, and more than the pace that was shown makes likely: you are asked again"
    return f"{more}, and how many in all is not known exactly any more: you are asked again"
