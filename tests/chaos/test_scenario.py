"""The latency scenario as a command between two brokers of ours: its verdicts, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from toxiproxy import Toxiproxy

from broker.base.address import Address
from broker.base.children import die_with_parent
from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics, list_topics
from chaos.toxics import connect, find_server
from deploy.cli.chaos import TOOLS_FOLDERS
from deploy.cli.terminal import ExitCode
from tests.chaos_runs.warm_commands import warm_commands
from tests.interop.servers import FarshoreBroker, wait_until
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
DEADLINE_S = 120.0
LATENCY_MS = 1_000
RATE_RECORDS_PER_S = 20
"""Each record is a batch of its own, at four processes: by the command's own rate most of a processor."""
SHOWS = ("--latency-ms", str(LATENCY_MS), "--steady-p99-ms", "60000")
"""More than a busy machine's own noise, a tenth of a second and more: an effect that drowns in it is a finding."""
SHARED_TOPICS = {"__farshore-producers", "__consumer_offsets", "__transaction_state"}
"""What belongs to a site, not to a run."""
CONFIG = """
[sites.east]
bootstrap_servers = "{east}"
[sites.west]
bootstrap_servers = "{west}"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["{topics}"]
topic_names = "{topic_names}"
groups = []
"""


@dataclass
class Stage:
    """Two brokers, a toxiproxy server of the test's, and the command."""

    folder: Path
    east: str
    west: str
    server: Toxiproxy
    server_address: str

    def start(self, *options: str) -> subprocess.Popen[str]:
        where = ("--toxiproxy", self.server_address, "-o", "json")
        return self.command("chaos", "run", "latency", "--rate", str(RATE_RECORDS_PER_S), *where, *options)

    def clean(self, *options: str, tmp: str = "tmp") -> list[dict[str, str]]:
        """Run `farshore chaos clean` -> what it says it removed. With another `tmp` it is as on another machine."""
        arguments = ["--config", str(self.folder / "farshore.toml"), "chaos", "clean"]
        where = ["--toxiproxy", self.server_address, "-o", "json"]
        environment = {**os.environ, "TMPDIR": str(self.folder / tmp)}
        done = warm_commands().run([*arguments, *where, *options], self.folder, environment)
        assert done.code == ExitCode.DONE, f"{done.out}\n{done.err}"
        items = json.loads(done.out)["items"]
        assert isinstance(items, list)
        return items

    def command(self, *arguments: str, tmp: str = "tmp") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "deploy.cli", "--config", str(self.folder / "farshore.toml"), *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.folder / tmp)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )

    def make_topics(self, *names: str) -> None:
        async def make() -> None:
            async with Cluster(Site("site", self.east), client_id="test") as cluster:
                assert not await create_topics(cluster, [NewTopic(name, 1) for name in names])

        asyncio.run(make())

    def topics(self) -> set[str]:
        async def both() -> set[str]:
            found: set[str] = set()
            for bootstrap in (self.east, self.west):
                async with Cluster(Site("site", bootstrap), client_id="test") as cluster:
                    found |= set(await list_topics(cluster))
            return found

        return asyncio.run(both()) - SHARED_TOPICS

    def assert_nothing_left(self) -> None:
        assert self.server.proxies() == {}
        assert self.topics() == set()
        assert list((self.folder / "tmp").glob("farshore*")) == []
        assert mirrors_below(self.folder) == []


def mirrors_below(folder: Path) -> list[str]:
    """Command lines of the processes that run from a configuration file below the folder (Linux)."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended between the listing and the reading
            found.append(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if f"--config {folder}/tmp/" in line]


def write_config(folder: Path, east: str, west: str, topics: str = "flights", topic_names: str = "prefixed") -> None:
    text = CONFIG.format(east=east, west=west, topics=topics, topic_names=topic_names)
    (folder / "farshore.toml").write_text(text)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    (tmp_path / "tmp").mkdir()
    port = free_port()
    proxy = subprocess.Popen(
        [str(find_server(TOOLS_FOLDERS)), "-host", "127.0.0.1", "-port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )
    try:
        with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
            write_config(tmp_path, east.bootstrap, west.bootstrap)
            server = connect(Address("127.0.0.1", port), 10.0)
            yield Stage(tmp_path, east.bootstrap, west.bootstrap, server, f"127.0.0.1:{port}")
    finally:
        proxy.terminate()
        proxy.wait(60)


def finish(run: subprocess.Popen[str], expect: int) -> dict[str, object]:
    stdout, stderr = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == expect, f"{stdout}\n{stderr}"
    document = json.loads(stdout)
    assert isinstance(document, dict)
    return document


def test_the_promises_hold_through_a_slow_network_and_nothing_is_left(stage: Stage) -> None:
    run = stage.start(*SHOWS, "--duration", "3s")
    verdict = finish(run, ExitCode.DONE)["verdict"]
    assert isinstance(verdict, dict)
    assert verdict["fault_seen"] is True
    assert verdict["anomalies"] == {}
    phases = {phase["phase"]: phase for phase in verdict["phases"]}
    assert list(phases) == ["before", "during", "after"]
    assert all(phase["acknowledged_records"] == phase["mirrored_records"] > 0 for phase in phases.values())
    assert phases["during"]["latency_p50_seconds"] >= LATENCY_MS / 1000
    stage.assert_nothing_left()


def test_a_steady_state_that_cannot_be_is_a_finding(stage: Stage) -> None:
    run = stage.start("--latency-ms", "50", "--duration", "1s", "--steady-p99-ms", "0.001")
    verdict = finish(run, ExitCode.FINDINGS)["verdict"]
    assert isinstance(verdict, dict)
    assert [phase["steady"] for phase in verdict["phases"]].count(False) >= 2
    assert verdict["anomalies"] == {}
    stage.assert_nothing_left()


def test_ctrl_c_before_the_fault_leaves_nothing(stage: Stage) -> None:
    run = stage.start("--latency-ms", "100", "--duration", "60s")
    wait_until(lambda: bool(mirrors_below(stage.folder)), DEADLINE_S, "the run's mirror")
    assert any("__farshore-chaos-" in topic for topic in stage.topics())
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=DEADLINE_S)
    assert run.returncode == ExitCode.INTERRUPTED
    stage.assert_nothing_left()


def test_ctrl_c_while_the_toxic_is_on_takes_it_off(stage: Stage) -> None:
    run = stage.start("--latency-ms", "100", "--duration", "3s")
    wait_until(lambda: toxics_of(stage) > 0, DEADLINE_S, "the toxic to be on")
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=DEADLINE_S)
    assert run.returncode == ExitCode.INTERRUPTED
    stage.assert_nothing_left()


def toxics_of(stage: Stage) -> int:
    return sum(len(proxy.toxics()) for proxy in stage.server.proxies().values())


def test_a_link_that_mirrors_every_topic_leaves_the_runs_own_alone(stage: Stage) -> None:
    write_config(stage.folder, stage.east, stage.west, ".*", "same")
    mirror = stage.command("mirror", "run")
    try:
        wait_until(lambda: "__farshore-offsets-east-west" in stage.topics(), DEADLINE_S, "the link's mirror")
        run = stage.start(*SHOWS, "--duration", "7s")
        verdict = finish(run, ExitCode.DONE)["verdict"]
        assert isinstance(verdict, dict)
        assert verdict["anomalies"] == {}
    finally:
        mirror.terminate()
        mirror.communicate(timeout=DEADLINE_S)


def test_what_a_killed_run_leaves_is_cleaned_and_nothing_else(stage: Stage) -> None:
    stage.server.create(upstream=stage.east, name="somebody-elses")
    stage.server.create(upstream=f"127.0.0.1:{free_port()}", name="farshore-chaos-0123abcd-0")  # of other sites
    (stage.folder / "tmp" / "farshore-chaos-mine").mkdir()
    stage.make_topics("farshore-chaos-0123abcd", "__farshore-offsets-chaos-0123abcd")
    theirs = (set(stage.server.proxies()), stage.topics(), set(os.listdir(stage.folder / "tmp")))
    run = stage.start("--latency-ms", "100", "--duration", "60s")
    wait_until(
        lambda: any("__farshore-offsets-" in t and t not in theirs[1] for t in stage.topics()),
        DEADLINE_S,
        "the run's mirror",
    )
    assert stage.clean("--yes") == [], "a run that lives is left alone"
    (stage.folder / "elsewhere").mkdir()
    assert stage.clean("--yes", tmp="elsewhere") == [], "also where its folder cannot be seen: its logs grow"
    assert run.poll() is None
    run.kill()
    run.communicate(timeout=DEADLINE_S)
    assert stage.clean("--dry-run")
    removed = stage.clean("--yes")
    assert {item["kind"] for item in removed} == {"topic", "proxy", "folder"}
    assert len({item["run_id"] for item in removed}) == 1
    assert (set(stage.server.proxies()), stage.topics(), set(os.listdir(stage.folder / "tmp"))) == theirs
    assert stage.clean("--yes") == [], "safe to repeat"
