"""Of which site was nobody there, when its brokers start again: behind a power cut ZooKeeper still has who is dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.base.address import parse_address
from broker.base.waiting import WAITING
from broker.client.errors import ConnectionLost
from broker.cluster.embedded import EmbeddedMetadataStore
from broker.cluster.metadata import CLIENT_LISTENER, INTER_BROKER_LISTENER, BrokerRegistration, Endpoint
from broker.cluster.zookeeper import layout
from broker.replicas.configs import BrokerConfigs
from broker.wire.site_role import SiteStanding
from tests.broker.clock import PausesAlone
from tests.broker.cluster.test_three_replicas import NODES
from tests.broker.handlers.test_site_role import ACTIVE, FROZEN, change
from tests.broker.running import running_server
from tests.broker.running_cluster import RunningCluster, running_cluster, until

STRANGER = 9


def standings(cluster: RunningCluster, node_ids: Iterable[int] = NODES) -> set[SiteStanding]:
    return {cluster.broker(node_id).broker_configs.site for node_id in node_ids}


@asynccontextmanager
async def thawed_cluster(folder: Path) -> AsyncIterator[tuple[RunningCluster, SiteStanding]]:
    async with running_cluster(folder, *NODES, site_start_frozen=True) as cluster:
        yield cluster, await change(cluster.servers[1].address, ACTIVE)


async def waiting(caplog: pytest.LogCaptureFixture, *who: int) -> None:
    """Until as many brokers say that they wait for those to answer or to go."""
    text = "until one of them answers"
    await until(lambda: all(any(text in m and f"broker {n}:" in m for m in caplog.messages) for n in who))


async def test_a_site_whose_power_was_cut_starts_frozen_while_zookeeper_has_its_brokers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with thawed_cluster(tmp_path) as (cluster, thawed):
        ghosts = await cluster.cut_power(*NODES)
        starting = asyncio.create_task(cluster.start(*NODES))
        await until(lambda: sum(WAITING in message for message in caplog.messages) >= len(NODES))
        for ghost in ghosts.values():
            cluster.zookeeper.expire(ghost)
        await starting
        (standing,) = standings(cluster)
        assert (standing.role, standing.epoch) == (FROZEN, thawed.epoch + 1)


async def test_brokers_that_start_together_are_no_proof_to_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with thawed_cluster(tmp_path) as (cluster, _):
        ghosts = await cluster.cut_power(*NODES)
        starting = asyncio.create_task(cluster.start(1, 2))
        await waiting(caplog, *NODES)
        for node_id in (1, 2):
            cluster.zookeeper.expire(ghosts[node_id])
        await until(lambda: sum("broker 3:" in m and "broker 1:" not in m for m in caplog.messages) >= 2)
        assert cluster.zookeeper.find(layout.broker(1)) is None
        cluster.zookeeper.expire(ghosts[3])
        await starting
        assert {standing.role for standing in standings(cluster, (1, 2))} == {FROZEN}


async def test_another_reason_why_one_is_not_heard_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log kept the first one, which may be mended, and not what keeps the site from starting by now."""
    store = EmbeddedMetadataStore.open(tmp_path)
    await store.register_broker(BrokerRegistration(2, ()))
    reasons = ["refused", "refused", "its certificate expired", "its certificate expired"]

    async def hear(broker: BrokerRegistration, cluster_id: str) -> None:
        assert (broker.node_id, cluster_id) == (2, store.cluster_id)
        if reasons:
            raise ConnectionLost(reasons.pop(0))

    await BrokerConfigs(store, 1).freeze_where_nobody_was(hear, PausesAlone())
    assert [message.partition(" down: ")[2] for message in caplog.messages] == [
        "broker 2: refused",
        "broker 2: its certificate expired",
    ]


async def test_brokers_come_back_to_a_site_where_another_lived_on_and_leave_the_role_as_it_is(tmp_path: Path) -> None:
    async with thawed_cluster(tmp_path) as (cluster, thawed):
        for died in ((1,), (2,), (3,), (1, 2)):
            ghosts = await cluster.cut_power(*died)
            starting = asyncio.create_task(cluster.start(*died))
            for node_id in died:
                at = cluster.sessions.get
                await until(lambda: at(node_id) is not ghosts[node_id])  # noqa: B023 - awaited here
                cluster.zookeeper.expire(ghosts[node_id])
            await starting
            assert standings(cluster) == {thawed}


async def test_who_has_the_address_of_a_dead_broker_is_no_proof(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_server(tmp_path / "other") as other, running_cluster(tmp_path) as cluster:
        await cluster.start(1)
        where = parse_address(other.address)
        endpoints = [
            Endpoint(name, *where, other.broker.config.client_listeners()[0].protocol)
            for name in (CLIENT_LISTENER, INTER_BROKER_LISTENER)
        ]
        await cluster.stop(1)
        ghost = cluster.zookeeper.connect()
        registration = layout.encode_broker(BrokerRegistration(STRANGER, tuple(endpoints)), cluster.clock.now_ms())
        await ghost.create(layout.broker(STRANGER), registration, ephemeral=True)
        cluster.settings["site_start_frozen"] = True
        starting = asyncio.create_task(cluster.start(1))
        await waiting(caplog, STRANGER)
        assert f"one of cluster {other.broker.cluster_id} answers" in caplog.text
        cluster.zookeeper.expire(ghost)
        await starting
        assert cluster.broker(1).broker_configs.site.role is FROZEN
