"""The listener between the brokers of a cluster."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.access.users import new_credentials, write_users
from broker.client.errors import ConnectionLost
from broker.cluster.metadata import CLIENT_LISTENER, INTER_BROKER_LISTENER, BrokerRegistration, Endpoint
from broker.cluster.peers import Peers
from broker.cluster.view import ClusterView
from broker.cluster.zookeeper import layout
from broker.config import DEFAULT_PORT, BrokerConfig
from broker.limits import DESCRIPTORS_KEPT
from broker.listening import CannotListen
from broker.server import Server
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from broker.wire.messages.fetch import FetchResponse
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.on_zookeeper import World
from tests.broker.running import running_server
from tests.broker.running_cluster import until
from tests.broker.server.test_descriptors import room_for
from tests.broker.wire_client import batch_of, connect, fetch_request, values_in
from tests.ports import free_port


def endpoint(server: Server, listener: str) -> Endpoint:
    found = server.broker.view.brokers[server.broker.config.node_id].registration.endpoint(listener)
    assert found is not None
    return found


async def test_it_is_registered_as_kafka_does(tmp_path: Path) -> None:
    world = World()
    port = free_port()
    config = {"rack": "a", "advertised_host": "east", "inter_broker_listen_port": port}
    async with world.broker(tmp_path, inter_broker_listen_host="0.0.0.0", **config) as server:
        document = layout.decode(world.server.read("/brokers/ids/1").data, "")
        clients = server.broker.advertised[1]
    assert document["listener_security_protocol_map"] == {"PLAINTEXT": "PLAINTEXT", "INTERNAL": "PLAINTEXT"}
    assert document["endpoints"] == [f"PLAINTEXT://east:{clients}", f"INTERNAL://east:{port}"]
    assert (document["version"], document["rack"], document["host"], document["port"]) == (5, "a", "east", clients)


@pytest.mark.parametrize(("host", "is_told"), [("0.0.0.0", True), ("127.0.0.1", False)])
async def test_that_it_lets_everybody_in_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, is_told: bool
) -> None:
    listeners: dict[str, Any] = {"listeners": ("PLAINTEXT://127.0.0.1:0",), "inter_broker_listen_host": host}
    async with World().broker(tmp_path, listen_port=DEFAULT_PORT, **listeners):
        pass
    said = f"INTERNAL://{host}:0 asks for neither TLS nor a login: whoever reaches it may read, write and delete"
    assert (said in caplog.text) is is_told


async def test_beside_logins_it_lets_everybody_in_where_that_is_asked_for_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = tmp_path / "users.json"
    write_users(users, {"shop": new_credentials("secret")})
    given: dict[str, Any] = {
        "listen_port": DEFAULT_PORT,
        "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
        "sasl_enabled_mechanisms": ("SCRAM-SHA-512",),
        "sasl_users_file": users,
        "inter_broker_listen_host": "0.0.0.0",
    }
    with pytest.raises(ValueError, match="would ask nobody who he is"):
        async with World().broker(tmp_path / "data", **given):
            pass
    assert not (tmp_path / "data").exists()
    async with World().broker(tmp_path / "data", **given, inter_broker_plaintext_beside_logins=True):
        pass
    assert "INTERNAL://0.0.0.0:0 asks for neither TLS nor a login: whoever reaches it may read" in caplog.text


async def test_each_listener_tells_its_own_addresses_and_serves_clients(tmp_path: Path) -> None:
    async with World().broker(tmp_path) as server:
        for listener in (CLIENT_LISTENER, INTER_BROKER_LISTENER):
            here = endpoint(server, listener)
            async with connect(f"{here.host}:{here.port}") as client:
                await client.create_topic(listener)
                assert (await client.produce(listener, batch_of("a"))).error_code == 0
                assert values_in(await client.fetch(listener, 0)) == ["a"]
                request = MetadataRequest([MetadataRequestTopic(name=listener)])
                metadata = await client.ask(request, 12, MetadataResponse)
                cluster = await client.ask(DescribeClusterRequest(), 1, DescribeClusterResponse)
                coordinator = await client.ask(FindCoordinatorRequest("group"), 3, FindCoordinatorResponse)
            told = [(broker.host, broker.port) for broker in metadata.brokers]
            told += [(broker.host, broker.port) for broker in cluster.brokers]
            assert {*told, (coordinator.host, coordinator.port)} == {(here.host, here.port)}


async def test_only_there_a_replica_is_believed(tmp_path: Path) -> None:
    """CVE-2018-1288: a client that says it is a replica would move the high watermark."""
    async with World().broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        partition = server.broker.require_partition("t", 0)
        partition.take_state(replace(partition.state, replicas=(1, 2), isr=(1, 2)), now_ms=0)
        inside = endpoint(server, INTER_BROKER_LISTENER)
        async with connect(f"{inside.host}:{inside.port}") as broker:
            as_replica = {"replica_id": 2, "current_leader_epoch": 0, "log_start_offset": 0}
            assert (await client.fetch("t", 0, **as_replica)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await broker.fetch("t", 0, **as_replica)).error_code == 0


async def test_a_fetch_that_waits_is_answered_when_another_request_follows_it(tmp_path: Path) -> None:
    async with World().broker(tmp_path) as server:
        where = endpoint(server, INTER_BROKER_LISTENER)
        async with connect(f"{where.host}:{where.port}") as client:
            await client.create_topic("t")
            await client.send(fetch_request("t", 0, max_wait_ms=600_000, min_bytes=1), 12)
            partition = server.broker.require_partition("t", 0)
            await until(lambda: bool(partition.waiters))
            await client.send(ApiVersionsRequest(), 3)
            _, answer = await client.receive(ApiKey.FETCH, 12)
            assert isinstance(answer, FetchResponse)
            assert answer.responses[0].partitions[0].error_code == 0
            assert isinstance((await client.receive(ApiKey.API_VERSIONS, 3))[1], ApiVersionsResponse)


async def test_clients_that_take_every_connection_do_not_cut_off_brokers(tmp_path: Path) -> None:
    """KIP-402: the client that was quiet for longest goes; KIP-402 knows no limit by address for brokers either."""
    limits = {"max_connections": 2, "max_connections_per_ip": 3}
    async with World().broker(tmp_path, **limits) as server, AsyncExitStack() as stack:
        quiet, client = [await stack.enter_async_context(connect(server.address)) for _ in range(2)]
        await quiet.create_topic("t")
        await client.create_topic("u")
        inside = endpoint(server, INTER_BROKER_LISTENER)
        async with connect(f"{inside.host}:{inside.port}") as broker:
            assert (await broker.fetch("t", 0)).error_code == 0
            assert await quiet.is_closed()
            assert (await client.fetch("t", 0)).error_code == 0
            async with connect(f"{inside.host}:{inside.port}") as more, connect(f"{inside.host}:{inside.port}") as most:
                assert (await more.fetch("t", 0)).error_code == 0
                assert (await most.fetch("t", 0)).error_code == 0
                assert await client.is_closed()


async def test_clients_that_take_every_file_do_not_cut_off_brokers(tmp_path: Path) -> None:
    async with World().broker(tmp_path) as server, connect(server.address) as quiet, AsyncExitStack() as stack:
        await quiet.create_topic("t")
        inside = endpoint(server, INTER_BROKER_LISTENER)
        with room_for(DESCRIPTORS_KEPT + 10):
            clients = [await stack.enter_async_context(connect(server.address)) for _ in range(10)]
            assert await clients[-1].is_closed()
            async with connect(f"{inside.host}:{inside.port}") as broker:
                assert (await broker.fetch("t", 0)).error_code == 0
                assert await quiet.is_closed(), "it was quiet for longest"


async def test_a_port_that_is_taken_is_named_and_the_other_one_is_free_again(tmp_path: Path) -> None:
    async with running_server(tmp_path / "other") as other:
        taken, clients = other.broker.advertised[1], free_port()
        with pytest.raises(CannotListen, match=f"127.0.0.1:{taken}"):
            async with World().broker(tmp_path / "own", listen_port=clients, inter_broker_listen_port=taken):
                pass
        (await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", clients)).close()


@pytest.mark.parametrize("listener", ["listen_port", "inter_broker_listen_port"])
async def test_a_port_that_is_taken_is_told_before_anything_is_waited_for(tmp_path: Path, listener: str) -> None:
    world = World()
    async with running_server(tmp_path / "other") as other:
        with pytest.raises(CannotListen):
            async with world.broker(tmp_path / "own", **{listener: other.broker.advertised[1]}):
                pass
    assert world.sessions == [], "ZooKeeper was not asked"
    async with world.broker(tmp_path / "own"):
        pass  # the directory is free again


async def test_the_way_to_a_broker_is_what_the_controller_told(tmp_path: Path) -> None:
    async with World().broker(tmp_path) as server:
        peers = server.broker.peers
        connection = await peers.connect(1)
        assert connection.address == endpoint(server, INTER_BROKER_LISTENER)[1:3]
        await connection.close()
        with pytest.raises(ConnectionLost, match="broker 2 is not there"):
            await peers.connect(2)
        with pytest.raises(ConnectionLost, match="no listener INTERNAL"):
            await peers.connect_to(BrokerRegistration(2, (endpoint(server, CLIENT_LISTENER),)))


async def test_a_broker_that_is_alone_has_none(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        registration = server.broker.view.brokers[1].registration
        assert [each.listener for each in registration.endpoints] == [CLIENT_LISTENER]


def test_an_address_that_no_broker_can_dial_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"inter_broker_listen 0\.0\.0\.0 cannot be told"):
        BrokerConfig(tmp_path, zookeeper="zk:2181", inter_broker_listen_host="0.0.0.0")


async def test_another_address_is_dialled_where_the_map_has_one(tmp_path: Path) -> None:
    registered = BrokerRegistration(7, (Endpoint(INTER_BROKER_LISTENER, "east-7", 19092),), None)
    async with World().broker(tmp_path) as server:
        here = endpoint(server, INTER_BROKER_LISTENER)
        address = f"{here.host}:{here.port}"
        connection = await Peers(ClusterView(), 1, {"east-7:19092": address}).connect_to(registered)
        assert str(connection.address) == address
        await connection.close()
