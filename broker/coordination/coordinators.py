"""The coordinators of this broker: one for each partition of a coordinator's topic that it leads.

A coordinator begins with the leadership of its partition: it loads what stands there, in steps that leave the event
loop to others, and ends with the leadership; whoever waits for it is told to look for the next one. `ask` is how
anybody learns from it: what it said is passed on when all that it was made from is replicated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from broker.coordination.host import CoordinatorHost, InternalTopic
from broker.coordination.internal_log import NotCoordinator, StateLog
from broker.coordination.limits import COORDINATOR_LOAD_RETRY_MS, REPLICATION_TIMEOUT_MS
from broker.errors import BrokerError, LogDamaged
from broker.topics.errors import PartitionOffline
from broker.wire.coordinator_keys import partition_for
from broker.wire.errors import ErrorCode, WireError

log = logging.getLogger(__name__)


class Coordinator(Protocol):
    """Of one partition, for as long as it is led here in one epoch."""

    @property
    def log(self) -> StateLog: ...

    async def load(self) -> None:
        """Read `log`; once. Raises BrokerError, WireError."""
        ...

    async def run(self) -> None:
        """What happens by time alone; ends only by being cancelled."""
        ...

    def end(self) -> None:
        """The leadership is over: whoever waits is told so, and nothing is written any more."""
        ...


C = TypeVar("C", bound=Coordinator)
T = TypeVar("T")


class Led(Generic[C]):
    """A partition that is led here. `error`: why it cannot be used."""

    def __init__(self, coordinator: C) -> None:
        self.coordinator = coordinator
        self.is_read = False
        self.is_loaded = False
        """And nothing of what was read can be lost."""
        self.error: BrokerError | None = None
        self.missed: list[Callable[[C], None]] = []
        """What it was told while it was read."""
        self.task: asyncio.Task[None] | None = None


class Coordinators(Generic[C]):
    """`make` gives the coordinator of a partition."""

    def __init__(self, host: CoordinatorHost, topic: InternalTopic, make: Callable[[StateLog], C]) -> None:
        self.topic = topic
        self._host = host
        self._make = make
        self._led: dict[int, Led[C]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._hands_over = False
        # One after the other: together they would take the event loop for as many steps at once.
        self._reading = asyncio.Lock()

    # -- leadership ------------------------------------------------------------------------------------------------

    def leads(self, index: int, leader_epoch: int | None) -> None:
        """This broker leads the partition from now on, in that epoch; None: it does not any more."""
        earlier = self._led.get(index)
        if earlier is not None:
            if earlier.coordinator.log.leader_epoch == leader_epoch:
                return
            self._end(self._led.pop(index))
        if leader_epoch is not None:
            self._begin(index, leader_epoch)

    def _begin(self, index: int, leader_epoch: int) -> None:
        state = StateLog(self._host, self.topic.name, index, leader_epoch)
        led = self._led[index] = Led(self._make(state))
        with suppress(BrokerError):
            # Of a new topic there is nothing to load, and nobody needs to be sent away for it.
            state.is_read = led.is_read = led.is_loaded = state.is_empty
        if self._tasks is not None:
            led.task = self._tasks.create_task(self._live(led))

    def _end(self, led: Led[C]) -> None:
        led.coordinator.end()
        if led.task is not None:
            led.task.cancel()

    def hand_over(self) -> None:
        """Nobody is answered any more: this broker goes, and is out of the ISR before it hears who leads in its place.
        That one's answers do not wait for it, so what it still says itself might be old.
        """
        self._hands_over = True

    async def run(self) -> None:
        """Keep the coordinators going; ends only by being cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for led in self._led.values():
                    led.task = tasks.create_task(self._live(led))
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None

    async def _live(self, led: Led[C]) -> None:
        while not led.is_loaded and led.error is None:
            await self._read(led)
            try:
                await self._confirm(led, REPLICATION_TIMEOUT_MS)
            except BrokerError as error:
                log.warning("%s is not served yet: %s", led.coordinator.log.name, error)
            if not led.is_loaded and led.error is None:
                await asyncio.sleep(COORDINATOR_LOAD_RETRY_MS / 1000)
        if led.error is None:
            await led.coordinator.run()

    async def load(self) -> None:
        """Load what is led now; nobody waits here for what cannot be read, or lacks replicas yet."""
        for led in list(self._led.values()):
            await self._read(led)
            with suppress(BrokerError):
                await self._confirm(led, 0)

    async def _read(self, led: Led[C]) -> None:
        async with self._reading:
            if led.is_read or led.error is not None:
                return
            state = led.coordinator.log
            try:
                await led.coordinator.load()
            except (LogDamaged, PartitionOffline, WireError) as error:
                hint = self._host.damage_hint(self.topic.name, state.index)
                log.error("%s cannot be loaded, what it keeps is not served: %s; %s", state.name, error, hint)  # noqa: TRY400 - foreseen: the text says all
                led.error = BrokerError(
                    f"{state.name} cannot be loaded: {error}", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, hint=hint
                )
            except BrokerError as error:
                log.warning("%s is not loaded yet, tried again: %s", state.name, error)
                led.coordinator.end()
                led.coordinator = self._make(StateLog(self._host, self.topic.name, state.index, state.leader_epoch))
            else:
                led.is_read = True
                for step in led.missed:
                    step(led.coordinator)

    async def _confirm(self, led: Led[C], timeout_ms: int) -> None:
        """What was not replicated when the leadership began might be lost with this broker. Raises BrokerError."""
        if led.is_read:
            await led.coordinator.log.all_replicated(timeout_ms)
            led.is_loaded = True

    # -- requests --------------------------------------------------------------------------------------------------

    async def partition_for(self, key: str) -> int:
        """Where a group or a transactional id is kept; the topic is made if need be. Raises BrokerError."""
        shape = self._host.topic_shape(self.topic.name)
        if shape is None:
            await self._host.make_internal_topic(self.topic)
            shape = self._host.topic_shape(self.topic.name)
        if shape is None:
            text = f"{self.topic.name} is not there yet"
            raise BrokerError(text, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, hint="ask again")
        return partition_for(key, shape.partitions)

    async def at(self, key: str) -> C:
        """The coordinator of `key`. Raises BrokerError: NOT_COORDINATOR where it is another broker's,
        COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE where it is damaged or offline.
        """
        index = await self.partition_for(key)
        led = self._led.get(index)
        if led is None:
            raise NotCoordinator(f"{self.topic.name}-{index} is not led here")
        self._check(led)
        return led.coordinator

    def _check(self, led: Led[C]) -> None:
        if self._hands_over:
            text = f"{led.coordinator.log.name} is handed over, this broker stops"
            raise BrokerError(text, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, hint="ask again")
        if led.error is not None:
            raise led.error
        state = led.coordinator.log
        state.check_leading()
        if not led.is_loaded:
            text = f"{state.name} is being loaded"
            raise BrokerError(text, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, hint="ask again")

    async def require(self, key: str) -> None:
        """Raises BrokerError where `key` cannot be asked about here, now or soon."""
        led = self._led.get(await self.partition_for(key))
        if led is not None and led.error is not None:
            raise led.error
        if led is not None:
            with suppress(NotCoordinator):
                led.coordinator.log.check_leading()

    async def ask(self, key: str, step: Callable[[C], T]) -> T:
        """What `step` says, or raises, when all that it was made from is replicated. Raises BrokerError."""
        coordinator = await self.at(key)
        try:
            result = step(coordinator)
        except BrokerError:
            await coordinator.log.replicated(key)
            raise
        await coordinator.log.replicated(key)
        return result

    async def wait_for(self, key: str, step: Callable[[C], Awaitable[T]]) -> T:
        """As `ask`, of a step that waits for others."""
        coordinator = await self.at(key)
        try:
            result = await step(coordinator)
        except BrokerError:
            await coordinator.log.replicated(key)
            raise
        await coordinator.log.replicated(key)
        return result

    # -- all of them -----------------------------------------------------------------------------------------------

    async def ask_all(self, step: Callable[[C], T]) -> list[T]:
        """What `step` says at each of them, as `ask`. Raises BrokerError where one cannot say, as
        the others are not all.
        """
        results = []
        for led in list(self._led.values()):
            self._check(led)
            result = step(led.coordinator)
            try:
                await led.coordinator.log.all_replicated()
            except NotCoordinator:
                if not led.coordinator.log.is_over:
                    raise
                # The next one tells.
                continue
            results.append(result)
        return results

    def tell_all(self, step: Callable[[C], None]) -> None:
        """`step` raises nothing. One that is being loaded is told when it knows what stands in its log: before, it
        would take the step for a part of that, and of what it reads later undo it.
        """
        for led in self._led.values():
            if led.is_read:
                step(led.coordinator)
            elif led.error is None:
                led.missed.append(step)

    def partition(self, index: int) -> C | None:
        """Also while it is being loaded."""
        led = self._led.get(index)
        return None if led is None or led.error is not None else led.coordinator
