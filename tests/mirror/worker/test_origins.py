"""The loop cut: what was mirrored from the own target is known as such, and what a local producer wrote never is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs
from broker.client.errors import ClientError
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.batch import peek
from broker.wire.records import ControlKind, Record, control_batch, encode_batch
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from mirror.errors import StateDamaged
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.entries import Writer
from mirror.offsets.state_writer import ensure_own_topics
from mirror.origins import Registration, SiteIdentity, Verdict, decode_registration, encode_registration
from mirror.worker.origins import Passage
from mirror.worker.registry import OriginRegistry, identify
from tests.broker.running import running_broker

REGISTRY = TopicPartition(PRODUCERS_TOPIC, 0)
FLIGHTS = TopicPartition("flights", 0)
MIRRORS, LOCAL = 7_001, 7_002


@pytest.fixture
async def west(tmp_path: Path) -> AsyncIterator[Cluster]:
    """The cluster that both links have in common, with its registry."""
    async with running_broker(tmp_path) as address, Cluster(Site("west", address)) as cluster:
        await ensure_own_topics(cluster, from_east(cluster))
        yield cluster


def from_east(west: Cluster) -> Link:
    return Link("east-west", Site("east", "127.0.0.1:1"), west.site, ("flights",), shared_targets=True)


async def register_producer(west: Cluster, link: Link, producer_id: int, *origins: str, epoch: int = 0) -> None:
    """As the link does at its start; `origins` are sites whose records it carries beside its own source's."""
    passage = Passage(link, west, west)  # its source is not asked
    await passage.at_target.refresh()
    passage.origins = frozenset({link.source.name, *origins})
    await passage.register(west, SiteIdentity(link.source.name), Writer(producer_id, epoch))


def batch_of(producer_id: int, epoch: int = 0) -> memoryview:
    idempotent: dict[str, Any] = {}
    if producer_id >= 0:
        idempotent = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
    return memoryview(encode_batch([Record(0, 1, b"k", b"v")], **idempotent))


async def entries(west: Cluster) -> int:
    return (await log_end_offsets(west, [REGISTRY]))[REGISTRY]


async def write_entry(west: Cluster, key: bytes, value: bytes | None) -> None:
    await append(west, REGISTRY, encode_batch([Record(0, 1, key, value)]))


async def test_what_came_from_the_own_target_is_foreign_and_nothing_else_is(west: Cluster) -> None:
    await register_producer(west, from_east(west), MIRRORS)
    verdicts = {}
    for target in ("east", "north"):
        link = Link("onward", west.site, Site(target, "127.0.0.1:1"), ("flights",))
        passage = Passage(link, west, west)
        batches = [batch_of(MIRRORS), batch_of(LOCAL)]
        await passage.learn(FLIGHTS, memoryview(b"".join(batches)))
        verdicts[target] = [passage.judge(FLIGHTS)(peek(batch)).verdict for batch in batches]
    assert verdicts["east"] == [Verdict.LEAVE_OUT, Verdict.CARRY]
    assert verdicts["north"] == [Verdict.CARRY, Verdict.CARRY], "a third site has not got these records"


async def test_a_producer_that_registers_later_is_learned_with_its_first_batch(west: Cluster) -> None:
    registry = OriginRegistry(west)
    await registry.learn(batch_of(LOCAL))
    await register_producer(west, from_east(west), MIRRORS)
    await registry.learn(batch_of(MIRRORS))
    assert registry.find(MIRRORS)


async def test_a_fences_marker_does_not_make_a_mirror_a_local_producer(west: Cluster) -> None:
    """The marker is in the log before the mirror registers: to take it for data would let the loop close for ever."""
    registry = OriginRegistry(west)
    marker = control_batch(
        ControlKind.ABORT, coordinator_epoch=0, producer_id=MIRRORS, producer_epoch=0, timestamp_ms=1
    )
    await registry.learn(memoryview(marker))
    await register_producer(west, from_east(west), MIRRORS)
    await registry.learn(batch_of(MIRRORS))
    assert registry.find(MIRRORS)


async def test_a_producer_behind_known_ones_is_asked_about(west: Cluster) -> None:
    registry = OriginRegistry(west)
    known = batch_of(LOCAL).tobytes() + batch_of(-1).tobytes()
    await registry.learn(memoryview(known))
    await register_producer(west, from_east(west), MIRRORS)
    await registry.learn(memoryview(known))
    assert registry.find(MIRRORS) is None, "nothing new was asked about"
    await registry.learn(memoryview(known + batch_of(MIRRORS).tobytes() + known))
    assert registry.find(MIRRORS)


async def test_batches_without_a_producer_id_are_nobodys(west: Cluster) -> None:
    registry = OriginRegistry(west)
    await registry.learn(batch_of(-1))
    assert registry.find(-1) is None


async def test_a_producer_registers_once(west: Cluster) -> None:
    link = from_east(west)
    await register_producer(west, link, MIRRORS)
    await register_producer(west, link, MIRRORS)
    assert await entries(west) == 1
    await register_producer(west, link, MIRRORS + 1)
    assert await entries(west) == 2


async def test_a_link_that_brings_more_says_so_before_its_next_epoch_s_batches(west: Cluster) -> None:
    """What was read of a producer is asked again with each of its epochs: each session of a link has its own."""
    await register_producer(west, from_east(west), MIRRORS)
    registry = OriginRegistry(west)
    await registry.learn(batch_of(MIRRORS))
    before = registry.find(MIRRORS)
    assert before is not None
    assert before.origins == {"east"}
    await register_producer(west, from_east(west), MIRRORS, "north", epoch=1)
    await registry.learn(batch_of(MIRRORS))
    assert registry.find(MIRRORS) == before, "of that epoch all is known"
    await registry.learn(batch_of(MIRRORS, epoch=1))
    found = registry.find(MIRRORS)
    assert found is not None
    assert found.origins == {"east", "north"}
    await register_producer(west, from_east(west), MIRRORS, epoch=2)
    await registry.refresh()
    assert registry.find(MIRRORS) == found, "those records are there: what was brought stays said"


async def test_a_site_is_known_by_more_than_its_name(west: Cluster) -> None:
    """Another file may call it differently. A shared cluster id alone proves nothing."""
    east = SiteIdentity("east", "cluster-1", frozenset({"10.0.0.1:9092", "10.0.0.2:9092"}))
    for told, name in (
        (SiteIdentity("orient", "cluster-1", frozenset({"10.0.0.2:9092"})), "east"),
        (SiteIdentity("orient", "cluster-1", frozenset({"10.0.0.3:9092"})), "orient"),
        (SiteIdentity("orient", "cluster-2", frozenset({"10.0.0.2:9092"})), "orient"),
        (SiteIdentity("east"), "east"),
    ):
        entry = encode_registration(Registration(MIRRORS, "l", told, frozenset({told.name, "north"}), ("f",)))
        await write_entry(west, *entry)
        registry = OriginRegistry(west, [identify(west), east])
        await registry.refresh()
        found = registry.find(MIRRORS)
        assert found is not None
        assert found.source.name == name
        assert found.origins == {name, "north"}


def test_what_an_earlier_version_wrote_is_read() -> None:
    found = decode_registration(7, b'{"v":1,"link":"east-west","origin":"east"}')
    assert found == Registration(7, "east-west", SiteIdentity("east"), frozenset({"east"}))
    assert found.topics is None


async def test_an_entry_that_was_taken_back_is_not_known(west: Cluster) -> None:
    await register_producer(west, from_east(west), MIRRORS)
    registry = OriginRegistry(west)
    await registry.refresh()
    assert registry.find(MIRRORS)
    await write_entry(west, b'["producer",7001]', None)
    await registry.refresh()
    assert registry.find(MIRRORS) is None


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
        await OriginRegistry(west).learn(batch_of(MIRRORS))


async def test_a_registry_that_forgets_is_refused(west: Cluster) -> None:
    """A registration that retention deleted would let the records that it names go round."""
    registry = OriginRegistry(west)
    await registry.check_kept()
    change = {PRODUCERS_TOPIC: [("cleanup.policy", ConfigOperation.SET, "delete")]}
    assert await alter_topic_configs(west, change) == {}
    with pytest.raises(ClientError, match=r"cleanup\.policy=delete"):
        await registry.check_kept()


async def test_where_no_mirror_ever_ran_all_are_local(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "bare") as address, Cluster(Site("west", address)) as bare:
        registry = OriginRegistry(bare)
        await registry.check_kept()
        await registry.learn(batch_of(LOCAL))
        assert registry.find(LOCAL) is None
