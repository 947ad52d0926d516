"""The loops that follow: nothing that a leader, a connection or a partition does ends them."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import UUID

import pytest

from broker.base.clock import Clock, SystemClock
from broker.client.errors import ConnectionLost
from broker.cluster.metadata import PartitionState
from broker.errors import LogDamaged
from broker.limits import BYTES_PER_TURN
from broker.log.config import LogConfig
from broker.log.partition_log import PartitionLog
from broker.replication.followers import Followers
from broker.replication.throttling import ReplicationQuota
from broker.topics.partition import Partition
from broker.wire.messages.api_versions import ApiVersionsRequest
from broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from tests.broker.clock import ManualClock, PausesAlone
from tests.broker.log.support import FaultyDisk, batch_of
from tests.broker.running_cluster import until

TOPIC_ID = UUID(int=5)
STATE = PartitionState(2, 4, (1, 2), (2,))
Answer = Callable[[FetchRequest], Awaitable[FetchResponse]]


class Leaders:
    """What each answers to a fetch; `refused` is how often the next connections fail."""

    def __init__(self, answers: dict[int, Answer]) -> None:
        self.answers = answers
        self.refused = 0
        self.nudged = asyncio.Event()
        self.opened: list[int] = []
        self.open = 0

    async def connect(self, node_id: int) -> Leaders.Connection:
        await asyncio.sleep(0)
        if self.refused:
            self.refused -= 1
            raise ConnectionLost("nobody listens")
        self.opened.append(node_id)
        self.open += 1
        return Leaders.Connection(self, node_id)

    class Connection:
        def __init__(self, leaders: Leaders, node_id: int) -> None:
            self._leaders, self._node_id = leaders, node_id

        async def request(self, message: FetchRequest, version: int, *, timeout_ms: int) -> FetchResponse:
            assert version == 17
            await asyncio.sleep(0)
            return await self._leaders.answers[self._node_id](message)

        async def send(self, message: ApiVersionsRequest, version: int) -> None:
            self._leaders.nudged.set()

        def abort(self) -> None:
            self._leaders.open -= 1


class Leader:
    """Gives each partition what its log has and the follower lacks; waits where that is nothing."""

    def __init__(self, *logs: PartitionLog) -> None:
        self.logs = logs
        self.session: dict[int, int] = {}
        self.requests = 0

    async def __call__(self, request: FetchRequest) -> FetchResponse:
        self.requests += 1
        if request.session_epoch == 0:
            self.session = {}
        for topic in request.topics:
            self.session.update({one.partition: one.fetch_offset for one in topic.partitions})
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                self.session.pop(index)
        found = []
        for index, offset in self.session.items():
            log = self.logs[index]
            records = log.read(offset, 1 << 30, up_to=log.log_end_offset, at_least_one=True).records
            data = memoryview(b"".join(records))
            found.append(PartitionData(index, 0, log.high_watermark, log_start_offset=0, records=data))
        if not any(data.records for data in found):
            await asyncio.sleep(0.01)
        return FetchResponse(session_id=7, responses=[FetchableTopicResponse(partitions=found, topic_id=TOPIC_ID)])


def leader_log(folder: Path, index: int, *values: bytes) -> PartitionLog:
    log = PartitionLog.open(folder / "leader" / f"t-{index}", LogConfig(), ManualClock())
    for value in values:
        log.append(batch_of(value), leader_epoch=4)
    return log


def follower(folder: Path, index: int, disk: FaultyDisk | None = None) -> Partition:
    log = PartitionLog.open(folder / f"t-{index}", LogConfig(), ManualClock(), disk or FaultyDisk())
    partition = Partition("t", index, log, STATE)
    partition.follow(STATE)
    return partition


@asynccontextmanager
async def following(leaders: Leaders, clock: Clock | None = None) -> AsyncIterator[Followers]:
    quota = ReplicationQuota()
    followers = Followers(leaders.connect, lambda: ReplicaState(1, 9), clock or SystemClock(), random.Random(1), quota)
    running = asyncio.create_task(followers.run())
    try:
        yield followers
        assert not running.done()
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_a_leader_that_stops_is_no_warning_until_it_lasts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    partition = follower(tmp_path, 0)
    leaders = Leaders({2: Leader(leader_log(tmp_path, 0, b"a"))})
    leaders.refused = 10
    async with following(leaders, PausesAlone()) as followers:
        followers.follow(2, TOPIC_ID, partition)
        await until(lambda: partition.log.log_end_offset == 1)
    assert caplog.messages == []
    leaders.refused, partition = 1_000_000, follower(tmp_path / "again", 0)
    async with following(leaders, PausesAlone()) as followers:
        followers.follow(2, TOPIC_ID, partition)
        await until(lambda: bool(caplog.messages))
        leaders.refused = 0
        await until(lambda: partition.log.log_end_offset == 1)
    cannot, can = caplog.messages
    assert re.fullmatch(r"broker 2 cannot be followed for \d\d s now: nobody listens", cannot)
    assert can == "broker 2 is followed again"


async def test_a_leader_that_cannot_be_reached_or_is_lost_is_followed_when_it_is_there(tmp_path: Path) -> None:
    log, partition = leader_log(tmp_path, 0, b"a"), follower(tmp_path, 0)
    leader = Leader(log)
    lost = 2

    async def losing(request: FetchRequest) -> FetchResponse:
        nonlocal lost
        lost -= 1
        if lost == 0:
            log.append(batch_of(b"b"), leader_epoch=4)
            raise ConnectionLost("closed")
        return await leader(request)

    leaders = Leaders({2: losing})
    leaders.refused = 2
    async with following(leaders) as followers:
        followers.follow(2, TOPIC_ID, partition)
        await until(lambda: partition.log.log_end_offset == 2)
    assert leaders.opened == [2, 2]
    assert leaders.open == 0


async def test_one_failing_leader_holds_up_no_other(tmp_path: Path) -> None:
    async def broken(request: FetchRequest) -> FetchResponse:
        raise ZeroDivisionError("whatever it is")

    async def silent(request: FetchRequest) -> FetchResponse:
        nothing: FetchResponse = await asyncio.get_running_loop().create_future()
        return nothing

    logs = [leader_log(tmp_path, index, b"a") for index in range(3)]
    partitions = [follower(tmp_path, index) for index in range(3)]
    async with following(Leaders({2: broken, 3: silent, 4: Leader(*logs)})) as followers:
        for node_id, partition in zip((2, 3, 4), partitions, strict=True):
            followers.follow(node_id, TOPIC_ID, partition)
        await until(lambda: partitions[2].log.log_end_offset == 1)
        # Leadership moves to where it can be followed.
        for partition in partitions[:2]:
            followers.follow(4, TOPIC_ID, partition)
        await until(lambda: all(partition.log.log_end_offset == 1 for partition in partitions))


async def test_a_full_disk_and_a_damaged_log_stop_their_partitions_alone(tmp_path: Path) -> None:
    logs = [leader_log(tmp_path, index, b"a") for index in range(3)]
    disk = FaultyDisk()
    full, damaged, healthy = follower(tmp_path, 0, disk), follower(tmp_path, 1), follower(tmp_path, 2)
    disk.room_bytes = 0
    async with following(Leaders({2: Leader(*logs)})) as followers:
        for partition in (full, damaged, healthy):
            followers.follow(2, TOPIC_ID, partition)
        await until(lambda: healthy.log.log_end_offset == 1)
        damaged.log.damage_listeners[0](LogDamaged("its bytes are gone"))
        assert damaged.offline is not None
        for log in logs:
            log.append(batch_of(b"b"), leader_epoch=4)
        await until(lambda: healthy.log.log_end_offset == 2)
        assert full.log.log_end_offset == 0
        disk.room_bytes = None
        await until(lambda: full.log.log_end_offset == 2)


async def test_what_is_followed_no_more_is_not_asked_for_and_the_connection_ends_with_the_last(tmp_path: Path) -> None:
    logs = [leader_log(tmp_path, index, b"a") for index in range(2)]
    partitions = [follower(tmp_path, index) for index in range(2)]
    leader = Leader(*logs)
    leaders = Leaders({2: leader})
    async with following(leaders) as followers:
        for partition in partitions:
            followers.follow(2, TOPIC_ID, partition)
        await until(lambda: all(partition.log.log_end_offset == 1 for partition in partitions))
        followers.forget(TOPIC_ID, 0)
        await until(lambda: leader.session.keys() == {1})
        followers.forget(TOPIC_ID, 1)
        await until(lambda: leaders.open == 0)
        followers.follow(2, TOPIC_ID, partitions[0])
        logs[0].append(batch_of(b"b"), leader_epoch=4)
        await until(lambda: partitions[0].log.log_end_offset == 2)


async def test_a_partition_that_is_new_does_not_wait_for_a_fetch_that_does_not_know_of_it(tmp_path: Path) -> None:
    logs = [leader_log(tmp_path, index, b"a") for index in range(2)]
    partitions = [follower(tmp_path, index) for index in range(2)]
    leader, waiting = Leader(*logs), asyncio.Event()

    async def until_nudged(request: FetchRequest) -> FetchResponse:
        answer = await leader(request)
        if not any(data.records for data in answer.responses[0].partitions):
            waiting.set()
            await leaders.nudged.wait()
            leaders.nudged.clear()
        return answer

    leaders = Leaders({2: until_nudged})
    async with following(leaders) as followers:
        followers.follow(2, TOPIC_ID, partitions[0])
        await waiting.wait()
        followers.follow(2, TOPIC_ID, partitions[1])
        await until(lambda: partitions[1].log.log_end_offset == 1)


async def test_large_answers_leave_the_event_loop_to_others(tmp_path: Path) -> None:
    """Each partition's piece is a turn of its own."""
    count = 8
    logs = [leader_log(tmp_path, index, b"v" * BYTES_PER_TURN) for index in range(count)]
    partitions = [follower(tmp_path, index) for index in range(count)]
    steps: list[int] = []

    def copied() -> int:
        return sum(partition.log.log_end_offset for partition in partitions)

    async def beside() -> None:
        while copied() < count:
            if copied() not in steps:
                steps.append(copied())
            await asyncio.sleep(0)

    async with following(Leaders({2: Leader(*logs)})) as followers:
        for partition in partitions:
            followers.follow(2, TOPIC_ID, partition)
        async with asyncio.timeout(60):
            await beside()
    assert steps == list(range(count))
