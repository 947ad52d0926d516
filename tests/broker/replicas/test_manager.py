"""Orders on real files: what counts, what is made, what is damage, and what goes."""

from __future__ import annotations

import asyncio
import errno
import shutil
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.cluster.metadata import NO_LEADER, Configs, PartitionState, TopicState
from broker.cluster.orders import (
    LeaderAndIsr,
    ReplicaLog,
    StaleBrokerEpoch,
    StaleController,
    StopReplica,
    UpdateMetadata,
)
from broker.cluster.view import ClusterView
from broker.log.disk import OS_DISK, Disk, OsDisk
from broker.log.guard import Unfinished
from broker.replicas.files import NotNew, PartitionFiles
from broker.replicas.manager import ReplicaManager
from broker.topics.folders import PartitionFolders
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from tests.broker.lone_broker import nobody_to_follow
from tests.broker.wire_client import batch_of

US, OTHER = 1, 2
BROKER_EPOCH = 7
T0 = TopicPartition("t", 0)


def topic(*states: PartitionState, name: str = "t", **configs: str) -> TopicState:
    return TopicState(name, uuid.uuid4(), states, configs, version=0, config_version=0)


def state(leader: int, epoch: int = 0, isr: tuple[int, ...] = (US, OTHER)) -> PartitionState:
    return PartitionState(leader, epoch, (US, OTHER), isr, version=0)


WAITING = PartitionState(NO_LEADER, -1, (US, OTHER), ())


def order(
    told: TopicState, *, epoch: int = 1, broker_epoch: int = BROKER_EPOCH, new: bool = False, complete: bool = False
) -> LeaderAndIsr:
    states = {TopicPartition(told.name, index): each for index, each in enumerate(told.partitions)}
    made = frozenset(states) if new else frozenset()
    return LeaderAndIsr(OTHER, epoch, broker_epoch, {told.name: told}, states, {}, new=made, complete=complete)


def nothing(epoch: int = 1, unreadable: frozenset[str] = frozenset()) -> LeaderAndIsr:
    return LeaderAndIsr(OTHER, epoch, BROKER_EPOCH, {}, {}, {}, complete=True, unreadable=unreadable)


def stop(told: TopicState, *, leader_epoch: int = 0) -> StopReplica:
    return StopReplica(OTHER, 1, BROKER_EPOCH, {told.name: told.topic_id}, {T0: leader_epoch}, delete=True)


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[ReplicaManager]:
    manager = opened(tmp_path)
    yield manager
    manager.close()


def opened(folder: Path, disk: Disk = OS_DISK) -> ReplicaManager:
    clock = SystemClock()
    files = PartitionFiles(PartitionFolders(folder, disk), clock, US, {})
    return ReplicaManager(files, ClusterView(), nobody_to_follow(), clock, US, lambda: BROKER_EPOCH)


async def made_and_led(manager: ReplicaManager) -> TopicState:
    new = topic(WAITING)
    assert (await manager.lead_and_follow(order(new, new=True))).failures == {}
    led = replace(new, partitions=(state(US),))
    assert (await manager.lead_and_follow(order(led))).failures == {}
    return led


def append(manager: ReplicaManager, value: str) -> None:
    partition = manager.topics["t"].partitions[0]
    partition.log.append(memoryview(batch_of(value)), leader_epoch=partition.leader_epoch)


async def test_a_new_partition_is_nobodys_until_it_is_written_who_leads(
    tmp_path: Path, manager: ReplicaManager
) -> None:
    told: list[tuple[TopicPartition, int | None]] = []
    manager.leadership_listeners.append(lambda where, epoch: told.append((where, epoch)))
    new = topic(WAITING)
    await manager.lead_and_follow(order(new, new=True))
    assert (tmp_path / "t-0" / "partition.metadata").exists()
    assert (manager.topics, told) == ({}, [])
    led = replace(new, partitions=(state(US),))
    for _ in range(2):
        assert (await manager.lead_and_follow(order(led))).failures == {}
        assert manager.topics["t"].partitions[0].leading is not None
    assert told == [(T0, 0)], "an order that comes twice is one"
    await manager.lead_and_follow(order(replace(led, partitions=(state(OTHER, 1),))))
    assert manager.topics["t"].partitions[0].leading is None
    assert told == [(T0, 0), (T0, None)]


async def test_an_order_that_comes_again_while_it_is_carried_out_is_carried_out_once(
    tmp_path: Path, manager: ReplicaManager
) -> None:
    """The controller did not hear of it in time. Two logs in one folder would overwrite each other."""
    new = topic(*[WAITING] * 20)
    first, again = (asyncio.create_task(manager.lead_and_follow(order(new, new=True))) for _ in range(2))
    assert (await first).failures == (await again).failures == {}
    assert (await manager.lead_and_follow(order(replace(new, partitions=(state(US),) * 20)))).failures == {}
    append(manager, "a")
    assert len(list(tmp_path.glob("t-*"))) == 20
    assert manager.topics["t"].partitions[0].log.log_end_offset == 1


async def test_orders_of_before_are_refused(manager: ReplicaManager) -> None:
    led = await made_and_led(manager)
    assert (await manager.lead_and_follow(order(replace(led, partitions=(state(OTHER, 5),)), epoch=3))).failures == {}
    with pytest.raises(StaleController):
        await manager.lead_and_follow(order(led, epoch=2))
    with pytest.raises(StaleController):
        await manager.stop(stop(led))
    with pytest.raises(StaleController):
        await manager.learn(UpdateMetadata(OTHER, 2, BROKER_EPOCH, {}, frozenset(), {}))
    with pytest.raises(StaleBrokerEpoch):
        await manager.lead_and_follow(order(led, epoch=3, broker_epoch=BROKER_EPOCH - 1))
    late = replace(led, partitions=(state(US, 4),))
    assert (await manager.lead_and_follow(order(late, epoch=3))).failures == {T0: ErrorCode.STALE_CONTROLLER_EPOCH}
    assert manager.topics["t"].partitions[0].leader_epoch == 5


@pytest.mark.parametrize("leader", [US, OTHER])
async def test_metadata_of_an_earlier_day_are_not_followed(
    tmp_path: Path, manager: ReplicaManager, caplog: pytest.LogCaptureFixture, leader: int
) -> None:
    """Its epochs were given out already: other replicas may have other records under them."""
    led = await made_and_led(manager)
    newest = replace(led, partitions=(state(US, 7),))
    assert (await manager.lead_and_follow(order(newest))).failures == {}
    append(manager, "a")
    manager.close()
    again = opened(tmp_path)
    older = replace(led, partitions=(state(leader, 4),))
    carried = await again.lead_and_follow(order(older, complete=True))
    assert carried == ({T0: ErrorCode.FENCED_LEADER_EPOCH}, {T0: ReplicaLog(7, ((7, 0),), 1, 0)})
    partition = again.topics["t"].partitions[0]
    assert (partition.leading, partition.offline, partition.log.log_end_offset) == (None, None, 1)
    assert "has records of leader epoch 7 here, the metadata are at 4" in caplog.text
    assert (await again.lead_and_follow(order(replace(led, partitions=(state(US, 8),))))).failures == {}
    append(again, "b")
    assert partition.log.log_end_offset == 2
    again.close()


async def test_who_is_in_sync_and_has_no_folder_is_damaged_and_who_is_not_begins_empty(
    tmp_path: Path, manager: ReplicaManager
) -> None:
    led = await made_and_led(manager)
    append(manager, "a")
    manager.close()
    shutil.rmtree(tmp_path / "t-0")
    again = opened(tmp_path)
    assert (await again.lead_and_follow(order(led, complete=True))).failures == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert again.topics["t"].partitions[0].offline is not None
    assert not (tmp_path / "t-0").exists()
    follower = opened(tmp_path)
    out_of_sync = replace(led, partitions=(state(OTHER, 1, isr=(OTHER,)),))
    assert (await follower.lead_and_follow(order(out_of_sync, complete=True))).failures == {}
    assert follower.topics["t"].partitions[0].log.log_end_offset == 0
    follower.close()


async def test_a_log_that_ended_in_the_middle_of_a_change_is_opened_by_the_next_order(manager: ReplicaManager) -> None:
    led = await made_and_led(manager)
    append(manager, "a")
    ended = manager.topics["t"].partitions[0]
    ended.log._guard.failed(Unfinished(errno.ENOSPC, "No space left on device"))
    assert ended.offline is not None
    assert (await manager.lead_and_follow(order(led))).failures == {}
    append(manager, "b")
    assert manager.topics["t"].partitions[0].log.log_end_offset == 2


async def test_what_no_order_names_is_kept_and_taken_in_again_or_deleted_by_order_alone(
    tmp_path: Path, manager: ReplicaManager, caplog: pytest.LogCaptureFixture
) -> None:
    """The metadata may have lost it, or be an old copy."""
    led = await made_and_led(manager)
    append(manager, "a")
    stray = f"t-0.{led.topic_id.hex}-stray"
    await manager.lead_and_follow(nothing())
    assert (manager.topics, [path.name for path in tmp_path.iterdir()]) == ({}, [stray])
    assert f"and where they are not wanted: rm -r {tmp_path / stray}" in caplog.text
    again = replace(led, partitions=(state(US, 1),))
    assert (await manager.lead_and_follow(order(again, complete=True))).failures == {}
    assert manager.topics["t"].partitions[0].log.log_end_offset == 1
    assert [path.name for path in tmp_path.iterdir()] == ["t-0"]

    another = topic(WAITING)
    assert (await manager.lead_and_follow(order(another, new=True))).failures == {}
    assert (await manager.lead_and_follow(order(replace(another, partitions=(state(US),))))).failures == {}
    append(manager, "of another topic of that name")
    assert {path.name for path in tmp_path.iterdir()} == {"t-0", stray}
    assert await manager.stop(stop(led, leader_epoch=9)) == {}
    await manager.removing.sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["t-0"]
    assert manager.topics["t"].partitions[0].log.log_end_offset == 1


async def test_what_was_set_aside_long_ago_is_no_new_partition(tmp_path: Path, manager: ReplicaManager) -> None:
    led = await made_and_led(manager)
    append(manager, "a")
    await manager.lead_and_follow(nothing())
    with pytest.raises(NotNew):
        await manager.lead_and_follow(order(replace(led, partitions=(WAITING,)), new=True))
    follower = replace(led, partitions=(state(OTHER, 1, isr=(OTHER,)),))
    assert (await manager.lead_and_follow(order(follower))).failures == {}
    assert manager.topics["t"].partitions[0].log.log_end_offset == 1, "its leader says what of it is right"


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"\xff")]
)
async def test_a_deletion_removes_nothing_of_which_it_is_not_known_whose_it_is(
    tmp_path: Path, manager: ReplicaManager, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object]
) -> None:
    """The deletion of an earlier topic comes late, and finds the records of a later one of its name."""
    await made_and_led(manager)
    append(manager, "a")
    damage(tmp_path / "t-0" / "partition.metadata")
    assert await manager.stop(stop(topic(WAITING), leader_epoch=9)) == {}
    await manager.removing.sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["t-0"]
    assert f"{tmp_path / 't-0'} stays" in caplog.text
    append(manager, "b")


def test_a_stray_has_a_name_that_a_file_system_takes(tmp_path: Path) -> None:
    folders, topic_id, name = PartitionFolders(tmp_path), uuid.uuid4(), "n" * 249
    (path,) = folders.prepare(name, [12345], topic_id)
    (path / "00000000000000000000.log").write_bytes(b"r")
    assert folders.set_aside(path) is None
    (stray,) = tmp_path.iterdir()
    assert len(stray.name) <= 255
    assert folders.find(name, 12345, topic_id) == path
    assert list(tmp_path.iterdir()) == [path]


async def test_a_complete_order_removes_what_it_does_not_name_and_has_no_records(
    tmp_path: Path, manager: ReplicaManager
) -> None:
    await made_and_led(manager)
    await manager.lead_and_follow(order(topic(WAITING, name="prepared"), new=True))
    await manager.lead_and_follow(nothing(unreadable=frozenset({"t"})))
    assert [path.name for path in tmp_path.glob("*-0")] == ["t-0"], "of what cannot be read nothing is concluded"
    assert manager.topics["t"].partitions[0].leading is not None
    await manager.lead_and_follow(nothing())
    assert (manager.topics, list(tmp_path.glob("*-0"))) == ({}, [])
    await manager.removing.sweep()
    assert list(tmp_path.iterdir()) == []


class ToldOfMoves(OsDisk):
    """Calls back before a file or folder gets another name."""

    def __init__(self) -> None:
        super().__init__()
        self.moving: Callable[[Path], None] = lambda path: None

    def replace(self, source: Path, target: Path) -> None:
        self.moving(source)
        super().replace(source, target)


async def test_who_leads_does_not_wait_until_strays_are_looked_for(tmp_path: Path) -> None:
    """A new controller's complete order to a broker that has everything: what is not led meanwhile is down."""
    disk = ToldOfMoves()
    manager = opened(tmp_path, disk)
    led = await made_and_led(manager)
    await manager.learn(UpdateMetadata(OTHER, 1, BROKER_EPOCH, {"t": led}, frozenset(), {}, complete=True))
    shutil.copytree(tmp_path / "t-0", tmp_path / "stray-7")
    epochs: list[int] = []

    def noted(path: Path) -> None:
        if path.name == "stray-7":
            epochs.append(manager.topics["t"].partitions[0].leader_epoch)

    disk.moving = noted
    again = replace(led, partitions=(state(US, 3),))
    assert (await manager.lead_and_follow(order(again, complete=True))).failures == {}
    assert epochs == [3]
    assert not (tmp_path / "stray-7").exists()
    manager.close()


async def test_a_topic_made_anew_has_nothing_of_the_one_before_and_outlives_its_end(
    tmp_path: Path, manager: ReplicaManager
) -> None:
    old = await made_and_led(manager)
    append(manager, "old")
    new = await made_and_led(manager)
    assert new.topic_id != old.topic_id
    assert await manager.stop(stop(old, leader_epoch=9)) == {}
    assert manager.topics["t"].topic_id == new.topic_id
    assert manager.topics["t"].partitions[0].log.log_end_offset == 0
    assert str(new.topic_id) in (tmp_path / "t-0" / "partition.metadata").read_text()
    assert await manager.stop(stop(new)) == {}
    assert (manager.topics, list(tmp_path.glob("t-*"))) == ({}, [])


async def test_a_broker_that_begins_takes_no_orders_of_controllers_before(manager: ReplicaManager) -> None:
    manager.follow_controller(3)
    with pytest.raises(StaleController):
        await manager.lead_and_follow(nothing(epoch=2))
    assert (await manager.lead_and_follow(nothing(epoch=3))).failures == {}


async def test_a_controller_that_is_followed_while_partitions_are_made_gets_none(
    tmp_path: Path, manager: ReplicaManager
) -> None:
    making = asyncio.create_task(manager.lead_and_follow(order(topic(*[WAITING] * 50), new=True)))
    await asyncio.sleep(0)
    await manager.lead_and_follow(nothing(epoch=2))
    with pytest.raises(StaleController):
        await making
    assert list(tmp_path.glob("t-*")) == []


async def test_newer_configs_than_an_order_has_hold(manager: ReplicaManager) -> None:
    led = await made_and_led(manager)
    manager.learn_configs("t", Configs({"retention.ms": "7"}, 3))
    grown = replace(led, partitions=(state(US, 1), WAITING))
    new = frozenset({TopicPartition("t", 1)})
    states = {TopicPartition("t", 1): WAITING}
    await manager.lead_and_follow(LeaderAndIsr(OTHER, 1, BROKER_EPOCH, {"t": grown}, states, {}, new=new))
    await manager.lead_and_follow(order(replace(grown, partitions=(state(US, 1), state(US)))))
    partitions = manager.topics["t"].partitions
    assert [partitions[index].log.config.retention_ms for index in (0, 1)] == [7, 7]
