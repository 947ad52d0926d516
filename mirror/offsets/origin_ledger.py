"""What a link's state says of how a partition's batches came, kept small while a session writes there. Pure.

Each run of batches leaves an entry. Neighbours are put together into one, and entries go when the target's retention
has taken their batches: so as many runs stay as there are changes of the way in what the target keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from mirror.offsets.origin_entries import RUNS_MAX, OriginRun, OriginRuns, VoidOrigins, join_runs, spent_origins

MERGED_MIN: Final = 16
"""So many neighbours are worth being written anew, as one."""


class OriginLedger:
    """The entries of one partition that stand in the state, in the order of their writing."""

    def __init__(self, entries: Iterable[OriginRuns] = ()) -> None:
        self._entries = list(entries)

    @property
    def entries(self) -> tuple[OriginRuns, ...]:
        return tuple(self._entries)

    def add(self, entry: OriginRuns) -> None:
        """It is being written, behind all others."""
        self._entries.append(entry)

    def tidy(self, log_start: int) -> list[OriginRuns | VoidOrigins]:
        """What makes the state smaller, to be written in this order; the target's log starts at `log_start`."""
        spent = spent_origins(self._entries, log_start)
        changes: list[OriginRuns | VoidOrigins] = [VoidOrigins(entry) for entry in spent]
        gone = set(map(id, spent))
        left = [entry for entry in self._entries if id(entry) not in gone]
        self._entries = []
        for group, runs in _neighbours(left):
            if len(group) < MERGED_MIN:
                self._entries += group
                continue
            proved = (group[-1].acknowledged, group[-1].acknowledged_to)
            merged = replace(group[0], runs=tuple(runs), acknowledged=proved[0], acknowledged_to=proved[1])
            self._entries.append(merged)  # its key is the first one's
            changes += [merged, *(VoidOrigins(entry) for entry in group[1:])]
        return changes


def _neighbours(entries: Sequence[OriginRuns]) -> Iterator[tuple[list[OriginRuns], list[OriginRun]]]:
    """The entries in groups that one entry can hold, with the runs that it would hold.

    Those of earlier writers stay alone: what is written anew comes last, and must not be taken for later than others.
    """
    group: list[OriginRuns] = []
    runs: list[OriginRun] = []
    for entry in entries:
        more = join_runs([*runs[-1:], *entry.runs])
        goes_on = bool(group) and entry.writer == group[-1].writer == entries[-1].writer
        if group and not (goes_on and runs[-1].end == entry.runs[0].first and len(runs) - 1 + len(more) <= RUNS_MAX):
            yield group, runs
            group, runs, more = [], [], list(entry.runs)
        group.append(entry)
        runs[-1:] = more
    if group:
        yield group, runs
