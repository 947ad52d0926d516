"""farshore_link_lag_records, _seconds, _bytes: what the target does not have yet; and
farshore_link_held_by_transaction_offsets: what no lag counts, as it is not known yet whether it will be records.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from monitoring.metrics.observation import Board

HELD_HELP = "Offsets of the source's log behind its last stable one: behind a transaction that is open. In no lag."


class LagCollector(Collector):
    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[GaugeMetricFamily]:
        labels = ["link", "topic", "partition"]
        records = GaugeMetricFamily("farshore_link_lag_records", "Source records not yet at the target.", labels=labels)
        seconds = GaugeMetricFamily(
            "farshore_link_lag_seconds", "Age of the oldest record that is not yet at the target.", labels=labels
        )
        size = GaugeMetricFamily(
            "farshore_link_lag_bytes", "Bytes of the records not yet at the target.", labels=labels
        )
        held = GaugeMetricFamily("farshore_link_held_by_transaction_offsets", HELD_HELP, labels=labels)
        for seen in self._board.observations():
            for lag in seen.lags:
                where = [seen.link, lag.topic, str(lag.partition)]
                for family, value in (
                    (records, lag.lag_records),
                    (seconds, lag.lag_seconds),
                    (size, lag.lag_bytes),
                    (held, lag.held_by_transaction_offsets),
                ):
                    if value is not None:
                        family.add_metric(where, value)
        yield from (records, seconds, size, held)
