"""Whether the last audit of a link is good enough to move on: a pure function."""

from __future__ import annotations

from broker.base.documents import iso_time
from monitoring.audit.store import AuditSummary


def why_not_enough(summary: AuditSummary | None, age_max_ms: int, now_ms: int) -> str | None:
    """None where it is new enough, found no difference, and left out nothing but what was in flight.

    It is as old as its freeze: what came later it has not seen.
    """
    if summary is None:
        return "there was no audit of it on this machine"
    if not summary.verdict.is_equal:
        return f"its last audit said {summary.verdict.value.replace('_', ' ')} (run {summary.run_id})"
    if not summary.is_full_but_in_flight:
        return f"its last audit covered {summary.coverage_percent:g} % (run {summary.run_id})"
    if now_ms - summary.frozen_at_ms > age_max_ms:
        return f"its last audit is of {iso_time(summary.frozen_at_ms)} (run {summary.run_id})"
    return None
