"""farshore_link_findings: what `farshore status` would say of a link."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mirror.api import LinkFindingKind
from monitoring.metrics.observation import Board

HELP = "Findings of the link as farshore status has them, by kind; a zero only where all was seen."


class FindingsCollector(Collector):
    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        findings = GaugeMetricFamily("farshore_link_findings", HELP, labels=["link", "kind"])
        for seen in self._board.observations():
            for kind in LinkFindingKind:
                count = seen.findings.get(kind, 0)
                if count or seen.sees_all:
                    findings.add_metric([seen.link, kind.value], count)
        yield findings
