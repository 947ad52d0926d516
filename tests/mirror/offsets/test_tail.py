"""What recovery is given of the target's log: every batch behind the checkpoint, and no guess about what is gone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, ReadUnfinished
from broker.client.fanout import split_failures
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.topics import delete_records, describe_topics
from broker.server import Server
from broker.wire.api import ApiKey
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, GapKind, GapStatus, Writer, encode_key, encode_value
from mirror.offsets.fence import fence_link
from mirror.offsets.fenced_logs import FencedLog
from mirror.offsets.intervals import End, Interval
from mirror.offsets.paged import Intervals
from mirror.offsets.recovery import TailBatch, recover
from mirror.offsets.state import load_partial_state
from mirror.offsets.state_writer import ensure_own_topics
from mirror.offsets.tail import PartsOfTails, Tail, settle, stand_in
from mirror.offsets.tail import read_tails as read_each_tail
from mirror.worker.resume import Evidence, SourceLog, open_partition
from tests.broker.faults import Faults, injected
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


async def write_ours(target: Cluster, size: int, sequence: int) -> None:
    records = [Record(at, 1, b"k", b"v") for at in range(size)]
    batch = encode_batch(records, producer_id=WRITER.producer_id, producer_epoch=WRITER.epoch, base_sequence=sequence)
    await append(target, WHERE, batch)


def marker(offset: int, epoch: int, producer_id: int = WRITER.producer_id) -> TailBatch:
    return TailBatch(offset, offset, producer_id, epoch, -1, is_control=True)


def ours(base: int, count: int, sequence: int) -> TailBatch:
    return TailBatch(base, base + count - 1, *WRITER, sequence, is_control=False)


def foreign(offset: int) -> TailBatch:
    return TailBatch(offset, offset, -1, -1, -1, is_control=False)


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


async def read_in_part(target: Cluster, link: Link, parts: PartsOfTails, log_end: int) -> list[TailBatch] | ClientError:
    """The tail from offset 3 to `log_end`, which is waited for where the log is shorter."""
    behind: dict[tuple[str, int], Checkpoint] = {WHERE: checkpoint(3)}
    found = (await read_each_tail(target, link, behind, {WHERE: log_end}, 300, parts=parts))[WHERE]
    return found.batches if isinstance(found, Tail) else found


async def test_what_was_not_read_in_time_is_gone_on_with_behind_what_was(
    server: Server, target: Cluster, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try began at the checkpoint: with ten million batches behind it none came to its end before a long one."""
    monkeypatch.setattr("broker.client.scan.SCAN_PARTITION_MAX_BYTES", 1)  # a request for each batch
    await make_topic(target, "flights")
    await write(target, 3, *[1] * 40)
    parts: PartsOfTails = {}
    assert isinstance(await read_in_part(target, link, parts, 45), ReadUnfinished)
    await write(target, 2)
    with injected(monkeypatch, {server.broker: (asked := Faults())}):
        found = await read_in_part(target, link, parts, 45)
    assert found == [*map(foreign, range(3, 43)), TailBatch(43, 44, -1, -1, -1, is_control=False)]
    assert asked.asked[ApiKey.FETCH] < 10
    assert parts == {}


async def test_what_was_read_of_a_log_that_has_lost_its_end_since_is_read_anew(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    await write(target, 3, 1, 1)
    await write_ours(target, 1, sequence=0)
    parts: PartsOfTails = {}
    assert isinstance(await read_in_part(target, link, parts, 9), ReadUnfinished)
    (part,) = parts.values()
    assert part.last == ours(5, 1, 0)
    parts[WHERE] = replace(part, last=foreign(5))  # as if that had stood there, and now what the log has
    assert isinstance(await read_in_part(target, link, parts, 6), ReadUnfinished)
    assert parts == {}
    assert await read_in_part(target, link, parts, 6) == [foreign(3), foreign(4), ours(5, 1, 0)]


async def test_what_retention_deleted_at_an_exclusive_target_was_the_writers(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    await write(target, 3, 2)
    await write_ours(target, 4, sequence=44)
    await delete_records(target, {WHERE: 5})
    tail = (await read_tails(target, link, {WHERE: checkpoint(2, sequence=41)}))[WHERE]
    assert (tail.log_start, tail.unclear) == (5, "")
    assert tail.batches[0] == TailBatch(2, 4, WRITER.producer_id, WRITER.epoch, 41, is_control=False)
    assert spans(tail.batches[1:]) == [(5, 8)]


async def test_a_batch_in_which_the_log_begins_needs_nothing_in_its_place(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    await write(target, 3, 2)
    await write_ours(target, 4, sequence=44)
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
    tail = (await read_tails(target, shared, {WHERE: checkpoint(2)}))[WHERE]
    assert (spans(tail.batches), tail.unclear) == ([(5, 8)], "")


async def test_nothing_stands_in_where_nothing_is_missing(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    await write(target, 3, 2)
    await delete_records(target, {WHERE: 3})
    assert spans((await read_tails(target, link, {WHERE: checkpoint(3)}))[WHERE].batches) == [(3, 4)]


@pytest.mark.parametrize(
    ("left", "marker_may_follow", "known"),
    [
        ([marker(102, 5)], False, True),  # a start: its claim took epoch 4
        ([marker(102, 4)], False, True),  # a start by a version without claims
        ([marker(102, 5)], True, False),  # the fence was extended before
        ([marker(102, 5), marker(103, 8)], False, True),
        ([marker(102, 8)], False, False),  # a start that opened nothing was before it, or a command that left no marker
        ([marker(102, 7)], False, False),
        ([marker(102, 3)], False, False),  # an extension: others may have been before it
        ([marker(102, 0, producer_id=8)], False, False),
        ([], False, False),  # the marker of who looks is gone, too
        ([ours(102, 3, sequence=102)], True, True),
        ([foreign(102), ours(103, 3, sequence=102)], True, True),
        ([foreign(102)], False, False),
    ],
)
def test_what_is_gone_counts_as_records_only_where_no_marker_can_have_been_there(
    left: list[TailBatch], marker_may_follow: bool, known: bool
) -> None:
    before = replace(checkpoint(100, sequence=100), marker_may_follow=marker_may_follow)
    tail = stand_in(before, Tail(102, 110, left))
    assert tail.batches == ([ours(100, 2, sequence=100), *left] if known else left)
    assert bool(tail.unclear) is not known
    if not known:
        assert tail.unclear.startswith("target offsets 100 to 101 are gone")
    found = recover(Intervals([Interval(0, 0)]), [], before, tail.batches)
    landed = 2 + sum(3 for batch in left if (batch.producer_id, batch.is_control) == (WRITER.producer_id, False))
    assert found.position == (100 + landed if known else 100)


def test_the_sequence_of_what_is_left_tells_what_is_gone_whatever_else_was_there() -> None:
    before = replace(checkpoint(100, sequence=100), marker_may_follow=True)
    left = [ours(102, 3, sequence=101)]  # a record and a marker, of whatever epoch, are gone
    tail = stand_in(before, Tail(102, 105, left))
    assert (tail.batches, tail.unclear) == (left, "")
    assert recover(Intervals([Interval(0, 0)]), [], before, tail.batches).position == 104


@pytest.mark.parametrize("records", [0, 1, 2])
@pytest.mark.parametrize(
    "left", [[], [marker(105, 9)], [marker(105, 5)], [marker(105, 3), marker(106, 0, producer_id=8)]]
)
def test_what_the_state_says_to_stand_there_is_known_whatever_markers_are_gone(
    records: int, left: list[TailBatch]
) -> None:
    before = replace(checkpoint(100, sequence=100), records_behind=records)
    tail = stand_in(before, Tail(105, 107, left))
    assert (tail.unclear, tail.gone) == ("", (100, 104))
    assert tail.batches == [*([ours(100, records, sequence=100)] if records else []), *left]
    found = recover(Intervals([Interval(0, 0)]), [], before, tail.batches)
    assert (found.position, found.end.target_next, found.sequences) == (100 + records, 100 + records, records)


def test_what_is_left_of_them_counts_before_what_the_state_says() -> None:
    before = replace(checkpoint(100, sequence=100), records_behind=3)
    left = [ours(101, 2, sequence=101), marker(103, 5)]
    tail = stand_in(before, Tail(101, 104, left))
    assert (tail.unclear, tail.batches) == ("", [ours(100, 1, sequence=100), *left])
    assert recover(Intervals([Interval(0, 0)]), [], before, tail.batches).position == 103


@pytest.mark.parametrize(
    ("left", "records"),
    [
        ([marker(100, 5)], 0),
        ([ours(100, 2, sequence=100), marker(102, 5)], 2),
        ([ours(100, 2, sequence=100), ours(102, 1, sequence=102), marker(103, 5), marker(104, 7)], 3),
        ([marker(100, 3), ours(101, 2, sequence=100), marker(103, 5)], None),  # not right behind the end
        ([ours(100, 2, sequence=100), foreign(102), marker(103, 5)], None),
        ([ours(100, 2, sequence=101), marker(102, 5)], None),  # one was lost before them
    ],
)
def test_how_much_stands_behind_a_checkpoint_is_said_where_it_is_known(
    left: list[TailBatch], records: int | None
) -> None:
    before = replace(checkpoint(100, sequence=100), marker_may_follow=True)
    tail = Tail(0, left[-1].last_offset + 1, left)
    found = recover(Intervals([Interval(0, 0)]), [], before, tail.batches)
    said = settle(before, tail, found)
    if records is None:
        assert said is None
        return
    assert said == replace(before, records_behind=records, marker_may_follow=False)
    assert settle(said, tail, found) is None, "said once"
    gone = stand_in(said, Tail(tail.log_end, tail.log_end, []))
    again = recover(Intervals([Interval(0, 0)]), [], said, gone.batches)
    assert (again.position, again.end, again.last) == (found.position, found.end, found.last)


def test_of_what_is_unclear_or_lost_nothing_is_said() -> None:
    before = checkpoint(100, sequence=100)
    for tail in (Tail(101, 102, [marker(101, 8)], unclear="gone"), Tail(0, 99, [])):
        found = recover(Intervals([Interval(0, 0)]), [], before, tail.batches)
        assert settle(before, tail, found) is None


def test_what_the_link_had_not_proved_and_nobody_can_count_stops_the_partition() -> None:
    """A marker of an extended fence is gone, and none of its epochs: it was taken for a record, which was lost."""
    before = replace(checkpoint(100, sequence=100), marker_may_follow=True)
    tail = stand_in(before, Tail(101, 102, [marker(101, 5)]))
    source = SourceLog(0, 200, "", "")
    recorded = Intervals([Interval(0, 0)])
    evidence = Evidence(WHERE, False, source, tail, recorded, (), before, 0)
    opening = open_partition(evidence, Writer(7, 6))
    assert opening.gap is not None
    assert (opening.gap.kind, opening.gap.source_from) == (GapKind.TARGET_NOT_EMPTY, 100)
    accepted = replace(opening.gap, status=GapStatus.ACCEPTED)
    assert open_partition(replace(evidence, gaps=(accepted,)), Writer(7, 6)).position == 100
    started = replace(accepted, source_to=101)
    assert open_partition(replace(evidence, gaps=(started,)), Writer(7, 6)).position == 101


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


async def test_of_who_asks_for_the_link_alone_nothing_is_read_behind_a_later_fence(target: Cluster, link: Link) -> None:
    """Applications write on for hours behind a promotion's."""
    await make_topic(target, "flights")
    await ensure_own_topics(target, link)
    before = await fence_link(target, link, [WHERE])
    await write(target, 3)
    (end,) = (await log_end_offsets(target, [WHERE])).values()
    known = replace(checkpoint(end), writer=before.writer)
    fenced = await fence_link(target, link, [WHERE])
    await write(target, 2, 2)
    every = (await read_each_tail(target, link, {WHERE: known}))[WHERE]
    alone = (await read_each_tail(target, link, {WHERE: known}, fenced={}))[WHERE]
    assert isinstance(every, Tail)
    assert isinstance(alone, Tail)
    assert spans(every.batches) == [(end, end), (end + 1, end + 2), (end + 3, end + 4)]
    assert (spans(alone.batches), alone.log_end) == ([(end, end)], every.log_end)
    topic_id = str((await describe_topics(target, ["flights"]))["flights"].topic_id)
    logs = {("flights", 0): FencedLog(topic_id, end + 2, fenced.writer, "failover-1")}
    at_markers = replace(known, end=End(100, end + 1))  # retention has taken the marker, say
    read = await read_each_tail(target, link, {WHERE: at_markers}, fenced=logs)
    assert isinstance(tail := read[WHERE], Tail)
    assert spans(tail.batches) == [(end + 1, end + 2)]
