"""farshore_link_acls: what a link's worker last found of the ACLs that it carries over."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitoring.metrics.observation import Board

ACLS_HELP = "ACLs at the target that are not as at the source, by what becomes of them, as farshore acls plan says it."
FAILED_HELP = "1 when the ACLs of both sites could not be compared the last time."
COMPARED_HELP = "When the ACLs of both sites were last compared, by the clock of the link's worker."


class AclCollector(Collector):
    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        acls = GaugeMetricFamily("farshore_link_acls", ACLS_HELP, labels=["link", "step"])
        failed = GaugeMetricFamily("farshore_link_acls_failed", FAILED_HELP, labels=["link"])
        compared = GaugeMetricFamily("farshore_link_acls_compared_timestamp_seconds", COMPARED_HELP, labels=["link"])
        for seen in self._board.observations():
            if seen.acls is None:
                continue
            failed.add_metric([seen.link], int(seen.acls.failed))
            compared.add_metric([seen.link], seen.acls.at_ms / 1000)
            if not seen.acls.failed:  # no number is known then, and a zero would say that nothing differs
                for step, count in seen.acls.by_step.items():
                    acls.add_metric([seen.link, step], count)
        yield from (acls, failed, compared)
