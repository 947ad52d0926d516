"""What an operator, retention or a bad election does to a log, and what the link must say of it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import GapKind
from tests.mirror.simulation.cluster import SimulatedCluster
from tests.mirror.simulation.logs import SimulatedPartition
from tests.mirror.simulation.oracle import LinkOracle
from tests.mirror.simulation.writing import SiteLife

AWAY_MAX_S: Final = 15.0
"""A topic that is deleted is made anew within so long: the link may have looked in between, or not."""


class Disaster(Enum):
    SOURCE_EXPIRED = auto()
    SOURCE_CUT = auto()
    SOURCE_RECREATED = auto()
    TARGET_CUT = auto()
    TARGET_RECREATED = auto()
    SOURCE_DELETED = auto()
    """And made anew after a while."""
    TARGET_DELETED = auto()
    """The link makes it anew."""


GAPS: Final = {
    Disaster.SOURCE_EXPIRED: {GapKind.TRUNCATED_START},
    Disaster.SOURCE_CUT: {GapKind.TRUNCATED_END},
    Disaster.SOURCE_RECREATED: {GapKind.RECREATED, GapKind.TRUNCATED_END},
    Disaster.TARGET_CUT: {GapKind.TARGET_TRUNCATED},
    Disaster.TARGET_RECREATED: {GapKind.TARGET_TRUNCATED},
    Disaster.SOURCE_DELETED: {GapKind.DELETED, GapKind.RECREATED, GapKind.TRUNCATED_END},
    Disaster.TARGET_DELETED: {GapKind.TARGET_TRUNCATED},
}
"""At what kinds of gaps a partition may stop after it; a topic that is recreated under a session just looks short."""


def strike(
    disaster: Disaster, source: SiteLife, target: SimulatedCluster, oracle: LinkOracle, name: str | None = None
) -> None:
    """Do it to some partition (or topic) of the link; `name`: of this topic."""
    rng = source.rng
    name = name or rng.choice(source.topics)
    where = TopicPartition(name, rng.randrange(len(source.cluster.topics[name].partitions)))
    there, here = source.cluster.partition(*where), target.partition(*where)
    assert there is not None
    source.cluster.trace(f"{disaster.name}:", where)
    gaps = GAPS[disaster]
    match disaster:
        case Disaster.SOURCE_EXPIRED:
            before = rng.randrange(there.log_start, there.stable_end + 1)
            there.delete_before(before)
            source.expire(where, before)
            oracle.partitions[where].strike(gaps)
        case Disaster.SOURCE_CUT:
            end = rng.choice(cut_points(there))
            there.lead_unclean(rng.choice(source.cluster.node_ids), end)
            oracle.partitions[where].strike(gaps, lost=source.forget(where, end))
        case Disaster.SOURCE_RECREATED:
            _recreate(source.cluster, name)
            for found, partition in oracle.partitions.items():
                if found.topic == name:
                    partition.strike(gaps, lost=source.forget(found, 0))
            for _ in range(rng.randrange(6)):
                source.write()
        case Disaster.TARGET_CUT if here is not None:
            end = rng.choice(cut_points(here))
            here.lead_unclean(rng.choice(target.node_ids), end)
            oracle.partitions[where].strike(gaps, arrived_to=end)
        case Disaster.SOURCE_DELETED:
            _delete_for_a_while(source, name)
            for found, partition in oracle.partitions.items():
                if found.topic == name:
                    partition.strike(gaps, lost=source.forget(found, 0))
        case Disaster.TARGET_RECREATED | Disaster.TARGET_DELETED if here is not None:
            if disaster is Disaster.TARGET_DELETED:
                target.delete_topic(name)
            else:
                _recreate(target, name)
            for found, partition in oracle.partitions.items():
                if found.topic == name:
                    partition.strike(gaps, arrived_to=0)


def _delete_for_a_while(source: SiteLife, name: str) -> None:
    site, count = source.cluster, len(source.cluster.topics[name].partitions)
    configs = site.topics[name].configs
    site.delete_topic(name)
    source.topics.remove(name)
    source.away.add(name)

    def make() -> None:
        site.create_topic(name, count, configs)
        source.topics.append(name)
        source.away.remove(name)
        source.write(site.topics[name].partitions[0])

    site.loop.call_later(source.rng.random() * AWAY_MAX_S, make)


def _recreate(site: SimulatedCluster, name: str) -> None:
    count = len(site.topics[name].partitions)
    configs = site.topics[name].configs
    site.delete_topic(name)
    site.create_topic(name, count, configs)


def cut_points(partition: SimulatedPartition) -> list[int]:
    """The starts of batches at which no transaction is open, from the log start to the log end.

    A marker that is lost alone would leave its transaction open for ever, which is another story.
    """
    open_ids: set[int] = set()
    points = []
    for header, _ in partition.batches:
        if not open_ids and header.base_offset >= partition.log_start:
            points.append(header.base_offset)
        if header.is_control:
            open_ids.discard(header.producer_id)
        elif header.is_transactional:
            open_ids.add(header.producer_id)
    return points or [partition.log_end]
