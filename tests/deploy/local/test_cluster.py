"""A cluster in a folder: what it is made of, what it refuses, and how it runs and stops as a process."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.data_dir import DataDirectory
from deploy.config import load
from deploy.errors import AlreadyRuns, ConfigError, PortTaken
from deploy.local.brokers import LocalBroker
from deploy.local.cluster import LocalCluster, Wanted, cluster_in, how_ended, refuse_taken, run_cluster
from deploy.local.processes import port_is_free
from deploy.tools.errors import ToolsError
from tests.ports import free_port


def test_a_folder_gets_a_file_that_every_command_reads(tmp_path: Path) -> None:
    cluster = cluster_in(tmp_path / "c", Wanted())
    cluster.write_file()
    read = load(cluster.file)
    assert read.site("local").bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    configs = [read.broker_config("local", node_id) for node_id in (1, 2, 3)]
    assert [config.rack for config in configs] == ["a", "b", "c"]
    assert {config.zookeeper for config in configs} == {"127.0.0.1:2181"}
    assert [config.data_dir.name for config in configs] == ["broker-1", "broker-2", "broker-3"]


def test_a_folder_is_found_again_as_it_is(tmp_path: Path) -> None:
    made = cluster_in(tmp_path, Wanted(4, 19_092, 12_181))
    made.write_file()
    assert cluster_in(tmp_path, Wanted()) == made
    assert cluster_in(tmp_path, Wanted(4, 19_092, 12_181)) == made
    assert (made.zookeeper_port, [broker.port for broker in made.brokers]) == (12_181, [*range(19_092, 19_096)])


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Wanted(brokers=5), "has brokers 3, not 5"),
        (Wanted(base_port=9000), "has base port 9092, not 9000"),
        (Wanted(zookeeper_port=9000), "has ZooKeeper port 2181, not 9000"),
    ],
)
def test_another_cluster_than_the_folder_has_is_refused(tmp_path: Path, wanted: Wanted, told: str) -> None:
    cluster_in(tmp_path, Wanted()).write_file()
    with pytest.raises(ConfigError, match=told):
        cluster_in(tmp_path, wanted)


async def test_a_start_that_is_refused_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "c"
    with pytest.raises(ConfigError, match="port 2181 would be a broker's and ZooKeeper's"):
        cluster_in(folder, Wanted(base_port=2180))
    cluster = new_cluster(folder)
    with listening(cluster.zookeeper_port), pytest.raises(PortTaken):
        await run_cluster(cluster, pytest.fail, never_ready)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ToolsError, match="Java"):
        await run_cluster(cluster, pytest.fail, never_ready)
    assert list(tmp_path.iterdir()) == []


def test_somebody_elses_file_is_left_alone(tmp_path: Path) -> None:
    written = '[sites.east]\nbootstrap_servers = "127.0.0.1:9092"\n'
    (tmp_path / "farshore.toml").write_text(written)
    with pytest.raises(ConfigError, match="was not written by `cluster start`"):
        cluster_in(tmp_path, Wanted())
    assert (tmp_path / "farshore.toml").read_text() == written


def test_a_taken_port_is_named_with_whose_it_would_be(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    refuse_taken(cluster)
    with listening(cluster.brokers[1].port), pytest.raises(PortTaken, match=rf"{cluster.brokers[1].port} \(broker 2\)"):
        refuse_taken(cluster)
    with listening(cluster.zookeeper_port), pytest.raises(PortTaken, match=r"\(ZooKeeper\)"):
        refuse_taken(cluster)


def test_a_broker_of_the_cluster_that_runs_is_no_other_program(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    second = cluster.brokers[1]
    with running(cluster, second):
        by_hand = rf"broker 2 \({second.address}\) of this cluster runs already, started by hand"
        with pytest.raises(AlreadyRuns, match=by_hand) as refused:
            refuse_taken(cluster)
        assert "Ctrl-C" in refused.value.hint
        cluster.pid_file(second).write_text(f"{os.getpid()}\n")
        with pytest.raises(AlreadyRuns, match=rf"runs already: broker 2 is process {os.getpid()}"):
            refuse_taken(cluster)
        cluster.pid_file(second).write_text("999999999\n")  # of a start that was killed
        with pytest.raises(AlreadyRuns, match=by_hand):
            refuse_taken(cluster)
    refuse_taken(cluster)


def test_how_a_broker_ended_is_said() -> None:
    assert how_ended(-signal.SIGKILL) == "was killed (SIGKILL)"
    assert how_ended(1) == "ended with 1"


def never_ready(*_: object) -> None:
    pytest.fail("it was refused")


@contextmanager
def running(cluster: LocalCluster, broker: LocalBroker) -> Iterator[None]:
    """The broker's folder and port, taken as they are while it runs."""
    held = DataDirectory.open(cluster.folder / broker.name)
    try:
        with listening(broker.port):
            yield
    finally:
        held.close()


@contextmanager
def listening(port: int) -> Iterator[None]:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield


def new_cluster(folder: Path) -> LocalCluster:
    """Three brokers on ports in a row that nothing listens on."""
    while True:
        base_port, zookeeper_port = free_port(), free_port()
        if all(port_is_free(base_port + n) for n in range(3)) and zookeeper_port not in range(base_port, base_port + 3):
            return cluster_in(folder, Wanted(3, base_port, zookeeper_port))
