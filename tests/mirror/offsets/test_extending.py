"""A fence that is extended to more partitions under its own epoch: who was before is shut out there, too."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.limits import ClientLimits
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.producers import ConcurrentTransaction, ProducerIdAndEpoch, add_partitions_to_txn, end_txn
from broker.server import Server
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkFenced
from mirror.link import Link
from mirror.offsets import fence
from mirror.offsets.entries import Writer
from mirror.offsets.fence import extend_fence, fence_link
from mirror.offsets.state_writer import FENCED_CODES, ensure_own_topics
from tests.broker.faults import Faults, injected, leaderless
from tests.mirror.harness import make_topic

IMPATIENT = replace(ClientLimits(), retry_timeout_ms=1_000)
OLD, YOUNG, OTHER = (TopicPartition("flights", number) for number in range(3))


async def write_as(target: Cluster, writer: Writer, where: TopicPartition, sequence: int = 0) -> int:
    producer_id, epoch = writer
    record = Record(0, 1, b"k", b"v")
    batch = encode_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return await append(target, where, batch)


async def refused_code(target: Cluster, writer: Writer, where: TopicPartition, sequence: int) -> ErrorCode | None:
    with pytest.raises(KafkaError) as refused:
        await write_as(target, writer, where, sequence)
    return refused.value.code


@pytest.fixture
async def writers(target: Cluster, link: Link) -> tuple[Writer, Writer]:
    """The one before, who wrote into all three partitions, and the one now, whose fence reached only the first."""
    await make_topic(target, "flights", 3)
    await ensure_own_topics(target, link)
    before = (await fence_link(target, link)).writer
    for where in (OLD, YOUNG, OTHER):
        await write_as(target, before, where)
    now = (await fence_link(target, link, [OLD])).writer
    await write_as(target, now, OLD)
    return before, now


async def test_who_was_before_is_shut_out_of_the_others_and_nothing_else_changes(
    target: Cluster, link: Link, writers: tuple[Writer, Writer]
) -> None:
    before, now = writers
    await write_as(target, before, YOUNG, 1)
    ends = await log_end_offsets(target, [OLD, YOUNG, TopicPartition(link.state_topic, 0)])
    extended = await extend_fence(target, link, now, [YOUNG, OTHER])
    assert (extended.writer, extended.left_out, extended.awaited) == (now, {}, frozenset())
    assert await log_end_offsets(target, ends) == {**ends, YOUNG: ends[YOUNG] + 1}, "one marker, there alone"
    for where, sequence in ((YOUNG, 2), (OTHER, 1)):
        assert await refused_code(target, before, where, sequence) in FENCED_CODES
        await write_as(target, now, where)
    await write_as(target, now, OLD, 1)
    await extend_fence(target, link, now, [YOUNG])
    await write_as(target, now, YOUNG, 1)


async def test_who_was_overtaken_reaches_nothing_any_more(
    target: Cluster, link: Link, writers: tuple[Writer, Writer]
) -> None:
    """The successor's fence did not reach the partition: it had not seen it yet."""
    _, now = writers
    successor = (await fence_link(target, link, [OLD])).writer
    ends = await log_end_offsets(target, [YOUNG])
    with pytest.raises(LinkFenced, match="another owner took over") as fenced:
        await extend_fence(target, link, now, [YOUNG])
    assert fenced.value.writer == now
    assert await log_end_offsets(target, [YOUNG]) == ends
    await extend_fence(target, link, successor, [YOUNG])
    await write_as(target, successor, YOUNG)


async def test_who_is_overtaken_between_the_end_and_its_markers_is_told(
    target: Cluster, link: Link, writers: tuple[Writer, Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first end was decided; only the second shows that somebody came since."""
    _, now = writers
    came: list[Writer] = []

    async def overtaken(*asked: Any, **more: Any) -> None:
        await end_txn(*asked, **more)
        if not came:
            came.append(now)
            monkeypatch.setattr(fence, "end_txn", end_txn)
            came.append((await fence_link(target, link, [OLD])).writer)

    monkeypatch.setattr(fence, "end_txn", overtaken)
    with pytest.raises(LinkFenced):
        await extend_fence(target, link, now, [YOUNG])
    assert came[1].epoch > now.epoch


async def test_a_leader_that_is_lost_meanwhile_keeps_its_partition_out_and_no_other(
    target: Cluster, link: Link, server: Server, writers: tuple[Writer, Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now = writers
    faults, until_found = Faults(), ExitStack()

    def lose(_request: object) -> None:
        if faults.asked[ApiKey.END_TXN] == 1:
            until_found.enter_context(leaderless(server.broker, YOUNG))

    faults.moments[ApiKey.END_TXN] = lose
    with until_found:
        with injected(monkeypatch, {server.broker: faults}):
            extended = await extend_fence(target, link, now, [YOUNG, OTHER])
        assert extended.awaited == extended.left_out.keys() == {YOUNG}
        assert await refused_code(target, before, OTHER, 1) in FENCED_CODES
        await write_as(target, now, OTHER)
        await write_as(target, now, OLD, 1)
    assert not (await extend_fence(target, link, now, [YOUNG])).left_out
    await write_as(target, now, YOUNG)


async def test_what_can_take_no_marker_is_never_in_the_transaction(
    target: Cluster, link: Link, server: Server, writers: tuple[Writer, Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, now = writers
    unknown = TopicPartition("unknown", 0)
    faults = Faults(leaderless={YOUNG})
    faults.refuse(OTHER, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ApiKey.ADD_PARTITIONS_TO_TXN)
    ends = await log_end_offsets(target, [OTHER])
    with injected(monkeypatch, {server.broker: faults}):
        extended = await extend_fence(target, link, now, [YOUNG, OTHER, unknown])
    assert extended.left_out.keys() == {YOUNG, OTHER, unknown}
    assert (extended.awaited, await log_end_offsets(target, [OTHER])) == (frozenset(), ends)
    assert not faults.asked[ApiKey.END_TXN]


async def test_a_transaction_that_does_not_end_is_its_partitions_trouble_alone(
    target: Cluster, link: Link, server: Server, writers: tuple[Writer, Writer]
) -> None:
    """Somebody cut an extension short: while its markers cannot be written, the next one says so, and no more."""
    _, now = writers
    producer = ProducerIdAndEpoch(*now)
    with leaderless(server.broker, YOUNG):
        await add_partitions_to_txn(target, link.transactional_id, producer, [YOUNG])
        await end_txn(target, link.transactional_id, producer, commit=False)
        async with Cluster(target.site, limits=IMPATIENT) as impatient:
            extended = await extend_fence(impatient, link, now, [OTHER])
    assert isinstance(extended.left_out[OTHER], ConcurrentTransaction)
    await write_as(target, now, OLD, 1)
    assert not (await extend_fence(target, link, now, [OTHER])).left_out
