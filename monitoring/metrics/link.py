"""farshore_link_up, farshore_link_state, and how the looking itself went."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitoring.metrics.observation import Board

# One sample per state and link, 1 for the one it is in: a graph of states needs the zeros.
STATES = ("running", "promoted")


class LinkCollector(Collector):
    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("farshore_link_up", "1 when both sites answered in the last pass.", labels=["link"])
        state = GaugeMetricFamily(
            "farshore_link_state", "1 for the state that the link is in.", labels=["link", "state"]
        )
        gaps = GaugeMetricFamily(
            "farshore_link_gaps_open", "Partitions that stand still until an operator decides.", labels=["link"]
        )
        at = GaugeMetricFamily(
            "farshore_link_observed_timestamp_seconds", "When the link was last looked at.", labels=["link"]
        )
        errors = CounterMetricFamily("farshore_link_observe_errors", "Passes in which a site failed.", labels=["link"])
        for seen in self._board.observations():
            up.add_metric([seen.link], int(seen.up))
            at.add_metric([seen.link], seen.observed_at_ms / 1000)
            errors.add_metric([seen.link], self._board.errors(seen.link))
            if seen.up:
                gaps.add_metric([seen.link], seen.gaps_open)
            if seen.state is not None:
                for name in STATES:
                    state.add_metric([seen.link, name], int(seen.state == name))
        yield from (up, state, gaps, at, errors)
