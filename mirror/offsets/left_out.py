"""Which of the source's records a link left to others, because a link brings them to the target directly. Pure.

It stands in the checkpoints: while nothing else says that those records came, who left them out must know that it did.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class LeftOut(NamedTuple):
    """Source offsets among which there are records that `site` wrote, and that were left to its direct link.

    From the first one of the first batch to the one behind the last.
    """

    site: str
    source_from: int
    source_to: int


def join_left_out(known: Iterable[LeftOut], more: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
    """One entry per site, by name."""
    found: dict[str, LeftOut] = {}
    for one in (*known, *more):
        before = found.get(one.site, one)
        ends = (min(before.source_from, one.source_from), max(before.source_to, one.source_to))
        found[one.site] = LeftOut(one.site, *ends)
    return tuple(found[site] for site in sorted(found))
