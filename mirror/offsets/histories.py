"""Leader epochs of what was read at the source, and up to where the source's log is still that one. Pure.

A log that lost its end and grew again has, from there on, records of a later epoch (KIP-101). Asked where an epoch of
ours ended, its leader answers with the largest epoch that it knows of those not above it; where that is another one,
the logs agree no further than our records of the epoch before, and it is asked again (KIP-279).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

EPOCHS_KEPT: Final = 16
"""The newest epochs of a partition that its checkpoint keeps; where the logs part before them, contents decide."""


class EpochStart(NamedTuple):
    """The first source offset that was read with this leader epoch."""

    leader_epoch: int
    source_start: int


class Verdict(NamedTuple):
    """The logs agree up to `agreed_to` (None: not known yet, ask for `ask_next`; both None: it cannot be known)."""

    agreed_to: int | None
    ask_next: int | None = None


def newest_epochs(read: Sequence[EpochStart], position: int) -> tuple[EpochStart, ...]:
    """What a checkpoint at `position` keeps of all that was read."""
    return tuple(start for start in read if start.source_start < position)[-EPOCHS_KEPT:]


def judge(read: Sequence[EpochStart], read_to: int, asked: int, leader_epoch: int, end_offset: int) -> Verdict:
    """What an answer says. `asked` is an epoch of `read`; the records of the last one go up to `read_to`."""
    if leader_epoch < 0 or end_offset < 0 or leader_epoch > asked:
        return Verdict(None)
    index = bisect_right(read, leader_epoch, key=lambda start: start.leader_epoch) - 1
    if index < 0:
        return Verdict(min(end_offset, read[0].source_start))
    ours = read[index]
    ours_to = read[index + 1].source_start if index + 1 < len(read) else read_to
    if ours.leader_epoch == leader_epoch:
        return Verdict(min(end_offset, ours_to))
    return Verdict(None, ours.leader_epoch)
