"""A source far away, seen beside the records: how old its kept ends are, what that costs, what is said when it goes.

On simulated time and network, by the worker's own observer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from broker.client.cluster import Cluster
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from failover.losses.statements import Certainty, LossTotal, PartitionLoss, total_loss
from mirror.coordinator.current import Current
from mirror.offsets.source_ends import Observation, load_observation
from mirror.worker.events import Event
from mirror.worker.limits import WorkerLimits
from mirror.worker.observing import OBSERVER_LIMITS, TOPICS_EVERY_MS, WRITTEN_MAX_BYTES_PER_S, Observer
from tests.mirror.simulation.answers import SimulatedNode
from tests.mirror.simulation.network import Respond
from tests.mirror.simulation.test_far import PARTITIONS, ROUND_TRIP_S, Far

INTERVAL_MS = WorkerLimits().observe_interval_ms
AT_MOST_MS = 1_000
CALLED_MS = 200 * ROUND_TRIP_S * 1000
"""Time to connect to all nodes and to make the topic."""


class Mortal(SimulatedNode):
    """One that may fall silent."""

    lives = True

    def serve(self, api_key: int, version: int, request: Any, respond: Respond, *, refuse: bool) -> None:
        if self.lives:
            super().serve(api_key, version, request, respond, refuse=refuse)


async def beside(far: Far, look: Callable[[Observer, Cluster], Awaitable[None]]) -> None:
    """An observer runs at the far sites while `look` does."""
    observer = Observer(
        Current(far.link), INTERVAL_MS, far.clock, far.told.sink(far.link.name), random.Random(1).random
    )
    running = far.loop.create_task(observer.run())
    async with Cluster(far.link.target, client_id="operator", clock=far.clock) as target:
        await look(observer, target)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def kept(far: Far, target: Cluster, age_max_ms: float) -> Observation:
    """What the target has, which is not older than this."""
    asked_ms = far.clock.now_ms()
    found = await load_observation(far.link, target)
    assert found.last is not None
    assert asked_ms - found.last.at_ms <= age_max_ms
    return found


def ends_of(far: Far) -> dict[TopicPartition, int]:
    return {part.where: part.log_end for part in far.east.topics["flights"].partitions}


def test_a_thousand_partitions_are_seen_within_a_second_and_are_small() -> None:
    far = Far()

    async def look(observer: Observer, target: Cluster) -> None:
        observer.owns.set()
        await asyncio.sleep(CALLED_MS / 1000)
        sizes: list[int] = []
        (log,) = far.west.topics[far.link.ends_topic].partitions
        log.watchers.append(lambda stored: sizes.append(len(stored.data)))
        began_s = far.loop.now
        for _ in range(10):
            before = ends_of(far)
            far.write_everywhere()
            await asyncio.sleep(AT_MOST_MS / 1000)
            found = await kept(far, target, AT_MOST_MS)
            assert found.ends.keys() == before.keys()
            assert {where: end.end - 1 for where, end in found.ends.items()} == before, "what was there a second ago"
        assert sum(sizes) / (far.loop.now - began_s) <= WRITTEN_MAX_BYTES_PER_S
        assert found.last is not None
        assert found.last.fastest_per_s > 0

    far.loop.run(beside(far, look))


def test_a_target_that_is_away_is_told_once_and_has_all_when_it_is_back() -> None:
    far = Far()
    nodes = [Mortal(far.west, node_id) for node_id in far.west.node_ids]
    far.network.nodes |= {far.west.address(node.node_id): node for node in nodes}

    async def look(observer: Observer, target: Cluster) -> None:
        observer.owns.set()
        await asyncio.sleep(CALLED_MS / 1000)
        for node in nodes:
            node.lives = False
        await asyncio.sleep(60)
        far.write_everywhere()
        told = far.told.of(Event.ENDS_NOT_KEPT)
        assert 0 < len(told) <= len({str(fields["detail"]) for fields in told}) + 1
        for node in nodes:
            node.lives = True
        await asyncio.sleep(CALLED_MS / 1000)
        found = await kept(far, target, AT_MOST_MS)
        assert {where: end.end for where, end in found.ends.items()} == ends_of(far)

    far.loop.run(beside(far, look))


def test_what_is_born_is_seen_and_a_source_that_goes_is_said_to() -> None:
    far = Far()

    async def look(observer: Observer, target: Cluster) -> None:
        await asyncio.sleep(CALLED_MS / 1000)
        assert far.link.ends_topic not in far.west.topics, "who does not own the link keeps nothing"
        observer.owns.set()
        await asyncio.sleep(CALLED_MS / 1000)
        far.east.create_topic("flights-2", 2, {"retention.ms": "-1"})
        born = far.east.topics["flights-2"].partitions[1]
        born.append(encode_batch([Record(0, 1, b"k", b"v", ())]))
        await asyncio.sleep((TOPICS_EVERY_MS + PARTITIONS + AT_MOST_MS) / 1000)
        found = await kept(far, target, AT_MOST_MS)
        assert found.ends[TopicPartition("flights-2", 1)].end == 1
        for node in nodes:
            node.lives = False
        gone_ms = far.clock.now_ms()
        await asyncio.sleep(20)
        last = (await load_observation(far.link, target)).last
        assert last is not None
        assert last.unanswered_at_ms is not None
        assert gone_ms - AT_MOST_MS <= last.at_ms <= last.unanswered_at_ms <= gone_ms + AT_MOST_MS

    nodes = [Mortal(far.east, node_id) for node_id in far.east.node_ids]
    far.network.nodes |= {far.east.address(node.node_id): node for node in nodes}
    far.link = replace(far.link, topics=("flights.*",))
    far.loop.run(beside(far, look))


def test_what_one_dead_broker_may_have_taken_is_of_its_own_pace_however_long_the_others_go_on() -> None:
    """Its partitions get a record a second, the others ten: the likely loss was the pace of all, times all the time."""
    far = Far(partitions=30)
    nodes = [Mortal(far.east, node_id) for node_id in far.east.node_ids]
    far.network.nodes |= {far.east.address(node.node_id): node for node in nodes}
    dead = nodes[0]

    def stated(found: Observation) -> LossTotal:
        losses = [
            PartitionLoss(
                *where, Certainty.AT_LEAST if seen.ceased else Certainty.EXACT, 0, None, seen.end, seen.end,
                seen_at_ms=seen.at_ms, ceased=seen.ceased,
            )
            for where, seen in found.ends.items()
        ]  # fmt: skip
        return total_loss(losses, far.clock.now_ms(), found.last, is_source_there=True)

    async def write_for(seconds: int) -> None:
        for _ in range(seconds):
            for partition in far.east.topics["flights"].partitions:
                is_gone = partition.leader == dead.node_id
                far.write(partition, 10 if not is_gone else int(dead.lives))
            await asyncio.sleep(1)

    async def look(observer: Observer, target: Cluster) -> None:
        observer.owns.set()
        await write_for(20)
        own = {part.where for part in far.east.topics["flights"].partitions if part.leader == dead.node_id}
        dead.lives = False
        likely = []
        for _ in range(3):
            await write_for(40)
            found = await load_observation(far.link, target)
            assert {where for where, seen in found.ends.items() if seen.ceased} == own
            total = stated(found)
            assert total.likely_offsets is not None
            assert total.ceased_per_s is not None
            assert len(own) <= total.ceased_per_s <= 2 * len(own), "a second may have taken two"
            likely.append(total.likely_offsets)
        assert likely == likely[:1] * 3, "it does not grow"
        assert likely[0] <= 2 * len(own) * OBSERVER_LIMITS.request_timeout_ms / 1000

    far.loop.run(beside(far, look))
