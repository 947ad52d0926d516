"""The table of how long applications stand still while their groups are moved, with its goals."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Table

from broker.base.percentile import percentile
from tests.bench.clusters import KAFKA_VERSION
from tests.bench.moving_bench import GROUPS, PARTITIONS, Kind, MovingResults
from tests.bench.moving_peer import ToolStep

GOALS_S: dict[tuple[Kind, int], float] = {
    ("planned", 0): 5,
    ("planned", 100): 10,
    ("killed", 0): 10,
    ("killed", 100): 10,
    ("hung", 0): 10,
    ("hung", 100): 10,
}
"""Of the p95, to the first record."""


def moving_table(results: MovingResults) -> Table:
    """Each kind at each round trip: seconds to the command's end, and to the first record."""
    title = (
        f"{GROUPS:,} groups on {PARTITIONS} partitions moved: s to the first record at the target of a consumer that "
        "starts when the command says that it may; s to the command's end, and to the first record of one that "
        "waits for it; "
        "planned from the freeze, unplanned from the command"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("move")
    headings = ("round trip, ms", "moves", "record p50", "p95", "most", "goal p95", "command p95", "record p95")
    for heading in headings:
        table.add_column(heading, justify="right")
    for (kind, round_trip_ms), moved in results.moved.items():
        goal = GOALS_S.get((kind, round_trip_ms))
        first = [each.first_record_s for each in moved]
        table.add_row(
            kind,
            str(round_trip_ms),
            str(len(moved)),
            *_percentiles(first),
            f"{max(first):.2f}",
            f"<= {goal:g}" if goal is not None else "",
            _percentiles(each.command_s for each in moved)[1],
            _percentiles(each.waited_record_s for each in moved)[1],
        )
    return table


def tools_table(steps: Iterable[ToolStep]) -> Table:
    """What Kafka's own tools take for it, and would take for all groups at the rate of a sample."""
    title = (
        f"the same groups with kafka-consumer-groups.sh of Kafka {KAFKA_VERSION}, as a user of MirrorMaker 2 moves "
        "them, near by; translating, comparing and stating the loss are not in it"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("step")
    for heading in ("runs", "groups", "s", f"s for {GROUPS:,}"):
        table.add_column(heading, justify="right")
    for step in steps:
        whole_s = step.seconds * GROUPS / step.groups
        table.add_row(step.what, str(step.commands), str(step.groups), f"{step.seconds:.2f}", f"{whole_s:.1f}")
    return table


def _percentiles(values: Iterable[float]) -> tuple[str, str]:
    known = list(values)
    middle, late = percentile(known, 0.5) or 0.0, percentile(known, 0.95) or 0.0
    return f"{middle:.2f}", f"{late:.2f}"
