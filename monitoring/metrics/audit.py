"""farshore_audit_last_*: what the newest audit of each link said, read from where audits leave it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from monitoring.audit.model import AuditVerdict
from monitoring.audit.store import AuditSummary, read_summaries
from monitoring.errors import AuditResultDamaged


class AuditCollector(Collector):
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def collect(self) -> Iterator[GaugeMetricFamily]:
        damaged = GaugeMetricFamily("farshore_audit_results_damaged", "1 when a stored result cannot be read.")
        try:
            summaries = read_summaries(self._directory)
            damaged.add_metric([], 0)
        except AuditResultDamaged:
            # The other metrics must stay visible; this one says that something is wrong.
            summaries = ()
            damaged.add_metric([], 1)
        yield damaged
        yield from _families(summaries)


def _families(summaries: tuple[AuditSummary, ...]) -> Iterator[GaugeMetricFamily]:
    verdict = GaugeMetricFamily(
        "farshore_audit_last_verdict", "1 for the verdict of the link's newest audit.", labels=["link", "verdict"]
    )
    at = GaugeMetricFamily("farshore_audit_last_timestamp_seconds", "When the newest audit ended.", labels=["link"])
    records = GaugeMetricFamily(
        "farshore_audit_last_records", "Records the newest audit compared.", labels=["link", "site"]
    )
    mismatched = GaugeMetricFamily(
        "farshore_audit_last_mismatched_records",
        "Records without their equal at the other site.",
        labels=["link", "missing_at"],
    )
    ranges = GaugeMetricFamily(
        "farshore_audit_last_ranges_differing", "Ranges of source offsets that differ.", labels=["link"]
    )
    coverage = GaugeMetricFamily(
        "farshore_audit_last_coverage_ratio",
        "Share of both sites' records that the newest audit compared, at least; 1: all.",
        labels=["link"],
    )
    groups = GaugeMetricFamily(
        "farshore_audit_last_group_offsets",
        "Committed offsets of the link's groups that the newest audit held against each other, by what came of it.",
        labels=["link", "result"],
    )
    for summary in summaries:
        left = summary.group_offsets - summary.group_offsets_compared
        same = summary.group_offsets_compared - summary.group_offsets_differing
        for result, number in (("same", same), ("differs", summary.group_offsets_differing), ("not_compared", left)):
            groups.add_metric([summary.link, result], number)
        coverage.add_metric([summary.link], summary.coverage_percent / 100)
        for name in AuditVerdict:
            verdict.add_metric([summary.link, name.value], int(summary.verdict is name))
        at.add_metric([summary.link], summary.finished_at_ms / 1000)
        records.add_metric([summary.link, "source"], summary.source_records)
        records.add_metric([summary.link, "target"], summary.target_records)
        mismatched.add_metric([summary.link, "target"], summary.records_missing)
        mismatched.add_metric([summary.link, "source"], summary.records_surplus)
        ranges.add_metric([summary.link], summary.ranges_differing)
    yield from (verdict, at, coverage, records, mismatched, ranges, groups)
