"""One broker's time as the controller: it reads everything, orders everything, and then follows the events.

Whatever is not sure (another controller, a write of which the outcome is not known, a lost session) ends it: what comes
after reads everything again. So nothing here has to be taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Set
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from broker.base.clock import Clock
from broker.cluster.metadata import (
    DEFAULT_ENTITY,
    NO_TOPIC_ID,
    Change,
    ChangeKind,
    ConfigResource,
    Controller,
    DeletedTopic,
    LiveBroker,
)
from broker.cluster.metadata_store import ControllerMoved, MetadataConflict, MetadataStore, OutcomeUnknown
from broker.cluster.orders import BrokerOrders, Carried, LeaderAndIsr, Order, StaleBrokerEpoch
from broker.controller.cluster import Cluster, States
from broker.controller.comparing import compare
from broker.controller.deleting import carry_on, delete, order_removal, remembered
from broker.controller.errors import NotController, ReignOver
from broker.controller.issuing import (
    complete_metadata,
    complete_order,
    leader_orders,
    metadata_order,
    newest_order,
)
from broker.controller.queues import Answer, BrokerQueue
from broker.controller.validation import new_topic_id
from broker.errors import BrokerError
from broker.topics.broker_configs import topic_defaults
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)
T = TypeVar("T")

WATCHED = (
    ChangeKind.ASSIGNMENT,
    ChangeKind.BROKERS,
    ChangeKind.CONTROLLER,
    ChangeKind.CONFIGS,
    ChangeKind.ISR,
    ChangeKind.LOG_DIR_FAILURES,
    ChangeKind.TOPIC_DELETIONS,
    ChangeKind.PREFERRED_ELECTIONS,
    ChangeKind.REASSIGNMENTS,
    ChangeKind.SESSION,
)
IN_DOUBT = (OutcomeUnknown, ControllerMoved, MetadataConflict, ReignOver)

REFUSED_PAUSE_S: Final = 0.5
"""Before a broker that refused an order is asked again; doubled with each refusal."""
REFUSED_PAUSE_MAX_S: Final = 10.0
FAILED_PAUSE_S: Final = 5.0
"""Before a broker whose disk failed is asked to lead and follow again: it may have been full."""

OrdersTo = Callable[[LiveBroker], BrokerOrders]


class Reign:
    """`turn` is held by whoever decides by `cluster` and writes; nobody waits for a broker while holding it."""

    def __init__(
        self, store: MetadataStore, controller: Controller, orders_to: OrdersTo, clock: Clock, rng: random.Random
    ) -> None:
        self.store = store
        self.controller = controller
        self.cluster = Cluster({}, {})
        self.turn = asyncio.Lock()
        self.queues: dict[int, BrokerQueue] = {}
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.over = False
        self.making: set[str] = set()
        """Names of topics that are being made."""
        self.written_moves: Mapping[TopicPartition, tuple[int, ...]] = {}
        """Reassignments that tools of old wrote into the store, and that are under way."""
        self.deleted: dict[UUID, DeletedTopic] = {}
        """Topics of which brokers may still have records."""
        self._orders_to = orders_to
        self._clock = clock
        self._rng = rng
        self._tasks = asyncio.TaskGroup()
        self._requests: set[asyncio.Future[Any]] = set()

    # -- from beginning to end -------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def begun(self) -> AsyncIterator[None]:
        """Raises ReignOver (also in a group) when it is over, and what the store raises at the beginning."""
        try:
            async with self._tasks:
                await self._begin()
                yield
        finally:
            self.over = True
            for queue in self.queues.values():
                queue.close()
            for request in list(self._requests):
                if not request.done():
                    request.set_exception(_changed())

    async def _begin(self) -> None:
        async with self.turn, _ending_in_doubt():
            if await self.store.controller() != self.controller.node_id:
                raise ReignOver(f"controller epoch {self.controller.epoch} is over")
            # First: what is told from now on is told again. Who has failed says so when it is told everything.
            await self.store.take_isr_changes(self.controller)
            await self.store.take_log_dir_failures(self.controller)
            brokers, topics = await self.store.brokers(), await self.store.topics()
            await carry_on(self.store, self.controller, topics)
            for name, topic in topics.items():
                if topic.damage:
                    log.error("topic %s is offline until the next start: %s", name, topic.damage)
                elif topic.topic_id == NO_TOPIC_ID:
                    # Of a Kafka before 2.8; its own later controllers give it an id too.
                    topics[name] = await self.store.set_assignment(
                        self.controller, replace(topic, topic_id=new_topic_id(self._rng))
                    )
            self.deleted = await remembered(self.store, self.controller, topics)
            self.cluster = Cluster(topics, brokers)
            await self._take_defaults()
            await self.write(self.cluster.elections_after_taking_over())
            self._open_queues(brokers)
            log.info("controller epoch %d: broker %d, %d topics", *self.controller[1::-1], len(topics))

    @contextlib.asynccontextmanager
    async def turn_to_write(self) -> AsyncIterator[None]:
        """For what nobody asked for: whatever is in doubt raises ReignOver."""
        async with self.turn, _ending_in_doubt():
            yield

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """None: it is over already."""
        try:
            return self._tasks.create_task(work)
        except RuntimeError:
            work.close()
            return None

    def asked(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Carries a request out to its end, also when nobody waits for it any more. What is in doubt ends the reign."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._requests.add(answer)
        answer.add_done_callback(self._requests.discard)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())

        async def carried_out() -> None:
            try:
                result = await work
            except BrokerError as error:
                self.over = self.over or isinstance(error, IN_DOUBT)
                if not answer.done():
                    answer.set_exception(error)
                if isinstance(error, IN_DOUBT):
                    raise ReignOver(f"it is not known what the metadata store holds: {error}") from error
            except Exception as error:  # noqa: BLE001 - what no code was made for is told to who asked
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        carrying_out = self.spawn(carried_out())
        if carrying_out is None:
            work.close()
            answer.set_exception(_changed())
        else:
            # Where it was cancelled before it began, nobody else ends `work`.
            carrying_out.add_done_callback(lambda done: work.close())
        return answer

    async def follow(self, changes: AsyncIterator[Change], followed: Callable[[Change], Awaitable[None]]) -> None:
        """Ends only by raising ReignOver. `followed` is told of each change, in this reign's turn."""
        async for change in changes:
            await self.follow_one(change, followed)

    async def follow_one(self, change: Change, followed: Callable[[Change], Awaitable[None]]) -> None:
        """Raises ReignOver."""
        try:
            async with self.turn_to_write():
                await self._on(change)
                await followed(change)
        except ReignOver:
            self.over = True
            raise
        except BrokerError as error:
            # Nothing was written; the next event, or the next controller, finds the same.
            log.warning("the controller could not follow a change of the %s: %s", change.kind.value, error)

    # -- events ----------------------------------------------------------------------------------------------

    async def _on(self, change: Change) -> None:
        match change.kind:
            case ChangeKind.BROKERS:
                await self._on_brokers(await self.store.brokers())
            case ChangeKind.CONTROLLER:
                if await self.store.controller() != self.controller.node_id:
                    raise ReignOver(f"controller epoch {self.controller.epoch} is over")
            case ChangeKind.SESSION:
                raise ReignOver("the session is another one")
            case ChangeKind.ISR:
                await self._on_isr_changes()
            case ChangeKind.LOG_DIR_FAILURES:
                self._order_again(await self.store.take_log_dir_failures(self.controller))
            case ChangeKind.CONFIGS:
                await self._on_configs(change.name)
            case ChangeKind.TOPIC_DELETIONS:
                for name in await self.store.topic_deletions() & self.cluster.topics.keys():
                    await delete(self, name)
            case ChangeKind.ASSIGNMENT:
                # What this reign changes it knows of before its turn is over.
                if await self.store.assignment_version(change.name) != self.cluster.assignment_version(change.name):
                    raise ReignOver(f"topic {change.name} was made, changed or removed in the store by another hand")
            case ChangeKind.PREFERRED_ELECTIONS:
                if wished := await self.store.preferred_elections():
                    await self.elect_preferred(wished)
                    await self.store.end_preferred_elections(self.controller)
            case _:
                return

    async def _on_brokers(self, now: Mapping[int, LiveBroker]) -> None:
        changed = self.cluster.take_brokers(now)
        if not changed.came and not changed.gone:
            return
        for node in changed.gone | changed.restarted:
            self.queues.pop(node).close()
        elected = self.cluster.elections(self.cluster.elected(), changed.restarted)
        try:
            written = await self.write(elected, restarted=changed.restarted)
        except BrokerError as error:
            # The next event would find nothing new of them: who comes after begins with all of it.
            raise ReignOver(f"no leaders were elected after brokers came or went: {error}") from error
        self._open_queues({node: now[node] for node in changed.came})
        self.order(written, but=changed.came)
        self.tell({where.topic for where in written}, but=changed.came)

    def _open_queues(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Each is told everything first. Before that what is to be removed: it would be set aside, as no order's."""
        for node, broker in sorted(brokers.items()):
            queue = BrokerQueue(
                node, self._orders_to(broker), self._clock, self._deposed, self._note_answer, self._note_refused(node)
            )
            self.queues[node] = queue
            order_removal(self, [node], self.deleted.values())
            queue.put(complete_order(self.cluster, self.controller, node))
            queue.put(complete_metadata(self.cluster, self.controller, node))
            self.spawn(queue.run())

    def _deposed(self) -> None:
        async def end() -> None:
            raise ReignOver("a broker knows of a later controller")

        self.spawn(end())

    def _note_answer(self, node: int, order: LeaderAndIsr, carried: Carried) -> None:
        if damaged := self.cluster.take_answer(node, order.partitions, carried.failures):
            self.spawn(self._failed(node, damaged))
        if carried.logs:
            self.spawn(compare(self, node, carried.logs))

    def _note_refused(self, node: int) -> Callable[[Order, int], None]:
        def refused(order: Order, refusals: int) -> None:
            self.spawn(self._order_newest(node, order, refusals))

        return refused

    async def _order_newest(self, node: int, order: Order, refusals: int) -> None:
        """What an order was about as it is when the broker is asked again."""
        await self._clock.sleep(min(REFUSED_PAUSE_S * 2 ** (refusals - 1), REFUSED_PAUSE_MAX_S))
        async with self.turn:
            broker = self.cluster.brokers.get(node)
            if broker is not None and broker.epoch == order.broker_epoch:
                renewed = newest_order(self.cluster, self.controller, node, order)
                if renewed is not None:
                    self.queues[node].put(renewed)

    async def _failed(self, node: int, damaged: Collection[TopicPartition]) -> None:
        """Replicas that could not be opened, or led: others lead, if one is in sync, and the broker is asked again."""
        try:
            async with self.turn_to_write():
                self.announce(await self.write(self.cluster.elections_without_failed(damaged)))
        except ReignOver:
            raise
        except BrokerError as error:
            log.warning("no leader was elected in place of broker %d: %s", node, error)
        await self._clock.sleep(FAILED_PAUSE_S)
        self.order(self.cluster.still_failed(node, damaged), but=self.queues.keys() - {node})

    async def _on_isr_changes(self) -> None:
        told = await self.store.take_isr_changes(self.controller)
        known = {where: state for where in told if (state := self.cluster.state(where)) is not None}
        newest = await self.store.partition_states(known)
        self.cluster.take_joined(newest.states)
        # Who came in may be gone by now, or have another life: leaders hear of that later than this controller.
        changed = await self.write(self.cluster.elections(newest.states))
        self.order(changed)
        self.tell({where.topic for where in newest.states.keys() | changed})

    def _order_again(self, nodes: Set[int]) -> None:
        """What is offline there is in the answers (`_note_answer`)."""
        for node in nodes & self.queues.keys():
            mine = [where for where, state in self.cluster.states() if node in state.replicas]
            self.order(mine, but=self.queues.keys() - {node})

    async def _on_configs(self, path: str) -> None:
        kind, _, name = path.partition("/")
        asked = {name} if kind == "topics" else set() if path else set(self.cluster.topics)
        known = asked & self.cluster.topics.keys()
        if kind != "topics" and await self._take_defaults():
            self.announce(await self.write(self.cluster.elections(self.cluster.elected())))
        for each in known:
            self.cluster.take_configs(each, await self.store.configs(ConfigResource("topics", each)))
        # Unclean election may be allowed now.
        self.announce(await self.write(self.cluster.elections(self.cluster.elected(known))))

    async def _take_defaults(self) -> bool:
        """Whether they are other ones than before."""
        names = (str(self.controller.node_id), DEFAULT_ENTITY)
        found = [(await self.store.configs(ConfigResource("brokers", name))).values for name in names]
        before, self.cluster.defaults = self.cluster.defaults, topic_defaults(*found)
        return before != self.cluster.defaults

    # -- what is written, and then ordered -----------------------------------------------------------------------

    async def write(self, wanted: States, restarted: frozenset[int] = frozenset()) -> set[TopicPartition]:
        """The partitions that are other than before. Where leaders changed the ISR first, it is decided again."""
        changed: set[TopicPartition] = set()
        while wanted:
            epoch, epochs = self.controller.epoch, self.cluster.isr_epochs
            states = {w: replace(s, controller_epoch=epoch, isr_epochs=epochs(s)) for w, s in wanted.items()}
            written = await self.store.write_partition_states(self.controller, states)
            self.cluster.take(written.states)
            newest = await self.store.partition_states({where: states[where] for where in written.refused})
            self.cluster.take_joined(newest.states)
            changed |= written.states.keys() | newest.states.keys()
            wanted = self.cluster.elections(newest.states, restarted)
        return changed

    def announce(self, wheres: Collection[TopicPartition]) -> list[Answer]:
        return [*self.order(wheres), *self.tell({where.topic for where in wheres})]

    def order(self, wheres: Iterable[TopicPartition], but: Collection[int] = ()) -> list[Answer]:
        orders = leader_orders(self.cluster, self.controller, wheres)
        return [self.queues[node].put(order) for node, order in orders.items() if node not in but]

    def tell(self, names: Collection[str], gone: Collection[str] = (), but: Collection[int] = ()) -> list[Answer]:
        """Every broker, also when nothing changed but the brokers."""
        return [
            queue.put(metadata_order(self.cluster, self.controller, node, names, gone))
            for node, queue in self.queues.items()
            if node not in but and node in self.cluster.brokers
        ]

    async def shut_down(self, node: int, broker_epoch: int, timeout_ms: int) -> frozenset[TopicPartition]:
        """See ControllerRequests.controlled_shutdown. Who leads from now on knows it, if it answers in time."""
        async with self.turn:
            broker = self.cluster.brokers.get(node)
            if broker is None or broker.epoch != broker_epoch:
                raise StaleBrokerEpoch(f"broker {node} has another epoch than {broker_epoch}, or is gone")
            answers = self.announce(await self.write(self.cluster.elections_for_leaving(node)))
            remaining = frozenset(self.cluster.still_led_by(node))
        if answers:
            await asyncio.wait(answers, timeout=timeout_ms / 2000)
        return remaining

    async def elect_preferred(self, wheres: Collection[TopicPartition]) -> list[Answer]:
        return self.announce(await self.write(self.cluster.preferred_elections(wheres)))


def _changed() -> NotController:
    return NotController("the controller changed before the request was done")


@contextlib.asynccontextmanager
async def _ending_in_doubt() -> AsyncIterator[None]:
    try:
        yield
    except ReignOver:
        raise
    except IN_DOUBT as error:
        raise ReignOver(f"it is not known what the metadata store holds: {error}") from error
