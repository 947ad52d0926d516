"""Orders to a broker that cannot be reached: they wait, and what lasts is told."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from broker.cluster.orders import BrokerUnreachable, Carried, Failures, LeaderAndIsr, StopReplica, UpdateMetadata
from broker.controller.errors import BrokerGone
from broker.controller.queues import PATIENCE_S, RETRY_PAUSE_S, BrokerQueue
from broker.errors import LogStorageError
from tests.broker.clock import PausesAlone

ORDER = UpdateMetadata(1, 1, 1, {}, frozenset(), {})


class Unreachable:
    """So many times, or for good."""

    def __init__(self, times: float) -> None:
        self.times = times
        self.asked = 0
        self.learnt: list[UpdateMetadata] = []

    async def learn(self, order: UpdateMetadata) -> None:
        await asyncio.sleep(0)
        self.asked += 1
        if self.asked <= self.times:
            raise BrokerUnreachable("broker 2 cannot be reached")
        self.learnt.append(order)

    async def lead_and_follow(self, order: LeaderAndIsr) -> Carried:
        raise NotImplementedError

    async def stop(self, order: StopReplica) -> Failures:
        raise NotImplementedError


def queue_to(broker: Unreachable) -> BrokerQueue:
    return BrokerQueue(
        2, broker, PausesAlone(), lambda: None, lambda node, order, carried: None, lambda order, refusals: None
    )


@pytest.mark.parametrize(("unreached_s", "told"), [(PATIENCE_S / 2, 0), (PATIENCE_S * 3, 1)])
async def test_a_broker_that_is_away_for_a_moment_is_no_warning(
    caplog: pytest.LogCaptureFixture, unreached_s: float, told: int
) -> None:
    caplog.set_level(logging.WARNING)
    broker = Unreachable(unreached_s / RETRY_PAUSE_S)
    queue = queue_to(broker)
    answer = queue.put(ORDER)
    running = asyncio.create_task(queue.run())
    assert await answer == {}
    assert broker.learnt == [ORDER]
    assert caplog.messages == ["broker 2 cannot be reached; its orders wait until it is reached, or gone"][:told]
    running.cancel()


async def test_a_broker_that_goes_away_with_an_order_on_its_way_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    broker = Unreachable(float("inf"))
    queue = queue_to(broker)
    answer = queue.put(ORDER)
    running = asyncio.create_task(queue.run())
    while broker.asked <= 3:  # turn by turn: a pause of ours would be many of its
        await asyncio.sleep(0)
    queue.close()
    await running
    with pytest.raises(BrokerGone):
        await answer
    assert caplog.messages == []


class Refusing(Unreachable):
    """One whose disk takes the complete order at the second try."""

    def __init__(self) -> None:
        super().__init__(0)
        self.ordered: list[LeaderAndIsr] = []

    async def lead_and_follow(self, order: LeaderAndIsr) -> Carried:
        await asyncio.sleep(0)
        self.ordered.append(order)
        if len(self.ordered) == 1:
            raise LogStorageError("the disk is full")
        return Carried({}, {})


async def test_nothing_is_made_before_a_complete_order_was_carried_out() -> None:
    """Refused, it is given again, and would take for strays what was made meanwhile."""
    broker = Refusing()
    complete = LeaderAndIsr(1, 1, 1, {}, {}, {}, complete=True)
    making = replace(complete, complete=False)
    queue = queue_to(broker)
    running = asyncio.create_task(queue.run())
    made = asyncio.create_task(queue.make(making))
    await asyncio.wait([queue.put(complete)])
    assert await queue.put(ORDER) == {}
    assert broker.ordered == [complete]
    queue.put(complete)
    assert await made == {}
    assert broker.ordered == [complete, complete, making]
    running.cancel()
