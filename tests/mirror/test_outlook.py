"""What is shown before a consent is what the consent then does."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.topics import delete_records, delete_topics
from broker.wire.records import encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import GapKind, GapStatus
from mirror.offsets.state import read_entries
from mirror.outlook import look_ahead
from mirror.worker.events import Event
from tests.broker.running import running_server
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import (
    accept_all,
    contents,
    eventually,
    link_between,
    make_topic,
    running,
    some_records,
    wait_for_records,
    write,
)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("sites")
    with FarshoreBroker(folder / "east") as east, FarshoreBroker(folder / "west") as west:
        yield east.bootstrap, west.bootstrap


async def test_what_a_session_still_wrote_into_a_recreated_target_is_shown_as_repeated(
    brokers: tuple[str, str],
) -> None:
    """A batch that was on its way when the target topic was made anew lands in the new one."""
    where = TopicPartition(f"flights-{uuid.uuid4().hex[:8]}", 0)
    link = link_between(*brokers, [where.topic])
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 10))
        async with running(link):
            await wait_for_records(target, where, 10)
        await write(source, where, some_records(10, 5))
        await delete_topics(target, [where.topic])
        await make_topic(target, where.topic)
        checkpoint = (await read_entries(link, target)).checkpoints[where]
        writer, sequence = checkpoint.writer, checkpoint.sequence + 10 - checkpoint.end.source_next
        late = encode_batch(
            some_records(10, 5), producer_id=writer.producer_id, producer_epoch=writer.epoch, base_sequence=sequence
        )
        assert await append(target, where, late) == 0
        async with running(link) as told:
            await told.wait_for(Event.PARTITION_STOPPED)
            await told.wait_for(Event.STARTED)
            entries = await read_entries(link, target)
            (shown,) = await look_ahead(link, (source, target), entries, list(entries.open_gaps().values()))
            assert (shown.kind, shown.repeated_from, shown.repeated_to) == (GapKind.TARGET_TRUNCATED, 0, 15)
            assert "0 to 14 are mirrored again" in shown.meaning
            await accept_all(link, target, "op")
            found = await wait_for_records(target, where, 20)
        assert contents(found) == contents([*some_records(10, 5), *some_records(0, 15)])


async def test_what_neither_site_has_any_more_is_said_before_consent(brokers: tuple[str, str]) -> None:
    """The target topic is gone, and with it what the source's retention has taken since it was mirrored."""
    where = TopicPartition(f"flights-{uuid.uuid4().hex[:8]}", 0)
    link = link_between(*brokers, [where.topic])
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 10))

        async def noted() -> bool:
            found = (await read_entries(link, target)).checkpoints.get(where)
            return found is not None and found.position == 10

        async with running(link):
            await eventually(noted, "a checkpoint behind what was mirrored")
        await delete_records(source, {where: 4})
        await delete_topics(target, [where.topic])
        async with running(link) as told:
            await told.wait_for(Event.PARTITION_STOPPED)
            entries = await read_entries(link, target)
            (shown,) = await look_ahead(link, (source, target), entries, list(entries.open_gaps().values()))
        assert (shown.goes_on_at, shown.repeated_from, shown.repeated_to) == (4, 4, 10)
        assert "from before the source's offset 4 cannot be mirrored again" in shown.meaning


async def test_what_landed_where_a_target_had_lost_no_more_than_markers_is_shown_as_repeated(tmp_path: Path) -> None:
    """When it is looked at, the log is as long as it was, and what should be there is."""
    where = TopicPartition("flights", 0)
    async with running_server(tmp_path / "east") as east, running_server(tmp_path / "west") as west:
        link = link_between(east.address, west.address, [where.topic])
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, where.topic)
            async with running(link) as told:
                await told.wait_for(Event.STARTED)
                west.broker.require_partition(*where).log.truncate_to(0)  # of the fence's marker
                await write(source, where, some_records(0, 1))
                await told.wait_for(Event.PARTITION_STOPPED)
            async with running(link) as told:
                await told.wait_for(Event.STARTED)
                entries = await read_entries(link, target)
                (shown,) = await look_ahead(link, (source, target), entries, list(entries.open_gaps().values()))
                assert (shown.kind, shown.repeated_from, shown.repeated_to) == (GapKind.TARGET_TRUNCATED, 0, 1)
                await accept_all(link, target, "op")
                found = await wait_for_records(target, where, 2)
            assert contents(found) == contents([*some_records(0, 1), *some_records(0, 1)])
            (gap,) = (await read_entries(link, target)).gaps.values()
            assert gap.status is GapStatus.PASSED
