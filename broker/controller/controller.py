"""A broker that stands for election, and what it does for clients while it is the controller."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from broker.base.clock import Clock
from broker.base.time_limits import timeout
from broker.cluster.metadata import Change, ChangeKind, Controller, TopicState
from broker.cluster.metadata_store import MetadataStore, MetadataUnreadable, OutcomeUnknown
from broker.controller.errors import AnotherController, ReignOver
from broker.controller.leaders import LeaderBalance, elect_leaders, keep_balanced
from broker.controller.reassigning import alter_reassignments, reassignments, resume, settle, take_written
from broker.controller.reassignment import Assignment
from broker.controller.reign import WATCHED, OrdersTo, Reign
from broker.controller.requests import CHANGE_MS_MIN, NewTopic, Outcomes
from broker.controller.topics import TopicChanges
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)
T = TypeVar("T")

PAUSE_S: Final = 0.5
"""Between two tries to be elected while the store cannot be reached."""
WRITTEN_BY_TOOLS: Final = (ChangeKind.REASSIGNMENTS, ChangeKind.PREFERRED_ELECTIONS)
"""What tools of old wrote while nobody was the controller is found at the beginning."""
MAKING_MS: Final = 60_000
"""For partitions whose making was cut off."""


class ClusterController:
    """Implements ControllerRequests for the broker that is the controller."""

    def __init__(
        self,
        store: MetadataStore,
        node_id: int,
        orders_to: OrdersTo,
        newest_epoch: Callable[[], int],
        clock: Clock,
        rng: random.Random,
        num_partitions: int,
        balance: LeaderBalance | None = None,
    ) -> None:
        """`newest_epoch`: of the controllers that this broker was ordered by. `balance`: None leaves it to commands who
        leads.
        """
        self._store = store
        self._node_id = node_id
        self._orders_to = orders_to
        self._newest_epoch = newest_epoch
        # Of our own last time as the controller: each has one to itself.
        self._own_epoch = 0
        self._clock = clock
        self._rng = rng
        self._num_partitions = num_partitions
        self._balance = balance
        self._reign: Reign | None = None
        self._elsewhere = False
        self._ruling = asyncio.Condition()

    async def run(self) -> None:
        """Ends only by being cancelled, or with what the store raised at the beginning of a time as the controller."""
        while True:
            async with self._store.watch(ChangeKind.CONTROLLER, ChangeKind.SESSION) as changes:
                controller = await self._elected(changes)
            self._own_epoch = controller.epoch
            async with self._store.watch(*WATCHED) as changes:
                reign = Reign(self._store, controller, self._orders_to, self._clock, self._rng)
                try:
                    async with reign.begun():
                        await self._rule(reign, changes)
                except* (ReignOver, MetadataUnreadable) as group:
                    log.warning("controller epoch %d is over: %s", controller.epoch, group.exceptions[0])
                finally:
                    self._reign = None
            _check_cancelled()
            # Not at once: whatever it was may still hold.
            await self._clock.sleep(PAUSE_S)

    async def _elected(self, changes: AsyncIterator[Change]) -> Controller:
        while True:
            try:
                after = max(self._newest_epoch(), self._own_epoch)
                controller = await self._store.elect_controller(self._node_id, after)
                # An earlier life of this broker is none that could be asked.
                elsewhere = controller is None and await self._store.controller() not in (None, self._node_id)
                async with self._ruling:
                    self._elsewhere = elsewhere
                    self._ruling.notify_all()
                if controller is not None:
                    return controller
                await anext(changes)
            except (OutcomeUnknown, MetadataUnreadable) as error:
                log.warning("it is not known who is the controller: %s", error)
                await self._next_or_pause(changes)

    async def _rule(self, reign: Reign, changes: AsyncIterator[Change]) -> None:
        async with self._ruling:
            self._reign = reign
            self._ruling.notify_all()
        topics = TopicChanges(reign, self._num_partitions, self._rng)

        def lead_waiting() -> None:
            for name in reign.cluster.waiting():
                reign.asked(topics.lead_waiting(name, MAKING_MS))

        if self._balance is not None:
            reign.spawn(keep_balanced(reign, self._balance, self._clock))

        async def followed(change: Change) -> None:
            if change.kind is ChangeKind.BROKERS:
                lead_waiting()
            if change.kind is ChangeKind.REASSIGNMENTS:
                await take_written(reign)
            await settle(reign)

        lead_waiting()
        async with reign.turn_to_write():
            await resume(reign)
        for kind in WRITTEN_BY_TOOLS:
            await reign.follow_one(Change(kind), followed)
        await reign.follow(changes, followed)

    async def _next_or_pause(self, changes: AsyncIterator[Change]) -> None:
        told, pause = asyncio.ensure_future(anext(changes)), asyncio.ensure_future(self._clock.sleep(PAUSE_S))
        try:
            await asyncio.wait([told, pause], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (told, pause):
                each.cancel()

    # -- requests --------------------------------------------------------------------------------------------

    async def create_topic(self, new: NewTopic, timeout_ms: int, *, validate_only: bool = False) -> TopicState:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)
        return await self._asked(timeout_ms, lambda topics: topics.create(new, timeout_ms, validate_only=validate_only))

    async def delete_topic(self, name: str, timeout_ms: int) -> None:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)
        await self._asked(timeout_ms, lambda topics: topics.delete(name, timeout_ms))

    async def grow_topic(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None,
        timeout_ms: int,
        *,
        validate_only: bool = False,
    ) -> None:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)
        await self._asked(
            timeout_ms, lambda topics: topics.grow(name, count, assignment, timeout_ms, validate_only=validate_only)
        )

    async def controlled_shutdown(self, node_id: int, broker_epoch: int, timeout_ms: int) -> frozenset[TopicPartition]:
        return await self._asked(timeout_ms, lambda topics: topics.reign.shut_down(node_id, broker_epoch, timeout_ms))

    async def elect_leaders(
        self, wheres: Collection[TopicPartition] | None, timeout_ms: int, *, unclean: bool
    ) -> Outcomes:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)
        return await self._asked(
            timeout_ms, lambda topics: elect_leaders(topics.reign, wheres, timeout_ms, unclean=unclean)
        )

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
    ) -> Outcomes:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)
        return await self._asked(timeout_ms, lambda topics: alter_reassignments(topics.reign, wanted))

    async def reassignments(
        self, wheres: Collection[TopicPartition] | None, timeout_ms: int
    ) -> Mapping[TopicPartition, Assignment]:
        async def found(reign: Reign) -> Mapping[TopicPartition, Assignment]:
            async with reign.turn:
                return reassignments(reign.cluster, wheres)

        return await self._asked(max(timeout_ms, CHANGE_MS_MIN), lambda topics: found(topics.reign))

    def _rules(self) -> bool:
        return self._reign is not None and not self._reign.over

    async def _asked(self, timeout_ms: int, ask: Callable[[TopicChanges], Coroutine[Any, Any, T]]) -> T:
        """Waits while this broker is about to be the controller. Raises NotController."""
        try:
            async with timeout(timeout_ms / 1000), self._ruling:
                await self._ruling.wait_for(lambda: self._rules() or self._elsewhere)
        except TimeoutError:
            raise AnotherController(f"broker {self._node_id} is not the controller") from None
        reign = self._reign
        if reign is None or not self._rules():
            raise AnotherController(f"broker {self._node_id} is not the controller, another one is")
        answer = reign.asked(ask(TopicChanges(reign, self._num_partitions, self._rng)))
        # Shielded: a change that was begun is carried out, whoever waits for it.
        return await asyncio.shield(answer)


def _check_cancelled() -> None:
    """A group that ends with an error takes a cancellation with it that came at the same time (Python before 3.13)."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
