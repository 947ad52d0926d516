"""farshore_link_up, farshore_link_state, the sites' partitions that are offline, and how the looking itself went."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mirror.api import LinkCondition
from monitoring.metrics.observation import Board

UP_HELP = "1 when both sites answered in the last pass and the link's worker gives signs of life."
HELD_HELP = "1 for a partition (`all` of a topic) that should be mirrored and is not, beside those at gaps; and why."
PAUSED_HELP = "1 for a topic of which a person wants nothing more mirrored, until it is resumed."
SPLIT_HELP = "1 when both sites of a promoted link were written to, by others than mirrors, since it was promoted."
TWO_ACTIVE_HELP = "1 when both sites of a promoted link take writes to its topics, by their roles."
BOTH_PROMOTED_HELP = "1 when a promoted link's link back was promoted too, and not before it: nothing is mirrored."
OFFLINE_HELP = "Partitions of a site that nobody leads (no broker, damaged files); one per topic that it cannot tell."


class LinkCollector(Collector):
    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("farshore_link_up", UP_HELP, labels=["link"])
        state = GaugeMetricFamily(
            "farshore_link_state", "1 for the link's state, as farshore status says it.", labels=["link", "state"]
        )
        gaps = GaugeMetricFamily(
            "farshore_link_gaps_open", "Partitions that stand still until an operator decides.", labels=["link"]
        )
        held = GaugeMetricFamily(
            "farshore_link_partition_held", HELD_HELP, labels=["link", "topic", "partition", "reason"]
        )
        paused = GaugeMetricFamily("farshore_link_topic_paused", PAUSED_HELP, labels=["link", "topic"])
        at = GaugeMetricFamily(
            "farshore_link_observed_timestamp_seconds", "When the link was last looked at.", labels=["link"]
        )
        heartbeat = GaugeMetricFamily(
            "farshore_link_heartbeat_timestamp_seconds",
            "The newest heartbeat of the link's worker, by its own clock.",
            labels=["link"],
        )
        offline = GaugeMetricFamily("farshore_site_partitions_offline", OFFLINE_HELP, labels=["link", "site"])
        split = GaugeMetricFamily("farshore_link_split_brain", SPLIT_HELP, labels=["link"])
        two_active = GaugeMetricFamily("farshore_link_two_active", TWO_ACTIVE_HELP, labels=["link"])
        both = GaugeMetricFamily("farshore_link_both_promoted", BOTH_PROMOTED_HELP, labels=["link"])
        own = GaugeMetricFamily(
            "farshore_link_split_brain_records",
            "Committed records of a site's own since the link was promoted, at least, where both sites have some.",
            labels=["link", "side"],
        )
        errors = CounterMetricFamily("farshore_link_observe_errors", "Passes in which a site failed.", labels=["link"])
        for seen in self._board.observations():
            up.add_metric([seen.link], int(seen.up))
            at.add_metric([seen.link], seen.observed_at_ms / 1000)
            errors.add_metric([seen.link], self._board.errors(seen.link))
            for hold in seen.holds:
                number = "all" if hold.partition is None else str(hold.partition)
                held.add_metric([seen.link, hold.topic, number, hold.reason], 1)
            for topic in seen.topics_paused:
                paused.add_metric([seen.link, topic], 1)
            if seen.split is not None:
                if seen.split.is_split is not None:
                    split.add_metric([seen.link], int(seen.split.is_split))
                if seen.split.two_active is not None:
                    two_active.add_metric([seen.link], int(seen.split.two_active))
                both.add_metric([seen.link], int(seen.split.both_promoted))
                if seen.split.is_split is not None:
                    own.add_metric([seen.link, "source"], seen.split.source_records)
                    own.add_metric([seen.link, "target"], seen.split.target_records)
            for site, count in seen.partitions_offline.items():
                offline.add_metric([seen.link, site], count)
            if seen.heartbeat_at_ms is not None:
                heartbeat.add_metric([seen.link], seen.heartbeat_at_ms / 1000)
            if seen.condition is not None:
                gaps.add_metric([seen.link], seen.gaps_open)
                for name in LinkCondition:  # the zeros too: a graph of states needs them
                    state.add_metric([seen.link, name.value], int(seen.condition == name.value))
        yield from (up, state, gaps, held, paused, offline, at, heartbeat, split, two_active, both, own, errors)
