"""`farshore fleet`, against members that run nothing, on a real etcd."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.base.clock import SystemClock
from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode
from mirror.coordinator.current import Current
from mirror.coordinator.model import Unit
from mirror.coordinator.serving import serve_shares
from mirror.fleet.etcd.store import open_etcd
from mirror.fleet.keys import OfferedLink, WorkerRecord
from mirror.fleet.member import FleetCoordinator
from mirror.fleet.settings import FleetSettings
from tests.deploy.cli.fleet_files import fleet_file
from tests.interop.servers import wait_until
from tests.mirror.fleet.etcd_server import EtcdServer
from tests.mirror.fleet.workers import offer_of, untold

LINKS = ("red", "green", "blue")


@dataclass
class Shell:
    """Runs `farshore fleet ...` of a fleet of its own, and workers of it."""

    folder: Path
    etcd: EtcdServer
    prefix: str

    def __post_init__(self) -> None:
        text = fleet_file(LINKS, etcd=self.etcd.address, prefix=self.prefix)
        (self.folder / "farshore.toml").write_text(text)

    def run_any(self, line: str) -> Result:
        """Whatever it exits with."""
        return CliRunner().invoke(cli, ["--config", str(self.folder / "farshore.toml"), "fleet", *line.split()])

    def run(self, line: str, code: int = ExitCode.DONE) -> Result:
        said = self.run_any(line)
        assert said.exit_code == code, said.output
        return said

    def json(self, line: str, code: int = ExitCode.DONE) -> dict[str, Any]:
        return dict(json.loads(self.run(f"{line} -o json", code).stdout))

    def holders(self) -> list[str]:
        """Who holds a link, one for each, as etcd has it."""
        lines = self.etcd.ctl("get", "--prefix", f"{self.prefix}held/", "--print-value-only").splitlines()
        return [json.loads(line)["worker"] for line in lines]

    @contextmanager
    def worker(self, name: str, offer: WorkerRecord | None = None) -> Iterator[None]:
        """A worker that only holds what is planned for it, in a thread of its own."""
        settings = FleetSettings(self.prefix, lease_seconds=5, settle_seconds=0.1)
        loop, stopped = asyncio.new_event_loop(), asyncio.Event()

        async def live() -> None:
            async with open_etcd(self.etcd.access(), SystemClock()) as store:
                offered = Current(offer or offer_of(LINKS))
                coordinator = FleetCoordinator(store, name, offered, SystemClock(), untold, settings)
                async with coordinator.member() as member, asyncio.TaskGroup() as tasks:
                    serving = tasks.create_task(serve_shares(member, hold))
                    await stopped.wait()
                    serving.cancel()

        with ThreadPoolExecutor(1) as thread:
            living = thread.submit(loop.run_until_complete, live())
            try:
                yield
            finally:
                loop.call_soon_threadsafe(stopped.set)
                living.result(60)
                loop.close()

    def wait_shared(self, *names: str) -> None:
        """Until these hold all links, and each of them some."""

        def is_shared() -> bool:
            held = self.holders()
            return len(held) == len(LINKS) and set(held) == set(names)

        wait_until(is_shared, 60, f"{', '.join(names)} to hold the links")


async def hold(_unit: Unit) -> None:
    await asyncio.Event().wait()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.close()


@pytest.fixture
def shell(etcd: EtcdServer, tmp_path: Path) -> Shell:
    return Shell(tmp_path, etcd, f"/{tmp_path.name}/")


def names_in(moves: dict[str, Any]) -> Sequence[tuple[str, str | None]]:
    return [(move["holder"], move["to"]) for move in moves["items"]]


def test_a_fleet_from_nobody_to_drained_and_back(shell: Shell) -> None:
    empty = shell.json("status", ExitCode.FINDINGS)
    assert [link["state"] for link in empty["links"]] == ["nobody"] * 3
    assert empty["findings"] == ["no worker lives: farshore mirror run"]
    with shell.worker("one"):
        shell.wait_shared("one")
        refused = shell.run("drain one --yes", ExitCode.REFUSED)
        assert "--even-if-links-stop" in refused.stderr
        with shell.worker("two"):
            shell.wait_shared("one", "two")
            status = shell.json("status")
            assert [(w["worker"], w["leads"], w["lives"]) for w in status["workers"]] == [
                ("one", True, True),
                ("two", False, True),
            ]
            assert "nothing moves" in shell.run("plan").stderr
            moves = names_in(shell.json("plan --without one"))
            assert set(moves) == {("one", "two")}
            assert "drained" in shell.run("plan --without one").stdout, "and why"
            assert "--yes" in shell.run("drain one", ExitCode.REFUSED).stderr
            assert "two" in shell.run("drain one --dry-run").stdout
            assert "leads" in shell.run("status").stdout
            assert "fleet undrain one" in shell.run("drain one --yes").stderr
            drained = shell.json("status")
            assert [(w["worker"], w["drained"], w["links_held"]) for w in drained["workers"]] == [
                ("one", True, 0),
                ("two", False, 3),
            ]
            shell.run("undrain one --yes")
            shell.wait_shared("one", "two")
            shell.run("rebalance --yes")  # nothing moves
            assert "is not drained" in shell.run("undrain one --yes", ExitCode.ERROR).stderr
            for line in ("drain three --yes", "plan --without three"):
                assert "its workers: one, two" in shell.run(line, ExitCode.USAGE).stderr
            assert "drained are: none" in shell.run("undrain three --yes", ExitCode.USAGE).stderr


def test_findings(shell: Shell) -> None:
    other = {link: OfferedLink(target="west", declared="else") for link in ("red",)}
    with shell.worker("one", offer_of(["red", "green"])), shell.worker("two", WorkerRecord(links=other, file_at_ms=1)):
        shell.etcd.ctl("put", f"{shell.prefix}workers/odd", "{")

        def are_told() -> bool:
            return sorted(json.loads(shell.run_any("status -o json").stdout)["findings"]) == [
                f"key {shell.prefix}workers/odd cannot be read: delete it, or run the newest farshore",
                "link red runs as the newest file says, that of two; the files of one say something else: "
                "bring them up to date",
                "nobody runs link blue: start a worker whose file has it, or undrain one",
            ]

        wait_until(are_told, 60, "the findings")


def test_etcd_that_does_not_answer(tmp_path: Path) -> None:
    nowhere = Shell(tmp_path, EtcdServer(tmp_path / "never started"), "/x/")
    failed = nowhere.run("status", ExitCode.ERROR)
    assert str(nowhere.etcd.address) in failed.stderr
    assert "hint: see that etcd runs" in failed.stderr
