"""The coordinator on real logs: the fence, markers, restarts, timeouts, a full disk."""

import asyncio
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.config import BrokerConfig
from broker.coordination.internal_log import TRANSACTIONS_TOPIC, Producer
from broker.errors import BrokerError
from broker.groups.formats import Committed
from broker.transactions.limits import MARKER_RETRY_MAX_MS, MARKER_RETRY_MS
from broker.transactions.markers import Marker
from broker.transactions.model import InitAsk, TransactionState
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.broker.clock import ManualClock
from tests.broker.coordinator_host import Host, start
from tests.broker.log.support import FaultyDisk

FLIGHTS = TopicPartition("flights", 0)
ASK = InitAsk("farshore-link", 60_000, 900_000)


async def init(host: Host) -> Producer:
    error, producer = await host.transactions.init_producer_id(ASK)
    assert error is ErrorCode.NONE
    return producer


def add(host: Host, producer: Producer, *partitions: TopicPartition) -> ErrorCode:
    return host.transactions.add_partitions("farshore-link", producer, partitions or (FLIGHTS,))


async def end(host: Host, producer: Producer, *, commit: bool) -> ErrorCode:
    return await host.transactions.end_transaction("farshore-link", producer, commit=commit)


async def tick(host: Host) -> None:
    """What the timer does."""
    for transactional_id in host.transactions.due():
        await host.transactions.attend(transactional_id)


def produce(
    host: Host, producer: Producer, sequence: int, *, transactional: bool = False, where: TopicPartition = FLIGHTS
) -> ErrorCode:
    """Append one record as Produce would -> the error code."""
    batch = encode_batch(
        [Record(0, host.clock.now_ms(), b"UA", b"flight")],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    if transactional:
        error = host.transactions.check_append("farshore-link", producer, where)
        if error is not ErrorCode.NONE:
            return error
    try:
        host.log(*where).append(memoryview(batch), leader_epoch=0)
    except BrokerError as refused:
        return refused.error_code
    return ErrorCode.NONE


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = start(tmp_path)
    host.create_topic("flights", 3)
    return host


async def test_the_fence_of_a_takeover(host: Host) -> None:
    """A mirror's next owner: same id, all partitions, abort. The old owner is shut out of every one of them."""
    partitions = [TopicPartition("flights", index) for index in range(3)]
    old = await init(host)
    assert produce(host, old, 0) is ErrorCode.NONE, "plain idempotent batches need no transaction"
    assert produce(host, old, 1) is ErrorCode.NONE

    new = await init(host)
    assert new == Producer(old.producer_id, old.producer_epoch + 1)
    assert produce(host, old, 2) is ErrorCode.NONE, "until the marker the old owner's batches still land"
    assert add(host, new, *partitions) is ErrorCode.NONE
    assert await end(host, new, commit=False) is ErrorCode.NONE

    for where in partitions:
        assert produce(host, old, 3, where=where) is ErrorCode.INVALID_PRODUCER_EPOCH, "also where it never wrote"
        assert produce(host, new, 5, where=where) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    newest = await init(host)
    assert newest.producer_epoch == new.producer_epoch + 1
    for where in partitions:
        assert produce(host, newest, 0, where=where) is ErrorCode.NONE, "a new epoch starts at sequence 0"
        assert host.log(*where).last_stable_offset == host.log(*where).log_end_offset
    assert host.log("flights", 0).log_end_offset == 5, "three batches of the old, one marker, one batch of the new"
    assert await end(host, old, commit=True) is ErrorCode.PRODUCER_FENCED
    assert add(host, old) is ErrorCode.PRODUCER_FENCED


async def test_the_fence_holds_after_a_restart(host: Host) -> None:
    old = await init(host)
    produce(host, old, 0)
    new = await init(host)
    add(host, new)
    await end(host, new, commit=False)
    for clean in (True, False):
        host = host.restart(clean=clean)
        assert produce(host, old, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert add(host, old) is ErrorCode.PRODUCER_FENCED
        newest = await init(host)
        assert newest.producer_id == old.producer_id
        assert newest.producer_epoch > new.producer_epoch
        new = newest


async def test_records_of_a_transaction_are_stable_once_it_ends(host: Host) -> None:
    producer = await init(host)
    assert produce(host, producer, 0, transactional=True) is ErrorCode.INVALID_TXN_STATE, "not added"
    add(host, producer)
    assert produce(host, producer, 0, transactional=True) is ErrorCode.NONE
    assert host.log("flights").last_stable_offset == 0
    assert await end(host, producer, commit=True) is ErrorCode.NONE
    assert host.log("flights").last_stable_offset == 2
    assert host.log("flights").aborted_transactions(0, 9) == []
    assert await end(host, producer, commit=True) is ErrorCode.NONE, "a repeat"
    add(host, producer)
    produce(host, producer, 1, transactional=True)
    assert await end(host, producer, commit=False) is ErrorCode.NONE
    assert host.log("flights").aborted_transactions(0, 9) == [(producer.producer_id, 2)]


async def test_a_start_of_the_same_producer_aborts_what_it_left_open(host: Host) -> None:
    dead = await init(host)
    add(host, dead)
    produce(host, dead, 0, transactional=True)
    reborn = await init(host)
    assert reborn.producer_id == dead.producer_id
    assert reborn.producer_epoch == dead.producer_epoch + 2, "one for the abort's markers, one of its own"
    assert host.log("flights").aborted_transactions(0, 9) == [(dead.producer_id, 0)]
    assert produce(host, dead, 1) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_an_open_transaction_survives_a_restart(host: Host) -> None:
    producer = await init(host)
    add(host, producer)
    produce(host, producer, 0, transactional=True)
    again = host.restart(clean=False)
    assert produce(again, producer, 1, transactional=True) is ErrorCode.NONE
    assert await end(again, producer, commit=True) is ErrorCode.NONE
    assert again.log("flights").last_stable_offset == 3


async def test_a_transaction_that_is_open_too_long_is_aborted(tmp_path: Path) -> None:
    clock = ManualClock()
    host = start(tmp_path, clock)
    host.create_topic("flights")
    producer = await init(host)
    add(host, producer)
    produce(host, producer, 0, transactional=True)
    clock.advance(59_999)
    await tick(host)
    assert host.log("flights").last_stable_offset == 0
    clock.advance(1)
    await tick(host)
    assert host.log("flights").last_stable_offset == 2
    assert await end(host, producer, commit=True) is ErrorCode.PRODUCER_FENCED
    assert (await init(host)).producer_epoch == producer.producer_epoch + 2


@pytest.mark.parametrize("wrong_ms", [-3_600_000, 3_600_000])
@pytest.mark.parametrize("loaded", [False, True])
async def test_no_wrong_wall_clock_ends_a_transaction_or_keeps_it_open(
    tmp_path: Path, wrong_ms: int, loaded: bool
) -> None:
    """It was set, or is that of the broker that leads the coordinator's partition now."""
    clock = ManualClock()
    host = start(tmp_path, clock)
    host.create_topic("flights")
    producer = await init(host)
    add(host, producer)
    produce(host, producer, 0, transactional=True)
    clock.set_wall(wrong_ms)
    if loaded:
        host = host.restart(clean=False)
    clock.advance(59_999)
    await tick(host)
    assert host.log("flights").last_stable_offset == 0, "it has its time"
    with host.offline("flights"):
        clock.advance(1)
        await tick(host)
        assert host.transactions.transactions["farshore-link"].state is TransactionState.PREPARE_ABORT
    clock.set_wall(wrong_ms)
    clock.advance(MARKER_RETRY_MS)
    await tick(host)
    assert host.log("flights").last_stable_offset == 2, "and no more"


async def test_the_timer_aborts_by_itself(tmp_path: Path) -> None:
    host = start(tmp_path, SystemClock())
    host.create_topic("flights")
    ended = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        timer = tasks.create_task(host.transactions.run())
        await asyncio.sleep(0)  # the timer runs up to where it waits
        _, producer = await host.transactions.init_producer_id(InitAsk("farshore-link", 50, 900_000))
        add(host, producer)
        produce(host, producer, 0, transactional=True)
        host.log("flights").append_listeners.append(ended.set)
        await ended.wait()
        timer.cancel()
    assert host.log("flights").last_stable_offset == 2


async def test_markers_that_do_not_fit_on_the_disk_are_written_later(tmp_path: Path) -> None:
    disk, clock = FaultyDisk(), ManualClock()
    host = Host(tmp_path / "data", clock, BrokerConfig(tmp_path / "data"), disk)
    host.create_topic("flights")
    producer = await init(host)
    add(host, producer)
    produce(host, producer, 0, transactional=True)
    disk.room_bytes = 200  # enough for the decision, not for the marker
    assert await end(host, producer, commit=True) is ErrorCode.NONE, "it is decided"
    assert host.transactions.transactions["farshore-link"].state is TransactionState.PREPARE_COMMIT
    assert (await host.transactions.init_producer_id(ASK))[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert add(host, producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    disk.room_bytes = None
    clock.advance(MARKER_RETRY_MS)
    await tick(host)
    assert host.log("flights").last_stable_offset == 2
    assert add(host, producer) is ErrorCode.NONE


async def test_an_offline_partition_keeps_no_marker_from_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And it is asked again ever more seldom, by itself alone."""
    clock = ManualClock()
    host = start(tmp_path, clock)
    parts = [TopicPartition(topic, 0) for topic in ("a", "b", "c")]
    for where in parts:
        host.create_topic(where.topic)
    producer = await init(host)
    add(host, producer, *parts)
    for where in parts:
        assert produce(host, producer, 0, transactional=True, where=where) is ErrorCode.NONE
    with host.offline("a"):
        assert await end(host, producer, commit=True) is ErrorCode.NONE, "it is decided"
        assert [host.log(*where).last_stable_offset for where in parts[1:]] == [2, 2]
        assert "a-0 (KAFKA_STORAGE_ERROR)" in caplog.text
        for _ in range(120):
            clock.advance(MARKER_RETRY_MS)
            await tick(host)
        assert 5 < len(caplog.records) < 13, "in a minute"
        assert [host.log(*where).log_end_offset for where in parts[1:]] == [2, 2], "no second marker"
    clock.advance(MARKER_RETRY_MAX_MS)
    await tick(host)
    assert host.log("a").last_stable_offset == 2
    assert add(host, producer, *parts) is ErrorCode.NONE


async def test_the_timer_tries_again_by_itself(tmp_path: Path) -> None:
    host = start(tmp_path, SystemClock())
    host.create_topic("flights")
    producer = await init(host)
    add(host, producer)
    produce(host, producer, 0, transactional=True)
    ended = asyncio.Event()
    host.log("flights").append_listeners.append(ended.set)
    with host.offline("flights"):
        await end(host, producer, commit=True)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        timer = tasks.create_task(host.transactions.run())
        await ended.wait()
        timer.cancel()
    assert host.log("flights").last_stable_offset == 2


async def test_a_prepared_transaction_is_completed_at_start(tmp_path: Path) -> None:
    disk = FaultyDisk()
    host = Host(tmp_path / "data", ManualClock(), BrokerConfig(tmp_path / "data"), disk)
    host.create_topic("flights")
    producer = await init(host)
    add(host, producer)
    produce(host, producer, 0, transactional=True)
    disk.room_bytes = 200
    await end(host, producer, commit=True)
    assert host.log("flights").last_stable_offset == 0
    disk.room_bytes = None
    again = host.restart(clean=False)
    assert again.log("flights").last_stable_offset == 2
    assert again.log("flights").aborted_transactions(0, 9) == []
    assert again.transactions.transactions["farshore-link"].state is TransactionState.COMPLETE_COMMIT


async def test_a_decision_that_could_not_be_stored_was_not_made(tmp_path: Path) -> None:
    disk = FaultyDisk()
    host = Host(tmp_path / "data", ManualClock(), BrokerConfig(tmp_path / "data"), disk)
    host.create_topic("flights")
    producer = await init(host)
    add(host, producer)
    disk.room_bytes = 0
    assert await end(host, producer, commit=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await host.transactions.init_producer_id(ASK))[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.room_bytes = None
    assert await end(host, producer, commit=False) is ErrorCode.NONE


async def test_offsets_in_a_transaction(host: Host) -> None:
    producer = await init(host)
    where = TopicPartition(OFFSETS_TOPIC, 0)
    add(host, producer, where)
    host.groups.check_commit("g", "", None, -1, transactional=True)
    offsets = {FLIGHTS: Committed(7, -1, "", 0)}
    host.groups.offsets.commit("g", offsets, is_known=lambda _: True, producer=producer)
    assert host.groups.offsets.of("g").committed == {}
    await end(host, producer, commit=True)
    assert host.groups.offsets.of("g").committed[FLIGHTS].offset == 7


async def test_an_older_coordinator_is_fenced(host: Host) -> None:
    async def write(epoch: int, where: TopicPartition = FLIGHTS) -> ErrorCode:
        return (await host.markers.write(Marker(Producer(4, 2), False, epoch), [where]))[where]

    assert await write(9) is ErrorCode.NONE
    assert await write(8) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await write(9, TopicPartition("gone", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_who_asks_about_a_transaction_sees_it_end_meanwhile(host: Host) -> None:
    """In that partition, and of that producer; else records would come behind the marker that ended theirs."""
    other = TopicPartition("flights", 1)
    with host.markers.guard(FLIGHTS, 4) as mine, host.markers.guard(other, 4) as elsewhere:
        with host.markers.guard(FLIGHTS, 5) as another:
            await host.markers.write(Marker(Producer(4, 2), True, 0), [FLIGHTS])
        assert (mine.ended, elsewhere.ended, another.ended) == (True, False, False)
    with host.markers.guard(FLIGHTS, 4) as later:
        assert not later.ended


async def test_no_marker_is_written_before_the_decision_is_replicated(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next coordinator may not have the decision, and decide otherwise."""
    producer = await init(host)
    add(host, producer)
    replicated = asyncio.Event()

    async def later(*_: object) -> None:
        await replicated.wait()

    monkeypatch.setattr(host.partition(TRANSACTIONS_TOPIC, 0), "wait_replicated", later)
    ending = asyncio.create_task(end(host, producer, commit=True))
    for _ in range(5):
        await asyncio.sleep(0)
    assert host.log("flights").log_end_offset == 0
    replicated.set()
    assert await ending is ErrorCode.NONE
    await tick(host)
    assert host.log("flights").log_end_offset == 1


async def test_an_end_that_fails_while_the_timer_waits_is_tried_again(tmp_path: Path) -> None:
    host = start(tmp_path, SystemClock())
    host.create_topic("flights")
    ended = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        timer = tasks.create_task(host.transactions.run())
        producer = await init(host)
        add(host, producer)
        produce(host, producer, 0, transactional=True)
        await asyncio.sleep(0)  # the timer runs up to where it waits for this transaction's time-out, a minute away
        host.log("flights").append_listeners.append(ended.set)
        with host.offline("flights"):
            assert await end(host, producer, commit=True) is ErrorCode.NONE, "it is decided"
        await ended.wait()
        timer.cancel()
    assert host.log("flights").last_stable_offset == 2


async def test_a_transactional_id_without_a_name_is_refused(tmp_path: Path) -> None:
    host = start(tmp_path)
    producer = await init(host)
    assert host.transactions.add_partitions("", producer, (FLIGHTS,)) is ErrorCode.INVALID_REQUEST
    assert await host.transactions.end_transaction("", producer, commit=True) is ErrorCode.INVALID_REQUEST
    host.close()
