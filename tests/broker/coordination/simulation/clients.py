"""Clients that go on whatever happens, and note what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.coordination.internal_log import TRANSACTIONS_TOPIC, Producer
from broker.errors import BrokerError
from broker.groups.consumer.model import NOTHING, Slot
from broker.log.validation import AppendOrigin
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from broker.wire.messages import consumer_group_heartbeat as modern
from broker.wire.messages.heartbeat import HeartbeatRequest
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.broker.coordination.simulation.oracle import Told
from tests.broker.coordination.simulation.site import FLIGHTS, Lost, SimulatedBroker, Site
from tests.mirror.simulation.trace import Found

AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""What clients answer by asking again, perhaps another broker."""
PATIENCE_S = 60.0
SESSION_MS = 10_000


class Client:
    def __init__(self, site: Site, told: Told, is_over: Callable[[], bool]) -> None:
        self.site, self.told, self.is_over = site, told, is_over

    async def ask(self, topic: str, key: str, request: Any, version: int) -> Any:
        """At the coordinator of `key`. Raises Lost, and Found where nobody answers."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self.site.ask(self.site.coordinator(topic, key), request, version)
        except TimeoutError:
            raise Found(f"{type(request).__name__} for {key} has no answer") from None

    async def pause(self) -> None:
        await asyncio.sleep(self.site.rng.choice([0.01, 0.1, 0.5]))


class Committer(Client):
    """Commits ever higher offsets from outside of a group, and looks what stands there."""

    async def run(self, group: str, where: TopicPartition) -> None:
        value = 0
        while not self.is_over():
            value += 1
            part = offset_commit.OffsetCommitRequestPartition(where.partition, value)
            topics = [offset_commit.OffsetCommitRequestTopic(where.topic, [part])]
            try:
                done = await self.ask(OFFSETS_TOPIC, group, offset_commit.OffsetCommitRequest(group, topics=topics), 8)
                if done.topics[0].partitions[0].error_code == ErrorCode.NONE:
                    self.told.offset(group, where, value)
            except Lost:
                pass
            await self.pause()

    async def look(self, group: str, where: TopicPartition) -> None:
        while not self.is_over():
            await look(self, group, where)
            await self.pause()


async def look(client: Client, group: str, where: TopicPartition) -> None:
    topics = [offset_fetch.OffsetFetchRequestTopics(where.topic, [where.partition])]
    asked = offset_fetch.OffsetFetchRequestGroup(group, topics=topics)
    request = offset_fetch.OffsetFetchRequest(groups=[asked], require_stable=client.site.rng.random() < 0.5)
    try:
        (found,) = (await client.ask(OFFSETS_TOPIC, group, request, 8)).groups
    except Lost:
        return
    if found.error_code == ErrorCode.NONE:
        row = found.topics[0].partitions[0]
        if row.error_code == ErrorCode.NONE:
            client.told.offset(group, where, row.committed_offset)


class ClassicMember(Client):
    async def run(self, group: str, name: str) -> None:
        member = ""
        protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
        while not self.is_over():
            try:
                joined = await self.ask(
                    OFFSETS_TOPIC,
                    group,
                    join_group.JoinGroupRequest(group, SESSION_MS, SESSION_MS, member, None, "consumer", protocols),
                    5,
                )
                if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    member = joined.member_id
                elif joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    member = ""
                elif joined.error_code == ErrorCode.NONE:
                    member = joined.member_id
                    await self._sync(group, joined)
            except Lost:
                pass
            await self.pause()

    async def _sync(self, group: str, joined: Any) -> None:
        """And live, until it is told to join again."""
        self.site.producer_ids += 1
        nonce = self.site.producer_ids
        assignments = [
            sync_group.SyncGroupRequestAssignment(m.member_id, f"{m.member_id} {nonce}".encode())
            for m in joined.members
        ]
        request = sync_group.SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=assignments)
        synced = await self.ask(OFFSETS_TOPIC, group, request, 3)
        if synced.error_code != ErrorCode.NONE:
            return
        self.told.assignment(group, joined.generation_id, joined.member_id, synced.assignment)
        while not self.is_over() and self.site.rng.random() < 0.9:
            await asyncio.sleep(1.0)
            beat = HeartbeatRequest(group, joined.generation_id, joined.member_id)
            if (await self.ask(OFFSETS_TOPIC, group, beat, 3)).error_code not in (ErrorCode.NONE, *AGAIN):
                return


class ModernMember(Client):
    """Of the consumer protocol: `reading` are the slots that each member of the group reads."""

    async def run(self, group: str, name: str, reading: dict[str, frozenset[Slot]]) -> None:
        epoch, owned, member = 0, NOTHING, name
        while not self.is_over():
            try:
                answer = await self.ask(OFFSETS_TOPIC, group, self._beat(group, member, epoch, owned), 0)
            except Lost:
                await self.pause()
                continue
            if answer.error_code == ErrorCode.NONE:
                epoch = answer.member_epoch
                self.told.epoch(group, member, epoch)
                if answer.assignment is not None:
                    owned = frozenset(
                        Slot(each.topic_id, index)
                        for each in answer.assignment.topic_partitions
                        for index in each.partitions
                    )
                self._reads(name, owned, reading)
            elif answer.error_code not in AGAIN:
                epoch, owned = 0, NOTHING
                self._reads(name, owned, reading)
            await asyncio.sleep(1.0)

    def _reads(self, name: str, owned: frozenset[Slot], reading: dict[str, frozenset[Slot]]) -> None:
        reading[name] = owned
        for other, slots in reading.items():
            if other != name and slots & owned:
                raise Found(f"{name} and {other} both read {slots & owned}")

    @staticmethod
    def _beat(group: str, member: str, epoch: int, owned: frozenset[Slot]) -> modern.ConsumerGroupHeartbeatRequest:
        by_topic: dict[Any, list[int]] = {}
        for slot in sorted(owned):
            by_topic.setdefault(slot.topic_id, []).append(slot.partition)
        return modern.ConsumerGroupHeartbeatRequest(
            group,
            member,
            epoch,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["flights"],
            topic_partitions=[modern.TopicPartitions(id_, partitions) for id_, partitions in by_topic.items()],
        )


class Fatal(Exception):
    """This producer is out; it begins anew."""


class TransactionalProducer(Client):
    """One transaction after the other; `group` has its offsets committed in them."""

    async def run(self, name: str, group: str) -> None:
        number = 0
        while not self.is_over():
            try:
                producer = await self._begin(name)
                while not self.is_over():
                    number += 1
                    await self._transaction(name, group, producer, number)
                    await self.pause()
                    if self.site.rng.random() < 0.2:
                        producer = await self._renew(name, producer)
            except Fatal:
                await self.pause()

    async def insist(self, key: str, request: Any, version: int, code: Callable[[Any], int]) -> Any:
        """Until it is done. Raises Fatal."""
        while not self.is_over():
            try:
                answer = await self.ask(TRANSACTIONS_TOPIC, key, request, version)
            except Lost:
                await self.pause()
                continue
            if code(answer) == ErrorCode.NONE:
                return answer
            if code(answer) not in AGAIN:
                raise Fatal(code(answer))
            await self.pause()
        raise Fatal

    async def _begin(self, name: str) -> Producer:
        request = init_producer_id.InitProducerIdRequest(name, 15_000)
        begun = await self.insist(name, request, 4, lambda answer: answer.error_code)
        return Producer(begun.producer_id, begun.producer_epoch)

    async def _renew(self, name: str, producer: Producer) -> Producer:
        """As a client does behind an error: nobody else uses the name, so nobody can have fenced it."""
        request = init_producer_id.InitProducerIdRequest(name, 15_000, *producer)
        try:
            renewed = await self.insist(name, request, 4, lambda answer: answer.error_code)
        except Fatal as fatal:
            if fatal.args:
                raise Found(f"{name} asked to go on as {producer}, and is ended: {fatal}") from fatal
            raise
        self.told.counts["renewals"] += 1
        return Producer(renewed.producer_id, renewed.producer_epoch)

    async def _transaction(self, name: str, group: str, producer: Producer, number: int) -> None:
        rng, label = self.site.rng, f"{name}-{number}"
        into = [where for where in FLIGHTS if rng.random() < 0.6] or FLIGHTS[:1]
        topics = [add_partitions_to_txn.AddPartitionsToTxnTopic("flights", [where.partition for where in into])]
        add = add_partitions_to_txn.AddPartitionsToTxnRequest(name, *producer, topics)
        await self.insist(
            name,
            add,
            3,
            lambda a: max(p.partition_error_code for p in a.results_by_topic_v3_and_below[0].results_by_partition),
        )
        for record in range(rng.randint(1, 3)):
            for where in into:
                await self._produce(name, producer, where, f"{label}/{record}")
        if rng.random() < 0.5:
            offsets = add_offsets_to_txn.AddOffsetsToTxnRequest(name, *producer, group)
            await self.insist(name, offsets, 3, lambda answer: answer.error_code)
            await self._commit_offset(name, group, producer, number)
        if rng.random() < 0.1:
            raise Fatal("it dies in the middle")
        commit = rng.random() < 0.7
        await self.insist(name, end_txn.EndTxnRequest(name, *producer, commit), 3, lambda answer: answer.error_code)
        self.told.ends[label] = commit
        self.told.counts["transactions"] += 1

    async def _commit_offset(self, name: str, group: str, producer: Producer, value: int) -> None:
        part = txn_offset_commit.TxnOffsetCommitRequestPartition(0, value)
        topics = [txn_offset_commit.TxnOffsetCommitRequestTopic("flights", [part])]
        request = txn_offset_commit.TxnOffsetCommitRequest(name, group, *producer, topics=topics)
        while not self.is_over():
            broker = self.site.coordinator(OFFSETS_TOPIC, group)
            at = self.site.coordinator(TRANSACTIONS_TOPIC, name)
            if broker is not None and at is broker:
                # Verified at another broker it would need requests between brokers, as `_produce` has them.
                try:
                    answer = await self.site.ask(broker, request, 3)
                except Lost:
                    continue
                code = answer.topics[0].partitions[0].error_code
                if code == ErrorCode.NONE or code not in AGAIN:
                    return
            else:
                return
            await self.pause()

    async def _produce(self, name: str, producer: Producer, where: TopicPartition, text: str) -> None:
        while not self.is_over():
            try:
                code = await self._at_leader_of(where, name, producer, text)
            except Lost:
                code = ErrorCode.REQUEST_TIMED_OUT
            if code is ErrorCode.NONE:
                self.told.records[text.split("/")[0]].add(text)
                return
            if code not in AGAIN:
                raise Fatal(code)
            await self.pause()
        raise Fatal

    async def _at_leader_of(self, where: TopicPartition, name: str, producer: Producer, text: str) -> ErrorCode:
        """Raises Lost."""
        node = self.site.partitions[where].node
        leader = self.site.brokers.get(-1 if node is None else node)
        if leader is None:
            raise Lost
        return await self.site.at(leader, lambda: self._at_leader(leader, name, producer, where, text))

    async def _at_leader(
        self, leader: SimulatedBroker, name: str, producer: Producer, where: TopicPartition, text: str
    ) -> ErrorCode:
        """As the handler of Produce does it; the coordinator is asked over the network."""
        batch = encode_batch(
            [Record(0, 0, None, text.encode())], producer_id=producer[0], producer_epoch=producer[1], transactional=True
        )
        coordinator = self.site.coordinator(TRANSACTIONS_TOPIC, name)
        with leader.markers.guard(where, producer.producer_id) as guard:
            try:
                if coordinator is None:
                    return ErrorCode.NOT_ENOUGH_REPLICAS
                code = await self.site.at(
                    coordinator,
                    lambda: coordinator.transactions.ask(name, lambda at: at.check_append(name, producer, where)),
                )
                await self.site.slowness()
                if code is not ErrorCode.NONE or guard.ended:
                    return code or ErrorCode.INVALID_TXN_STATE
                log = leader.led_log(*where)
                log.append(batch, leader_epoch=log.leader_epoch, origin=AppendOrigin.CLIENT)
                await log.wait_replicated(log.log_end_offset, 5_000, log.leader_epoch)
            except BrokerError as error:
                return error.error_code
        return ErrorCode.NONE
