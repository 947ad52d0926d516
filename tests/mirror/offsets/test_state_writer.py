"""Writing the state: in order, all of it, acknowledged before it is relied on, and never where it would be deleted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest

from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs, describe_topic_configs
from broker.client.errors import ClientError, ConnectionLost, KafkaError
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_batches
from broker.client.topics import delete_topics, describe_topics
from broker.wire.batch import BatchHeader
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from mirror.errors import LinkFenced
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    Gap,
    GapKind,
    GapStatus,
    VoidBlock,
    Writer,
    decode_entry,
    decode_key,
    encode_value,
    encode_void_key,
)
from mirror.offsets.fence import fence_link
from mirror.offsets.group_entries import GroupSync, Written
from mirror.offsets.intervals import End, Interval
from mirror.offsets.limits import STATE_BATCH_MAX_BYTES, STATE_BATCH_MAX_ENTRIES, STATE_TOPIC_CONFIGS
from mirror.offsets.state_writer import Change, StateLog, StateWriter, ensure_own_topics
from mirror.offsets.topic_entries import TopicIdentity
from tests.failover.machines import VICTIM, Death, mortal
from tests.mirror.harness import make_topic


@asynccontextmanager
async def running(log: StateLog) -> AsyncIterator[StateWriter]:
    writer = StateWriter(log)
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()


async def open_log(target: Cluster, link: Link) -> StateLog:
    await ensure_own_topics(target, link)
    return StateLog(target, link, (await fence_link(target, link, [])).writer)


async def read_batches(target: Cluster, link: Link) -> list[tuple[BatchHeader, list[Record]]]:
    where = TopicPartition(link.state_topic, 0)
    found: list[tuple[BatchHeader, list[Record]]] = []

    def visit(_where: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
        if not header.is_control:
            found.append((header, decode_records(batch)))

    end = (await log_end_offsets(target, [where]))[where]
    await scan_batches(target, {where: OffsetSpan(0, end)}, visit)
    return found


async def read_changes(target: Cluster, link: Link) -> list[object]:
    """The entries as they stand in the topic; a tombstone as its key."""
    records = [record for _, found in await read_batches(target, link) for record in found]
    return [
        record.key if record.value is None else decode_entry(decode_key(record.key or b""), record.value)
        for record in records
    ]


def identities(count: int) -> list[Change]:
    return [TopicIdentity(f"topic-{at}", "id") for at in range(count)]


async def test_one_group_of_very_many_partitions_does_not_outgrow_the_topic(target: Cluster, link: Link) -> None:
    """Its entry would be larger than the topic's max.message.bytes."""
    log, numbers = await open_log(target, link), Random(7)
    places = {("flights", at): Written(numbers.randrange(10**9), numbers.randrange(10**9)) for at in range(40_000)}
    entry = GroupSync("g", 5, places)
    described = (await describe_topic_configs(target, [link.state_topic]))[link.state_topic]
    assert not isinstance(described, KafkaError)
    assert len(encode_value(entry)) > int(described["max.message.bytes"].value or 0)
    await log.append([TopicIdentity("before", "id"), entry, TopicIdentity("after", "id")])
    assert await read_changes(target, link) == [TopicIdentity("before", "id"), entry, TopicIdentity("after", "id")]


@pytest.mark.parametrize("is_answer_lost", [True, False], ids=["answer lost", "request lost"])
async def test_what_nobody_knows_of_is_said_again_and_is_there_once(
    target: Cluster, link: Link, monkeypatch: pytest.MonkeyPatch, is_answer_lost: bool
) -> None:
    """A next epoch was asked for instead, which is refused as another's where the answer to that is lost, too."""
    log = await open_log(target, link)
    async with Cluster(target.site, client_id=VICTIM) as cut_off:
        mine = StateLog(cut_off, link, log.writer)
        await mine.append(identities(1))
        calls = 0

        def cuts() -> bool:
            nonlocal calls
            calls += 1
            return calls == 1 + is_answer_lost

        with mortal(monkeypatch, Death(cuts=cuts)), pytest.raises(ConnectionLost):
            await mine.append(identities(2))
        await mine.settle()
        await mine.settle()
        await mine.append(identities(3))
        assert await read_changes(target, link) == [*identities(1), *identities(2), *identities(3)]
        newer = (await fence_link(target, link, [])).writer
        assert newer.epoch == mine.writer.epoch + 2
        with mortal(monkeypatch, Death(cuts=lambda: True)), pytest.raises(ConnectionLost):
            await mine.append(identities(1))
        with pytest.raises(LinkFenced):
            await mine.settle()


async def test_more_entries_than_a_batch_holds_all_arrive_in_order(target: Cluster, link: Link) -> None:
    log = await open_log(target, link)
    changes = identities(STATE_BATCH_MAX_ENTRIES + 1)
    await log.append(changes)
    await log.append(identities(1))
    assert await read_changes(target, link) == [*changes, *identities(1)]
    headers = [header for header, _ in await read_batches(target, link)]
    assert [header.record_count for header in headers] == [STATE_BATCH_MAX_ENTRIES, 1, 1]
    sequences = [header.base_sequence for header in headers]
    assert sequences == [0, STATE_BATCH_MAX_ENTRIES, STATE_BATCH_MAX_ENTRIES + 1]


async def test_a_position_is_never_written_without_the_gap_that_it_has_passed(target: Cluster, link: Link) -> None:
    """A crash between the two would leave an accepted gap before a position that is behind it, and the next start would
    say of it that nothing was left out."""
    log, writer = await open_log(target, link), Writer(7, 1)
    changes: list[Change] = identities(1)
    for at in range(STATE_BATCH_MAX_ENTRIES // 3 + 2):
        checkpoint = Checkpoint("flights", at, End(9, 5), 9, writer, 0, 9, -1, 1)
        gap = Gap("flights", at, GapKind.TRUNCATED_START, 2, 9, 5, GapStatus.PASSED, 1, "")
        changes += [VoidBlock("flights", at, 3), Block("flights", at, writer, 0, (Interval(9, 5),)), checkpoint, gap]
    await log.append(changes)
    batches = [records for _, records in await read_batches(target, link)]
    assert len(batches) == 2
    assert [entry for entry in await read_changes(target, link) if not isinstance(entry, bytes)] == [
        change for change in changes if not isinstance(change, VoidBlock)
    ]
    for records in batches:
        kinds = Counter(decode_key(record.key or b"")[0] for record in records if record.value is not None)
        assert kinds["position"] == kinds["gap"] == kinds["interval"]


async def test_what_no_batch_holds_of_one_partition_goes_in_several(target: Cluster, link: Link) -> None:
    log = await open_log(target, link)
    blocks: list[Change] = [
        Block("flights", 0, Writer(7, 1), 0, (Interval(at, at),)) for at in range(STATE_BATCH_MAX_ENTRIES + 1)
    ]
    await log.append([*identities(1), *blocks])
    assert await read_changes(target, link) == [*identities(1), *blocks]
    counts = [header.record_count for header, _ in await read_batches(target, link)]
    assert counts == [1, STATE_BATCH_MAX_ENTRIES, 1]


async def test_no_batch_is_larger_than_a_broker_takes(target: Cluster, link: Link) -> None:
    log = await open_log(target, link)
    changes: list[Change] = [TopicIdentity(f"topic-{at}", "x" * (STATE_BATCH_MAX_BYTES // 3)) for at in range(6)]
    await log.append(changes)
    assert await read_changes(target, link) == changes
    assert [header.record_count for header, _ in await read_batches(target, link)] == [2, 2, 2]


async def test_an_entry_beyond_the_limit_goes_alone_and_nothing_is_written_for_nothing(
    target: Cluster, link: Link
) -> None:
    log = await open_log(target, link)
    await log.append([])
    assert await read_batches(target, link) == []
    large = TopicIdentity("large", "x" * (STATE_BATCH_MAX_BYTES + 1))
    await log.append([large, *identities(1)])
    assert [header.record_count for header, _ in await read_batches(target, link)] == [1, 1]


async def test_a_void_is_a_tombstone_behind_its_block(target: Cluster, link: Link) -> None:
    log = await open_log(target, link)
    block = Block("flights", 0, Writer(7, 1), 3, (Interval(10, 5), Interval(20, 9)))
    void = VoidBlock("flights", 0, block.key_source)
    await log.append([block, void])
    assert await read_changes(target, link) == [block, encode_void_key(void)]


async def test_who_submitted_is_told_after_the_acknowledgement_and_in_order(target: Cluster, link: Link) -> None:
    writer = StateWriter(await open_log(target, link))
    told: list[str] = []
    for name in ("first", "second"):
        writer.submit([TopicIdentity(name, "id")], partial(told.append, name))
    writer.submit([TopicIdentity("third", "id")])
    assert told == [], "nothing is written yet"
    run = asyncio.create_task(writer.run())
    await writer.write([TopicIdentity("fourth", "id")])
    assert told == ["first", "second"]
    names = [change.topic for change in await read_changes(target, link) if isinstance(change, TopicIdentity)]
    assert names == ["first", "second", "third", "fourth"]
    run.cancel()


async def test_what_comes_while_a_write_is_under_way_goes_into_the_next(target: Cluster, link: Link) -> None:
    async with running(await open_log(target, link)) as writer:
        await asyncio.gather(*(writer.write([change]) for change in identities(20)))
        await asyncio.gather(*(writer.write([change]) for change in identities(3)))
    assert await read_changes(target, link) == [*identities(20), *identities(3)]
    assert len(await read_batches(target, link)) < 20


async def test_a_fenced_writer_says_so_and_nobody_is_told_that_it_was_written(target: Cluster, link: Link) -> None:
    log = await open_log(target, link)
    await fence_link(target, link, [])
    writer = StateWriter(log)
    told: list[str] = []
    writer.submit(identities(1), lambda: told.append("written"))
    with pytest.raises(LinkFenced, match="another owner took over"):
        await writer.run()
    assert told == []
    assert await read_changes(target, link) == []


async def test_an_error_that_is_no_fence_is_not_called_one(target: Cluster, link: Link) -> None:
    log = await open_log(target, link)
    small = {link.state_topic: [("max.message.bytes", ConfigOperation.SET, "100")]}
    assert await alter_topic_configs(target, small) == {}
    with pytest.raises(KafkaError, match=f"writing {link.state_topic} at west"):
        await log.append(identities(20))


async def test_own_topics_are_compacted_and_made_once(target: Cluster, link: Link) -> None:
    await ensure_own_topics(target, link)
    made = await describe_topics(target, [link.state_topic, PRODUCERS_TOPIC])
    assert {name: len(topic.partitions) for name, topic in made.items()} == {link.state_topic: 1, PRODUCERS_TOPIC: 1}
    for configs in (await describe_topic_configs(target, made)).values():
        assert not isinstance(configs, KafkaError)
        assert configs["cleanup.policy"].value == "compact"
    await ensure_own_topics(target, link)
    again = await describe_topics(target, made)
    assert {topic.topic_id for topic in again.values()} == {topic.topic_id for topic in made.values()}


async def test_the_state_topic_is_kept_small_whoever_made_it(target: Cluster, link: Link) -> None:
    """With Kafka's defaults nothing of it is compacted before it has 1 GiB."""

    async def configs() -> dict[str, str | None]:
        described = (await describe_topic_configs(target, [link.state_topic]))[link.state_topic]
        assert not isinstance(described, KafkaError)
        return {name: described[name].value for name in STATE_TOPIC_CONFIGS}

    set_by_hand = {"segment.bytes": "2000000"}
    await make_topic(target, link.state_topic, cleanup_policy="compact", segment_bytes="2000000")
    await ensure_own_topics(target, link)
    assert await configs() == STATE_TOPIC_CONFIGS | set_by_hand
    await delete_topics(target, [link.state_topic])
    await ensure_own_topics(target, link)
    assert await configs() == STATE_TOPIC_CONFIGS


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize(
    ("own", "lost"), [("state", "the offset map"), ("producers", "what tells mirrored records from local ones")]
)
async def test_an_own_topic_with_retention_is_refused(
    target: Cluster, link: Link, policy: str, own: str, lost: str
) -> None:
    await ensure_own_topics(target, link)
    topic = link.state_topic if own == "state" else PRODUCERS_TOPIC
    assert await alter_topic_configs(target, {topic: [("cleanup.policy", ConfigOperation.SET, policy)]}) == {}
    with pytest.raises(ClientError, match=f"{topic} at west has cleanup.policy={policy}: {lost} would be deleted"):
        await ensure_own_topics(target, link)
