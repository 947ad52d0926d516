"""Several `farshore mirror run` of one file share its links through etcd, and go on without one that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner

from broker.base.children import die_with_parent
from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.site import Site
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.fleet_files import fleet_file
from tests.forking import ForkedProcess, start_farshore
from tests.interop.servers import FarshoreBroker
from tests.mirror.fleet.etcd_server import EtcdServer
from tests.mirror.harness import eventually, make_topic, read_all

ROOT = Path(__file__).resolve().parents[3]
LINKS = ("red", "blue")
STOPS_WITHIN_S = 60.0


class Fleet:
    """Two sites, an etcd, two links with a topic each, and workers as processes."""

    def __init__(self, folder: Path, east: FarshoreBroker, west: FarshoreBroker, etcd: EtcdServer) -> None:
        self.folder, self.etcd = folder, etcd
        self.east, self.west = Site("east", east.bootstrap), Site("west", west.bootstrap)
        self.config = folder / "farshore.toml"
        self.sites = (east.bootstrap, west.bootstrap)
        self.config.write_text(fleet_file(LINKS, self.sites, etcd.address))
        self.workers: dict[str, ForkedProcess] = {}
        self.written: dict[str, list[bytes]] = {name: [] for name in LINKS}

    def start(self, name: str) -> None:
        command = ["--config", str(self.config), "mirror", "run", "--worker", name]
        self.workers[name] = start_farshore(command, self.folder, self.folder / f"{name}.log")

    def kill9(self, name: str) -> None:
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait()

    def close(self) -> None:
        for worker in self.workers.values():
            worker.kill()
            worker.wait()

    def holders(self) -> dict[str, str]:
        """Who runs which link, as etcd has it."""
        lines = iter(self.etcd.ctl("get", "--prefix", "/farshore/fleet/held/").splitlines())
        return {key.rsplit("/", 1)[1]: json.loads(value)["worker"] for key, value in zip(lines, lines, strict=True)}

    async def write(self, east: Cluster, count: int) -> None:
        for name in LINKS:
            first = len(self.written[name])
            values = [b"%s-%d" % (name.encode(), first + n) for n in range(count)]
            records = [Record(n, east.clock.now_ms(), b"k", value) for n, value in enumerate(values)]
            await append(east, TopicPartition(name, 0), encode_batch(records))
            self.written[name] += values

    async def read(self, west: Cluster, name: str) -> list[bytes | None]:
        if name not in (await west.metadata([name])).topics:
            return []
        return [record.value for record in await read_all(west, TopicPartition(name, 0))]

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


F = TypeVar("F", bound=Fleet)


@contextmanager
def fleet_of(kind: type[F], folder: Path) -> Iterator[F]:
    """With servers of its own, which end with it."""
    etcd = EtcdServer(folder / "etcd")
    with FarshoreBroker(folder / "east") as east, FarshoreBroker(folder / "west") as west:
        etcd.start()
        made = kind(folder, east, west, etcd)
        try:
            yield made
        finally:
            made.close()
            etcd.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(Fleet, tmp_path) as made:
        yield made


async def test_workers_share_links_and_take_over_from_one_that_is_killed(fleet: Fleet) -> None:
    async with Cluster(fleet.east) as east, Cluster(fleet.west) as west:
        for name in LINKS:
            await make_topic(east, name)

        async def all_mirrored() -> bool:
            return all([len(await fleet.read(west, name)) >= len(fleet.written[name]) for name in LINKS])

        async def shared() -> bool:
            await fleet.write(east, 3)
            return sorted(fleet.holders().values()) == ["one", "two"]

        await fleet.write(east, 3)
        fleet.start("one")
        await eventually(all_mirrored, "the first worker to run both links")
        assert set(fleet.holders().values()) == {"one"}
        fleet.start("two")
        await eventually(shared, "the second worker to be given a link")
        await eventually(all_mirrored, "both to run theirs")
        gone = fleet.holders()["red"]
        fleet.kill9(gone)
        killed_s = time.monotonic()
        await fleet.write(east, 1)
        before = len(fleet.written["red"])

        async def taken_over() -> bool:
            return len(await fleet.read(west, "red")) >= before

        await eventually(taken_over, "the other worker to take over")
        (left,) = {"one", "two"} - {gone}
        print(f"from kill -9 to the first record: {time.monotonic() - killed_s:.2f} s")
        await fleet.write(east, 5)
        await eventually(all_mirrored, "all to be mirrored")
        assert set(fleet.holders().values()) == {left}
        for name in LINKS:
            assert await fleet.read(west, name) == fleet.written[name], "nothing lost, nothing twice, in order"
    assert "Traceback" not in fleet.log("one") + fleet.log("two")
    assert f"worker={left} event=took unit=red" in fleet.log(left)


async def test_a_worker_that_is_stopped_runs_its_link_until_another_has_prepared_it(fleet: Fleet) -> None:
    async with Cluster(fleet.east) as east, Cluster(fleet.west) as west:
        for name in LINKS:
            await make_topic(east, name)

        async def all_mirrored() -> bool:
            return all([await fleet.read(west, name) == fleet.written[name] for name in LINKS])

        async def shared() -> bool:
            return sorted(fleet.holders().values()) == ["one", "two"]

        await fleet.write(east, 3)
        fleet.start("one")
        await eventually(all_mirrored, "the first worker to run both links")
        fleet.start("two")
        await eventually(shared, "the second worker to be given a link")
        await eventually(all_mirrored, "both to run theirs")
        stopped = fleet.workers.pop("one")
        stopped.terminate()
        assert stopped.wait(STOPS_WITHIN_S) == ExitCode.DONE
        await fleet.write(east, 3)
        await eventually(all_mirrored, "the other worker to go on")
        assert set(fleet.holders().values()) == {"two"}
    for name in LINKS:
        assert f"worker=one event=let_go unit={name}" in fleet.log("one"), "each in its turn, not by the end of a lease"
    assert "Traceback" not in fleet.log("one") + fleet.log("two")


async def test_a_changed_file_reaches_a_running_worker_and_no_other_link(fleet: Fleet) -> None:
    def lines(event: str, of: str) -> list[str]:
        return [line for line in fleet.log("one").splitlines() if f"event={event}" in line and of in line]

    async with Cluster(fleet.east) as east, Cluster(fleet.west) as west:
        for name in (*LINKS, "more"):
            await make_topic(east, name)
        await append(east, TopicPartition("more", 0), encode_batch([Record(0, east.clock.now_ms(), b"k", b"new")]))
        await fleet.write(east, 2)
        fleet.start("one")

        async def all_mirrored() -> bool:
            return all([await fleet.read(west, name) == fleet.written[name] for name in LINKS])

        async def more_mirrored() -> bool:
            return await fleet.read(west, "more") == [b"new"]

        async def refused() -> bool:
            return len(lines("file_refused", "worker=one")) == 1

        async def taken() -> bool:
            return len(lines("file_taken", "removed=red")) == 1 and set(fleet.holders()) == {"blue"}

        await eventually(all_mirrored, "the worker to run both links")
        fleet.config.write_text(fleet_file(LINKS, fleet.sites, fleet.etcd.address, topics={"red": "red|more"}))
        await eventually(more_mirrored, "the wider link to bring its new topic")
        fleet.config.write_text(fleet_file(LINKS, fleet.sites, fleet.etcd.address))

        async def narrower() -> bool:
            return len(lines("topic_left", "topic=more")) == 1

        await eventually(narrower, "the topic to leave")
        await append(east, TopicPartition("more", 0), encode_batch([Record(0, east.clock.now_ms(), b"k", b"late")]))
        fleet.config.write_text("[[links]")
        await eventually(refused, "the bad file to be refused")
        await fleet.write(east, 2)
        await eventually(all_mirrored, "what ran to go on")
        fleet.config.write_text(fleet_file(["blue"], fleet.sites, fleet.etcd.address))
        await eventually(taken, "the link to be taken off")
        await fleet.write(east, 2)

        async def blue_mirrored() -> bool:
            return await fleet.read(west, "blue") == fleet.written["blue"]

        await eventually(blue_mirrored, "the other link to go on")
        assert await fleet.read(west, "red") == fleet.written["red"][:4]
        assert await fleet.read(west, "more") == [b"new"]
    assert len(lines("started", "link=red")) == 2, "the link began a new session when it became wider, and then no more"
    assert len(lines("started", "link=blue")) == 1, "the other one did not"


def test_fleet_options_want_a_fleet(tmp_path: Path) -> None:
    config = tmp_path / "farshore.toml"
    config.write_text(fleet_file(["red"]))
    refused = CliRunner().invoke(cli, ["--config", str(config), "mirror", "run", "--worker", "one"])
    assert refused.exit_code == ExitCode.USAGE
    assert "[fleet]" in refused.output
    config.write_text(fleet_file(["red"], etcd="127.0.0.1"))
    refused = CliRunner().invoke(cli, ["--config", str(config), "config", "validate"])
    assert "fleet.etcd[0]" in refused.output


def test_a_worker_without_etcd_waits_and_says_so(tmp_path: Path) -> None:
    config = tmp_path / "farshore.toml"
    config.write_text(fleet_file(["red"], etcd="127.0.0.1:1"))
    command = [sys.executable, "-m", "deploy.cli", "--config", str(config), "mirror", "run"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, preexec_fn=die_with_parent) as worker:
        try:
            assert worker.stderr is not None
            line = worker.stderr.readline().decode()
            assert "event=store_unreachable" in line, line
            assert "127.0.0.1:1" in line
            worker.terminate()
            assert worker.wait(60) == ExitCode.DONE
        finally:
            worker.kill()
