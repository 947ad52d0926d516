"""The table of how long applications stand still while their groups are moved, with its goals."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Table

from broker.base.percentile import percentile
from tests.bench.moving_bench import GROUPS, PARTITIONS, Kind, MovingResults

GOALS_S: dict[tuple[Kind, int], float] = {
    ("planned", 0): 5,
    ("planned", 100): 10,
    ("killed", 0): 10,
    ("killed", 100): 10,
}
"""Of the p95, to the first record."""


def moving_table(results: MovingResults) -> Table:
    """Each kind at each round trip: seconds to the command's end, and to the first record."""
    title = (
        f"{GROUPS:,} groups on {PARTITIONS} partitions moved: s to the end of the command, and to a consumer's first "
        "record at the target; planned from the freeze, unplanned from the command"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("move")
    headings = ("round trip, ms", "moves", "command p50", "p95", "record p50", "p95", "most", "goal p95")
    for heading in headings:
        table.add_column(heading, justify="right")
    for (kind, round_trip_ms), moved in results.moved.items():
        goal = GOALS_S.get((kind, round_trip_ms))
        first = [each.first_record_s for each in moved]
        table.add_row(
            kind,
            str(round_trip_ms),
            str(len(moved)),
            *_percentiles(each.command_s for each in moved),
            *_percentiles(first),
            f"{max(first):.2f}",
            f"<= {goal:g}" if goal is not None else "",
        )
    return table


def _percentiles(values: Iterable[float]) -> tuple[str, str]:
    known = list(values)
    middle, late = percentile(known, 0.5) or 0.0, percentile(known, 0.95) or 0.0
    return f"{middle:.2f}", f"{late:.2f}"
