"""farshore_group_sync_age_seconds: how old a group's translated offsets are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from monitoring.metrics.observation import Board


class GroupCollector(Collector):
    """The age is taken when it is asked for, so that it grows while the mirror stands still."""

    def __init__(self, board: Board, clock_ms: Callable[[], int]) -> None:
        self._board = board
        self._clock_ms = clock_ms

    def collect(self) -> Iterator[GaugeMetricFamily]:
        age = GaugeMetricFamily(
            "farshore_group_sync_age_seconds",
            "Time since the group's offsets were last carried over or found equal.",
            labels=["link", "group"],
        )
        now_ms = self._clock_ms()
        for seen in self._board.observations():
            for group, synced_at_ms in sorted(seen.groups_synced_at_ms.items()):
                age.add_metric([seen.link, group], max(0, now_ms - synced_at_ms) / 1000)
        yield age
