"""Where the sites have several brokers: each loses one that leads while records are written, and has it back later."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from deploy.demo.results import LeaderKill
from deploy.demo.stage import FLIGHTS, Stage
from deploy.errors import DemoFailed
from deploy.local.brokers import LocalBroker, start_brokers

PARTITION = 0
"""Whose leader is killed."""


@dataclass(slots=True)
class LeaderKills:
    """`at_records`: after how many written records which site loses a leader; nothing where a broker is alone."""

    stage: Stage
    at_records: dict[str, int]
    killed: list[tuple[str, LocalBroker]] = field(default_factory=list)

    async def look(self, site: Cluster, written_records: int, acknowledged_records: int) -> None:
        """Kills the site's leader if it is time."""
        name = site.site.name
        if written_records < self.at_records.get(name, written_records + 1):
            return
        del self.at_records[name]
        partitions = (await site.metadata([FLIGHTS])).topics[FLIGHTS].partitions
        leader = next(each.leader_id for each in partitions if each.partition == PARTITION)
        broker = next(each for each in self.stage.sites[name] if each.node_id == leader)
        await self.stage.processes.kill9(broker.name)
        self.killed.append((name, broker))
        led = sum(each.leader_id == leader for each in partitions)
        kill = LeaderKill(name, leader, led, acknowledged_records)
        self.stage.result.kills.append(kill)
        self.stage.console.print(
            f"  kill -9: broker {leader} of {name}, the leader of {led} of {len(partitions)} partitions, after "
            f"{acknowledged_records:,} acknowledged records"
        )

    async def bring_back(self) -> None:
        """Raises DemoFailed if a site did not lose its leader, or is not whole again."""
        if self.at_records:
            raise DemoFailed(f"no leader was killed at {', '.join(self.at_records)}")
        for name, broker in self.killed:
            await start_brokers(self.stage.processes, [broker])
            await self.stage.until_whole(name)
