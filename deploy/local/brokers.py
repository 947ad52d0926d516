"""Brokers of one site on this machine, and the ZooKeeper that they meet in: their tables, their start, their state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.client.cluster import Cluster
from broker.client.cluster_description import broker_findings, look_from_each, partition_findings
from broker.client.errors import ClientError
from broker.client.site import Site
from deploy.local.locks import Locks
from deploy.local.processes import Processes, port_answers
from deploy.tools.zookeeper import HOST, Member, command, configure, serves

RACKS: Final = "abc"
"""Three, as replicas are mostly; a fourth broker is in the first one again."""
SESSION_MS: Final = 6_000
"""How long ZooKeeper, and so the cluster, takes to miss a broker that was killed: Kafka's until 2.4. The newer 18 s are
for networks."""
ZOOKEEPER: Final = "zookeeper"
STOP_TIMEOUT_S: Final = 20.0
"""A broker that stops has others lead first, for at most 10 s."""
LOOK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class LocalBroker:
    """A broker that listens on the loopback interface; `name` is that of its service and of its folder."""

    site: str
    node_id: int
    port: int
    name: str

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def rack(self) -> str:
        return RACKS[(self.node_id - 1) % len(RACKS)]

    @property
    def run(self) -> tuple[str, ...]:
        """The `farshore` command, but for its configuration file, that runs it."""
        return ("broker", "run", "--site", self.site, "--node-id", str(self.node_id))


def local_brokers(site: str, ports: Sequence[int], names: str) -> tuple[LocalBroker, ...]:
    """With the node ids 1, 2, ...; called by `names` and the id."""
    return tuple(LocalBroker(site, node_id, port, f"{names}-{node_id}") for node_id, port in enumerate(ports, 1))


def site_tables(site: str, brokers: Sequence[LocalBroker], zookeeper: str, locks: Locks | None = None) -> str:
    """A site of these brokers in farshore.toml, with a folder for each beside the file."""
    lines = [
        f"[sites.{site}]",
        f'bootstrap_servers = "{",".join(broker.address for broker in brokers)}"',
        "",
        f"[sites.{site}.cluster]",
        f'zookeeper = "{zookeeper}"',
        f"zookeeper_session_timeout_ms = {SESSION_MS}",
    ]
    if locks is not None:
        lines += [*locks.between_brokers(), *locks.logins(), "", *locks.security_table(site)]
    for broker in brokers:
        listens = [f'listen = "{broker.address}"'] if locks is None else locks.listeners(f"SASL_SSL://{broker.address}")
        lines += [
            "",
            f"[[sites.{site}.brokers]]",
            f"node_id = {broker.node_id}",
            *listens,
            f'data_dir = "{broker.name}"',
            f'rack = "{broker.rack}"',
        ]
    return "\n".join(lines) + "\n"


def zookeeper_member(folder: Path, port: int) -> Member:
    """A server that is alone: the ports of an ensemble are not used."""
    return Member(1, port, 0, 0, folder.absolute() / ZOOKEEPER)


async def start_zookeeper(processes: Processes, member: Member) -> None:
    """Raises ToolsError where Java or its jars are missing, ServiceFailed, OSError."""
    configure([member])
    await processes.start_program(ZOOKEEPER, command(member), lambda: serves(member))


async def start_brokers(processes: Processes, brokers: Sequence[LocalBroker]) -> None:
    """All at once; returns when each listens. Raises ServiceFailed."""

    async def start(broker: LocalBroker) -> None:
        await processes.start(broker.name, broker.run, lambda: port_answers(broker.port))

    async with asyncio.TaskGroup() as starting:
        for broker in brokers:
            starting.create_task(start(broker))


async def whole(site: Site, brokers: int, patience_s: float) -> list[str]:
    """Waits until so many brokers answer and agree, and every partition has its leader and all replicas in sync.

    What is still not so after `patience_s`; nothing when the cluster is whole.
    """
    deadline_s = asyncio.get_running_loop().time() + patience_s
    while True:
        lacking = await _lacking(site, brokers)
        if not lacking or asyncio.get_running_loop().time() > deadline_s:
            return lacking
        await asyncio.sleep(LOOK_S)


async def _lacking(site: Site, brokers: int) -> list[str]:
    try:
        async with Cluster(site, client_id="farshore-local") as cluster:
            look = await look_from_each(cluster)
    except ClientError as error:
        return [str(error)]
    found = [*broker_findings(look), *partition_findings(look, {}, {})]
    lacking = [f"{each.topic}-{each.partition}: {each.detail}" if each.topic else each.detail for each in found]
    there = len(look.metadata.nodes)
    return [f"{there} of {brokers} brokers are there", *lacking] if there < brokers else lacking
