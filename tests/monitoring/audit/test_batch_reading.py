"""What one task says of a site's batches: all of them once, however they are dealt out, or that they were not read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.client.topics import delete_records
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from monitoring.audit.batch_reading import UNREAD, BatchTask, Share, digested, packed, split
from monitoring.audit.batches import DigestRow, View, view_of
from monitoring.audit.model import ComparablePartition, FrozenSite, Segment, Side, Span
from tests.broker.running import running_broker
from tests.mirror.harness import make_topic

HERE, IN_TRANSACTIONS = TopicPartition("t", 0), TopicPartition("t", 1)
WIDTH = 16
BATCHES, EACH = 12, 9
END = BATCHES * EACH


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """HERE has BATCHES batches of EACH records, the other one three transactions, of which the second was aborted."""
    async with running_broker(tmp_path / "east") as east, Cluster(Site("east", east)) as found:
        await make_topic(found, HERE.topic, 2)
        for first in range(0, END, EACH):
            records = [Record(0, 1 + first, b"k", b"value %d" % (first + nth)) for nth in range(EACH)]
            await append(found, HERE, encode_batch(records))
        async with AIOKafkaProducer(bootstrap_servers=east, transactional_id="t") as producer:
            for commit in (True, False, True):
                await producer.begin_transaction()
                for number in range(EACH):
                    await producer.send(HERE.topic, b"%d" % number, partition=IN_TRANSACTIONS.partition)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        yield found


def view(span: Span, partition: int = 0) -> View:
    item = ComparablePartition("t", partition, "t", span, span, (Segment(span.start, span.start, span.offsets),))
    return view_of(item, Side.SOURCE)


def task(cluster: Cluster, shares: Iterable[Share]) -> BatchTask:
    return BatchTask(FrozenSite("east", cluster.site.bootstrap_servers, None), tuple(shares), WIDTH, bytes(16))


def summed(rows: Iterable[DigestRow]) -> dict[int, tuple[int, ...]]:
    sums: dict[int, list[int]] = defaultdict(lambda: [0] * 6)
    for row in rows:
        parts = (row.records, row.bytes, row.content_1, row.content_2, row.ordered, row.batches)
        sums[row.range_start] = [(one + other) % 2**64 for one, other in zip(sums[row.range_start], parts, strict=True)]
    return {start: tuple(found) for start, found in sums.items()}


async def whole(cluster: Cluster, span: Span) -> dict[int, tuple[int, ...]]:
    return summed(await digested(task(cluster, split(HERE, view(span), END, END))))


@pytest.mark.parametrize("span", [Span(0, END), Span(5, END - 4), Span(9, 18), Span(10, 12)])
@pytest.mark.parametrize("most", [1, 5, 9, 20])
async def test_each_batch_counts_once_however_they_are_dealt_out(cluster: Cluster, span: Span, most: int) -> None:
    shares = split(HERE, view(span), most, END)
    rows = [row for share in shares for row in await digested(task(cluster, [share]))]
    assert summed(rows) == await whole(cluster, span)
    assert sum(found[0] for found in summed(rows).values()) == span.offsets


async def test_aborted_records_and_markers_are_none(cluster: Cluster) -> None:
    end = (await log_end_offsets(cluster, [IN_TRANSACTIONS]))[IN_TRANSACTIONS]
    rows = await digested(task(cluster, split(IN_TRANSACTIONS, view(Span(0, end), 1), 4, end)))
    assert sum(row.records for row in rows) == 2 * EACH
    assert not any(row.unclear for row in rows)


async def test_of_a_partition_that_is_not_read_to_its_end_nothing_is_said(cluster: Cluster) -> None:
    """Neither where the log ends before, nor where it begins behind; and others are read all the same."""
    short = split(HERE, view(Span(0, END + 1)), END + 1, END + 1)
    there = split(IN_TRANSACTIONS, view(Span(0, 3), 1), 3, 40)
    rows = await digested(task(cluster, [*short, *there]))
    assert [(row.partition, row.range_start, row.unclear) for row in rows] == [(0, UNREAD, 1), (1, 0, 0)]
    await delete_records(cluster, {HERE: EACH})
    rows = await digested(task(cluster, split(HERE, view(Span(0, END)), 50, END)))
    assert [row.range_start for row in rows].count(UNREAD) == 1
    missing = split(TopicPartition("t", 7), view(Span(0, 3), 7), 3, 3)
    assert [row.range_start for row in await digested(task(cluster, missing))] == [UNREAD]


async def test_where_a_batch_reaches_too_far_nothing_is_said(cluster: Cluster) -> None:
    (first, *_) = split(HERE, view(Span(0, END)), 5, 3)
    assert [row.range_start for row in await digested(task(cluster, [first]))] == [UNREAD]


async def test_a_site_that_does_not_answer_is_no_error(cluster: Cluster) -> None:
    gone = task(cluster, split(HERE, view(Span(0, END)), 50, END))
    rows = await digested(replace(gone, site=FrozenSite("east", "127.0.0.1:1", None)))
    assert [(row.topic, row.partition, row.range_start) for row in rows] == [("t", 0, UNREAD)] * 3


def test_shares_go_together_up_to_what_a_task_reads() -> None:
    shares = [share for nth in range(4) for share in split(TopicPartition("t", nth), view(Span(0, 10), nth), 6, 10)]
    assert [[share.offsets.offsets for share in each] for each in packed(shares, 10)] == [[6, 4]] * 4
    assert [len(each) for each in packed(shares, 1)] == [1] * 8
    assert packed([], 10) == []
