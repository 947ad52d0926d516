"""The loop cut: what was mirrored from the own target is known as such, and what a local producer wrote never is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs
from broker.client.errors import ClientError
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.records import ControlKind, Record, control_batch, encode_batch
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from mirror.errors import StateDamaged
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.state_writer import ensure_own_topics
from mirror.worker.origins import OriginRegistry, register_producer
from tests.broker.running import running_broker

REGISTRY = TopicPartition(PRODUCERS_TOPIC, 0)
MIRRORS, LOCAL = 7_001, 7_002


@pytest.fixture
async def west(tmp_path: Path) -> AsyncIterator[Cluster]:
    """The cluster that both links have in common, with its registry."""
    async with running_broker(tmp_path) as address, Cluster(Site("west", address)) as cluster:
        await ensure_own_topics(cluster, from_east(cluster))
        yield cluster


def from_east(west: Cluster) -> Link:
    return Link("east-west", Site("east", "127.0.0.1:1"), west.site, ("flights",), shared_targets=True)


def batch_of(producer_id: int) -> memoryview:
    idempotent = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    return memoryview(encode_batch([Record(0, 1, b"k", b"v")], **idempotent))


async def entries(west: Cluster) -> int:
    return (await log_end_offsets(west, [REGISTRY]))[REGISTRY]


async def write_entry(west: Cluster, key: bytes, value: bytes | None) -> None:
    await append(west, REGISTRY, encode_batch([Record(0, 1, key, value)]))


async def test_what_came_from_the_own_target_is_foreign_and_nothing_else_is(west: Cluster) -> None:
    await register_producer(west, from_east(west), MIRRORS)
    back, onward = OriginRegistry(west, "east"), OriginRegistry(west, "north")
    for registry in (back, onward):
        await registry.learn(memoryview(batch_of(MIRRORS).tobytes() + batch_of(LOCAL).tobytes()))
    assert back.is_foreign(MIRRORS)
    assert not back.is_foreign(LOCAL)
    assert not onward.is_foreign(MIRRORS), "a third site has not got these records"


async def test_a_producer_that_registers_later_is_learned_with_its_first_batch(west: Cluster) -> None:
    registry = OriginRegistry(west, "east")
    await registry.learn(batch_of(LOCAL))
    await register_producer(west, from_east(west), MIRRORS)
    await registry.learn(batch_of(MIRRORS))
    assert registry.is_foreign(MIRRORS)


async def test_a_fences_marker_does_not_make_a_mirror_a_local_producer(west: Cluster) -> None:
    """The marker is in the log before the mirror registers: to take it for data would let the loop close for ever."""
    registry = OriginRegistry(west, "east")
    marker = control_batch(
        ControlKind.ABORT, coordinator_epoch=0, producer_id=MIRRORS, producer_epoch=0, timestamp_ms=1
    )
    await registry.learn(memoryview(marker))
    await register_producer(west, from_east(west), MIRRORS)
    await registry.learn(batch_of(MIRRORS))
    assert registry.is_foreign(MIRRORS)


async def test_batches_without_a_producer_id_are_nobodys(west: Cluster) -> None:
    registry = OriginRegistry(west, "east")
    await registry.learn(batch_of(-1))
    assert not registry.is_foreign(-1)


async def test_a_producer_registers_once(west: Cluster) -> None:
    link = from_east(west)
    await register_producer(west, link, MIRRORS)
    await register_producer(west, link, MIRRORS)
    assert await entries(west) == 1
    await register_producer(west, link, MIRRORS + 1)
    assert await entries(west) == 2


async def test_an_entry_that_was_taken_back_is_not_known(west: Cluster) -> None:
    await register_producer(west, from_east(west), MIRRORS)
    registry = OriginRegistry(west, "east")
    await registry.refresh()
    assert MIRRORS in registry.writers
    await write_entry(west, b'["producer",7001]', None)
    await registry.refresh()
    assert MIRRORS not in registry.writers
    assert not registry.is_foreign(MIRRORS)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'["producer",7001]', b'{"v":2,"link":"l","origin":"east"}'),
        (b'["producer",7001]', b'{"v":1,"link":"l"}'),
        (b'["producer"]', b'{"v":1,"origin":"east"}'),
        (b"not json", b'{"v":1,"origin":"east"}'),
        (b"", b'{"v":1,"origin":"east"}'),
    ],
    ids=["newer", "no origin", "no id", "no json", "empty key"],
)
async def test_what_cannot_be_read_stops_the_link_and_says_where(west: Cluster, key: bytes, value: bytes) -> None:
    """To pass over it would be to mirror a loop."""
    await register_producer(west, from_east(west), MIRRORS + 1)
    await write_entry(west, key, value)
    with pytest.raises(StateDamaged, match=f"{PRODUCERS_TOPIC} offset 1 at west"):
        await OriginRegistry(west, "east").learn(batch_of(MIRRORS))


async def test_a_registry_that_forgets_is_refused(west: Cluster) -> None:
    """A registration that retention deleted would let the records that it names go round."""
    registry = OriginRegistry(west, "east")
    await registry.check_kept()
    change = {PRODUCERS_TOPIC: [("cleanup.policy", ConfigOperation.SET, "delete")]}
    assert await alter_topic_configs(west, change) == {}
    with pytest.raises(ClientError, match=r"cleanup\.policy=delete"):
        await registry.check_kept()


async def test_where_no_mirror_ever_ran_all_are_local(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "bare") as address, Cluster(Site("west", address)) as bare:
        registry = OriginRegistry(bare, "east")
        await registry.check_kept()
        await registry.learn(batch_of(LOCAL))
        assert not registry.is_foreign(LOCAL)
        assert LOCAL not in registry.writers
