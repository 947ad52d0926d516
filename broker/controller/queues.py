"""The controller's orders on their way: to each broker in order, one at a time, each until it is carried out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from broker.base.clock import Clock
from broker.cluster.orders import (
    BrokerOrders,
    BrokerUnreachable,
    Carried,
    Failures,
    LeaderAndIsr,
    Order,
    StaleBrokerEpoch,
    StaleController,
    StopReplica,
)
from broker.controller.errors import BrokerGone
from broker.errors import BrokerError

log = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 0.1
PATIENCE_S: Final = 20.0
"""A broker that cannot be reached for so long is told: more than the session of one that was killed takes to end."""

Answer = asyncio.Future[Failures]


class BrokerQueue:
    """To one broker in one life of it. Before a complete order is carried out, none to make new partitions goes out: it
    would take them for strays.
    """

    def __init__(
        self,
        node_id: int,
        broker: BrokerOrders,
        clock: Clock,
        deposed: Callable[[], None],
        answered: Callable[[int, LeaderAndIsr, Carried], None],
        refused: Callable[[Order, int], None],
    ) -> None:
        """`deposed` is called when the broker knows of a later controller, `answered` with an order to lead and follow
        that was carried out and what came of it, `refused` with one that was not, and how many it refused in a row.
        """
        self.node_id = node_id
        self._broker = broker
        self._clock = clock
        self._deposed = deposed
        self._answered = answered
        self._refused = refused
        self._refusals = 0
        self._orders: asyncio.Queue[tuple[Order, Answer]] = asyncio.Queue()
        self._pending: set[Answer] = set()
        self._begun = asyncio.Event()
        self._closed = False

    def put(self, order: Order) -> Answer:
        """Its answer raises BrokerGone, and what the broker raised."""
        answer = self._answer()
        self._orders.put_nowait((order, answer))
        return answer

    async def make(self, order: LeaderAndIsr) -> Failures:
        """Has new partitions made, at the broker's leisure: orders to lead do not wait for that. Raises as `put`."""
        answer = self._answer()
        if not self._closed:
            begun = asyncio.ensure_future(self._begun.wait())
            both: list[asyncio.Future[Any]] = [begun, answer]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
            if not answer.done():
                await self._deliver(order, answer)
        return await answer

    def _answer(self) -> Answer:
        answer: Answer = asyncio.get_running_loop().create_future()
        # Not everybody who gives an order waits for its answer.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._closed:
            answer.set_exception(self._gone())
        else:
            self._pending.add(answer)
            answer.add_done_callback(self._pending.discard)
        return answer

    def _gone(self) -> BrokerGone:
        return BrokerGone(f"broker {self.node_id} went away before it had carried out what it was ordered")

    def close(self) -> None:
        """The broker is gone, or this controller is."""
        self._closed = True
        for answer in list(self._pending):
            if not answer.done():
                answer.set_exception(self._gone())

    async def run(self) -> None:
        """Ends with `close`, by being cancelled, or when the broker says that it has another life or controller."""
        while not self._closed:
            order, answer = await self._orders.get()
            refused = await self._deliver(order, answer)
            if not refused and isinstance(order, LeaderAndIsr) and order.complete:
                self._begun.set()
            self._refusals = self._refusals + 1 if refused else 0
            if refused and not self._closed:
                self._refused(order, self._refusals)

    async def _deliver(self, order: Order, answer: Answer) -> bool:
        """Whether the broker refused it, for now."""
        try:
            carried = await self._until_reached(order)
        except StaleController as error:
            log.warning("broker %d knows of a later controller: %s", self.node_id, error)
            self.close()
            self._deposed()
            return False
        except StaleBrokerEpoch:
            self.close()
            return False
        except BrokerUnreachable as error:  # it is gone, or this controller is: who waits for the order was told
            log.info("broker %d went away with an order on its way: %s", self.node_id, error)
            return False
        except Exception as error:  # whatever one order meets, those behind it go on; who waits for it is told
            level = logging.WARNING if isinstance(error, BrokerError) else logging.ERROR
            log.log(level, "broker %d did not carry out an order: %s", self.node_id, error, exc_info=level > 30)
            if not answer.done():
                answer.set_exception(error)
            return True
        if not answer.done():
            answer.set_result(carried.failures)
        if isinstance(order, LeaderAndIsr) and not self._closed:
            self._answered(self.node_id, order, carried)
        return False

    async def _until_reached(self, order: Order) -> Carried:
        begun_s, told = self._clock.monotonic(), False
        while True:
            try:
                if isinstance(order, LeaderAndIsr):
                    return await self._broker.lead_and_follow(order)
                if isinstance(order, StopReplica):
                    return Carried(await self._broker.stop(order), {})
                await self._broker.learn(order)
            except BrokerUnreachable as error:
                if self._closed:
                    raise
                # A broker that stops is gone in a moment, and no news.
                if not told and self._clock.monotonic() - begun_s >= PATIENCE_S:
                    log.warning("%s; its orders wait until it is reached, or gone", error)
                    told = True
                await self._clock.sleep(RETRY_PAUSE_S)
            else:
                return Carried({}, {})
