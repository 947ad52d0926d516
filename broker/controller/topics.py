"""Topics made, grown and deleted by the controller.

New partitions are made in three steps: every broker of the assignment that is there makes its folders, durable; then it
is written who leads, and only those brokers are in sync; then all are told. A crash between the first two leaves
folders of no topic, which the next complete order removes, and between the last two states that the next controller
orders.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from broker.cluster.metadata import PartitionState, TopicState
from broker.controller.deleting import delete
from broker.controller.elections import first_leader
from broker.controller.errors import BrokerGone, ReignOver, StillUnderWay
from broker.controller.issuing import making_orders, stop_orders
from broker.controller.queues import Answer
from broker.controller.reign import IN_DOUBT, Reign
from broker.controller.requests import NewTopic
from broker.controller.validation import checked_topic, grown_topic
from broker.errors import BrokerError
from broker.topics.errors import UnknownTopic
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)

Ready = dict[int, dict[int, int]]
"""Of each new partition, by index: the brokers that have its folder, with the epochs they had then."""


class TopicChanges:
    """One change of a topic at a time; those of others go on meanwhile."""

    def __init__(self, reign: Reign, num_partitions: int, rng: random.Random) -> None:
        self.reign = reign
        self._num_partitions = num_partitions
        self._rng = rng

    async def create(self, new: NewTopic, timeout_ms: int, *, validate_only: bool) -> TopicState:
        reign = self.reign
        async with self._changing(new.name):
            others = reign.cluster.topics.keys() | reign.cluster.unreadable | reign.making
            topic = checked_topic(new, others, reign.cluster.brokers, self._num_partitions, self._rng)
            if validate_only:
                return topic
            reign.making.add(new.name)
            try:
                indexes = range(len(topic.partitions))
                async with self._undone(topic):
                    ready = _of_all(*await self._made(topic, indexes, timeout_ms))
                async with reign.turn:
                    async with self._undone(topic):
                        led = self._with_leaders(topic, ready)
                        made = await reign.store.create_topic(reign.controller, led)
                    answers = await self._take_over(made, indexes)
            finally:
                reign.making.discard(new.name)
            await all_done(answers, timeout_ms, f"topic {new.name} is made, and not known to every broker")
            return made

    async def grow(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None, timeout_ms: int, *, validate_only: bool
    ) -> None:
        reign = self.reign
        async with self._changing(name):
            grown = grown_topic(self._require(name), count, assignment, reign.cluster.brokers, self._rng)
            if validate_only:
                return
            indexes = range(len(self._require(name).partitions), count)
            ready = _of_all(*await self._made(grown, indexes, timeout_ms))
            async with reign.turn:
                # Leaders and ISRs may have changed meanwhile.
                now = self._require(name)
                grown = replace(now, partitions=now.partitions + grown.partitions[len(now.partitions) :])
                written = await reign.store.set_assignment(reign.controller, self._with_leaders(grown, ready))
                answers = await self._take_over(written, indexes)
            await all_done(answers, timeout_ms, f"topic {name} has grown, and not every broker knows")

    async def delete(self, name: str, timeout_ms: int) -> None:
        async with self._changing(name):
            self._require(name)
            async with self.reign.turn:
                answers = await delete(self.reign, name)
            await all_done(answers, timeout_ms, f"topic {name} is deleted, and not gone from every broker")

    async def lead_waiting(self, name: str, timeout_ms: int) -> None:
        """Partitions whose making was cut off: nobody ever led them, so none has records; where one has, its state was
        lost, and it waits. Those whose brokers are away are led when one of them comes.
        """
        reign = self.reign
        async with self._changing(name):
            indexes = reign.cluster.waiting().get(name, [])
            topic = reign.cluster.topics.get(name)
            if topic is None or not indexes:
                return
            made, refusal = await self._made(topic, indexes, timeout_ms)
            if _has_records(refusal):
                log.error(
                    "nobody leads %s: the states of its partitions %s are not in the metadata, but %s; restore them, "
                    "then have another controller elected; or delete the topic",
                    name,
                    indexes,
                    refusal,
                )
                return
            ready = {index: nodes for index, nodes in made.items() if nodes}
            async with reign.turn:
                if name not in reign.cluster.topics:
                    return
                led = self._with_leaders(topic, ready)
                wanted = {TopicPartition(name, index): led.partitions[index] for index in ready}
                reign.announce(await reign.write(wanted))

    def _require(self, name: str) -> TopicState:
        topic = self.reign.cluster.topics.get(name)
        if topic is None:
            raise UnknownTopic(f"Topic '{name}' does not exist.")
        return topic

    @asynccontextmanager
    async def _changing(self, name: str) -> AsyncIterator[None]:
        locks = self.reign.locks
        async with locks.setdefault(name, asyncio.Lock()):
            yield

    async def _made(self, topic: TopicState, indexes: Sequence[int], timeout_ms: int) -> tuple[Ready, BrokerError]:
        """The folders of new partitions, at the brokers that are there, and what kept others from making theirs."""
        reign = self.reign
        async with reign.turn:  # a broker that has just come has its queue by the turn's end
            orders = making_orders(reign.cluster, reign.controller, topic, indexes)
            making = {node: asyncio.ensure_future(reign.queues[node].make(order)) for node, order in orders.items()}
        for made in making.values():
            # Whoever asked may not be there any more to hear what it met.
            made.add_done_callback(lambda done: done.cancelled() or done.exception())
        if making:
            await asyncio.wait(making.values(), timeout=timeout_ms / 1000)
        ready: Ready = {index: {} for index in indexes}
        refusal: BrokerError = StillUnderWay(f"no broker made the partitions of {topic.name} in time")
        for node, made in making.items():
            if not made.done():
                made.cancel()
            elif (error := made.exception()) is None:
                for where in orders[node].partitions:
                    ready[where.partition][node] = orders[node].broker_epoch
            elif isinstance(error, BrokerError):
                refusal = refusal if _has_records(refusal) else error
            else:
                raise error
        return ready, refusal

    def _with_leaders(self, topic: TopicState, ready: Ready) -> TopicState:
        """In sync is who made the folder and was not restarted since. Raises BrokerGone."""
        brokers = self.reign.cluster.brokers
        partitions = list(topic.partitions)
        # Most partitions are made by the same brokers and want the same: each kind is worked out once.
        led: dict[tuple[int, tuple[tuple[int, int], ...]], PartitionState] = {}
        for index, nodes in ready.items():
            state = partitions[index]
            kind = (id(state), tuple(nodes.items()))
            if kind not in led:
                there = {node for node, epoch in nodes.items() if node in brokers and brokers[node].epoch == epoch}
                first = first_leader(state, there)
                if first is None:
                    raise BrokerGone(f"every broker of {topic.name}-{index} went away while it was made")
                epochs = self.reign.cluster.isr_epochs(first)
                led[kind] = replace(first, controller_epoch=self.reign.controller.epoch, isr_epochs=epochs)
            partitions[index] = led[kind]
        return replace(topic, partitions=tuple(partitions))

    @asynccontextmanager
    async def _undone(self, topic: TopicState) -> AsyncIterator[None]:
        """Where a creation is refused, the folders go again; where it is not known what the store holds they stay, for
        the next controller to lead or to remove. The next try has another topic id, so that this cannot meet it; those
        of a growth would have the same, and stay for the next try.
        """
        try:
            yield
        except IN_DOUBT:
            raise
        except BrokerError:
            reign = self.reign
            indexes = range(len(topic.partitions))
            for node, order in stop_orders(reign.cluster, reign.controller, topic, indexes, delete=True).items():
                reign.queues[node].put(order)
            raise

    async def _take_over(self, topic: TopicState, indexes: Iterable[int]) -> list[Answer]:
        cluster = self.reign.cluster
        cluster.topics[topic.name] = topic
        wheres = [TopicPartition(topic.name, index) for index in indexes]
        if any((state := cluster.state(where)) is None or state.version < 0 for where in wheres):
            raise ReignOver(f"another controller made partitions of {topic.name}")
        return self.reign.announce(wheres)


def _has_records(refusal: BrokerError) -> bool:
    return refusal.error_code is ErrorCode.INELIGIBLE_REPLICA


def _of_all(ready: Ready, refusal: BrokerError) -> Ready:
    """Raises what kept the brokers of a partition from making it."""
    if not all(ready.values()):
        raise refusal
    return ready


async def all_done(answers: Collection[Answer], timeout_ms: int, late: str) -> None:
    """Raises StillUnderWay, and what a broker that is there met; one that went away is told everything later."""
    if not answers:
        return
    done, waiting = await asyncio.wait(answers, timeout=timeout_ms / 1000)
    for answer in done:
        error = answer.exception()
        if error is not None and not isinstance(error, BrokerGone):
            raise error
    if waiting:
        raise StillUnderWay(f"{late} within {timeout_ms} ms")
