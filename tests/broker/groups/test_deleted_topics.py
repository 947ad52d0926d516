"""Offsets of topics that are deleted: with members, in a transaction, on a full disk, over a restart."""

import shutil
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.coordination.internal_log import Producer
from broker.groups.formats import Committed
from broker.groups.limits import OFFSET_TOMBSTONE_RETRY_MS, OFFSETS_RETENTION_MS
from broker.transactions.markers import Marker
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from tests.broker.clock import ManualClock
from tests.broker.coordinator_host import Host, at_once
from tests.broker.groups.test_coordinator import FLIGHTS, commit, start
from tests.broker.log.support import FaultyDisk


async def test_a_deleted_topic_takes_its_offsets_along(tmp_path: Path) -> None:
    host = start(tmp_path)
    host.groups.check_commit("g", "", None, -1)
    commit(host, 9)
    host.groups.forget_topic("flights")
    assert not host.groups.offsets.has_any("g")
    host.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_deleted_topic_takes_the_offsets_of_an_open_transaction_along(tmp_path: Path, restarted: bool) -> None:
    """Else the group would stand at 9 in the new topic of that name, and skip its records."""
    host = start(tmp_path)
    producer = Producer(500, 0)
    host.groups.check_commit("g", "", None, -1, transactional=True)
    commit(host, 9, producer=producer)
    host.groups.forget_topic("flights")
    if restarted:
        host = host.restart()
    assert not host.groups.offsets.has_any("g")
    at_once(host.markers.write(Marker(producer, True, 9), [TopicPartition(OFFSETS_TOPIC, 0)]))
    assert host.groups.offsets.of("g").committed == {}
    assert host.restart().groups.offsets.of("g").committed == {}


def test_an_offset_after_the_topics_deletion_in_the_same_transaction_counts(tmp_path: Path) -> None:
    host = start(tmp_path)
    producer = Producer(500, 0)
    host.groups.check_commit("g", "", None, -1, transactional=True)
    commit(host, 9, producer=producer)
    host.groups.forget_topic("flights")
    commit(host, 2, producer=producer)
    at_once(host.markers.write(Marker(producer, True, 9), [TopicPartition(OFFSETS_TOPIC, 0)]))
    for again in (host, host.restart()):
        assert again.groups.offsets.of("g").committed[FLIGHTS].offset == 2


def test_an_expired_offset_stays_while_a_transaction_replaces_it(tmp_path: Path) -> None:
    clock = ManualClock()
    host = start(tmp_path, clock)
    producer = Producer(500, 0)
    host.groups.check_commit("g", "", None, -1)
    commit(host, 1)
    clock.advance(OFFSETS_RETENTION_MS)
    commit(host, 9, producer=producer)
    host.groups.expire_offsets()
    at_once(host.markers.write(Marker(producer, True, 9), [TopicPartition(OFFSETS_TOPIC, 0)]))
    assert host.groups.offsets.of("g").committed[FLIGHTS].offset == 9


@pytest.mark.parametrize("recreated", [False, True])
def test_a_topic_that_is_deleted_while_the_disk_is_full_takes_its_offsets_along(
    tmp_path: Path, recreated: bool
) -> None:
    disk, clock = FaultyDisk(), ManualClock()
    host = Host(tmp_path / "data", clock, BrokerConfig(tmp_path / "data"), disk)
    host.create_topic("flights")
    host.groups.check_commit("g", "", None, -1)
    commit(host, 9)
    disk.room_bytes = 0
    host.groups.forget_topic("flights")
    assert not host.groups.offsets.has_any("g"), "a new topic of that name starts from nothing"
    clock.advance(OFFSET_TOMBSTONE_RETRY_MS)
    host.groups.tick()
    disk.room_bytes = None
    if recreated:
        assert commit(host, 2) is ErrorCode.NONE
    clock.advance(OFFSET_TOMBSTONE_RETRY_MS)
    host.groups.tick()
    found = host.restart().groups.offsets.of("g").committed
    assert [offset.offset for offset in found.values()] == ([2] if recreated else [])


@pytest.mark.parametrize("pending", [False, True])
def test_a_start_drops_the_offsets_of_topics_that_are_gone(tmp_path: Path, pending: bool) -> None:
    """A kill between a topic's deletion and its tombstones leaves them."""
    host = start(tmp_path)
    host.create_topic("doomed")
    doomed = TopicPartition("doomed", 0)
    host.groups.check_commit("g", "", None, -1)
    commit(host, 1)
    producer = Producer(500, 0) if pending else None
    host.groups.offsets.commit("g", {doomed: Committed(9, -1, "", 0)}, is_known=lambda _: True, producer=producer)
    host.close()
    shutil.rmtree(tmp_path / "data" / "doomed-0")
    again = host.restart(clean=False)
    assert again.groups.offsets.of("g").partitions() == {FLIGHTS}
    again.create_topic("doomed")
    assert again.restart().groups.offsets.of("g").partitions() == {FLIGHTS}, "the log says so, too"
