"""Records per range of source offsets at both sites, and what is proved by time, as inline SVG."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final

import matplotlib
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from monitoring.audit.outcome import AuditResult
from monitoring.limits import SECOND_MS

SOURCE_COLOUR, TARGET_COLOUR, DIFFERS_COLOUR = "#3b82c4", "#2a9d74", "#d93c3c"
_AXES: Final = "#7a8594"
"""Readable on white and on black; the page gives texts its own colour."""


def counts_svg(result: AuditResult, topic: str) -> str:
    """Source bars upwards, target bars downwards: an equal copy is a mirror image; differing ranges are red."""
    bars = [bar for bar in result.bars if bar.topic == topic]
    step = result.plot_step[topic]
    with _figure(result) as (figure, axes):
        places = [float(bar.start) for bar in bars]
        for sign, colour, label in ((1, SOURCE_COLOUR, "source"), (-1, TARGET_COLOUR, "target")):
            heights = [sign * (bar.source_records if sign > 0 else bar.target_records) for bar in bars]
            colours = [DIFFERS_COLOUR if bar.differs else colour for bar in bars]
            axes.bar(places, heights, width=float(step), align="edge", color=colours, label=label)
        axes.axhline(0, color=_AXES, linewidth=0.8)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
        axes.set_ylabel(f"records per {step:,} offsets\n← target    source →", fontsize=8)
        axes.set_xlabel("source offset, all partitions together", fontsize=8)
        return _svg(figure)


def proof_svg(result: AuditResult) -> str | None:
    """Records of both sites that are proved, by when they were; None where it was all at once."""
    steps = proved_by_time(result)
    if len(steps) < 2:
        return None
    with _figure(result) as (figure, axes):
        times = [datetime.fromtimestamp(at_ms / SECOND_MS, UTC) for at_ms, _ in steps]
        axes.step(times, [records for _, records in steps], where="post", color=SOURCE_COLOUR, linewidth=1.6)
        axes.plot(times, [records for _, records in steps], "o", color=SOURCE_COLOUR, markersize=4)
        axes.set_ylim(bottom=0)
        places = AutoDateLocator(maxticks=8)
        axes.xaxis.set_major_locator(places)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(places))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_ylabel("records proved", fontsize=8)
        axes.set_xlabel("time of the freeze (UTC)", fontsize=8)
        return _svg(figure)


def proved_by_time(result: AuditResult) -> list[tuple[int, int]]:
    """(freeze in ms, records proved up to then), in order; the last is this run's."""
    found: dict[int, int] = {result.frozen.frozen_at_ms: 0}
    for item in result.partitions:
        for part in item.proved:
            found[part.at_ms] = found.get(part.at_ms, 0) + part.source_records + part.target_records
        if item.verdict.is_equal:
            found[result.frozen.frozen_at_ms] += item.source_records + item.target_records
    times = sorted(found)
    return list(zip(times, accumulate(found[at_ms] for at_ms in times), strict=True))


@contextmanager
def _figure(result: AuditResult) -> Iterator[tuple[Figure, Any]]:
    """Text stays text (small, and can be searched); the salt makes the same run give the same file."""
    matplotlib.use("Agg")
    colours = dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _AXES)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": result.run_id, **colours}):
        figure = Figure(figsize=(9.2, 2.9), layout="constrained", facecolor="none")
        axes = figure.subplots()
        axes.set_facecolor("none")
        axes.tick_params(labelsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        yield figure, axes


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "farshore"})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :]
