"""Records of a loss are counted by reading: markers, aborted and compacted ones take offsets, and are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.cluster import Cluster
from broker.client.limits import ClientLimits
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from failover.losses import counting
from failover.losses.counting import count_in_turn, count_losses, with_present_ends
from failover.losses.statements import Certainty, PartitionLoss, total_loss, with_returns
from tests.broker.faults import Faults, injected
from tests.broker.running import running_broker, running_server
from tests.mirror.harness import make_topic, some_records, write
from tests.mirror.simulation.loop import SimulatedLoop

PLAIN = TopicPartition("flights", 0)
IN_TRANSACTIONS = TopicPartition("flights", 1)
EACH = 7


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Cluster]:
    """PLAIN has 100 records, the other one a committed, an aborted and a committed transaction of EACH records."""
    async with running_broker(tmp_path / "east") as east, Cluster(Site("east", east)) as cluster:
        await make_topic(cluster, PLAIN.topic, 2)
        await write(cluster, PLAIN, some_records(0, 100))
        async with AIOKafkaProducer(bootstrap_servers=east, transactional_id="t") as producer:
            for commit in (True, False, True):
                await producer.begin_transaction()
                for number in range(EACH):
                    await producer.send(PLAIN.topic, b"%d" % number, partition=IN_TRANSACTIONS.partition)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        yield cluster


def loss(where: TopicPartition, first: int, end: int) -> PartitionLoss:
    return PartitionLoss(*where, Certainty.EXACT, end - first, None if end > first else 0, first, end)


async def test_only_committed_records_count(source: Cluster) -> None:
    end = 3 * (EACH + 1)
    stated = [loss(PLAIN, 30, 100), loss(IN_TRANSACTIONS, 0, end)]
    counted = await count_losses(source, stated, set())
    assert counted == (replace(stated[0], records=70), replace(stated[1], records=2 * EACH))


async def test_a_range_that_begins_and_ends_amid_batches_is_counted_by_record(source: Cluster) -> None:
    for first in range(3 * (EACH + 1)):
        committed = [n for n in range(3 * (EACH + 1)) if n < EACH or 2 * (EACH + 1) <= n < 3 * EACH + 2]
        stated = loss(IN_TRANSACTIONS, first, 3 * (EACH + 1))
        (counted,) = await count_losses(source, [stated], set())
        assert counted.records == len([n for n in committed if n >= first])
    (counted,) = await count_losses(source, [loss(PLAIN, 33, 34)], set())
    assert (counted.records, counted.certainty) == (1, Certainty.AT_LEAST), "the log goes on behind it"


async def test_it_is_not_exact_where_more_has_come(source: Cluster) -> None:
    end = (await log_end_offsets(source, [PLAIN]))[PLAIN]
    stated, nothing = loss(PLAIN, 90, end), loss(PLAIN, end, end)
    assert [each.certainty for each in await count_losses(source, [stated], set())] == [Certainty.EXACT]
    await write(source, PLAIN, some_records(500, 1))
    for each in (stated, nothing):
        (counted,) = await count_losses(source, [each], set())
        assert (counted.certainty, counted.records) == (Certainty.AT_LEAST, end - (each.first_offset or 0))


async def test_behind_an_open_transaction_nothing_is_counted_and_nothing_is_exact(source: Cluster) -> None:
    """What is behind it cannot be read as committed yet, and what is in it may become so. What lies before it is
    counted: it was not, and 13 offsets were stated as lost, of which nobody could tell how many are records.
    """
    before = 3 * (EACH + 1)
    async with AIOKafkaProducer(bootstrap_servers=source.site.bootstrap_servers, transactional_id="open") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(PLAIN.topic, b"open", partition=IN_TRANSACTIONS.partition)
        await write(source, IN_TRANSACTIONS, some_records(0, 5))
        stated = loss(IN_TRANSACTIONS, before, before + 6)
        (counted,) = await count_losses(source, [stated], set())
        at_least = replace(stated, certainty=Certainty.AT_LEAST, records=0, open_offsets=6)
        assert counted == replace(at_least, offsets=0, end_offset=before)
        assert not counted.is_none
        (counted,) = await count_losses(source, [loss(IN_TRANSACTIONS, 3, before + 6)], set())
        assert counted == replace(at_least, first_offset=3, records=2 * EACH - 3, offsets=before - 3, end_offset=before)
        total = total_loss([counted, replace(counted, partition=0, open_offsets=1)])
        assert (total.open_offsets, total.seen_offsets) == (7, 7 + 2 * (before - 3))
        await producer.commit_transaction()
    (counted,) = await count_losses(source, [replace(stated, end_offset=before + 7)], set())
    assert (counted.certainty, counted.records) == (Certainty.EXACT, 6)


@pytest.mark.parametrize("returned_at_most", [4, 10])
async def test_what_was_unclear_by_offsets_is_clear_when_it_was_counted(source: Cluster, returned_at_most: int) -> None:
    """Of ten offsets that a worker had seen before its source told only some: at least 10 records were said, and 4 of
    the same once more; or nothing was counted, though all could be.
    """
    seen = with_returns(replace(loss(PLAIN, 90, 100), certainty=Certainty.AT_LEAST), returned_at_most)
    assert seen.unclear_offsets == returned_at_most
    (counted,) = await count_losses(source, [seen], set())
    stated = with_returns(counted, returned_at_most)
    assert (stated.records, stated.offsets, stated.unclear_offsets) == (10, 10, 0)


async def test_what_is_unclear_by_offsets_stays_so_behind_an_open_transaction(source: Cluster) -> None:
    async with AIOKafkaProducer(bootstrap_servers=source.site.bootstrap_servers, transactional_id="open") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(PLAIN.topic, b"open", partition=PLAIN.partition)
        seen = with_returns(replace(loss(PLAIN, 90, 101), certainty=Certainty.AT_LEAST), 4)
        assert await count_losses(source, [seen], set()) == (seen,)
        await producer.abort_transaction()


async def test_offsets_that_a_log_lost_with_its_end_are_not_said_to_be_in_a_transaction(source: Cluster) -> None:
    """Another leader had less: they were said to stand behind the start of one that is open."""
    stated = loss(PLAIN, 90, 105)
    for (found,) in (await count_losses(source, [stated], set()), await with_present_ends(source, [stated])):
        assert found == replace(stated, certainty=Certainty.AT_LEAST)


async def test_what_may_have_come_from_the_target_is_not_counted(source: Cluster) -> None:
    stated = loss(PLAIN, 0, 100)
    assert await count_losses(source, [stated], {PLAIN}) == (stated,)


async def test_what_cannot_be_read_or_not_in_time_is_not_counted(
    source: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = loss(TopicPartition("gone", 0), 0, 5)
    stated = loss(PLAIN, 0, 100)
    assert await count_losses(source, [gone, stated], set()) == (
        replace(gone, certainty=Certainty.AT_LEAST),
        replace(stated, records=100),
    )
    monkeypatch.setattr(counting, "COUNT_MS", 0)
    assert await count_losses(source, [stated], set()) == (replace(stated, certainty=Certainty.AT_LEAST),)


async def test_a_leader_that_does_not_tell_where_its_logs_end_makes_a_bound_of_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was exact, counted or not, and a failover without a loss was refused."""
    limits = ClientLimits(partition_patience_ms=60_000, retry_timeout_ms=60_000)
    monkeypatch.setattr(counting, "COUNT_MS", 1_000)
    silent, east = IN_TRANSACTIONS, Faults()
    async with running_server(tmp_path / "east") as served, Cluster(Site("east", served.address)) as cluster:
        await make_topic(cluster, PLAIN.topic, 2)
        await write(cluster, PLAIN, some_records(0, 100))
        with injected(monkeypatch, {served.broker: east}):
            async with Cluster(Site("east", served.address), limits=limits) as source:
                east.leaderless.add(silent)
                stated = [loss(PLAIN, 30, 100), loss(silent, 0, 0)]
                counted = {one.partition: one for one in await count_losses(source, stated, set())}
                assert (counted[PLAIN.partition].certainty, counted[PLAIN.partition].records) == (Certainty.EXACT, 70)
                assert counted[silent.partition].certainty is Certainty.AT_LEAST
                present = await with_present_ends(source, [loss(PLAIN, 100, 100), loss(silent, 0, 0)])
                assert [one.certainty for one in present] == [Certainty.EXACT, Certainty.AT_LEAST]


def test_all_that_is_counted_in_turn_has_one_time() -> None:
    """Each of sixty partitions whose leader hung had ten seconds of its own, before a hook was run."""
    partitions = [TopicPartition(PLAIN.topic, partition) for partition in range(60)]

    async def hang() -> int:
        await asyncio.Event().wait()
        return 0

    async def tell(records: int | None) -> int | None:
        await asyncio.sleep(0.1)
        return records

    counts = {where: hang if where.partition > 2 else partial(tell, where.partition or None) for where in partitions}
    for order, known in ((partitions, {1, 2}), (partitions[::-1][-5:], {1, 2})):
        loop = SimulatedLoop()
        found = loop.run(count_in_turn({where: counts[where] for where in order}, 10.0))
        assert found == {partitions[at]: at for at in known}
        assert loop.now <= 10.0
