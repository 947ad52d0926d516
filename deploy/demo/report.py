"""The demo's report: one HTML file that needs nothing else, with its plots drawn into it as SVG."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from deploy.demo.results import DemoResult

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "farshore"

INK, SEA, SAND, ALARM = "#1c2b36", "#1f6f8b", "#d9a441", "#b3392f"


def write_report(result: DemoResult, path: Path) -> None:
    """Draw and write the report."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("report.html.j2").render(
        result=result,
        steps_plot=_steps_plot(result),
        progress_plot=_progress_plot(result),
        loss_plot=_loss_plot(result),
    )
    path.write_text(html, encoding="utf-8")


def _figure(height_in: float) -> tuple[Any, Any]:
    figure = Figure(figsize=(8.4, height_in), layout="constrained")
    axes = figure.subplots()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _svg(figure: Any, title: str) -> Markup:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": title})
    return Markup(buffer.getvalue()[buffer.getvalue().index("<svg") :])


def _steps_plot(result: DemoResult) -> Markup:
    figure, axes = _figure(0.6 + 0.28 * len(result.steps))
    names = [step.name for step in result.steps]
    seconds = [step.seconds for step in result.steps]
    bars = axes.barh(names, seconds, color=SEA)
    axes.bar_label(bars, labels=[f"{value:.1f} s" for value in seconds], padding=3, color=INK)
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.margins(x=0.12)
    return _svg(figure, "Time of each step")


def _progress_plot(result: DemoResult) -> Markup:
    figure, axes = _figure(3.0)
    at = [point.at_s for point in result.progress]
    axes.fill_between(
        at, [point.written_records for point in result.progress], color=SAND, alpha=0.35, label="written at east"
    )
    axes.plot(at, [point.mirrored_records for point in result.progress], color=SEA, label="mirrored at west")
    axes.set_xlabel("seconds")
    axes.set_ylabel("records")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(frameon=False, loc="upper left")
    return _svg(figure, "Written and mirrored records")


def _loss_plot(result: DemoResult) -> Markup:
    figure, axes = _figure(2.6)
    partitions = [str(loss.partition) for loss in result.losses]
    mirrored = [loss.mirrored_records for loss in result.losses]
    lost = [loss.true_records for loss in result.losses]
    axes.bar(partitions, mirrored, color=SEA, label="mirrored before the kill")
    bars = axes.bar(partitions, lost, bottom=mirrored, color=ALARM, label="only on the lost broker's disk")
    axes.bar_label(bars, labels=[f"{value:,} lost" for value in lost], color=INK)
    axes.set_xlabel("partition")
    axes.set_ylabel("records")
    axes.margins(y=0.15)
    figure.legend(frameon=False, loc="outside upper left", ncols=2)
    return _svg(figure, "Records of the second round")
