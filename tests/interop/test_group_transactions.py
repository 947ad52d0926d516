"""What the mirror relies on when it commits offsets of groups in a transaction: on Kafka 3.9, 4.3 and our broker."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import KafkaError
from broker.client.fanout import ask_coordinator
from broker.client.first_offsets import open_offsets, with_first_offsets
from broker.client.group_transactions import Staged, add_groups_to_txn, held_offsets, stage_offsets
from broker.client.groups import commit_offsets, committed_offsets, list_groups, stable_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.client.offset_fetch import GroupOffsets
from broker.client.producers import ProducerIdAndEpoch, end_txn, init_producer_id
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from broker.wire.vocabulary import TopicPartition
from tests.interop.conftest import SERVERS, bootstrap_of
from tests.mirror.harness import eventually, make_topic, some_records, write

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


@pytest.fixture(params=SERVERS)
def bootstrap(request: pytest.FixtureRequest) -> str:
    return bootstrap_of(request, request.param)


class Trial:
    """A topic, a group, and a transactional id that nobody else uses."""

    def __init__(self, cluster: Cluster) -> None:
        tag = uuid.uuid4().hex[:8]
        self.cluster = cluster
        self.where = TopicPartition(f"t-{tag}", 0)
        self.group, self.id = f"g-{tag}", f"txn-{tag}"

    async def stage(self, producer: ProducerIdAndEpoch, offset: int, group: str = "") -> object:
        """-> what became of it. While its coordinator loads Kafka 4 refuses the look before it, and takes the offset
        when it has loaded: the next try holds it for another one's.
        """
        name = group or self.group
        await committed_offsets(self.cluster, name)
        await add_groups_to_txn(self.cluster, self.id, producer, [name])
        offsets = {name: {self.where: CommittedOffset(offset)}}
        return (await stage_offsets(self.cluster, self.id, producer, offsets))[name]

    async def offset(self) -> int | None:
        found = (await committed_offsets(self.cluster, self.group)).get(self.where)
        return found.offset if found else None

    async def stable_code(self) -> int:
        """What a consumer is told that asks for stable offsets."""
        topics = [OffsetFetchRequestTopics(self.where.topic, [self.where.partition])]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group, topics=topics)], require_stable=True)

        async def ask(connection: Connection) -> OffsetFetchResponse:
            response: OffsetFetchResponse = await connection.request(asked)
            return response

        (found,) = (await ask_coordinator(self.cluster, "group", self.group, ask)).groups
        return max([found.error_code, *(p.error_code for t in found.topics for p in t.partitions)])

    async def settled_at(self, offset: int | None) -> None:
        async def settled() -> bool:
            return await self.stable_code() == 0 and await self.offset() == offset

        await eventually(settled, f"the group to stand at {offset}")


async def test_offsets_count_when_the_transaction_ends_and_stable_readers_wait_until_then(bootstrap: str) -> None:
    async with Cluster(Site("site", bootstrap)) as cluster:
        trial = Trial(cluster)
        await make_topic(cluster, trial.where.topic)
        for before, offset, commit in ((None, 5, True), (5, 3, False), (5, 2, True)):
            producer = await init_producer_id(cluster, trial.id)
            assert await trial.stage(producer, offset) == Staged(True, None)
            assert await trial.offset() == before
            assert await trial.stable_code() == ErrorCode.UNSTABLE_OFFSET_COMMIT
            await end_txn(cluster, trial.id, producer, commit=commit)
            await trial.settled_at(offset if commit else before)


async def test_what_is_pending_is_told_and_of_a_first_offset_by_its_name(bootstrap: str) -> None:
    """Asked for all that a group has, Kafka does not tell it where it has none so far; our broker does."""

    async def pending(partitions: list[TopicPartition] | None = None) -> GroupOffsets:
        found = (await stable_offsets_of_groups(cluster, [trial.group], partitions))[trial.group]
        assert isinstance(found, GroupOffsets)
        return found

    async with Cluster(Site("site", bootstrap)) as cluster:
        trial = Trial(cluster)
        await make_topic(cluster, trial.where.topic)
        producer = await init_producer_id(cluster, trial.id)
        await trial.stage(producer, 5)
        held = GroupOffsets({}, frozenset({trial.where}))
        assert await pending([trial.where]) == held
        opened = await open_offsets(cluster)
        assert (opened.count > 0, opened.may_hold(trial.group)) == (True, True)
        told = await with_first_offsets(cluster, {trial.group: await pending()}, [trial.where], opened)
        assert told == {trial.group: held}
        assert trial.group in await list_groups(cluster)
        await end_txn(cluster, trial.id, producer, commit=True)
        await trial.settled_at(5)
        producer = await init_producer_id(cluster, trial.id)
        await trial.stage(producer, 7)
        for found in (await pending(), await pending([trial.where])):
            assert {at: one.offset for at, one in found.offsets.items()} == {trial.where: 5}
            assert found.pending == {trial.where}
        await end_txn(cluster, trial.id, producer, commit=True)
        await trial.settled_at(7)
        assert (await pending()).pending == frozenset()

        async def is_closed() -> bool:
            return not (await open_offsets(cluster)).may_hold(trial.group)

        await eventually(is_closed, "nothing to be open")


@pytest.mark.parametrize("is_in_turn", [True, False])
async def test_of_two_transactions_that_counts_which_staged_later_and_it_is_told_of_the_other(
    bootstrap: str, is_in_turn: bool
) -> None:
    """Whichever ends later: so what is staged over an application's transaction takes its commit away."""
    async with Cluster(Site("site", bootstrap)) as cluster:
        first, second = Trial(cluster), Trial(cluster)
        second.where, second.group = first.where, first.group
        await make_topic(cluster, first.where.topic)
        one, other = await init_producer_id(cluster, first.id), await init_producer_id(cluster, second.id)
        assert await first.stage(one, 20) == Staged(True, None)
        asked = {first.group: [first.where], "nobody": [first.where]}
        assert await held_offsets(cluster, asked) == {first.group: frozenset({first.where}), "nobody": frozenset()}
        assert await second.stage(other, 10) == Staged(True, None, held=frozenset({first.where}))
        ends = [(first.id, one), (second.id, other)]
        for transactional_id, producer in ends if is_in_turn else ends[::-1]:
            await end_txn(cluster, transactional_id, producer, commit=True)
            await init_producer_id(cluster, transactional_id)
        await first.settled_at(10)


async def test_a_plain_commit_after_the_staging_wins(bootstrap: str) -> None:
    async with Cluster(Site("site", bootstrap)) as cluster:
        trial = Trial(cluster)
        await make_topic(cluster, trial.where.topic)
        producer = await init_producer_id(cluster, trial.id)
        await trial.stage(producer, 5)
        await commit_offsets(cluster, trial.group, {trial.where: CommittedOffset(90)})
        await end_txn(cluster, trial.id, producer, commit=True)
        await trial.settled_at(90)


@pytest.mark.parametrize("staged", [False, True])
async def test_a_fence_refuses_what_comes_later_and_takes_back_what_was_staged(bootstrap: str, staged: bool) -> None:
    async with Cluster(Site("site", bootstrap)) as cluster:
        trial = Trial(cluster)
        await make_topic(cluster, trial.where.topic)
        await commit_offsets(cluster, trial.group, {trial.where: CommittedOffset(1)})
        producer = await init_producer_id(cluster, trial.id)
        if staged:
            assert await trial.stage(producer, 5) == Staged(True, None)
        await init_producer_id(cluster, trial.id)
        with pytest.raises(KafkaError) as refused:
            await add_groups_to_txn(cluster, trial.id, producer, [trial.group])
        assert refused.value.code in FENCED
        with pytest.raises(KafkaError) as refused:
            await end_txn(cluster, trial.id, producer, commit=True)
        assert refused.value.code in FENCED
        if staged:
            offsets = {trial.group: {trial.where: CommittedOffset(7)}}
            late = (await stage_offsets(cluster, trial.id, producer, offsets, patience_ms=2_000))[trial.group]
            assert isinstance(late, Staged | KafkaError)
            assert not isinstance(late, Staged) or not late.is_any_taken, late
        await trial.settled_at(1)


async def test_a_live_group_is_refused_and_drops_no_other(bootstrap: str) -> None:
    async with Cluster(Site("site", bootstrap)) as cluster:
        trial = Trial(cluster)
        await make_topic(cluster, trial.where.topic)
        await write(cluster, trial.where, some_records(0, 5))
        consumer = AIOKafkaConsumer(
            trial.where.topic, bootstrap_servers=bootstrap, group_id=trial.group, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            await asyncio.wait_for(consumer.getone(), 60)
            producer = await init_producer_id(cluster, trial.id)
            live = await trial.stage(producer, 4)
            assert isinstance(live, Staged)
            assert live.error is not None
            assert (live.is_any_taken, live.error.code) == (False, ErrorCode.UNKNOWN_MEMBER_ID)
            other = Trial(cluster)
            other.where, other.id = trial.where, trial.id
            assert await other.stage(producer, 4) == Staged(True, None)
            await end_txn(cluster, trial.id, producer, commit=True)
            await other.settled_at(4)
            assert await trial.offset() in (None, 0, 1)
        finally:
            await consumer.stop()


async def test_a_live_group_of_the_new_protocol_is_refused(bootstrap: str, request: pytest.FixtureRequest) -> None:
    if "kafka-3.9" in request.node.name:
        pytest.skip("Kafka 3.9 has the protocol of KIP-848 only as a preview")
    async with Cluster(Site("site", bootstrap)) as cluster:
        trial = Trial(cluster)
        await make_topic(cluster, trial.where.topic)
        await write(cluster, trial.where, some_records(0, 5))
        settings = {"bootstrap.servers": bootstrap, "group.id": trial.group, "group.protocol": "consumer"}
        consumer = Consumer(settings | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([trial.where.topic])
        try:
            assert await asyncio.to_thread(consumer.poll, 30) is not None
            producer = await init_producer_id(cluster, trial.id)
            live = await trial.stage(producer, 4)
            assert isinstance(live, Staged)
            assert live.error is not None
            assert (live.is_any_taken, live.error.code) == (False, ErrorCode.UNKNOWN_MEMBER_ID)
        finally:
            await asyncio.to_thread(consumer.close)


async def test_a_missing_topic_is_one_partitions_failure(bootstrap: str) -> None:
    async with Cluster(Site("site", bootstrap)) as cluster:
        trial = Trial(cluster)
        await make_topic(cluster, trial.where.topic)
        producer = await init_producer_id(cluster, trial.id)
        await add_groups_to_txn(cluster, trial.id, producer, [trial.group])
        offsets = {trial.where: CommittedOffset(3), TopicPartition(f"{trial.where.topic}-none", 0): CommittedOffset(1)}
        found = (await stage_offsets(cluster, trial.id, producer, {trial.group: offsets}))[trial.group]
        await end_txn(cluster, trial.id, producer, commit=True)
        assert isinstance(found, Staged)
        assert found.is_any_taken
        assert found.error is not None
        assert found.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await trial.settled_at(3)
