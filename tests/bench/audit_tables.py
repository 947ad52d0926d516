"""The table of the audit's bench."""

from __future__ import annotations

import statistics

from rich import box
from rich.table import Table

from tests.bench.audit_bench import BATCHES, BATCHES_ZSTD, COUNT, COUNT_ZSTD, INTERVALS, AuditRuns

PLAIN_GOAL, CUT_GOAL, DIGEST_GOAL = 1.15, 1.3, 0.001
BATCH_GOALS = {BATCHES: 1 / 3, BATCHES_ZSTD: 0.1}


def audit_table(runs: AuditRuns, rounds: int) -> Table:
    """Seconds, and how many counts each costs; a whole audit against two."""
    title = (
        f"Audit of {runs.records:,} records at each of two sites, median of {rounds}; digests: {runs.digest_bytes:,} "
        f"bytes, {100 * runs.digest_ratio:.4f} % of what was audited (goal: <= {100 * DIGEST_GOAL:g} %)"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for heading in ("s", "CPU s\nof Spark", "over\ncount()", "by\nCPU", "goal"):
        table.add_column(heading, justify="right")
    for kind, reading in runs.readings.items():
        medians = [f"{statistics.median(of):.2f}" for of in (reading.wall_s, reading.cpu_s)]
        if kind in (COUNT, COUNT_ZSTD):
            table.add_row(kind, *medians)
            continue
        ratios = [runs.over_count(kind, lambda of: of.wall_s), runs.over_count(kind, lambda of: of.cpu_s)]
        goal = BATCH_GOALS.get(kind, CUT_GOAL if f"{INTERVALS:,}" in kind else PLAIN_GOAL)
        table.add_row(kind, *medians, *(f"{ratio:.2f}x" for ratio in ratios), f"<= {goal:.3g}x")
    return table
