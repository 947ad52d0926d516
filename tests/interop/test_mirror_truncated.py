"""A real Kafka that lost the end of a log, as a restored disk does, and wrote past it again."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.epochs import leader_epoch_ends
from broker.client.errors import ClientError
from broker.client.fetch_session import FetchSession, Wanted
from broker.client.log import FetchLimits
from broker.client.offsets import log_end_offsets
from broker.wire.messages.fetch import FetchResponse
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import GapKind
from mirror.offsets.fence import fence_link
from mirror.offsets.state import load_link_state
from mirror.worker.events import Event
from tests.interop.servers import FarshoreBroker, KafkaServer
from tests.mirror.harness import (
    accept_all,
    contents,
    eventually,
    link_between,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)

LATER = 5000


@pytest.mark.parametrize("epochs_file", ["restored", "deleted"])
@pytest.mark.parametrize("version", ["3.9.1", pytest.param("4.3.0", marks=pytest.mark.slow)])
async def test_an_overtaken_kafka_stops_the_partition_and_accepting_loses_nothing(
    version: str, epochs_file: str, tmp_path: Path, shared_broker: FarshoreBroker
) -> None:
    where = TopicPartition(f"flights-{uuid.uuid4().hex[:8]}", 0)
    with KafkaServer(version, tmp_path / "kafka") as kafka:
        link = link_between(kafka.bootstrap, shared_broker.bootstrap, [where.topic])
        folder = kafka.folder / "data" / str(where)
        async with Cluster(link.source) as source:
            await make_topic(source, where.topic)
            await write(source, where, some_records(0, 400))
            await write(source, where, some_records(400, 400))
        kafka.stop()
        shutil.copytree(folder, tmp_path / "kept")
        kafka.start()
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await write(source, where, some_records(800, 200))
            async with running(link):
                await wait_for_checkpoint(link, target, where, 1000)
            epoch = (await load_link_state(link, target)).entries.checkpoints[where].leader_epochs[-1].leader_epoch
        kafka.stop()
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "kept", folder)
        if epochs_file == "deleted":
            (folder / "leader-epoch-checkpoint").unlink()
        kafka.start()
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            assert await write(source, where, some_records(LATER, 300)) == 800
            await check_what_kafka_says(source, where, epoch)
            async with running(link) as told:
                (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
                assert (stopped["reason"], stopped["source_from"], stopped["source_to"]) == (
                    GapKind.TRUNCATED_END,
                    1000,
                    800,
                )
                await told.wait_for(Event.STARTED)
                await write(source, where, some_records(LATER + 300, 50))
                await accept_all(link, target, "op")
                found = await wait_for_records(target, where, 1350)
            assert contents(found) == contents([*some_records(0, 1000), *some_records(LATER, 350)])
            offset_map = (await load_link_state(link, target)).map
            by_offset = {record.offset: record for record in found}
            for record in await read_all(source, where):
                at = offset_map.to_target(*where, record.offset)
                assert at is not None
                assert contents([by_offset[at]]) == contents([record])


async def test_a_kafka_that_lost_mirrored_records_behind_as_many_fences_gets_them_again(
    tmp_path: Path, shared_broker: FarshoreBroker
) -> None:
    """The markers of the fences make its log as long as it was; what is missing is known all the same."""
    where = TopicPartition(f"flights-{uuid.uuid4().hex[:8]}", 0)
    with KafkaServer("3.9.1", tmp_path / "kafka") as kafka:
        link = link_between(shared_broker.bootstrap, kafka.bootstrap, [where.topic])
        folder = kafka.folder / "data" / str(where)
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, where.topic)
            await write(source, where, some_records(0, 100))
            async with running(link):
                await wait_for_records(target, where, 100)
        kafka.stop()
        shutil.copytree(folder, tmp_path / "kept")
        kafka.start()
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await write(source, where, some_records(100, 3))
            async with running(link):
                await wait_for_records(target, where, 103)
                await wait_for_checkpoint(link, target, where, 103)
        kafka.stop()
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "kept", folder)
        kafka.start()
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            acknowledged = (await load_link_state(link, target)).entries.checkpoints[where].end.target_next
            while (await log_end_offsets(target, [where]))[where] <= acknowledged:
                await fence_link(target, link)
            async with running(link) as told:
                (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
                assert (stopped["reason"], stopped["source_from"], stopped["source_to"]) == (
                    GapKind.TARGET_TRUNCATED,
                    103,
                    100,
                )
                await told.wait_for(Event.STARTED)
                await write(source, where, some_records(103, 10))
                await accept_all(link, target, "op")
                found = await wait_for_records(target, where, 113)
            assert contents(found) == contents(some_records(0, 113))
            offset_map = (await load_link_state(link, target)).map
            assert [offset_map.to_target(*where, offset) for offset in range(113)] == [at.offset for at in found]


async def wait_for_checkpoint(link: Link, target: Cluster, where: TopicPartition, position: int) -> None:
    async def proved() -> bool:
        known = (await load_link_state(link, target)).entries.checkpoints.get(where)
        return known is not None and known.position == position

    await eventually(proved, f"a checkpoint at {position}")


async def check_what_kafka_says(source: Cluster, where: TopicPartition, epoch: int) -> None:
    """The epoch that was read ended where the log was cut, and a consumer's fetch is told so, too (KIP-595)."""
    await source.leader(*where)
    end = (await leader_epoch_ends(source, {where: epoch}))[where]
    assert not isinstance(end, ClientError)
    assert end.end_offset == 800
    connection = await source.connection(await source.leader(*where), "fetch")
    wanted = {where: Wanted(1000, source.leader_epoch(where), epoch)}
    request = FetchSession(source.site.name).next_request(wanted, FetchLimits(1 << 20, 1 << 20))
    response: FetchResponse = await connection.request(request)
    (data,) = response.responses[0].partitions
    assert data.error_code == 0
    assert data.diverging_epoch is not None
    assert data.diverging_epoch.end_offset == 800
