"""How old a group's translated offsets are, and where a group would not go on as at the source, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from mirror.api import CLOCK_DIFFERENCE_MAX_MS
from monitoring.metrics.observation import Board, GroupSample

STATES = ("carried", "waiting", "failed")


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
        waiting = GaugeMetricFamily(
            "farshore_group_waiting_partitions",
            "Partitions where the group would not go on at the target as at the source, by reason.",
            labels=["link", "group", "reason"],
        )
        groups = GaugeMetricFamily(
            "farshore_groups",
            "Groups by what became of their offsets: all carried over, some waiting, or the group failed.",
            labels=["link", "state"],
        )
        looked_at = GaugeMetricFamily(
            "farshore_groups_looked_at_timestamp_seconds",
            "When the link last looked at its groups, by its worker's clock.",
            labels=["link"],
        )
        now_ms = self._clock_ms()
        for seen in self._board.observations():
            for group, synced_at_ms in sorted(seen.groups_synced_at_ms.items()):
                if synced_at_ms <= now_ms + CLOCK_DIFFERENCE_MAX_MS:  # else the clocks differ, and it is not known
                    age.add_metric([seen.link, group], max(0, now_ms - synced_at_ms) / 1000)
            for group, sample in sorted(seen.groups.items()):
                for reason, count in sorted(sample.waiting.items()):
                    waiting.add_metric([seen.link, group, reason], count)
            if seen.groups_looked_at_ms is not None:
                looked_at.add_metric([seen.link], seen.groups_looked_at_ms / 1000)
                for state in STATES:
                    groups.add_metric([seen.link, state], sum(_state(s) == state for s in seen.groups.values()))
        yield from (age, waiting, groups, looked_at)


def _state(sample: GroupSample) -> str:
    return "failed" if sample.failed else "waiting" if sample.waiting else "carried"
