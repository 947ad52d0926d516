"""After the fence no earlier writer gets a record in, anywhere; and its successor does."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_batches
from broker.server import Server
from broker.wire.api import ApiKey
from broker.wire.batch import BatchHeader
from broker.wire.errors import ErrorCode
from broker.wire.records import ControlKind, Record, decode_control, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkFenced
from mirror.link import Link
from mirror.offsets.entries import Writer
from mirror.offsets.fence import fence_link, find_unmarkable
from mirror.offsets.state_writer import FENCED_CODES, StateLog, ensure_own_topics
from mirror.offsets.topic_entries import TopicIdentity
from tests.broker.faults import Faults, injected, leaderless
from tests.mirror.harness import make_topic

ENTRY = TopicIdentity("flights", "an-id")


async def write_as(target: Cluster, writer: Writer, where: TopicPartition, sequence: int = 0) -> int:
    return await append(
        target,
        where,
        encode_batch(
            [Record(0, 1, b"k", b"v")],
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            base_sequence=sequence,
        ),
    )


async def test_the_earlier_writer_is_shut_out_of_data_and_state(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights", 2)
    await ensure_own_topics(target, link)
    first = (await fence_link(target, link)).writer
    flights = [TopicPartition("flights", 0), TopicPartition("flights", 1)]
    await write_as(target, first, flights[0])
    log = StateLog(target, link, first)
    await log.append([ENTRY])

    second = (await fence_link(target, link)).writer
    assert second.producer_id == first.producer_id
    assert second.epoch == first.epoch + 2, "not the epoch of the transaction, but that after all its markers"
    before = await log_end_offsets(target, [*flights, TopicPartition(link.state_topic, 0)])
    for where, sequence in zip(flights, (1, 0), strict=True):  # into the second it had never written
        with pytest.raises(KafkaError) as refused:
            await write_as(target, first, where, sequence)
        assert refused.value.code in FENCED_CODES
    with pytest.raises(LinkFenced) as fenced:
        await log.append([ENTRY])
    assert fenced.value.writer == first
    assert await log_end_offsets(target, before) == before, "nothing of it got in"

    for where in flights:
        await write_as(target, second, where)
    await StateLog(target, link, second).append([ENTRY])


async def test_a_fence_takes_one_offset_in_every_partition_that_the_link_could_write(
    target: Cluster, link: Link
) -> None:
    await make_topic(target, "flights", 2)
    await make_topic(target, "orders")
    await ensure_own_topics(target, link)
    await fence_link(target, link)
    everywhere = [TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("orders", 0)]
    ends = await log_end_offsets(target, [*everywhere, TopicPartition(link.state_topic, 0)])
    assert list(ends.values()) == [1, 1, 0, 1]
    kinds: list[ControlKind] = []

    def visit(_where: TopicPartition, _header: BatchHeader, marker: memoryview) -> None:
        kinds.append(decode_control(marker).kind)

    await scan_batches(target, {where: OffsetSpan(0, end) for where, end in ends.items()}, visit)
    assert kinds == [ControlKind.ABORT] * 3, "what an earlier transaction wrote is not committed by its successor"


async def test_only_the_partitions_that_were_named_are_fenced(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights", 2)
    await ensure_own_topics(target, link)
    named = TopicPartition("flights", 1)
    await fence_link(target, link, [named])
    ends = await log_end_offsets(target, [TopicPartition("flights", 0), named, TopicPartition(link.state_topic, 0)])
    assert list(ends.values()) == [0, 1, 1]


async def test_where_a_leader_is_lost_meanwhile_the_others_are_fenced_and_can_be_written(
    target: Cluster, link: Link, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(target, "flights", 2)
    await ensure_own_topics(target, link)
    lost, kept = TopicPartition("flights", 0), TopicPartition("flights", 1)
    first = (await fence_link(target, link)).writer
    await write_as(target, first, kept)
    own = (await fence_link(target, link, [])).writer
    log = StateLog(target, link, own)
    await log.append([ENTRY])
    faults, until_found = Faults(), ExitStack()
    faults.moments[ApiKey.END_TXN] = lambda _: until_found.enter_context(leaderless(server.broker, lost))
    with until_found:
        with injected(monkeypatch, {server.broker: faults}):
            fence = await fence_link(target, link, since=own)
        assert fence.writer == own
        assert fence.awaited == fence.left_out.keys() == {lost}
        with pytest.raises(KafkaError) as refused:
            await write_as(target, first, kept, 1)
        assert refused.value.code in FENCED_CODES
        await write_as(target, fence.writer, kept)
        await log.append([ENTRY])
        before = await log_end_offsets(target, [kept])
    assert not (await fence_link(target, link)).left_out
    with pytest.raises(KafkaError) as refused:
        await write_as(target, fence.writer, kept, 1)
    assert refused.value.code in FENCED_CODES
    assert (await log_end_offsets(target, [kept]))[kept] == before[kept] + 1, "and the first marker came once"


async def test_a_fence_goes_on_only_when_all_that_can_take_a_marker_have_it(
    target: Cluster, link: Link, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(target, "flights", 2)
    await ensure_own_topics(target, link)
    lost, back = TopicPartition("flights", 0), TopicPartition("flights", 1)
    first = (await fence_link(target, link)).writer
    await write_as(target, first, back)
    own = (await fence_link(target, link, [])).writer
    faults, until_found, for_good = Faults(), ExitStack(), ExitStack()

    def lose(_request: object) -> None:
        for_good.enter_context(leaderless(server.broker, lost))
        until_found.enter_context(leaderless(server.broker, back))

    faults.moments[ApiKey.END_TXN] = lose
    # It has a leader again by the first look, and its marker only when the coordinator tries again.
    faults.moments[ApiKey.DESCRIBE_TRANSACTIONS] = lambda _: until_found.close()
    with for_good, until_found, injected(monkeypatch, {server.broker: faults}):
        fence = await fence_link(target, link, since=own)
        assert fence.awaited == fence.left_out.keys() == {lost}
        with pytest.raises(KafkaError) as refused:
            await write_as(target, first, back, 1)
        assert refused.value.code in FENCED_CODES


async def test_two_links_do_not_fence_each_other(target: Cluster, link: Link) -> None:
    other = Link("north-west", link.source, link.target, ("orders",))
    for one in (link, other):
        await ensure_own_topics(target, one)
    writer = (await fence_link(target, link)).writer
    assert (await fence_link(target, other)).writer.producer_id != writer.producer_id
    await StateLog(target, link, writer).append([ENTRY])


async def test_without_its_state_topic_a_link_is_not_fenced_by_halves(target: Cluster, link: Link) -> None:
    await make_topic(target, "flights")
    with pytest.raises(KafkaError) as refused:
        await fence_link(target, link)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await log_end_offsets(target, [TopicPartition("flights", 0)]) == {TopicPartition("flights", 0): 0}


async def test_who_was_overtaken_since_its_first_fence_is_told_so(target: Cluster, link: Link) -> None:
    await ensure_own_topics(target, link)
    own = (await fence_link(target, link, [])).writer
    await fence_link(target, link, [])
    with pytest.raises(LinkFenced, match="east-west was taken over by another owner while it was starting") as fenced:
        await fence_link(target, link, since=own)
    assert fenced.value.writer == own


async def test_what_can_take_no_marker_is_named_with_its_reason(
    target: Cluster, link: Link, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(target, "flights", 4)
    await make_topic(target, "strict", 2, min_insync_replicas="2")
    well, short, mute, unled = (TopicPartition("flights", number) for number in range(4))
    strict, beside = TopicPartition("strict", 0), TopicPartition("strict", 1)
    beyond, unknown = TopicPartition("flights", 9), TopicPartition("unknown", 0)
    faults = Faults(leaderless={unled}, short_isr={short, strict})
    faults.refuse(mute, ErrorCode.KAFKA_STORAGE_ERROR, ApiKey.LIST_OFFSETS)
    wanted = [well, short, mute, unled, strict, beside, beyond, unknown]
    with injected(monkeypatch, {server.broker: faults}):
        found = await find_unmarkable(target, wanted)
    assert {where: error.code for where, error in found.items() if isinstance(error, KafkaError)} == {
        mute: ErrorCode.KAFKA_STORAGE_ERROR,
        unled: ErrorCode.LEADER_NOT_AVAILABLE,
        strict: ErrorCode.NOT_ENOUGH_REPLICAS,
        beyond: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert found.keys().isdisjoint({well, short, beside}), "one replica in sync is enough where no more are asked for"
    assert str(found[strict]) == "strict-0 at west: NOT_ENOUGH_REPLICAS (1 of 3 replicas are in sync)"
    for where in (unled, beyond):
        assert f"{where} at west" in str(found[where])
