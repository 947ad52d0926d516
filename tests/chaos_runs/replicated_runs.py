"""A mirror between two clusters of three brokers whose leaders, coordinators and controllers are killed and paused."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.site_role import set_site_role, site_standing
from broker.client.topics import NewTopic, create_topics
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import TopicPartition
from mirror.link import STATE_PREFIX
from tests.chaos_runs.content_runs import PARTITIONS, ComparedRun
from tests.chaos_runs.looking import read_committed
from tests.chaos_runs.mirror_process import Operator
from tests.chaos_runs.readers import Reader, reading, wrongly_carried
from tests.chaos_runs.trio import Roles, Trio, differing_replicas, epochs_that_go_back
from tests.chaos_runs.writers import Writer

GROUP_TIMEOUT_S = 60.0
ROLES_TIMEOUT_S = 60.0
POLL_S = 0.5
TAKE_OVER_TIMEOUT_S = 90.0
MIRRORS_FAULTS = ("mirror-kill", "mirror-pause", "takeover", "source-latency", "target-latency")
"""The others are counted by the role of who was met."""


class ReplicatedRun(ComparedRun[Trio]):
    """One broker of a site at a time is away, at the moment it has a role; both sites may lack one."""

    @property
    def groups(self) -> tuple[str, ...]:
        return (f"readers-{self.seed}",)

    async def make_topic(self, east: Cluster) -> None:
        standing = await site_standing(east)
        if standing is not None and not standing.takes_writes:  # since the switchover of an earlier run
            await set_site_role(east, SiteRole.ACTIVE, f"run {self.seed}", standing)
        configs = {"retention.ms": "-1", "min.insync.replicas": "2"}
        failures = await create_topics(east, [NewTopic(self.topic, PARTITIONS, 3, configs)])
        assert not failures, failures

    async def disturb(self, operator: Operator, proxies: Mapping[str, Any]) -> None:
        (group,) = self.groups
        with reading(self.source.bootstrap, group, self.topic) as self.reader:
            await self._disturb(operator, proxies)

    async def _disturb(self, operator: Operator, proxies: Mapping[str, Any]) -> None:
        ends_s = time.monotonic() + self.length_s
        of_site = {
            trio.name: {at: proxies[at] for at in trio.bootstrap.split(",")} for trio in (self.source, self.target)
        }
        kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "source-kill": (4, lambda: self.kill(self.source)),
            "target-kill": (4, lambda: self.kill(self.target)),
            "both-kill": (2, lambda: self.both(self.kill)),
            "source-pause": (2, lambda: self._pause(self.source)),
            "target-pause": (2, lambda: self._pause(self.target)),
            "both-pause": (1, lambda: self.both(self._pause)),
            "mirror-kill": (2, lambda: self.kill_mirror(operator)),
            "mirror-pause": (1, lambda: self.pause_mirror(operator)),
            "takeover": (2, lambda: self._take_over(operator)),
            "source-latency": (1, lambda: self.delay(of_site["east"])),
            "target-latency": (1, lambda: self.delay(of_site["west"])),
        }
        while True:
            await asyncio.sleep(self.chance.uniform(0.5, 4.0))
            if time.monotonic() >= ends_s:
                return
            (name,) = self.chance.choices(list(kinds), [self.weight_of(kind, own) for kind, (own, _) in kinds.items()])
            if name in MIRRORS_FAULTS:
                self.note(name)
            await kinds[name][1]()

    def weight_of(self, kind: str, weight: int) -> int:
        """How often this fault is chosen beside the others."""
        return weight

    async def both(self, fault: Callable[[Trio], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for trio in (self.source, self.target):
                tasks.create_task(fault(trio))

    async def kill(self, trio: Trio) -> None:
        """kill -9, and a start at once or after its session."""
        away_s = self.chance.choice((0.0, 2.0, 8.0))
        node = await self._somebody(trio, "kill")
        await asyncio.to_thread(trio.brokers[node].kill9)
        await asyncio.sleep(away_s)
        await asyncio.to_thread(trio.brokers[node].start)

    async def _pause(self, trio: Trio) -> None:
        """SIGSTOP, for less than its session or longer: who wakes believes that it leads."""
        asleep_s = self.chance.choice((1.0, 3.0, 7.0))
        node = await self._somebody(trio, "pause")
        trio.signal(node, signal.SIGSTOP)
        try:
            await asyncio.sleep(asleep_s)
        finally:
            trio.signal(node, signal.SIGCONT)

    async def _take_over(self, operator: Operator) -> None:
        """A second mirror comes, and the coordinator of their fence dies in the middle; one of them is left."""
        operator.start_mirror()
        await asyncio.sleep(self.chance.uniform(0.5, 2.5))
        node = (await self._roles(self.target)).get(f"transaction-coordinator farshore-{self.topic}")
        if node is not None:
            self._write_down("kill", self.target, node, "transaction-coordinator of the fence")
            await asyncio.to_thread(self.target.brokers[node].kill9)
            await asyncio.sleep(self.chance.choice((0.0, 2.0, 6.0)))
            await asyncio.to_thread(self.target.brokers[node].start)
        async with asyncio.timeout(TAKE_OVER_TIMEOUT_S):
            while not (ended := [child for child in operator.children if child.poll() is not None]):
                await asyncio.sleep(POLL_S)
        for child in ended:
            operator.children.remove(child)
        assert operator.children, "both mirrors ended"

    async def _somebody(self, trio: Trio, what: str) -> int:
        """The broker that has a role now, by chance; it stands in the run's log."""
        lot = self.chance.random()
        found = await self._roles(trio)
        role = sorted(found)[int(lot * len(found))]
        self.note(f"{trio.name}-{what}-{role.split()[0]}")
        self._write_down(what, trio, found[role], role)
        return found[role]

    def _write_down(self, what: str, trio: Trio, node: int, role: str) -> None:
        with (self.folder / "faults.txt").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {what} {trio.name} {node}: {role}\n")

    async def _roles(self, trio: Trio) -> dict[str, int]:
        names = Roles(tuple(self.partitions), self.groups, (f"transactional-{self.seed}",))
        if trio is self.target:
            state = TopicPartition(f"{STATE_PREFIX}{self.topic}", 0)
            names = Roles((*self.partitions, state), self.groups, (f"farshore-{self.topic}",))
        async with asyncio.timeout(ROLES_TIMEOUT_S):
            while True:
                try:
                    return await names.of(trio)
                except ClientError:
                    await asyncio.sleep(POLL_S)

    def note(self, fault: str) -> None:
        self.result.faults[fault] = self.result.faults.get(fault, 0) + 1

    async def compare(self, operator: Operator, writers: list[Writer]) -> None:
        await super().compare(operator, writers)
        self.result.problems += await self._group_problems(self.reader)
        self.result.problems += await self.problems_of_logs()

    async def problems_of_logs(self) -> list[str]:
        """What the brokers' files say that no client is shown."""
        wrong = []
        for trio in (self.source, self.target):
            wrong += await differing_replicas(trio, self.partitions)
        return wrong + [
            f"two mirrors wrote {where}: behind epoch {before} comes {after}"
            for where in self.partitions
            for before, after in epochs_that_go_back(self.target, where)
        ]

    async def _group_problems(self, reader: Reader) -> list[str]:
        async with Cluster(self.source.site) as east, Cluster(self.target.site) as west:
            logs = {
                where: (await read_committed(east, where), await read_committed(west, where))
                for where in self.partitions
            }
            deadline_s = time.monotonic() + GROUP_TIMEOUT_S
            while wrong := await wrongly_carried(reader.group, (east, west), logs):
                if time.monotonic() > deadline_s:
                    break
                await asyncio.sleep(POLL_S)
            wrong += await reader.forgotten(east)
        if not reader.commits:
            wrong.append(f"{reader.group} never committed: this run proves nothing of groups")
        return wrong
