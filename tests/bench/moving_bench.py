"""How long applications stand still while 1,000 groups on 200 partitions are moved, near by and far away.

A farshore broker at each site, a mirror beside the target, and the commands of an operator to whom both sites are a
round trip away, as the source is to the mirror. Planned is counted from where the source's writes begin to be refused,
unplanned from where the command is typed; both end with the first record that a consumer of one of the groups gets at
the target. One consumer joins when the command says that applications may start there, one of another group when the
command has ended. Each record is held against the one that the group is to read next: seconds to any other one would
say nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import Consumer

from broker.base.address import Address
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.group_commits import commit_offsets_of_groups
from broker.client.groups import committed_offsets_of_groups
from broker.client.log import append
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from chaos.toxics import Latency, connect, latency, proxied
from failover.journal.log import load_operations
from failover.journal.values import Event
from tests.bench.clusters import StartedBroker, service
from tests.bench.measure import ROOT
from tests.interop.servers import FarshoreBroker, Toxiproxy

Kind = Literal["planned", "killed", "hung"]
KINDS: tuple[Kind, ...] = ("planned", "killed", "hung")
"""`killed`: nobody listens at the source any more. `hung`: its broker takes connections and never answers."""
ROUND_TRIPS_MS = (0, 100)
GROUPS = 1_000
PARTITIONS = 200
PARTITIONS_OF_GROUP = 4
TOPIC = "moved"
RECORDS = 10
"""Written to each partition before each move, of which each group has read all but UNREAD."""
UNREAD = 3
MAY_START = "may start"
"""What the command says on stderr as soon as the groups stand, verified, at a target that takes writes."""
STARTING, WAITING = "group-0", "group-500"
LOOKS = 5
WAIT_S = 300.0
POLL_S = 0.1
WHERES = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


@dataclass(frozen=True, slots=True)
class Moved:
    """Seconds of one move: until the command said that applications may start at the target and until the first record
    of one that did, until the command ended and until the first record of one that waited for that.
    """

    told_s: float
    first_record_s: float
    command_s: float
    waited_record_s: float


@dataclass(frozen=True, slots=True)
class Operated:
    """Unix times in seconds: when the command was typed, when it said that applications may start, when the first
    record came to one that did, and when the command ended with the document.
    """

    result: Any
    began_s: float
    told_s: float
    first_s: float
    ended_s: float


@dataclass(slots=True)
class MovingResults:
    """By kind and round trip in ms."""

    moved: dict[tuple[Kind, int], list[Moved]] = field(default_factory=dict)


def bench_moving(folder: Path, rounds: int, kinds: tuple[Kind, ...], say: Callable[[str], None]) -> MovingResults:
    """`rounds` moves of each kind at each round trip. Raises RuntimeError where a move is not as it should be."""
    results = MovingResults()
    for round_trip_ms in ROUND_TRIPS_MS:
        with _sites(folder / f"{round_trip_ms}ms", round_trip_ms) as sites:
            for kind in kinds:
                for number in range(rounds):
                    moved = sites.move(kind)
                    if kind == "planned" and number < LOOKS:
                        say(f"looked at again, {round_trip_ms} ms: `switchover --dry-run` {sites.look_s():.2f} s")
                    results.moved.setdefault((kind, round_trip_ms), []).append(moved)
                    say(
                        f"{kind}, {round_trip_ms} ms, {number + 1} of {rounds}: may start {moved.told_s:.2f} s, "
                        f"first record {moved.first_record_s:.2f} s; the command {moved.command_s:.2f} s, "
                        f"first record behind it {moved.waited_record_s:.2f} s; load {os.getloadavg()[0]:.1f}"
                    )
    return results


def groups_offsets(next_offset: int) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Each group goes on at this offset of its partitions."""
    return {
        f"group-{number}": {
            WHERES[(number * PARTITIONS_OF_GROUP + at) % PARTITIONS]: CommittedOffset(next_offset)
            for at in range(PARTITIONS_OF_GROUP)
        }
        for number in range(GROUPS)
    }


@contextlib.contextmanager
def _sites(folder: Path, round_trip_ms: int) -> Iterator[MovingSites]:
    with (
        StartedBroker(folder / "east") as east,
        StartedBroker(folder / "west") as west,
        Toxiproxy(folder / "toxiproxy") as server,
        proxied(
            connect(Address("127.0.0.1", server.port), WAIT_S), "moving", (east.bootstrap, west.bootstrap)
        ) as proxies,
        latency(proxies, Latency(round_trip_ms, 0)) if round_trip_ms else contextlib.nullcontext(),
    ):
        far = {site.bootstrap: str(proxies[site.bootstrap].listen) for site in (east, west)}
        operator, worker = folder / "operator.toml", folder / "worker.toml"
        operator.write_text(_config(east.bootstrap, west.bootstrap, far))
        worker.write_text(_config(east.bootstrap, west.bootstrap, {east.bootstrap: far[east.bootstrap]}))
        sites = MovingSites(operator, east, west, proxies[east.bootstrap])
        sites.make_topic()
        command = [sys.executable, "-m", "deploy.cli", "--config", str(worker), "mirror", "run"]
        with service(command, folder / "mirror.log"):
            yield sites


def _config(east: str, west: str, far: Mapping[str, str]) -> str:
    sites = "".join(
        f'[sites.{name}]\nbootstrap_servers = "{far.get(address, address)}"\n'
        f'address_map = {{ "{address}" = "{far.get(address, address)}" }}\n'
        for name, address in (("east", east), ("west", west))
    )
    return f"""state_dir = "state"
{sites}
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["{TOPIC}"]
topic_names = "same"
groups = [".*"]
"""


@dataclass(slots=True)
class MovingSites:
    """Two sites and their mirror. `proxy`: the way to east. `written`: records in each partition of it."""

    config: Path
    east: FarshoreBroker
    west: FarshoreBroker
    proxy: Any
    written: int = 0

    def make_topic(self) -> None:
        async def make(east: Cluster) -> None:
            failures = await create_topics(east, [NewTopic(TOPIC, PARTITIONS, 1, {"retention.ms": "-1"})])
            assert not failures, failures

        self._at(self.east, make)

    def move(self, kind: Kind) -> Moved:
        """From both sites alike to both alike again, and one move between."""
        self._write()
        if kind == "planned":
            self._commit()
            return self._planned()
        self._commit()
        self._wait_for_groups()
        return self._unplanned(kind)

    def look_s(self) -> float:
        """Of the whole command: both sites are looked at, and all is planned, with the start of Python."""
        began_s = time.monotonic()
        self._farshore("switchover --dry-run -o json")
        return time.monotonic() - began_s

    def _planned(self) -> Moved:
        done = self._operate("switchover --yes -o json")
        waited_s = self._first_record_at_s(WAITING)
        began_s = self._at(self.west, lambda west: _freeze_began_s(west, done.result["operation_id"]))
        self._farshore("site thaw --site east --even-if-other-active --yes")
        self._farshore("link resume --link east-west --yes")
        return _moved(done, began_s, waited_s)

    def _unplanned(self, kind: Kind) -> Moved:
        process = self.east.process
        assert process is not None
        if kind == "hung":
            os.kill(process.pid, signal.SIGSTOP)
        else:
            self.proxy.disable()
            self.east.kill9()
        try:
            done = self._operate("failover --allow-data-loss --yes -o json")
            waited_s = self._first_record_at_s(WAITING)
        finally:
            if kind == "hung":
                os.kill(process.pid, signal.SIGCONT)
            else:
                self.east.start()
                self.proxy.enable()
        self._farshore("link resume --link east-west --yes")
        return _moved(done, done.began_s, waited_s)

    def _operate(self, line: str) -> Operated:
        told_s: list[float] = []
        first_s: list[float | Exception] = []

        def start() -> None:
            told_s.append(time.time())
            try:
                first_s.append(self._first_record_at_s(STARTING))
            except Exception as error:  # noqa: BLE001 -- raised where the thread is waited for
                first_s.append(error)

        said: list[str] = []
        began_s = time.time()
        pipe = subprocess.PIPE
        command = subprocess.Popen(self._argv(line), cwd=ROOT, env=_environment(), text=True, stdout=pipe, stderr=pipe)
        out, err = command.stdout, command.stderr
        assert out is not None
        assert err is not None
        starting = threading.Thread(target=start)
        document: list[str] = []
        reading = threading.Thread(target=lambda: document.append(out.read()))
        reading.start()
        for each in err:
            said.append(each)
            if MAY_START in each:
                starting.start()
        reading.join()
        if command.wait(WAIT_S) or not told_s:
            raise RuntimeError(f"farshore {line} ended with {command.returncode}: {''.join(said)[-2000:]}")
        ended_s = time.time()
        starting.join()
        result = json.loads(document[0])
        groups = {move["group"] for move in result["moves"] if move["target_offset"] is not None}
        if not result["verified"] or len(groups) != GROUPS:
            raise RuntimeError(f"{line} moved {len(groups)} groups, verified: {result['verified']}")
        if isinstance(first_s[0], Exception):
            raise first_s[0]
        return Operated(result, began_s, told_s[0], first_s[0], ended_s)

    def _argv(self, line: str) -> list[str]:
        return [sys.executable, "-m", "deploy.cli", "--config", str(self.config), *line.split()]

    def _farshore(self, line: str) -> str:
        argv = self._argv(line)
        done = subprocess.run(
            argv, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False, timeout=WAIT_S
        )
        if done.returncode:
            raise RuntimeError(f"farshore {line} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def _first_record_at_s(self, group: str) -> float:
        consumer = Consumer(
            {
                "bootstrap.servers": self.west.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",  # partitions that the group never read have nothing to say
            }
        )
        try:
            consumer.subscribe([TOPIC])
            deadline = time.monotonic() + WAIT_S
            while (message := consumer.poll(POLL_S)) is None:
                if time.monotonic() > deadline:
                    raise RuntimeError("no record came to the consumer at the target")
            at_s = time.time()
            if message.error():
                raise RuntimeError(f"the consumer at the target: {message.error()}")
            expected = f"{message.partition()}:{self.written - UNREAD}".encode()
            if message.value() != expected:
                raise RuntimeError(f"the group went on at {message.value()!r}, and not at {expected!r}")
            return at_s
        finally:
            consumer.close()

    def _write(self) -> None:
        first, self.written = self.written, self.written + RECORDS

        async def write(east: Cluster) -> None:
            async with asyncio.TaskGroup() as tasks:
                for where in WHERES:
                    records = [
                        Record(
                            number, time.time_ns() // 1_000_000, None, f"{where.partition}:{first + number}".encode()
                        )
                        for number in range(RECORDS)
                    ]
                    tasks.create_task(append(east, where, encode_batch(records)))

        before = self._at(self.west, _west_ends)
        self._at(self.east, write)

        async def carried(west: Cluster) -> bool:
            ends = await _west_ends(west)
            return all(ends.get(where, 0) >= before.get(where, 0) + RECORDS for where in WHERES)

        self._until(carried, "the mirror to carry what was written")

    def _commit(self) -> None:
        async def commit(east: Cluster) -> None:
            refused = await commit_offsets_of_groups(east, groups_offsets(self.written - UNREAD))
            assert not refused, refused

        self._at(self.east, commit)

    def _wait_for_groups(self) -> None:
        """Until the mirror has carried every group's offsets: what an unplanned move goes on with."""

        async def carried(west: Cluster) -> bool:
            ends = await log_end_offsets(west, WHERES)
            found = await committed_offsets_of_groups(west, groups_offsets(0))
            return all(
                isinstance(found[group], dict) and all(_is_near(found[group], at, ends[at]) for at in wanted)
                for group, wanted in groups_offsets(0).items()
            )

        self._until(carried, "the mirror to carry the groups")

    def _until(self, condition: Callable[[Cluster], Awaitable[bool]], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not self._at(self.west, condition):
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited {WAIT_S:.0f} s for {what}")
            time.sleep(POLL_S)

    def _at(self, broker: FarshoreBroker, do: Callable[[Cluster], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with Cluster(Site("bench", broker.bootstrap), client_id="farshore-bench") as cluster:
                return await do(cluster)

        return asyncio.run(run())


def _environment() -> dict[str, str]:
    """As where farshore is installed: its bytecode is kept, and not compiled anew by each command."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _moved(done: Operated, began_s: float, waited_s: float) -> Moved:
    return Moved(done.told_s - began_s, done.first_s - began_s, done.ended_s - began_s, waited_s - began_s)


async def _west_ends(west: Cluster) -> dict[TopicPartition, int]:
    with contextlib.suppress(ClientError):  # before the mirror has made the topic
        return await log_end_offsets(west, WHERES)
    return {}


def _is_near(found: Any, at: TopicPartition, end: int) -> bool:
    return at in found and end - UNREAD - 2 <= found[at].offset


async def _freeze_began_s(west: Cluster, operation_id: str) -> float:
    log = (await load_operations(west))[operation_id]
    return (
        next(entry.at_ms for entry in log.entries if entry.event == Event.STARTED and entry.detail["step"] == "freeze")
        / 1000
    )
