"""What recovery is given of the target's log: every batch behind the checkpoint, and no guess about what is gone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.fanout import split_failures
from broker.client.log import append
from broker.client.topics import delete_records
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Writer, encode_key, encode_value
from mirror.offsets.fence import fence_link
from mirror.offsets.intervals import End
from mirror.offsets.recovery import TailBatch
from mirror.offsets.state import load_partial_state
from mirror.offsets.state_writer import ensure_own_topics
from mirror.offsets.tail import Tail
from mirror.offsets.tail import read_tails as read_each_tail
from tests.mirror.harness import make_topic

WHERE = TopicPartition("flights", 0)
WRITER = Writer(7, 3)


def checkpoint(target_next: int, partition: int = 0, sequence: int = 0) -> Checkpoint:
    return Checkpoint("flights", partition, End(100, target_next), 100, WRITER, sequence, 200, -1, 0)


async def read_tails(
    target: Cluster,
    link: Link,
    checkpoints: Mapping[tuple[str, int], Checkpoint],
    log_ends: Mapping[TopicPartition, int] | None = None,
) -> dict[tuple[str, int], Tail]:
    """All of them; one that cannot be read fails the test."""
    tails, failures = split_failures(await read_each_tail(target, link, checkpoints, log_ends))
    assert not failures
    return tails


async def write(target: Cluster, *sizes: int) -> None:
    """Batches of a local producer, and nobody's sequences."""
    for size in sizes:
        await append(target, WHERE, encode_batch([Record(at, 1, b"k", b"v") for at in range(size)]))


def spans(batches: list[TailBatch]) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.last_offset) for batch in batches]


async def test_the_batches_from_the_checkpoint_to_the_end(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    await write(target, 3, 2, 4)
    tail = (await read_tails(target, link, {WHERE: checkpoint(3)}))[WHERE]
    assert (tail.log_start, tail.log_end) == (0, 9)
    assert spans(tail.batches) == [(3, 4), (5, 8)]
    at_the_end = (await read_tails(target, link, {WHERE: checkpoint(9)}))[WHERE]
    assert (at_the_end.log_end, at_the_end.batches) == (9, [])


async def test_whose_a_batch_is_and_what_is_a_marker(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    await ensure_own_topics(target, link)
    writer = (await fence_link(target, link)).writer
    ours = encode_batch(
        [Record(0, 1, b"k", b"v"), Record(1, 1, b"k", b"v")],
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        base_sequence=0,
    )
    await append(target, WHERE, ours)
    marker, data = (await read_tails(target, link, {WHERE: checkpoint(0)}))[WHERE].batches
    assert (marker.base_offset, marker.last_offset, marker.is_control) == (0, 0, True)
    assert data == TailBatch(1, 2, writer.producer_id, writer.epoch, 0, is_control=False)


async def test_earlier_log_ends_bound_it(target: Cluster, link: Link) -> None:
    """What landed later has blocks that were not yet read."""
    await make_topic(target, "flights")
    await write(target, 3, 2, 4)
    tail = (await read_tails(target, link, {WHERE: checkpoint(0)}, {WHERE: 5}))[WHERE]
    assert (tail.log_end, spans(tail.batches)) == (5, [(0, 2), (3, 4)])
    assert await read_tails(target, link, {WHERE: checkpoint(0)}, {}) == {}


async def test_what_retention_deleted_at_an_exclusive_target_was_the_writers(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    await write(target, 3, 2, 4)
    await delete_records(target, {WHERE: 5})
    tail = (await read_tails(target, link, {WHERE: checkpoint(2, sequence=41)}))[WHERE]
    assert tail.log_start == 5
    assert tail.batches[0] == TailBatch(2, 4, WRITER.producer_id, WRITER.epoch, 41, is_control=False)
    assert spans(tail.batches[1:]) == [(5, 8)]


async def test_a_batch_in_which_the_log_begins_needs_nothing_in_its_place(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    await write(target, 3, 2, 4)
    await delete_records(target, {WHERE: 7})
    tail = (await read_tails(target, link, {WHERE: checkpoint(5)}))[WHERE]
    assert (tail.log_start, spans(tail.batches)) == (7, [(5, 8)])
    tail = (await read_tails(target, link, {WHERE: checkpoint(2, sequence=41)}))[WHERE]
    assert tail.batches[0] == TailBatch(2, 4, WRITER.producer_id, WRITER.epoch, 41, is_control=False)
    assert spans(tail.batches[1:]) == [(5, 8)]


async def test_what_retention_deleted_at_a_shared_target_may_have_been_anybodys(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    await write(target, 3, 2, 4)
    await delete_records(target, {WHERE: 5})
    shared = replace(link, shared_targets=True)
    assert spans((await read_tails(target, shared, {WHERE: checkpoint(2)}))[WHERE].batches) == [(5, 8)]


async def test_nothing_stands_in_where_nothing_is_missing(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    await write(target, 3, 2)
    await delete_records(target, {WHERE: 3})
    assert spans((await read_tails(target, link, {WHERE: checkpoint(3)}))[WHERE].batches) == [(3, 4)]


async def test_what_the_target_no_longer_has_is_left_out(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    asked = {WHERE: checkpoint(0), ("flights", 1): checkpoint(0, 1), ("orders", 0): checkpoint(0)}
    assert list(await read_tails(target, link, asked)) == [WHERE]


async def test_prefixed_targets_are_found_by_their_source(target: Cluster, link: Link) -> None:
    await make_topic(target, "east.flights")
    prefixed = replace(link, topic_names="prefixed")
    assert list(await read_tails(target, prefixed, {WHERE: checkpoint(0)})) == [WHERE]


async def test_a_partition_that_cannot_be_read_is_named_and_hides_no_other(
    tmp_path: Path, target: Cluster, link: Link
) -> None:
    await make_topic(target, "flights", 2)
    await ensure_own_topics(target, link)
    known = [checkpoint(1, partition) for partition in (0, 1)]
    for seen in known:
        where = TopicPartition("flights", seen.partition)
        await append(target, where, encode_batch([Record(at, 1, b"k", b"v") for at in range(3)]))
    entries = [Record(at, 1, encode_key(seen), encode_value(seen)) for at, seen in enumerate(known)]
    await append(target, TopicPartition(link.state_topic, 0), encode_batch(entries))
    (log,) = tmp_path.rglob("flights-1/*.log")
    os.truncate(log, 0)
    state = await load_partial_state(link, target)
    assert list(state.unread) == [("flights", 1)]
    assert list(state.map.partitions()) == [("flights", 0)]
