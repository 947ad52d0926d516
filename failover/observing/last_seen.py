"""Where a source's log was last seen to end, by the records' path and by the looks beside it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from mirror.api import Ceased, Checkpoint, End, SeenEnd


class LastSeen(NamedTuple):
    """A source log [start, end) at `at_ms`, or later; `start` None: it was not told.

    `is_another`: it is the log of another topic than the mirrored one: that was recreated. `ceased`: since
    then it did not tell its end, and others did. `seen_beyond`: so far the end is beyond that of the look at `at_ms`.
    """

    start: int | None
    end: int
    at_ms: int
    is_another: bool = False
    ceased: Ceased | None = None
    seen_beyond: int = 0


def last_seen(checkpoint: Checkpoint | None, observed: SeenEnd | None, read_to: int = 0) -> LastSeen | None:
    """None: nobody ever saw it. Two machines may have written the times. `read_to`: so far a group has read in the log,
    at a time that nobody knows.

    A checkpoint's time is that of its writing: the end in it is from the last fetch, which may have been long before,
    as of a worker that hung in between. So the end that was told apart from the records is not held back by a newer
    checkpoint; and where the checkpoint has the further end, it is from behind the look that did not have it: the time
    of that look is one at which the log had ended there or before, and the only one that is known to be.
    """
    seen = _last_seen(checkpoint, observed)
    if seen is None or seen.is_another or read_to <= seen.end:
        return seen
    return seen._replace(end=read_to, seen_beyond=seen.seen_beyond + read_to - seen.end)


def _last_seen(checkpoint: Checkpoint | None, observed: SeenEnd | None) -> LastSeen | None:
    if checkpoint is None:
        return None if observed is None else _as_observed(observed)
    known = LastSeen(None, checkpoint.source_end_offset, checkpoint.observed_at_ms)
    if observed is None:
        return known
    ids = (checkpoint.topic_ids.source, observed.topic_id)
    if all(ids) and ids[0] != ids[1]:  # which is the newer topic no clock says
        return _as_observed(observed)._replace(is_another=True)
    if observed.at_ms >= checkpoint.observed_at_ms or observed.end >= checkpoint.source_end_offset:
        return _as_observed(observed)
    beyond = known.end - observed.end
    return LastSeen(observed.start, known.end, observed.at_ms, ceased=observed.ceased, seen_beyond=beyond)


def _as_observed(observed: SeenEnd) -> LastSeen:
    return LastSeen(observed.start, observed.end, observed.at_ms, ceased=observed.ceased)


def unmirrored(seen: LastSeen | None, end: End | None) -> int:
    """How many offsets of the source were seen behind those that were mirrored."""
    if seen is None:
        return 0
    return max(0, seen.end - max(seen.start or 0, end.source_next if end is not None else 0))
