"""Who is in sync, written: the leader takes out of the ISR who fell behind, and in again who has caught up.

A change is asked of the store by compare-and-set; until its outcome is known both ISRs are waited for (`Leading`). One
that was refused, or of which it is not known what became of it, is not taken back: what stands in the store is read, by
a session that was there before or one that was opened after its end, so that nothing of it is still on its way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from broker.base.clock import Clock, steady_ms
from broker.base.time_limits import timeout
from broker.cluster.metadata import LiveBroker, PartitionState, Written
from broker.errors import BrokerError
from broker.replication.leading import Leading
from broker.replication.limits import ISR_READ_BACK_MS
from broker.topics.partition import Partition
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)


class IsrStore(Protocol):
    """`MetadataStore`, as far as it is used here."""

    async def write_isr(self, states: Mapping[TopicPartition, PartitionState]) -> Written: ...

    async def partition_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written: ...


class InSyncReplicas:
    """Of all partitions that this broker leads."""

    def __init__(
        self,
        store: IsrStore,
        led: Callable[[], Iterable[Partition]],
        brokers: Callable[[], Mapping[int, LiveBroker]],
        clock: Clock,
        lag_max_ms: float,
    ) -> None:
        """`led` may give partitions that are not. `brokers` are those that live, as far as is known here; `lag_max_ms`
        is `replica.lag.time.max.ms`.
        """
        self._store = store
        self._led = led
        self._brokers = brokers
        self._clock = clock
        self._lag_max_ms = lag_max_ms
        self._caught_up: dict[TopicPartition, tuple[Partition, int]] = {}
        self._open: dict[TopicPartition, tuple[Partition, Leading]] = {}
        """Changes that are under way, each for one leadership."""
        self._wanted = asyncio.Event()

    def fetched(self, partition: Partition, node_id: int) -> None:
        """A replica outside of the ISR has just fetched."""
        leading = partition.leading
        if leading is not None and leading.expand(node_id) is not None:
            self._caught_up[TopicPartition(partition.topic, partition.index)] = (partition, node_id)
            self._wanted.set()

    async def run(self) -> None:
        """Ends only by being cancelled."""
        next_look_ms = self._now_ms() + self._lag_max_ms / 2
        while True:
            wait_ms = next_look_ms - self._now_ms()
            with suppress(TimeoutError):
                async with timeout(max(0.0, min(wait_ms, ISR_READ_BACK_MS) if self._open else wait_ms) / 1000):
                    await self._wanted.wait()
            await self.read_back()
            await self.expand()
            if self._now_ms() >= next_look_ms:
                await self.shrink()
                next_look_ms = self._now_ms() + self._lag_max_ms / 2

    async def expand(self) -> None:
        """By those that were found to have caught up, if they still have."""
        self._wanted.clear()
        caught_up, self._caught_up = self._caught_up, {}
        wanted = []
        for partition, node_id in caught_up.values():
            leading = partition.leading
            if leading is None or not self._in_this_life(leading, node_id):
                continue
            isr = leading.expand(node_id)
            if isr is not None:
                wanted.append((partition, leading, isr))
        await self._change(wanted)

    def _in_this_life(self, leading: Leading, node_id: int) -> bool:
        """Whether what is known of the replica is of the broker that is registered now: one that was restarted may have
        lost some of it (KIP-903).
        """
        follower, broker = leading.follower(node_id), self._brokers().get(node_id)
        return follower is not None and broker is not None and follower.broker_epoch == broker.epoch

    async def shrink(self) -> None:
        """By those that have not caught up for too long."""
        now_ms, wanted = self._now_ms(), []
        for partition in self._led():
            leading = partition.leading
            if leading is None:
                continue
            isr = leading.shrink(partition.log.log_end_offset, self._lag_max_ms, now_ms)
            if isr is not None:
                wanted.append((partition, leading, isr))
        await self._change(wanted)

    async def _change(self, wanted: list[tuple[Partition, Leading, frozenset[int]]]) -> None:
        if not wanted:
            return
        asked: dict[TopicPartition, PartitionState] = {}
        for partition, leading, isr in wanted:
            where = TopicPartition(partition.topic, partition.index)
            leading.begin_change(isr)
            in_order = tuple(node_id for node_id in partition.replicas if node_id in isr)
            epochs = leading.isr_epochs(in_order, partition.state.isr_epochs)
            asked[where] = replace(partition.state, isr=in_order, isr_epochs=epochs)
            self._open[where] = (partition, leading)
            log.info("the ISR of %s-%d is to be %s, is %s", *where, in_order, partition.isr)
        try:
            self._take((await self._store.write_isr(asked)).states)
        except BrokerError as error:
            log.warning("it is not known yet what became of %d changes of an ISR: %s", len(asked), error)
        else:
            await self.read_back()

    async def read_back(self) -> None:
        """What stands in the store of changes of which that is not known yet. What cannot be read now is left open."""
        self._open = {where: one for where, one in self._open.items() if _is_open(*one)}
        if not self._open:
            return
        asked = {where: partition.state for where, (partition, _) in self._open.items()}
        with suppress(BrokerError):
            self._take((await self._store.partition_states(asked)).states)

    def _take(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        for where, state in states.items():
            partition, leading = self._open[where]
            ours = partition.leading is leading and state.leader_epoch == leading.epoch
            if ours and state.version >= partition.state.version:
                partition.take_state(state, self._now_ms())
        self._open = {where: one for where, one in self._open.items() if _is_open(*one)}

    def _now_ms(self) -> float:
        return steady_ms(self._clock)


def _is_open(partition: Partition, leading: Leading) -> bool:
    """Whether the change is still under way, for a leadership that goes on."""
    return partition.leading is leading and leading.pending is not None
