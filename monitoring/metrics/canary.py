"""farshore_canary_*: the canary's score, and its latency as a histogram."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitoring import limits
from monitoring.canary.verdict import CanaryJudge, CanaryReport


class CanaryCollector(Collector):
    def __init__(self, judges: Sequence[CanaryJudge]) -> None:
        self._judges = judges

    def collect(self) -> Iterator[Metric]:
        reports = [judge.report() for judge in self._judges]
        for name, help_text in _COUNTERS.items():
            family = CounterMetricFamily(f"farshore_canary_{name}", help_text, labels=["link"])
            for report in reports:
                family.add_metric([report.link], _count(report, name))
            yield family
        waiting = GaugeMetricFamily(
            "farshore_canary_waiting_records", "Canary records under way to the target.", labels=["link"]
        )
        for report in reports:
            waiting.add_metric([report.link], report.waiting_records)
        yield waiting


_COUNTERS = {
    "sent_records": "Canary records handed to the source.",
    "unacknowledged_records": "Canary records that the source did not acknowledge.",
    "received_records": "Canary records that arrived at the target.",
    "lost_records": "Canary records that did not arrive within the deadline.",
    "late_records": "Canary records that were counted as lost, and arrived after all.",
    "duplicate_records": "Canary records that arrived more than once.",
    "order_breaks": "Canary records that arrived after a later one.",
}


def _count(report: CanaryReport, name: str) -> int:
    # A counter never falls: a record that was lost and came late stays in both counts.
    count: int = report.lost_records + report.late_records if name == "lost_records" else getattr(report, name)
    return count


def latency_histogram(registry: CollectorRegistry) -> Histogram:
    """farshore_canary_latency_seconds{link}: from the record's writing to its sight at the target."""
    return Histogram(
        "farshore_canary_latency_seconds",
        "From the canary record's writing to its sight at the target.",
        ["link"],
        buckets=limits.CANARY_LATENCY_BUCKETS_SECONDS,
        registry=registry,
    )
