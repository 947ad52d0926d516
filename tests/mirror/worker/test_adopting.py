"""What a target already holds becomes the link's own, exactly; where it is not the source's, it is refused."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from broker.base.clock import Clock
from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.producers import add_partitions_to_txn, end_txn, init_producer_id
from broker.client.site import Site
from broker.client.topics import delete_records, delete_topics
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import ALL_REPLICAS, TopicPartition
from mirror.errors import GapNotOpen
from mirror.link import Link
from mirror.offsets.adoption import Adoption
from mirror.offsets.entries import GapKind, GapStatus, Writer
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.operations import adopt_partitions
from mirror.offsets.state import load_link_state, read_entries
from mirror.origins import SiteIdentity
from mirror.worker.adopting import _seen, compare_for_adoption
from mirror.worker.events import Event
from mirror.worker.matching import Unmatched
from mirror.worker.origins import Passage
from tests.mirror.harness import (
    LONG_AGO,
    contents,
    link_between,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)

LOCAL = [Record(0, 1, b"local", b"record")]


def fresh(brokers: tuple[str, str], **more: Any) -> tuple[Link, TopicPartition]:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    return link_between(*brokers, [f"{topic}.*"], **more), TopicPartition(topic, 0)


async def mirror_in_sessions(
    link: Link, source: Cluster, target: Cluster, where: TopicPartition, clock: Clock | None = None
) -> None:
    """Three sessions of ten records each: a marker lies between them at the target."""
    for count in (10, 20, 30):
        await write(source, where, some_records(count - 10, 10))
        async with running(link, clock=clock):
            await wait_for_records(target, where, count)


async def forget(link: Link, target: Cluster) -> None:
    """The state topic is deleted; the next session stops the partition."""
    await delete_topics(target, [link.state_topic])
    await stop(link)


async def stop(link: Link, clock: Clock | None = None) -> None:
    async with running(link, clock=clock) as told:
        (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
        await told.wait_for(Event.STARTED)
    assert stopped["reason"] == GapKind.TARGET_NOT_EMPTY
    assert str(stopped["hint"]).endswith("--adopt")


async def compare(link: Link, source: Cluster, target: Cluster) -> Adoption | Unmatched:
    (gap,) = (await read_entries(link, target)).open_gaps().values()
    seen: list[tuple[int, int]] = []
    found = await compare_for_adoption(link, source, target, gap, lambda read, total: seen.append((read, total)))
    assert isinstance(found, Unmatched) or seen[-1][0] == seen[-1][1] > 0
    return found


async def adopt(link: Link, source: Cluster, target: Cluster) -> Adoption:
    found = await compare(link, source, target)
    assert isinstance(found, Adoption), found
    await adopt_partitions(link, target, "op", [found])
    return found


async def goes_on(link: Link, source: Cluster, target: Cluster, where: TopicPartition, count: int) -> list[Record]:
    """Ten more are mirrored, and none of the others again."""
    await write(source, where, some_records(count, 10))
    async with running(link) as told:
        await told.wait_for(Event.STARTED)
        found = await wait_for_records(target, where, count + 10)
        assert not told.of(Event.PARTITION_STOPPED)
    assert contents(found) == contents(some_records(0, count + 10))
    return found


def translations(known: OffsetMap, where: TopicPartition, ends: tuple[int, int]) -> list[list[int | None]]:
    return [
        [known.to_target(*where, offset) for offset in range(ends[0])],
        [known.to_source(*where, offset) for offset in range(ends[1])],
    ]


async def test_a_link_that_lost_its_state_has_the_same_map_again(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await mirror_in_sessions(link, source, target, where)
        before = (await load_link_state(link, target)).map
        end = before.mirrored_end(*where)
        assert end is not None
        await forget(link, target)
        await adopt(link, source, target)
        adopted = (await load_link_state(link, target)).map
        assert adopted.intervals(*where)[1:] == before.intervals(*where)[1:]
        assert translations(adopted, where, end) == translations(before, where, end)
        found = await goes_on(link, source, target, where, 30)
        after = (await load_link_state(link, target)).map
        assert [after.to_target(*where, at) for at in range(40)] == [record.offset for record in found]
        (gap,) = (await read_entries(link, target)).gaps.values()
        assert (gap.status, gap.source_from, gap.source_to) == (GapStatus.PASSED, 0, 0)


async def test_a_link_goes_on_under_another_name_in_several_units(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await mirror_in_sessions(link, source, target, where, LONG_AGO)
        before = (await load_link_state(link, target)).map
        end = before.mirrored_end(*where)
        assert end is not None
        cut = replace(link, units=2)
        anew = replace(cut, name=f"{link.name}-cut")
        await stop(anew)
        await adopt(anew, source, target)
        adopted = await load_link_state(anew, target)
        assert adopted.entries.units == 2
        assert translations(adopted.map, where, end) == translations(before, where, end)
        await goes_on(anew, source, target, where, 30)


async def test_in_a_shared_target_the_records_of_others_stay_between(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers, shared_targets=True)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 10))
        async with running(link):
            await wait_for_records(target, where, 10)
        await write(target, where, LOCAL)
        await write(source, where, some_records(10, 10))
        async with running(link):
            await wait_for_records(target, where, 21)
        before = (await load_link_state(link, target)).map
        await forget(link, target)
        await write(target, where, LOCAL)
        await adopt(link, source, target)
        await write(source, where, some_records(20, 10))
        async with running(link):
            found = await wait_for_records(target, where, 32)
        assert contents(record for record in found if record.key != b"local") == contents(some_records(0, 30))
        after = (await load_link_state(link, target)).map
        assert [after.to_target(*where, at) for at in range(20)] == [before.to_target(*where, at) for at in range(20)]


async def register(origin: str, producer_id: int, target: Cluster, where: TopicPartition) -> None:
    """As another link that writes there does."""
    other = Link(f"{origin}-{producer_id}", Site(origin, "127.0.0.1:1"), target.site, (where.topic,))
    await Passage(other, target, target).register(target, SiteIdentity(origin), Writer(producer_id, 0))


async def bring(producer_id: int, target: Cluster, where: TopicPartition) -> None:
    batch = encode_batch(some_records(90, 1), producer_id=producer_id, producer_epoch=0, base_sequence=1)
    await append(target, where, batch)


@pytest.mark.parametrize(("later", "producer_id"), [("east", 7_002), ("north", 7_003)])
async def test_in_a_shared_target_counts_what_links_from_the_source_brought(
    brokers: tuple[str, str], later: str, producer_id: int
) -> None:
    """What was brought from elsewhere does not, before the comparison and behind it."""
    link, where = fresh(brokers, shared_targets=True)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await mirror_in_sessions(link, source, target, where)
        await forget(link, target)
        await register("north", producer_id + 1_000, target, where)
        await register(later, producer_id, target, where)
        await bring(producer_id + 1_000, target, where)
        found = await compare(link, source, target)
        assert isinstance(found, Adoption)
        assert found.records == 30
        await write(target, where, LOCAL)
        await bring(producer_id, target, where)
        if later == "north":
            await adopt_partitions(link, target, "op", [found])
        else:
            with pytest.raises(GapNotOpen, match="was changed after it was compared"):
                await adopt_partitions(link, target, "op", [found])


async def test_the_source_may_have_lost_its_beginning(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await mirror_in_sessions(link, source, target, where)
        await delete_records(source, {where: 13})
        await forget(link, target)
        found = await adopt(link, source, target)
        assert (found.first.source_start, found.records) == (13, 17)
        await goes_on(link, source, target, where, 30)


@pytest.mark.parametrize("twice", [False, True])
async def test_what_is_not_the_sources_is_refused(brokers: tuple[str, str], twice: bool) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for site in (source, target):
            await make_topic(site, where.topic)
        await write(source, where, some_records(0, 30))
        await write(target, where, some_records(0, 20))
        await write(target, where, some_records(19, 1) if twice else LOCAL)
        await stop(link)
        found = await compare(link, source, target)
        assert isinstance(found, Unmatched)
        assert "the target's record at offset 20 is not the source's at offset 20" in found.reason


async def test_records_that_another_tool_copied_are_adopted(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for site in (source, target):
            await make_topic(site, where.topic)
        await write(source, where, some_records(0, 30))
        await write(target, where, some_records(0, 20))
        await stop(link)
        assert (await adopt(link, source, target)).end == (20, 20)
        await goes_on(link, source, target, where, 30)


async def test_what_is_written_after_the_comparison_changes_nothing_of_the_link(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await mirror_in_sessions(link, source, target, where)
        await forget(link, target)
        found = await compare(link, source, target)
        assert isinstance(found, Adoption)
        await write(target, where, LOCAL)
        with pytest.raises(GapNotOpen, match="was changed after it was compared"):
            await adopt_partitions(link, target, "op", [found])
        entries = await read_entries(link, target)
        assert not entries.checkpoints
        assert len(entries.open_gaps()) == 1
        refused = await compare(link, source, target)
        assert isinstance(refused, Unmatched)
        assert len(await read_all(target, where)) == 31


@pytest.mark.parametrize(
    "other",
    [
        Record(0, 1, b"ke", b"yvalue"),
        Record(0, 1, None, b"keyvalue"),
        Record(0, 1, b"key", None),
        Record(0, 1, b"key", b""),
        Record(0, 1, b"key", b"value", (("h", None),)),
        Record(0, 1, b"key", b"value", (("h", b""),)),
        Record(0, 1, b"key", b"value", (("", b"h"),)),
        Record(0, 1, b"key", b"value", (("h", b""), ("h", b""))),
    ],
    ids=str,
)
def test_records_that_differ_in_anything_have_contents_that_differ(other: Record) -> None:
    one = _seen(Record(5, 7, b"key", b"value"), 3, is_stamped=False)
    assert one[:2] == (5, 7)
    assert one[4:] == (False, 3, False)
    there = _seen(other, 4, is_stamped=True)
    assert there.content != one.content
    assert there.content == _seen(other._replace(offset=9, timestamp=8), 5, is_stamped=False).content
    assert (there.key == one.key) is (other.key == b"key")
    assert (there.key is None) is (other.key is None)
    assert there[4:] == (other.value is None, 4, True)


async def test_compacted_topics_are_compared_as_such(brokers: tuple[str, str]) -> None:
    """The source has compacted away what the target still holds; a topic may be compacted and cut by age, too."""
    link, where = fresh(brokers)
    keys = [b"a", b"b", b"a", b"c"]
    records = [Record(n, 1_700_000_000_000 + n, key, b"%d" % n) for n, key in enumerate(keys)]
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for site in (source, target):
            await make_topic(site, where.topic, cleanup_policy="compact,delete")
        await write(source, where, records[:1])
        await write(target, where, records[:1])
        await write(source, where, records[2:])
        await stop(link)
        await write(target, where, [records[2]])
        found = await compare(link, source, target)
        assert isinstance(found, Adoption)
        assert (found.end, found.records, found.source_timestamp_ms) == ((2, 3), 2, records[2].timestamp)
        assert (found.source_end_offset, found.target_read_to) == (3, 3)
        await write(target, where, [records[1]])
        assert isinstance(await compare(link, source, target), Unmatched)


async def write_aborted(cluster: Cluster, where: TopicPartition, records: list[Record]) -> None:
    """In a transaction, whose marker is there when this returns."""
    name = f"t-{where.topic}"
    producer = await init_producer_id(cluster, name)
    await add_partitions_to_txn(cluster, name, producer, [where])
    batch = encode_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    data = [TopicProduceData(where.topic, [PartitionProduceData(where.partition, batch)])]
    connection = await cluster.connection(await cluster.leader(*where), "produce")
    response = await connection.request(ProduceRequest(name, ALL_REPLICAS, 10_000, data))
    assert response.responses[0].partition_responses[0].error_code == 0
    await end_txn(cluster, name, producer, commit=False)
    await init_producer_id(cluster, name)


async def test_what_the_source_aborted_is_not_missing_at_the_target(brokers: tuple[str, str]) -> None:
    """Only committed records are mirrored; at the target an aborted record counts, as one that the source has not."""
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for site in (source, target):
            await make_topic(site, where.topic)
        await write(source, where, some_records(0, 5))
        await write_aborted(source, where, some_records(90, 2))
        await write(source, where, some_records(5, 5))
        await write(target, where, some_records(0, 8))
        await stop(link)
        found = await compare(link, source, target)
        assert isinstance(found, Adoption)
        assert (found.end, found.last.source_offset) == ((11, 8), 10), (
            "two aborted records and their marker lie between"
        )
        assert (found.source_end_offset, found.target_read_to) == (13, 9)
        assert "" not in found.topic_ids
        assert found.topic_ids.source != found.topic_ids.target
        await write_aborted(target, where, some_records(90, 1))
        assert isinstance(await compare(link, source, target), Unmatched)


async def test_a_target_that_stamps_its_records_is_compared_by_contents(brokers: tuple[str, str]) -> None:
    link, where = fresh(brokers)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await make_topic(target, where.topic, message_timestamp_type="LogAppendTime")
        await write(source, where, some_records(0, 6))
        await write(target, where, some_records(0, 4))
        await stop(link)
        found = await compare(link, source, target)
        assert isinstance(found, Adoption)
        assert (found.end, found.source_timestamp_ms) == ((4, 4), some_records(3, 1)[0].timestamp)
