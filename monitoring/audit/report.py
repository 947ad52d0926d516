"""A run as one HTML page without any outside asset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2

from monitoring import limits
from monitoring.audit.document import as_document, iso
from monitoring.audit.model import Span
from monitoring.audit.outcome import AuditResult
from monitoring.audit.plot import counts_svg, proof_svg


def as_html(result: AuditResult, command: str) -> str:
    """The report. `command` is what repeats the run."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["thousands"] = lambda number: "-" if number is None else f"{number:,}"
    environment.filters["iso"] = lambda at_ms: iso(at_ms) or "-"
    environment.filters["span"] = _span
    environment.filters["words"] = lambda name: name.replace("_", " ")
    topics = sorted({bar.topic for bar in result.bars})
    return environment.get_template("report.html.j2").render(
        result=result,
        document=as_document(result),
        command=command,
        # Drawn by ourselves, every text in it escaped by matplotlib: safe to insert as it is.
        plots=[(topic, counts_svg(result, topic)) for topic in topics],
        proof_plot=proof_svg(result),
        kinds=result.found,
        range_offsets=limits.AUDIT_RANGE_OFFSETS,
    )


def _span(span: Span | Sequence[int] | None) -> str:
    """With commas in its numbers; a document has it as a list of two."""
    if span is None:
        return "-"
    start, end = (span.start, span.end) if isinstance(span, Span) else span
    return f"[{start:,}, {end:,})"
