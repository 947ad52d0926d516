"""A start of a link over a distance: a thousand partitions, and one of them whose logs take long to compare.

Counted are round trips, on simulated time: as many as the protocol takes, however many partitions there are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from broker.client.site import Site
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import GapKind
from mirror.worker.events import Event, EventSink
from mirror.worker.limits import WorkerLimits
from mirror.worker.service import WorkerSettings, run_links
from tests.mirror.harness import Told
from tests.mirror.simulation.answers import SimulatedNode
from tests.mirror.simulation.cluster import SimulatedCluster
from tests.mirror.simulation.logs import SimulatedPartition, Stored
from tests.mirror.simulation.loop import SimulatedClock, SimulatedLoop
from tests.mirror.simulation.network import Network, Weather
from tests.mirror.simulation.trace import Trace

ROUND_TRIP_S = 0.1
PARTITIONS = 1_000
LONG = 60
"""Batches of the hostile partition; a node gives one of them in an answer."""
START_ROUND_TRIPS = 30
"""Of a start, from the first connection to the first record: names, topics, fence, state, registry, comparison."""
LIMITS = WorkerLimits(
    fetch_max_wait_ms=5_000, checkpoint_interval_ms=5_000, group_sync_interval_ms=60_000, observe_interval_ms=0
)
PATIENCE_ROUND_TRIPS = LIMITS.compare_patience_ms / 1000 / ROUND_TRIP_S
HOSTILE = TopicPartition("flights", 0)


class FarWeather(Network):
    """Every packet takes half a round trip."""

    def delay(self) -> float:
        return ROUND_TRIP_S / 2


class Far:
    """Two sites far from each other and from the worker between them."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.loop = SimulatedLoop()
        self.clock = SimulatedClock(self.loop)
        self.told = Told()
        self.arrived: dict[TopicPartition, list[float]] = {}
        rng, trace = random.Random(1), Trace(self.loop.time)
        self.network = network = FarWeather(self.loop, rng, trace, Weather())
        self.east, self.west = (SimulatedCluster(name, self.loop, rng, trace, 3) for name in ("east", "west"))
        for site in (self.east, self.west):
            for node_id in site.node_ids:
                network.nodes[site.address(node_id)] = SimulatedNode(site, node_id)
        self.west.on_partition = self._watch
        self.east.create_topic("flights", partitions, {"retention.ms": "-1"})
        sites = (Site("east", self.east.bootstrap), Site("west", self.west.bootstrap))
        self.link = Link("east-west", *sites, ("flights",))
        self._written = 0

    def _watch(self, made: SimulatedPartition) -> None:
        def see(stored: Stored) -> None:
            if not stored.header.is_control:
                self.arrived.setdefault(made.where, []).append(self.loop.now)

        if made.where.topic == "flights":
            made.watchers.append(see)

    @property
    def hostile(self) -> SimulatedPartition:
        return self.east.topics["flights"].partitions[0]

    def write(self, partition: SimulatedPartition, count: int = 1) -> None:
        for _ in range(count):
            self._written += 1
            partition.append(encode_batch([Record(0, 1, b"k", b"%d" % self._written, ())]))

    def write_everywhere(self) -> None:
        for partition in self.east.topics["flights"].partitions:
            self.write(partition)

    async def run(self, seconds: float) -> float:
        """A worker, for so long -> when it began."""
        self.told.events.clear()
        self.arrived.clear()
        began_s = self.loop.now
        worker = self.loop.create_task(run_links([self.link], WorkerSettings(LIMITS, self.clock, self._sink)))
        await asyncio.sleep(seconds)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return began_s

    def _sink(self, link: str) -> EventSink:
        return self.told.sink(link)

    def round_trips(self, began_s: float) -> list[float]:
        """Of the first record of each partition but the hostile one, sorted."""
        return sorted((times[0] - began_s) / ROUND_TRIP_S for where, times in self.arrived.items() if where != HOSTILE)


def lose_the_end(far: Far) -> None:
    """Nothing agrees but the beginning."""
    far.hostile.lead_unclean(1, 3)
    far.write(far.hostile, LONG)


def lose_to_compaction(far: Far) -> None:
    """The last records cannot be compared: those before them decide."""
    far.hostile.batches[10:] = []
    far.write(far.hostile)


@pytest.mark.parametrize("strike", [lose_the_end, lose_to_compaction])
def test_one_partition_that_takes_long_holds_up_no_other(strike: Callable[[Far], None]) -> None:
    far = Far()

    async def course() -> None:
        far.write_everywhere()
        far.write(far.hostile, LONG)
        await far.run(20)
        assert len(far.arrived) == PARTITIONS
        far.hostile.read_max_bytes = 1
        far.west.topics["flights"].partitions[0].read_max_bytes = 1
        strike(far)
        far.write_everywhere()
        round_trips = far.round_trips(await far.run(60))
        assert len(round_trips) == PARTITIONS - 1
        assert round_trips[0] < START_ROUND_TRIPS + PATIENCE_ROUND_TRIPS, "the first of the others"
        assert round_trips[-1] < round_trips[0] + 3, "and the last"
        (held,) = far.told.of(Event.PARTITION_HELD)
        assert (held["topic"], held["partition"], held["reason"]) == (*HOSTILE, "logs_not_compared")
        assert far.told.count(Event.STARTED) == 1, "it is taken in by the session that held it"
        if strike is lose_the_end:
            (stopped,) = far.told.of(Event.PARTITION_STOPPED)
            assert (stopped["reason"], stopped["source_to"]) == (GapKind.TRUNCATED_END.value, 3)
        else:
            assert far.told.count(Event.PARTITION_TAKEN_IN) == 1
            assert len(far.arrived[HOSTILE]) == 2

    far.loop.run(course())


def test_a_link_that_has_run_goes_on_after_few_round_trips() -> None:
    """What does not wait for each other is asked side by side: so long stands a unit that is moved, with both sites far
    away.
    """
    far = Far()

    async def course() -> None:
        far.write_everywhere()
        await far.run(20)
        far.write_everywhere()
        round_trips = far.round_trips(await far.run(20))
        assert len(round_trips) == PARTITIONS - 1
        assert round_trips[-1] < START_ROUND_TRIPS

    far.loop.run(course())


def test_a_thousand_partitions_in_doubt_take_few_round_trips() -> None:
    """Not two or more for each; though not all of them are in memory at once."""
    far = Far()

    async def course() -> None:
        far.write_everywhere()
        far.write_everywhere()
        await far.run(20)
        for partition in far.east.topics["flights"].partitions:
            partition.lead_unclean(partition.leader, 1)
            far.write(partition, 3)
        await far.run((START_ROUND_TRIPS + 50) * ROUND_TRIP_S)
        assert far.told.count(Event.PARTITION_STOPPED) == PARTITIONS

    far.loop.run(course())
