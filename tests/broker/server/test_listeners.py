"""Several listeners of one broker: who comes by one is told its address, and no other."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from broker.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.vocabulary import BROKER_RESOURCE
from tests.broker.running import running_server
from tests.broker.wire_client import batch_of, connect, values_in
from tests.ports import free_port


async def test_clients_are_told_the_address_of_the_listener_that_they_came_by(tmp_path: Path) -> None:
    ports = {"INTERNAL": free_port(), "OUTSIDE": free_port()}
    told = {"INTERNAL": ("127.0.0.1", ports["INTERNAL"]), "OUTSIDE": ("east.example", 9093)}
    settings: dict[str, Any] = {
        "listeners": tuple(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "advertised_listeners": ("OUTSIDE://east.example:9093",),
        "listener_security_protocol_map": dict.fromkeys(ports, "PLAINTEXT"),
    }
    async with running_server(tmp_path, **settings):
        for name, port in ports.items():
            async with connect(f"127.0.0.1:{port}") as client:
                metadata = await client.ask(MetadataRequest([]), 12, MetadataResponse)
                assert [(each.host, each.port) for each in metadata.brokers] == [told[name]]
                cluster = await client.ask(DescribeClusterRequest(), 1, DescribeClusterResponse)
                assert [(each.host, each.port) for each in cluster.brokers] == [told[name]]
                asked = FindCoordinatorRequest(coordinator_keys=["g"])
                found = (await client.ask(asked, 4, FindCoordinatorResponse)).coordinators
                assert [(each.host, each.port) for each in found] == [told[name]]
                await client.create_topic(name)
                assert (await client.produce(name, batch_of(name))).error_code == 0
                assert values_in(await client.fetch(name, 0)) == [name]


async def test_the_settings_name_all_of_them(tmp_path: Path) -> None:
    port = free_port()
    settings: dict[str, Any] = {
        "listeners": (f"IN://127.0.0.1:{port}", "PLAINTEXT://127.0.0.1:0"),
        "listener_security_protocol_map": {"IN": "PLAINTEXT"},
    }
    async with running_server(tmp_path, **settings) as server, connect(server.address) as client:
        assert server.address == f"127.0.0.1:{port}"
        request = DescribeConfigsRequest([DescribeConfigsResource(BROKER_RESOURCE, "1", None)])
        configs = (await client.ask(request, 4, DescribeConfigsResponse)).results[0].configs
        shown = {config.name: config.value for config in configs}
        second = server.broker.advertised_at("PLAINTEXT")
        assert second.port > 0
        assert shown["listeners"] == f"IN://127.0.0.1:{port},PLAINTEXT://127.0.0.1:0"
        assert shown["advertised.listeners"] == f"IN://127.0.0.1:{port},PLAINTEXT://{second}"
        assert shown["listener.security.protocol.map"] == "IN:PLAINTEXT,PLAINTEXT:PLAINTEXT"
        assert "advertised.host" not in shown


@pytest.mark.parametrize(("host", "is_told"), [("0.0.0.0", True), ("127.0.0.1", False)])
async def test_a_listener_that_lets_everybody_in_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, is_told: bool
) -> None:
    with caplog.at_level(logging.WARNING, "broker.server"):
        async with running_server(tmp_path, listen_host=host, advertised_host="127.0.0.1"):
            pass
    told = [line for line in caplog.messages if line.startswith(f"PLAINTEXT://{host}:0 asks for neither TLS nor")]
    assert len(told) == is_told


async def test_what_another_program_has_stops_the_start_and_frees_the_others(tmp_path: Path) -> None:
    port = free_port()
    async with running_server(tmp_path / "other") as other:
        taken = other.broker.advertised.port
        both = (f"PLAINTEXT://127.0.0.1:{port}", f"SECOND://127.0.0.1:{taken}")
        names = {"SECOND": "PLAINTEXT"}
        with pytest.raises(Exception, match=f"cannot listen on 127.0.0.1:{taken}"):
            async with running_server(tmp_path / "own", listeners=both, listener_security_protocol_map=names):
                pass
    async with running_server(tmp_path / "own", listeners=both, listener_security_protocol_map=names) as server:
        assert server.broker.advertised.port == port
