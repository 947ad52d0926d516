"""Records per window at both sites, as inline SVG."""

from __future__ import annotations

import io
from datetime import UTC

import matplotlib
import matplotlib.dates
from matplotlib.figure import Figure

from monitoring.audit.model import AuditResult

SOURCE_COLOUR, TARGET_COLOUR, DIFFERS_COLOUR = "#3b6ea5", "#1a7f5a", "#c62828"


def counts_svg(result: AuditResult, topic: str) -> str:
    """Source bars upwards, target bars downwards: an equal copy is a mirror image; differing windows are red."""
    matplotlib.use("Agg")
    bars = [bar for bar in result.bars if bar.topic == topic]
    timed = _timed(result, topic)
    dated = timed and all(_has_date(bar.start) for bar in bars)
    step = result.plot_step[topic]
    figure = Figure(figsize=(9.2, 2.9), layout="constrained")
    axes = figure.subplots()
    places = [bar.start / _day_ms() if dated else float(bar.start) for bar in bars]
    width = step / _day_ms() if dated else float(step)
    for sign, colour, label in ((1, SOURCE_COLOUR, "source"), (-1, TARGET_COLOUR, "target")):
        heights = [sign * (bar.source_records if sign > 0 else bar.target_records) for bar in bars]
        colours = [DIFFERS_COLOUR if bar.differs else colour for bar in bars]
        axes.bar(places, heights, width=width, align="edge", color=colours, label=label)
    axes.axhline(0, color="#444", linewidth=0.8)
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
    axes.set_ylabel(f"records per {_step_text(step, timed)}\n← target    source →", fontsize=8)
    if dated:
        locator = matplotlib.dates.AutoDateLocator(tz=UTC)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(matplotlib.dates.ConciseDateFormatter(locator, tz=UTC))
        axes.set_xlabel("time of the record (UTC)", fontsize=8)
    else:
        axes.set_xlabel("time of the record (milliseconds since 1970)" if timed else "source offset", fontsize=8)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    buffer = io.StringIO()
    # Text stays text (small, and can be searched); the salt makes the same run give the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": result.run_id}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "farshore"})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :]


def _timed(result: AuditResult, topic: str) -> bool:
    return all(item.timestamps_comparable for item in result.frozen.partitions if item.topic == topic)


def _has_date(at_ms: int) -> bool:
    """Whether the plot has room for it as a date, with some before and after."""
    return -_CENTURIES_MS < at_ms < 20 * _CENTURIES_MS


_CENTURIES_MS = 4 * 36_525 * 24 * 60 * 60 * 1000


def _day_ms() -> int:
    """Matplotlib counts dates in days since 1970."""
    return 24 * 60 * 60 * 1000


def _step_text(step: int, timed: bool) -> str:
    if not timed:
        return f"{step:,} offsets"
    seconds = step / 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
