"""How a cluster's findings are printed."""

from __future__ import annotations

import json

import pytest

from broker.client.cluster_description import ClusterFinding, ClusterFindingKind
from deploy.cli.cluster import missing_zookeeper, show_findings
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
    assert json.loads(capsys.readouterr().out)["items"] == []


async def test_a_zookeeper_that_is_gone_is_a_finding() -> None:
    port = free_port()
    found = await missing_zookeeper(f"127.0.0.1:{port}/chroot", connect_ms=200)
    assert found is not None
    assert found.kind is ClusterFindingKind.ZOOKEEPER_UNREACHABLE
    assert f"127.0.0.1:{port}" in found.detail
