"""Clients of the simulated brokers. Each says what it was told; the judges know what may be true."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from broker.base.address import Address
from broker.client.connection import Connection, connect
from broker.client.errors import ClientError
from broker.client.limits import ClientLimits
from broker.wire.batch import iter_batches, peek
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from broker.wire.records import Record, encode_batch
from broker.wire.schema import Message
from tests.broker.replication.simulation.judge import Batch, Found
from tests.broker.simulation.world import World
from tests.broker.wire_client import fetch_request, produce_request

TOPIC: Final = "t"
PARTITIONS: Final = 2
GROUP: Final = "g"
ANSWER_MS: Final = 1500
MAY_BE_KEPT: Final = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
"""All other errors say that a batch was not kept; clients give its sequence to other records (librdkafka)."""
LIMITS: Final = ClientLimits(connect_timeout_ms=1000)


class Clients:
    """`over` ends those that ask for ever."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.writes = True
        self._refused: dict[int, ErrorCode] = {}
        self._values = 0
        self._committed = -1
        self._asked = -1

    async def connected(self, node_id: int) -> Connection:
        return await connect(Address(f"node-{node_id}", 9092), client_id="client", limits=LIMITS)

    async def ask(self, node_id: int, message: Message, version: int, timeout_ms: int = ANSWER_MS) -> Any:
        """On a connection of its own. Raises ClientError."""
        connection = await self.connected(node_id)
        try:
            return await connection.request(message, version, timeout_ms=timeout_ms)
        finally:
            connection.abort()

    def any_node(self) -> int:
        return self.rng.choice(list(self.world.nodes))

    # -- records ---------------------------------------------------------------------------------------------------

    async def write(self) -> None:
        """Each batch once; what became of one without an answer, nobody knows."""
        connections: dict[int, Connection] = {}
        while self.writes:
            await asyncio.sleep(self.rng.uniform(0.005, 0.08))
            index = self.rng.randrange(PARTITIONS)
            leader = self.world.leader_of(TOPIC, index)
            if leader is None or leader not in self.world.nodes:
                continue
            self._values += 1
            values = [b"%d" % self._values] * self.rng.choice([1, 1, 3])
            batch = encode_batch([Record(i, 0, b"k", value) for i, value in enumerate(values)])
            request = produce_request(TOPIC, batch, partition=index)
            try:
                if leader not in connections or not connections[leader].is_open:
                    connections[leader] = await self.connected(leader)
                answer = await connections[leader].request(request, 9, timeout_ms=ANSWER_MS)
            except ClientError:
                continue
            told = answer.responses[0].partition_responses[0]
            if told.error_code == 0:
                self.world.counts["acknowledged"] += 1
                self._acknowledged(index, told.base_offset, peek(batch).crc)
            elif (code := ErrorCode.of(told.error_code)) not in MAY_BE_KEPT:
                self.world.counts["refused"] += 1
                self._refused[peek(batch).crc] = code

    def _acknowledged(self, index: int, base_offset: int, crc: int) -> None:
        committed = self.world.judge(TOPIC, index).committed
        if not any(one.base_offset == base_offset and one.crc == crc for one in reversed(committed)):
            self.world.loop.stop_at(Found(f"{TOPIC}-{index}: {base_offset} was acknowledged before it was replicated"))

    def check_refused(self) -> None:
        """Raises Found."""
        for index in range(PARTITIONS):
            for one in self.world.judge(TOPIC, index).committed:
                if (code := self._refused.get(one.crc)) is not None:
                    raise Found(f"{TOPIC}-{index}: {one} is there, and its writer was told {code.name}")

    async def read(self) -> None:
        """From one leader after another, for ever."""
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        while True:
            await asyncio.sleep(self.rng.uniform(0.01, 0.2))
            index = self.rng.randrange(PARTITIONS)
            leader = self.world.leader_of(TOPIC, index)
            if leader is None or leader not in self.world.nodes:
                continue
            request = fetch_request(TOPIC, offsets[index], partition=index, max_wait_ms=200)
            try:
                answer = await self.ask(leader, request, 12)
            except ClientError:
                continue
            data = answer.responses[0].partitions[0]
            if data.error_code == 0 and data.records:
                offsets[index] = self._seen(index, data.records)

    def _seen(self, index: int, records: Any) -> int:
        committed = self.world.judge(TOPIC, index).committed
        at = 0
        for header, _ in iter_batches(records):
            self.world.counts["read"] += 1
            batch = Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)
            if batch not in committed:
                self.world.loop.stop_at(Found(f"{TOPIC}-{index}: {batch} was read before it was replicated"))
            at = header.next_offset
        return at

    # -- a group's offsets -----------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Higher and higher, one after the other; nobody else does."""
        while self.writes:
            await asyncio.sleep(self.rng.uniform(0.05, 0.3))
            coordinator = self.world.leader_of(OFFSETS_TOPIC, 0)
            if coordinator is None or coordinator not in self.world.nodes:
                continue
            self._asked += 1
            number = self._asked
            partition = OffsetCommitRequestPartition(0, number)
            request = OffsetCommitRequest(GROUP, topics=[OffsetCommitRequestTopic(TOPIC, [partition])])
            try:
                answer = await self.ask(coordinator, request, 7)
            except ClientError:
                continue
            if answer.topics[0].partitions[0].error_code == 0:
                self.world.counts["commits"] += 1
                self._committed = number

    async def look_at_commits(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(0.05, 0.4))
            await self.look_at_commit()

    async def look_at_commit(self) -> bool:
        """Whether the group's offset was told."""
        coordinator, least = self.world.leader_of(OFFSETS_TOPIC, 0), self._committed
        if coordinator is None or coordinator not in self.world.nodes:
            return False
        request = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(TOPIC, [0])])
        try:
            answer = await self.ask(coordinator, request, 7)
        except ClientError:
            return False
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            return False
        told = answer.topics[0].partitions[0].committed_offset
        if not least <= told <= self._asked:
            self.world.loop.stop_at(Found(f"{GROUP} is said to be at {told}, it was at {least} before it was asked"))
        self.world.counts["offsets told"] += 1
        return True
