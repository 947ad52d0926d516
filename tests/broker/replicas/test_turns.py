"""Orders and makings that are about the same partition, at once: the files are those of one after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from broker.cluster.metadata import TopicState
from broker.cluster.orders import LeaderAndIsr, StaleController, StopReplica
from broker.errors import BrokerError
from broker.log.disk import OsDisk
from broker.replicas.manager import ReplicaManager
from broker.wire.vocabulary import TopicPartition
from tests.broker.replicas.test_manager import BROKER_EPOCH, OTHER, US, WAITING, nothing, opened, order, state, topic
from tests.broker.wire_client import batch_of

MANY: Final = 20
"""More than are synced one by one."""
Asked = LeaderAndIsr | StopReplica


class Stopped(OsDisk):
    """Whoever has the disk sync everything stands there until `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.at = threading.Event()
        self.stops_each = False
        """Also who syncs one folder."""

    def fsync_directory(self, directory: Path) -> None:
        if self.stops_each:
            self.sync_all()

    def sync_all(self) -> None:
        self.at.set()
        assert self.go.wait(60)


@pytest.fixture
async def disk() -> AsyncIterator[Stopped]:
    disk = Stopped()
    yield disk
    disk.go.set()


def led(told: TopicState, by: int, epoch: int = 0) -> TopicState:
    return replace(told, partitions=(state(by, epoch, (by,)),) * len(told.partitions))


def ordinary(new: TopicState) -> Asked:
    return order(led(new, OTHER))


def complete(new: TopicState) -> Asked:
    return order(led(new, OTHER), complete=True)


def complete_of_the_next_controller(new: TopicState) -> Asked:
    return order(led(new, OTHER), epoch=2, complete=True)


def complete_without_it(new: TopicState) -> Asked:
    return nothing()


def deletion(new: TopicState) -> StopReplica:
    wheres = {TopicPartition("t", index): 0 for index in range(MANY)}
    return StopReplica(OTHER, 1, BROKER_EPOCH, {"t": new.topic_id}, wheres, delete=True)


def stop(new: TopicState) -> Asked:
    return replace(deletion(new), delete=False)


def made_again(new: TopicState) -> Asked:
    return order(new, new=True)


def made_again_in_part(new: TopicState) -> Asked:
    few = replace(new, partitions=new.partitions[:3])
    return order(few, new=True)


def made_again_by_the_next_controller(new: TopicState) -> Asked:
    return order(new, epoch=2, new=True)


def made_of_another_topic_of_that_name(new: TopicState) -> Asked:
    return order(topic(*[WAITING] * MANY), new=True)


OTHERS: Final = [
    ordinary,
    complete,
    complete_of_the_next_controller,
    complete_without_it,
    deletion,
    stop,
    made_again,
    made_again_in_part,
    made_again_by_the_next_controller,
    made_of_another_topic_of_that_name,
]


async def ask(manager: ReplicaManager, asked: Asked) -> object:
    if isinstance(asked, StopReplica):
        return await manager.stop(asked)
    return await manager.lead_and_follow(asked)


async def standing(disk: Stopped) -> None:
    await asyncio.to_thread(disk.at.wait)


async def settled() -> None:
    """Whoever does not wait for the disk has had time to go on."""
    for _ in range(20):
        await asyncio.to_thread(lambda: None)


async def both(manager: ReplicaManager, disk: Stopped, first: Asked, second: Asked) -> list[object]:
    """The second comes while the first has its files half made."""
    asked = [asyncio.create_task(ask(manager, first))]
    await standing(disk)
    asked.append(asyncio.create_task(ask(manager, second)))
    await settled()
    disk.go.set()
    async with asyncio.timeout(60):
        return list(await asyncio.gather(*asked, return_exceptions=True))


async def check_whole(folder: Path, manager: ReplicaManager) -> None:
    """What is taken on now is in the folder that has the partition's name, of each partition and nothing else."""
    for told in manager.topics.values():
        for index, partition in told.partitions.items():
            assert partition.offline is None, index
            batch = memoryview(batch_of(f"{told.name}-{index}"))
            partition.log.append(batch, leader_epoch=9)
            assert partition.log.log_end_offset == 1
    named = {f"{told.name}-{index}" for told in manager.topics.values() for index in told.partitions}
    assert named <= {path.name for path in folder.iterdir()}
    states = {told.name: told.state for told in manager.topics.values()}
    manager.close()
    again = opened(folder)
    for known in states.values():
        assert (await again.lead_and_follow(order(led(known, OTHER, 9)))).failures == {}
        for partition in again.topics[known.name].partitions.values():
            assert partition.log.log_end_offset == 1
            (found,) = partition.log.read(0, 4096, up_to=1, at_least_one=True).records
            assert f"{known.name}-{partition.index}".encode() in bytes(found)
    again.close()


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.__name__)
async def test_what_comes_while_a_partition_is_made(
    tmp_path: Path, disk: Stopped, other: Callable[[TopicState], Asked]
) -> None:
    manager, new = opened(tmp_path, disk), topic(*[WAITING] * MANY)
    asked = other(new)
    made, carried = await both(manager, disk, order(new, new=True), asked)
    assert not isinstance(carried, BaseException)
    assert isinstance(made, StaleController if asked.controller_epoch == 2 else tuple)
    await manager.removing.sweep()
    if other in (deletion, complete_without_it):
        assert (list(tmp_path.iterdir()), manager.topics) == ([], {})
    # Whatever became of it, it is led next.
    told = asked.topics["t"] if isinstance(asked, LeaderAndIsr) and asked.topics else new
    whole = replace(new, topic_id=told.topic_id)
    if other in (deletion, complete_without_it, stop):
        assert (await manager.lead_and_follow(order(whole, new=True))).failures == {}
    assert (await manager.lead_and_follow(order(led(whole, OTHER, 1), epoch=2))).failures == {}
    assert len(manager.topics["t"].partitions) == MANY
    await check_whole(tmp_path, manager)


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.__name__)
async def test_what_comes_while_a_partition_is_begun_anew(
    tmp_path: Path, disk: Stopped, other: Callable[[TopicState], Asked]
) -> None:
    """By an order to follow, of partitions that are not here: their folders are made too."""
    manager, new = opened(tmp_path, disk), topic(*[WAITING] * MANY)
    disk.stops_each = True
    _, carried = await both(manager, disk, order(led(new, OTHER)), other(new))
    assert not isinstance(carried, BrokerError)
    again = new if other is not made_of_another_topic_of_that_name else topic(*[WAITING] * MANY)
    if other in (deletion, complete_without_it, stop, made_of_another_topic_of_that_name):
        assert (await manager.lead_and_follow(order(again, epoch=2, new=True))).failures == {}
    assert (await manager.lead_and_follow(order(led(again, OTHER, 1), epoch=2))).failures == {}
    await check_whole(tmp_path, manager)


async def test_records_that_came_while_a_making_was_under_way_stay(tmp_path: Path, disk: Stopped) -> None:
    """The controller had no answer in its time, elected another broker, and has this one follow it."""
    manager, new = opened(tmp_path, disk), topic(*[WAITING] * MANY)
    making = asyncio.create_task(manager.lead_and_follow(order(new, new=True)))
    await standing(disk)
    following = asyncio.create_task(manager.lead_and_follow(order(led(new, OTHER))))
    await settled()
    assert not following.done()
    assert manager.topics == {}, "nobody has a log that is still made"
    disk.go.set()
    assert (await making).failures == (await following).failures == {}
    log = manager.topics["t"].partitions[MANY - 1].log
    log.append_as_follower(memoryview(batch_of("a")), leader_epoch=0)
    with pytest.raises(BrokerError, match="is to be new"):
        await manager.lead_and_follow(order(new, new=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"t-{index}" for index in range(MANY))
    manager.close()


async def test_an_order_about_others_does_not_wait_for_a_making(tmp_path: Path, disk: Stopped) -> None:
    manager, new = opened(tmp_path, disk), topic(*[WAITING] * MANY)
    beside = topic(WAITING, name="beside")
    making = asyncio.create_task(manager.lead_and_follow(order(new, new=True)))
    await standing(disk)
    assert (await manager.lead_and_follow(order(beside, new=True))).failures == {}
    assert (await manager.lead_and_follow(order(led(beside, US)))).failures == {}
    assert manager.topics["beside"].partitions[0].leading is not None
    assert not making.done()
    disk.go.set()
    await making
    manager.close()


async def test_a_making_between_orders_holds_up_none_for_ever(tmp_path: Path, disk: Stopped) -> None:
    """One that waits for the order before it, and for which a complete one waits; and one of two topics."""
    manager, new = opened(tmp_path, disk), topic(*[WAITING] * MANY)
    first, second = topic(WAITING, name="a"), topic(WAITING, name="b")
    wheres = {TopicPartition(name, 0): WAITING for name in ("a", "b")}
    two = replace(order(first, new=True), topics={"a": first, "b": second}, partitions=wheres, new=frozenset(wheres))
    disk.stops_each = True
    orders: list[Asked] = [ordinary(new), nothing(), two, nothing(), order(new, new=True), complete(new)]
    asked = []
    for each in orders:
        asked.append(asyncio.create_task(ask(manager, each)))
        await asyncio.sleep(0)
    await standing(disk)
    disk.go.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*asked)
    assert set(manager.topics) == {"t"}
    await check_whole(tmp_path, manager)
