"""The latency scenario: a mirror of its own, between the sites of a link, through a network that becomes slow.

before (steady?) -> latency on -> during (slow, but nothing lost, doubled or reordered) -> latency off -> after (steady
again?) -> everything read -> verdict. Topics, mirror, proxies and toxics of the run are removed whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.base.address import parse_address
from broker.base.children import start_child, stop_child
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.topics import NewTopic, create_topics, list_topics
from chaos.checker import RunVerdict, SteadyState, check
from chaos.cleaning import remove_topics
from chaos.errors import ChaosError, FaultNotRemoved
from chaos.folder import folder_of_run
from chaos.history import History, Phase
from chaos.names import link_of, new_run_id, run_of_topic, topic_of
from chaos.toxics import Latency, latency, proxied
from chaos.workload import Workload
from mirror.api import Link

PARTITIONS = 2
SETTLE_TIMEOUT_S = 60.0
MIRROR_STOP_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 15
CLEAN_HINT = "farshore chaos clean removes what runs have left"

MirrorCommand = Callable[[Path], Sequence[str]]
"""The command, of `module_command`, that runs a mirror with a configuration file."""
SecurityOf = Callable[[str], str]
"""How a site of this name is reached, as a table of a configuration file in another folder; "": openly."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What to run: phases of `duration_s` each, `fault` in the middle one."""

    fault: Latency
    duration_s: float
    rate_records_per_s: int
    steady_p99_max_ms: float


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run."""

    run_id: str
    link: str
    fault: Latency
    verdict: RunVerdict


async def run_latency(
    link: Link, scenario: Scenario, server: Any, mirror_command: MirrorCommand, security_of: SecurityOf
) -> Run:
    """Run the scenario along `link`; `server` is a toxiproxy server. Raises ChaosError."""
    run_id = new_run_id()
    topic = topic_of(run_id)
    workload = Workload(
        link.source,
        link.target,
        topic,
        link.target_topic(topic),
        PARTITIONS,
        scenario.rate_records_per_s,
        History(),
    )
    with folder_of_run(run_id) as folder:
        async with topics_of_run(link, run_id, topic):
            await _between_sites(link, scenario, server, workload, Own(run_id, folder, mirror_command, security_of))
    fault = scenario.fault
    steady = SteadyState(scenario.steady_p99_max_ms, fault.latency_ms, fault.jitter_ms)
    return Run(run_id, link.name, fault, check(workload.history, steady))


@dataclass(frozen=True, slots=True)
class Own:
    """What is the run's own: its name, its folder, the command that runs its mirror, and how that reaches the sites."""

    run_id: str
    folder: Path
    mirror_command: MirrorCommand
    security_of: SecurityOf


async def _between_sites(link: Link, scenario: Scenario, server: Any, workload: Workload, own: Own) -> None:
    """The run itself, through proxies before the source's brokers."""
    async with Cluster(link.source, client_id="farshore-chaos") as source:
        advertised = [f"{node.host}:{node.port}" for node in source.nodes.values()]
        upstreams = {address: str(link.source.dial(*parse_address(address))) for address in advertised}
        with proxied(server, own.run_id, tuple(upstreams.values())) as proxies:
            listens = {address: proxies[upstream].listen for address, upstream in upstreams.items()}
            async with mirror_of_run(link, workload.source_topic, listens, own), asyncio.TaskGroup() as tasks:
                await _drive(workload, scenario, proxies, tasks)


async def _drive(workload: Workload, scenario: Scenario, proxies: Mapping[str, Any], tasks: asyncio.TaskGroup) -> None:
    """Write and read through the three phases, then wait until all that was acknowledged has been read."""
    stop_writing, stop_reading = asyncio.Event(), asyncio.Event()
    reader = tasks.create_task(workload.read(stop_reading))
    writer = tasks.create_task(workload.write(stop_writing))
    try:
        await _first_record(workload, reader)
        await asyncio.sleep(scenario.duration_s)
        with latency(proxies, scenario.fault):
            workload.phase = Phase.DURING
            await asyncio.sleep(scenario.duration_s)
        await _settle(workload)
        workload.phase = Phase.AFTER
        await asyncio.sleep(scenario.duration_s)
        stop_writing.set()
        await writer
        await _settle(workload)
    finally:
        stop_writing.set()
        stop_reading.set()


async def _first_record(workload: Workload, reader: asyncio.Task[None]) -> None:
    """Steady state starts when the run's mirror has carried its first record; what was written before is not judged."""
    try:
        async with timeout(SETTLE_TIMEOUT_S):
            while not workload.history.reads and not reader.done():
                await workload.polled()
    except TimeoutError as error:
        raise ChaosError("the mirror carried nothing", hint="see `farshore status`; is the target writable?") from error
    await _settle(workload)
    written = {write.sequence for write in workload.history.writes}
    workload.history.writes.clear()
    workload.history.reads[:] = [read for read in workload.history.reads if read.sequence not in written]


async def _settle(workload: Workload) -> None:
    """Wait until the mirror has caught up, at most SETTLE_TIMEOUT_S: what is missing then is judged lost."""
    with contextlib.suppress(TimeoutError):
        async with timeout(SETTLE_TIMEOUT_S):
            while workload.missing_records:
                await workload.polled()


@asynccontextmanager
async def topics_of_run(link: Link, run_id: str, topic: str) -> AsyncIterator[None]:
    """The run's topic at the source; at the end it and all that its mirror made are deleted at both sites."""
    async with (
        Cluster(link.source, client_id="farshore-chaos") as source,
        Cluster(link.target, client_id="farshore-chaos") as target,
    ):
        failed = await create_topics(source, [NewTopic(topic, PARTITIONS)])
        for error in failed.values():
            raise error
        try:
            yield
        finally:
            for cluster in (source, target):
                mine = [name for name in await list_topics(cluster) if run_of_topic(name) == run_id]
                for error in await remove_topics(cluster, mine):
                    raise FaultNotRemoved(f"a topic of the run is left: {error}", hint=CLEAN_HINT)


@asynccontextmanager
async def mirror_of_run(link: Link, topic: str, listens: Mapping[str, str], own: Own) -> AsyncIterator[None]:
    """A `farshore mirror run` of the run's own that reaches the source only through the proxies."""
    config, log = own.folder / "farshore.toml", own.folder / "mirror.log"
    config.write_text(mirror_config(link, own.run_id, topic, listens, own.security_of))
    with log.open("wb") as sink:
        process = await start_child(own.mirror_command(config), stdout=sink, stderr=sink)
    try:
        yield
        if process.returncode is not None:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
            raise ChaosError(f"the run's mirror ended by itself:\n{tail}")
    finally:
        await stop_child(process, MIRROR_STOP_TIMEOUT_S)


def mirror_config(link: Link, run_id: str, topic: str, listens: Mapping[str, str], security_of: SecurityOf) -> str:
    """The run's farshore.toml: the same sites, the source behind the proxies, one topic, no groups.

    The source is found by what its brokers call themselves, for which their certificates are. Pure.
    """
    source_map = ", ".join(f'"{advertised}" = "{listen}"' for advertised, listen in sorted(listens.items()))
    target_map = ", ".join(f'"{one}" = "{other}"' for one, other in sorted(link.target.address_map.items()))
    return f"""
[sites.{link.source.name}]
bootstrap_servers = "{",".join(sorted(listens))}"
address_map = {{ {source_map} }}
{security_of(link.source.name)}
[sites.{link.target.name}]
bootstrap_servers = "{link.target.bootstrap_servers}"
address_map = {{ {target_map} }}
{security_of(link.target.name)}
[[links]]
name = "{link_of(run_id)}"
source = "{link.source.name}"
target = "{link.target.name}"
topics = ["{topic}"]
topic_names = "{link.topic_names}"
groups = []
"""
