"""Which way the batches of a link came that carries on what other links brought: entries of its state. Pure.

They are on the target before the batches are, and never change: a batch is named by what stands in its header, the
writer's producer id, epoch and sequence. So whoever reads the target's log can tell of each batch where it was first
written and where it has been, though all of a link's batches have one producer id. Why so:
docs/adr/0010-the-sequence-carries-the-way.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

RUNS_MAX: Final = 1_000
"""In one entry: about 10 KB."""


SEQUENCES_MAX: Final = 1 << 30
"""Of one writer in a partition, records: behind 2^31 sequences begin again at 0, and would name other batches."""


class Way(NamedTuple):
    """The site that first `wrote` a batch (several: one of them), and all the sites where it has `been`."""

    wrote: frozenset[str]
    been: frozenset[str]


class OriginRun(NamedTuple):
    """The sequences [first, end) of one writer in a partition, and how they came to the writer's source."""

    first: int
    end: int
    way: Way


@dataclass(frozen=True, slots=True)
class OriginRuns:
    """The origins of the batches that are sent next to a partition. At least one run, in order, without holes.

    `writer` is a producer id and an epoch. All of the writer's records before the sequence `acknowledged` lie before
    the target's offset `acknowledged_to`, and so do those of all writers before it.
    """

    topic: str
    partition: int
    writer: tuple[int, int]
    runs: tuple[OriginRun, ...]
    acknowledged: int
    acknowledged_to: int


@dataclass(frozen=True, slots=True)
class VoidOrigins:
    """Takes back an entry: the target's retention has deleted its batches."""

    entry: OriginRuns


def origins_key(entry: OriginRuns) -> list[Any]:
    return ["origins", entry.topic, entry.partition, *entry.writer, entry.runs[0].first]


def pack_origins(entry: OriginRuns) -> dict[str, Any]:
    """`runs` is flat: length and number of the way, each."""
    ways: dict[Way, int] = {}
    packed: list[int] = []
    for run in entry.runs:
        packed += (run.end - run.first, ways.setdefault(run.way, len(ways)))
    return {
        "ways": [[sorted(way.wrote), sorted(way.been)] for way in ways],
        "runs": packed,
        "acknowledged": [entry.acknowledged, entry.acknowledged_to],
    }


def unpack_origins(key: Sequence[Any], fields: Mapping[str, Any]) -> OriginRuns:
    """Raises ValueError, KeyError, TypeError, IndexError."""
    _kind, topic, partition, producer_id, epoch, first = key
    ways = [Way(frozenset(map(str, wrote)), frozenset(map(str, been))) for wrote, been in fields["ways"]]
    runs, packed = [], fields["runs"]
    for at in range(0, len(packed), 2):
        runs.append(OriginRun(first, first + packed[at], ways[packed[at + 1]]))
        first = runs[-1].end
    return OriginRuns(topic, partition, (producer_id, epoch), tuple(runs), *fields["acknowledged"])


def join_runs(runs: Iterable[OriginRun]) -> list[OriginRun]:
    """The same, with neighbours of one way as one."""
    joined: list[OriginRun] = []
    for run in runs:
        if joined and joined[-1].end == run.first and joined[-1].way == run.way:
            run = OriginRun(joined.pop().first, run.end, run.way)
        joined.append(run)
    return joined


def find_run(runs: Sequence[OriginRun], sequence: int) -> OriginRun | None:
    """The run that a sequence stands in, of sorted ones."""
    at = bisect_right(runs, sequence, key=lambda run: run.first) - 1
    return runs[at] if at >= 0 and sequence < runs[at].end else None


def add_run(runs: list[OriginRun], run: OriginRun) -> None:
    """Put a run among sorted ones that do not overlap; those of the same way that it touches become one with it.

    What is known stays: one that says otherwise of the same sequences is left out.
    """
    low = bisect_left(runs, run.first, key=lambda known: known.end)
    high = bisect_right(runs, run.end, key=lambda known: known.first)
    if low < high and runs[low].end == run.first and runs[low].way != run.way:
        low += 1
    if low < high and runs[high - 1].first == run.end and runs[high - 1].way != run.way:
        high -= 1
    touched = runs[low:high]
    if all(known.way == run.way for known in touched):
        all_of = [run, *touched]
        runs[low:high] = [OriginRun(min(one.first for one in all_of), max(one.end for one in all_of), run.way)]


def spent_origins(entries: Sequence[OriginRuns], log_start: int) -> list[OriginRuns]:
    """Those of one partition, in the order of their writing, whose batches lie before the target's `log_start`."""
    found = [at for at, entry in enumerate(entries) if entry.acknowledged_to <= log_start]
    if not found:
        return []
    last = entries[found[-1]]
    before = entries[: found[-1]]
    return [entry for entry in before if entry.writer != last.writer or entry.runs[-1].end <= last.acknowledged]
