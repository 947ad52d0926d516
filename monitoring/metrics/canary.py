"""farshore_canary_*: the canary's score, and its latency as a histogram."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitoring import limits
from monitoring.canary.verdict import CanaryJudge, CanaryReport


class CanaryCollector(Collector):
    def __init__(self, judges: Sequence[CanaryJudge]) -> None:
        self._judges = judges

    def collect(self) -> Iterator[Metric]:
        reports = [(judge, judge.report()) for judge in self._judges]
        for name, help_text, count in _COUNTERS:
            family = CounterMetricFamily(f"farshore_canary_{name}", help_text, labels=["link"])
            for judge, report in reports:
                family.add_metric([judge.link], count(judge, report))
            yield family
        waiting = GaugeMetricFamily(
            "farshore_canary_waiting_records", "Canary records under way to the target.", labels=["link"]
        )
        for judge, report in reports:
            waiting.add_metric([judge.link], report.waiting_records)
        yield waiting


# A counter never falls: a record that was late and is lost, or was lost and came after all, stays in what it once was.
_COUNTERS: tuple[tuple[str, str, Callable[[CanaryJudge, CanaryReport], int]], ...] = (
    ("sent_records", "Canary records handed to the source.", lambda _, report: report.sent_records),
    (
        "unacknowledged_records",
        "Canary records that the source did not acknowledge.",
        lambda _, report: report.unacknowledged_records,
    ),
    ("received_records", "Canary records that arrived at the target.", lambda _, report: report.received_records),
    ("lost_records", "Canary records that the mirror went past, or that never came.", lambda judge, _: judge.lost_ever),
    ("late_records", "Canary records that did not arrive within the deadline.", lambda judge, _: judge.overdue_ever),
    ("duplicate_records", "Canary records that arrived more than once.", lambda _, report: report.duplicate_records),
    ("stranded_records", "Canary records that were under way at a promotion.", lambda judge, _: judge.stranded_ever),
    ("order_breaks", "Canary records that arrived after a later one.", lambda _, report: report.order_breaks),
)


def latency_histogram(registry: CollectorRegistry) -> Histogram:
    """farshore_canary_latency_seconds{link}: from the record's writing to its sight at the target."""
    return Histogram(
        "farshore_canary_latency_seconds",
        "From the canary record's writing to its sight at the target.",
        ["link"],
        buckets=limits.CANARY_LATENCY_BUCKETS_SECONDS,
        registry=registry,
    )
