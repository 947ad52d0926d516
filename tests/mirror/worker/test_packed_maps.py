"""A worker packs its map as it goes, and who comes after it, or asks from outside, goes by the pages."""

from __future__ import annotations

import uuid

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.producers import add_partitions_to_txn, end_txn, init_producer_id
from broker.client.topics import delete_records
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.limits import PACKED_BLOCKS_MIN
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.state import load_link_state, load_partial_state, read_entries
from tests.mirror.harness import (
    contents,
    eventually,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)
from tests.mirror.worker.test_worker import fresh

ROUNDS = PACKED_BLOCKS_MIN + 2


async def mirror_with_markers(
    source: Cluster, target: Cluster, where: TopicPartition, first: int, rounds: int = ROUNDS
) -> int:
    """Each round has a marker behind its records, and is mirrored alone -> how many records there are then."""
    for count in range(first, first + 2 * rounds, 2):
        await write(source, where, some_records(count, 2))
        transactional_id = f"marks-{uuid.uuid4().hex}"
        producer = await init_producer_id(source, transactional_id)
        assert not await add_partitions_to_txn(source, transactional_id, producer, [where])
        await end_txn(source, transactional_id, producer, commit=False)
        await wait_for_records(target, where, count + 2)
    return first + 2 * rounds


async def check_map(source: Cluster, target: Cluster, where: TopicPartition, found: OffsetMap) -> None:
    there = await read_all(target, where)
    here = (await read_all(source, where))[-len(there) :]
    assert contents(here) == contents(there)
    for record, copy in zip(here, there, strict=True):
        assert found.to_target(*where, record.offset) == copy.offset
        assert found.to_source(*where, copy.offset) == record.offset


async def is_packed(link: Link, target: Cluster, where: TopicPartition) -> bool:
    entries = await read_entries(link, target)
    blocks = entries.blocks_of(*where)
    return bool(entries.pages_of(*where)) and len(blocks) < PACKED_BLOCKS_MIN


async def test_a_worker_packs_its_map_and_the_next_one_goes_on(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    other = where._replace(partition=1)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic, 2)
        count = 0
        for rounds in (ROUNDS, 2):
            async with running(link):
                count = await mirror_with_markers(source, target, where, count, rounds)
                await eventually(lambda: is_packed(link, target, where), "a page")
            await check_map(source, target, where, (await load_link_state(link, target)).map)
        one = await load_partial_state(link, target, only={(where.topic, 0)})
        assert list(one.map.partitions()) == [where]
        await check_map(source, target, where, one.map)
        assert list((await load_partial_state(link, target, only={(where.topic, 1)})).map.partitions()) == [other]
        async with running(link):
            await write(source, where, some_records(count, 2))
            await wait_for_records(target, where, count + 2)
            end = (await log_end_offsets(target, [where]))[where]
            await delete_records(target, {where: end - 1})
            await eventually(lambda: is_trimmed(link, target, where), "a map without what the target has no more")
        await check_map(source, target, where, (await load_link_state(link, target)).map)


async def is_trimmed(link: Link, target: Cluster, where: TopicPartition) -> bool:
    return not (await read_entries(link, target)).pages_of(*where)
