"""Records per range of source offsets at both sites, as inline SVG."""

from __future__ import annotations

import io

import matplotlib
from matplotlib.figure import Figure

from monitoring.audit.outcome import AuditResult

SOURCE_COLOUR, TARGET_COLOUR, DIFFERS_COLOUR = "#3b6ea5", "#1a7f5a", "#c62828"


def counts_svg(result: AuditResult, topic: str) -> str:
    """Source bars upwards, target bars downwards: an equal copy is a mirror image; differing ranges are red."""
    matplotlib.use("Agg")
    bars = [bar for bar in result.bars if bar.topic == topic]
    step = result.plot_step[topic]
    figure = Figure(figsize=(9.2, 2.9), layout="constrained")
    axes = figure.subplots()
    places = [float(bar.start) for bar in bars]
    for sign, colour, label in ((1, SOURCE_COLOUR, "source"), (-1, TARGET_COLOUR, "target")):
        heights = [sign * (bar.source_records if sign > 0 else bar.target_records) for bar in bars]
        colours = [DIFFERS_COLOUR if bar.differs else colour for bar in bars]
        axes.bar(places, heights, width=float(step), align="edge", color=colours, label=label)
    axes.axhline(0, color="#444", linewidth=0.8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
    axes.set_ylabel(f"records per {step:,} offsets\n← target    source →", fontsize=8)
    axes.set_xlabel("source offset, all partitions together", fontsize=8)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    buffer = io.StringIO()
    # Text stays text (small, and can be searched); the salt makes the same run give the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": result.run_id}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "farshore"})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :]
