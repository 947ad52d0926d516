"""How a cluster's findings are printed, and that commands end with them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from broker.client.cluster_description import ClusterFinding, ClusterFindingKind
from deploy.cli.cluster import missing_zookeeper, show_findings
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.chaos_runs.warm_commands import Said, warm_commands
from tests.ports import free_port

FOUND = ClusterFinding(
    ClusterFindingKind.UNDER_REPLICATED, "bookings-confirmed-v2", 11, None, "2 of 3 replicas are in sync; lacking: 3"
)


def test_findings_are_a_table_that_fits_and_a_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    show_findings([FOUND], "table")
    told = capsys.readouterr()
    assert all(word in told.out for word in ("under_replicated", "bookings-confirmed-v2", "11", "lacking"))
    assert max(map(len, told.out.splitlines())) <= 100
    assert told.err == "1 finding\n"


def test_a_cluster_without_findings_prints_no_data_but_an_empty_document(capsys: pytest.CaptureFixture[str]) -> None:
    show_findings([], "table")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "every broker answers and agrees, every replica is in sync\n")
    show_findings([], "json")
    told_as_json = json.loads(capsys.readouterr().out)
    assert (told_as_json["items"], told_as_json["topics_passed_over"]) == ([], 0)


def test_what_was_passed_over_is_counted_beside_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    show_findings([], "table", 2)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("2 topics on disks")
    assert told.err.endswith("every broker answers and agrees, every replica is in sync\n")
    show_findings([FOUND], "json", 2)
    document = json.loads(capsys.readouterr().out)
    assert ([each["topic"] for each in document["items"]], document["topics_passed_over"]) == ([FOUND.topic], 2)


async def test_a_zookeeper_that_is_gone_is_a_finding() -> None:
    port = free_port()
    found = await missing_zookeeper(f"127.0.0.1:{port}/chroot", connect_ms=200)
    assert found is not None
    assert found.kind is ClusterFindingKind.ZOOKEEPER_UNREACHABLE
    assert f"127.0.0.1:{port}" in found.detail


def asked(file: Path, verb: str) -> Said:
    return warm_commands().run(["--config", str(file), "cluster", verb, "--site", "one"])


def site_of(folder: Path, cluster: RunningCluster, *node_ids: int) -> Path:
    """A file that declares the brokers `node_ids`, and is told where those that run are."""
    addresses = ",".join(server.address for server in cluster.servers.values())
    tables = [f'[sites.one]\nbootstrap_servers = "{addresses}"\n[sites.one.cluster]\nzookeeper = "127.0.0.1:1"\n']
    for node_id in node_ids:
        listen, data_dir = f"127.0.0.1:{node_id}", folder / f"declared-{node_id}"
        tables.append(f'[[sites.one.brokers]]\nnode_id = {node_id}\nlisten = "{listen}"\ndata_dir = "{data_dir}"\n')
    file = folder / "farshore.toml"
    file.write_text("".join(tables))
    return file


async def test_a_broker_that_is_missing_ends_the_list_with_4(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "data", 1) as cluster:
        await until(lambda: cluster.controller is not None)
        whole = await asyncio.to_thread(asked, site_of(tmp_path, cluster, 1), "brokers")
        lacking = await asyncio.to_thread(asked, site_of(tmp_path, cluster, 1, 3), "brokers")
        controller = await asyncio.to_thread(asked, site_of(tmp_path, cluster, 1, 3), "controller")
    assert (whole.code, whole.err) == (0, "")
    assert (lacking.code, lacking.err) == (
        4,
        "broker_missing: broker 3: it is not one of the cluster's brokers now\n",
    )
    assert "it is not there" in lacking.out
    assert (controller.code, controller.err) == (0, ""), "it is there, and is told"


async def test_a_cluster_whose_controller_is_gone_ends_with_4(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "data", 1, 2) as cluster:
        await until(lambda: cluster.controller is not None)
        controller = cluster.controller
        assert controller is not None
        file = site_of(tmp_path, cluster, 1, 2)
        cluster.servers[controller].abort_connections()  # who dials it is cut off, and its session goes on
        silent = await asyncio.to_thread(asked, file, "controller")
        listed = await asyncio.to_thread(asked, file, "brokers")
        cluster.broker(3 - controller).view.controller = None
        none = await asyncio.to_thread(asked, file, "controller")
    for told in (silent, listed, none):
        assert told.code == 4
        assert f"broker_silent: broker {controller}: " in told.err
    assert "no_controller: no broker that is there is the controller\n" in none.err
    assert "no_controller" not in silent.err + listed.err
