"""What the bench of fleets measures with, held against logs of which everything is known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.site import Site
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from deploy.config import parse
from tests.bench import fleet_peers
from tests.bench.fleet_load import Arrival, Arrivals, Content, content, handover_s, loaded, longest_gap_s
from tests.bench.fleet_peers import Fleet, MirrorMaker
from tests.bench.measure import ROOT
from tests.broker.running import running_broker
from tests.interop.servers import ServerFailed
from tests.mirror.fleet.etcd_server import EtcdServer
from tests.mirror.harness import make_topic, some_records

ONE, TWO = TopicPartition("load", 0), TopicPartition("load", 1)
FIRST, NEXT = (7, 0), (7, 1)


def test_gaps_and_handovers() -> None:
    batches = [Arrival(at_s, FIRST) for at_s in (0.0, 1.0, 4.0)] + [Arrival(at_s, NEXT) for at_s in (4.5, 9.0)]
    assert longest_gap_s(batches, 0.0, 9.0) == 4.5
    assert longest_gap_s(batches, 0.0, 2.0) == 3.0, "those that begin there"
    assert longest_gap_s([], 0.0, 9.0) == 0.0
    assert handover_s(batches, 0.0) == 0.5
    assert handover_s(batches, 5.0) is None, "nobody else came since then"


async def test_arrivals_tell_who_wrote_and_in_which_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, Cluster(Site("west", address)) as west:
        await make_topic(west, ONE.topic, 2)
        watched = Arrivals(west, [ONE, TWO])
        watching = asyncio.ensure_future(watched.watch(0.0))
        for seen, (epoch, sequence) in enumerate(((0, 0), (0, 2), (1, 0)), 1):
            batch = encode_batch(some_records(sequence, 2), producer_id=7, producer_epoch=epoch, base_sequence=sequence)
            await append(west, ONE, batch)
            while len((await watched.read())[ONE]) < seen:
                await asyncio.sleep(0)
        watching.cancel()
        found = await watched.read()
        assert [each.producer for each in found[ONE]] == [FIRST, FIRST, NEXT]
        assert [each.at_s for each in found[ONE]] == sorted(each.at_s for each in found[ONE])
        assert found[TWO] == []


async def test_what_is_lost_or_twice_is_counted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, Cluster(Site("west", address)) as west:
        await make_topic(west, ONE.topic, 2)
        with loaded(address, [ONE, TWO]) as load:
            while len(load.acknowledged) < 20:
                await asyncio.sleep(0.01)
            load.stop.set()
            await asyncio.to_thread(load.join)
        written = len(load.acknowledged)
        assert await content(west, [ONE, TWO], load) == Content(written, 0, 0)
        await append(west, TWO, encode_batch([Record(0, 0, None, b"3".ljust(100), ())]))
        load.acknowledged.add(10**9)
        assert await content(west, [ONE, TWO], load) == Content(written + 1, 1, 1)


def test_a_fleets_file_is_one_that_workers_read(tmp_path: Path) -> None:
    etcd = EtcdServer(tmp_path / "etcd")
    fleet = Fleet(tmp_path, "127.0.0.1:1", "127.0.0.1:2", etcd, {"red": "red-.*", "blue": "blue-.*"})
    read = parse(fleet.config.read_text(), fleet.config)
    access = read.fleet()
    assert access is not None
    assert access.servers == (etcd.address,)
    assert {link.name: link.topics for link in read.links()} == {"red": ("red-.*",), "blue": ("blue-.*",)}


def test_a_mirror_maker_that_is_not_there_is_told_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fleet_peers, "MIRROR_MAKER", ROOT / "nowhere")
    with pytest.raises(ServerFailed, match=r"run: make nowhere/\.complete"):
        MirrorMaker(tmp_path, "MirrorMaker 2", "127.0.0.1:1", "127.0.0.1:2", "load-.*", 4, {})
