"""The mirror process killed with -9 under load: nothing lost, nothing twice, order kept, every offset translated.

Also where both sites are reached by TLS and a login alone.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.compression import Compression
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.state import load_link_state
from tests.forking import ForkedProcess, start_farshore
from tests.interop.locked import LockedKafkaServer, SecureBroker, site_tables
from tests.interop.servers import ROOT, FarshoreBroker, KafkaServer
from tests.mirror.harness import contents, eventually, make_topic, read_all, some_records, write

PARTITIONS = 3
BATCH_RECORDS = 20
SECURE = pytest.mark.parametrize("is_secure", [False, True], ids=["PLAINTEXT", "SASL_SSL"])


def write_config(folder: Path, link: Link) -> Path:
    topics = ", ".join(f'"{topic}"' for topic in link.topics)
    text = f"""
state_dir = "{folder / "var"}"
{site_tables(link.source)}
{site_tables(link.target)}
[[links]]
name = "{link.name}"
source = "east"
target = "west"
topics = [{topics}]
topic_names = "same"
groups = []
"""
    path = folder / "farshore.toml"
    path.write_text(text)
    return path


@contextmanager
def mirror_process(config: Path, log: Path) -> Iterator[ForkedProcess]:
    process = start_farshore(["--config", str(config), "mirror", "run"], ROOT, log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Load:
    """Writes numbered records to every partition until told to stop."""

    def __init__(self, cluster: Cluster, topic: str, jitter: random.Random) -> None:
        self.sent: dict[TopicPartition, int] = {TopicPartition(topic, p): 0 for p in range(PARTITIONS)}
        self._cluster = cluster
        self._jitter = jitter
        self._stop = asyncio.Event()

    async def run(self) -> None:
        while not self._stop.is_set():
            where = self._jitter.choice(list(self.sent))
            records = some_records(self.sent[where], BATCH_RECORDS)
            await write(self._cluster, where, records, self._jitter.choice(list(Compression)))
            self.sent[where] += BATCH_RECORDS

    def stop(self) -> None:
        self._stop.set()


def linked(source: Site, target: Site) -> tuple[Link, str]:
    """And the topic that it mirrors."""
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    return Link(f"east-west-{uuid.uuid4().hex[:8]}", source, target, (topic,)), topic


def own_broker(folder: Path, is_secure: bool) -> FarshoreBroker:
    return SecureBroker(folder) if is_secure else FarshoreBroker(folder)


def site_of(server: FarshoreBroker) -> Site:
    return server.locked_site() if isinstance(server, SecureBroker) else Site(server.folder.name, server.bootstrap)


async def kill_under_load(source: Site, target: Site, folder: Path, kills: int) -> None:
    link, topic = linked(source, target)
    jitter = random.Random(kills)
    config, log = write_config(folder, link), folder / "mirror.log"
    async with Cluster(link.source) as east, Cluster(link.target) as west, asyncio.TaskGroup() as tasks:
        await make_topic(east, topic, PARTITIONS)
        load = Load(east, topic, jitter)
        partitions = list(load.sent)
        tasks.create_task(load.run())
        landed = 0

        async def progressed() -> bool:
            """Records (or at least the fence's markers) came since the last kill."""
            if topic not in (await west.metadata([topic])).topics:
                return False
            ends = await log_end_offsets(west, partitions)
            return sum(ends.values()) > landed + PARTITIONS + jitter.randrange(10 * BATCH_RECORDS)

        for _ in range(kills):
            with mirror_process(config, log) as process:
                await eventually(progressed, f"progress; the mirror says {log.read_text()[-2000:]}")
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            landed = sum((await log_end_offsets(west, partitions)).values())
        load.stop()
        with mirror_process(config, log):

            async def all_there() -> bool:
                state = await load_link_state(link, west)
                ends = [state.map.mirrored_end(*where) for where in partitions]
                return all(end and end[0] >= load.sent[where] for end, where in zip(ends, partitions, strict=True))

            await eventually(all_there, f"the last records; the mirror says {log.read_text()[-2000:]}")
        state = await load_link_state(link, west)
        for where, count in load.sent.items():
            found = await read_all(west, where)
            assert contents(found) == contents(some_records(0, count))
            for source_offset, record in enumerate(found):
                assert state.map.to_target(*where, source_offset) == record.offset
                assert state.map.to_source(*where, record.offset) == source_offset


@SECURE
async def test_the_brokers_are_killed_under_a_mirror_that_stays(tmp_path: Path, is_secure: bool) -> None:
    """The target dies in mid-write, then the source between writes; the mirror goes on by itself."""
    with own_broker(tmp_path / "east", is_secure) as east, own_broker(tmp_path / "west", is_secure) as west:
        link, topic = linked(site_of(east), site_of(west))
        where = TopicPartition(topic, 0)
        config, log = write_config(tmp_path, link), tmp_path / "mirror.log"
        count = 0

        async def wait_mirrored() -> None:
            async def there() -> bool:
                async with Cluster(link.target) as target:
                    end = (await load_link_state(link, target)).map.mirrored_end(topic, 0)
                    return end is not None and end.source_next == count

            await eventually(there, f"{count} records; the mirror says {log.read_text()[-2000:]}")

        with mirror_process(config, log):
            for round_number in range(3):
                async with Cluster(link.source) as source:
                    if not round_number:
                        await make_topic(source, topic)
                    for _ in range(60):
                        await write(source, where, some_records(count, BATCH_RECORDS), Compression.LZ4)
                        count += BATCH_RECORDS
                        if count % 600 == 0:
                            west.kill9()
                            west.start()
                await wait_mirrored()
                east.kill9()
                east.start()
        async with Cluster(link.target) as target:
            state = await load_link_state(link, target)
            found = await read_all(target, where)
            assert contents(found) == contents(some_records(0, count))
            for source_offset, record in enumerate(found):
                assert state.map.to_target(topic, 0, source_offset) == record.offset


@SECURE
async def test_three_kills_between_our_brokers(tmp_path: Path, is_secure: bool) -> None:
    with own_broker(tmp_path / "east", is_secure) as east, own_broker(tmp_path / "west", is_secure) as west:
        await kill_under_load(site_of(east), site_of(west), tmp_path, 3)


async def test_three_kills_between_kafkas(kafka_39: KafkaServer, kafka_43: KafkaServer, tmp_path: Path) -> None:
    await kill_under_load(Site("east", kafka_39.bootstrap), Site("west", kafka_43.bootstrap), tmp_path, 3)


@SECURE
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_twenty_kills_between_our_brokers(tmp_path: Path, is_secure: bool) -> None:
    with own_broker(tmp_path / "east", is_secure) as east, own_broker(tmp_path / "west", is_secure) as west:
        await kill_under_load(site_of(east), site_of(west), tmp_path, 20)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_twenty_kills_between_kafkas(kafka_39: KafkaServer, kafka_43: KafkaServer, tmp_path: Path) -> None:
    await kill_under_load(Site("east", kafka_39.bootstrap), Site("west", kafka_43.bootstrap), tmp_path, 20)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_twenty_kills_between_kafkas_behind_tls_and_logins(tmp_path: Path) -> None:
    """Sessions end every few seconds there: it logs in again amid its work."""
    with (
        LockedKafkaServer("3.9.1", tmp_path / "east") as east,
        LockedKafkaServer("4.3.0", tmp_path / "west") as west,
    ):
        await kill_under_load(east.locked_site(), west.locked_site(), tmp_path, 20)
