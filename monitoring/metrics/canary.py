"""farshore_canary_*: the canary's score, and its latency as a histogram."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitoring import limits
from monitoring.canary.verdict import CanaryJudge


class CanaryCollector(Collector):
    def __init__(self, judges: Sequence[CanaryJudge]) -> None:
        self._judges = judges

    def collect(self) -> Iterator[Metric]:
        for name, help_text, count in _COUNTERS:
            family = CounterMetricFamily(f"farshore_canary_{name}", help_text, labels=["link"])
            for judge in self._judges:
                family.add_metric([judge.link], count(judge))
            yield family
        waiting = GaugeMetricFamily(
            "farshore_canary_waiting_records", "Canary records under way to the target.", labels=["link"]
        )
        for judge in self._judges:
            waiting.add_metric([judge.link], judge.waiting_records)
        yield waiting


# A counter never falls: a record that was late and is lost, or was lost and came after all, stays in what it once was.
_COUNTERS: tuple[tuple[str, str, Callable[[CanaryJudge], int]], ...] = (
    ("sent_records", "Canary records handed to the source.", lambda judge: judge.report().sent_records),
    (
        "unacknowledged_records",
        "Canary records that the source did not acknowledge.",
        lambda judge: judge.report().unacknowledged_records,
    ),
    ("received_records", "Canary records that arrived at the target.", lambda judge: judge.report().received_records),
    ("lost_records", "Canary records that the mirror went past, or that never came.", lambda judge: judge.lost_ever),
    ("late_records", "Canary records that did not arrive within the deadline.", lambda judge: judge.overdue_ever),
    (
        "duplicate_records",
        "Canary records that arrived more than once.",
        lambda judge: judge.report().duplicate_records,
    ),
    ("order_breaks", "Canary records that arrived after a later one.", lambda judge: judge.report().order_breaks),
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
