"""docs/runbook.md, its partial loss and the way back from it, as it is written: a site of three brokers loses one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import DEADLINE_S, Shell
from tests.deploy.test_runbook import LINK, SITE, OwnBroker, is_allowed, written
from tests.interop.brokers import LONG_SESSION_MS, ClusterBroker, cluster_of_brokers
from tests.interop.servers import ZooKeeperServer, wait_until
from tests.mirror.harness import read_all, write

PARTITIONS: Final = tuple(TopicPartition("flights", number) for number in range(3))
GONE: Final = PARTITIONS[1]
GROUPS: Final = {"g1": 5, "g2": 8}
"""Where each stands in every partition."""
RECORDS, NEWS = 12, 4
WHOLE: Final = TopicPartition("whole", 0)


@contextmanager
def world(folder: Path, *, with_whole: bool = False) -> Iterator[tuple[Shell, dict[int, ClusterBroker]]]:
    """East is three brokers of ours, west one; every partition has one replica, so that each broker has its own.
    `with_whole`: a pair of links more, for a topic that every broker has.
    """
    with (
        ZooKeeperServer(folder / "zookeeper") as zookeeper,
        cluster_of_brokers(folder, zookeeper.address, LONG_SESSION_MS, "site_start_frozen = true\n") as brokers,
    ):
        west = OwnBroker(folder, "west")
        file = folder / "farshore.toml"
        parts = ['state_dir = "state"\n', file.read_text()]
        parts.append(SITE.format(name="west", listen=west.bootstrap, data_dir=west.data_dir, held="false"))
        parts += [
            LINK.format(name=f"{here}-{there}{more}", source=here, target=there, topic=topic)
            for more, topic in (("", "flights"), *((("-whole", WHOLE.topic),) if with_whole else ()))
            for here, there in (("east", "west"), ("west", "east"))
        ]
        file.write_text("".join(parts))
        with west:
            shell = Shell(folder, brokers[1], west)
            thaw, _ = written("Before the day")
            shell.run(f"{thaw} --yes", ExitCode.DONE)
            shell.run(
                f"topic create --site east --topic flights --partitions {len(PARTITIONS)} --replication-factor 1 "
                "--config retention.ms=-1",
                ExitCode.DONE,
            )
            if with_whole:
                create = f"topic create --site east --topic {WHOLE.topic} --partitions 1 --replication-factor 3"
                shell.run(f"{create} --config retention.ms=-1", ExitCode.DONE)
            try:
                yield shell, brokers
            finally:
                shell.close()


def bootstrap(brokers: dict[int, ClusterBroker]) -> str:
    return ",".join(broker.bootstrap for broker in brokers.values())


async def append(where: str, value: str, count: int) -> None:
    async with Cluster(Site("site", where)) as cluster:
        for at in PARTITIONS:
            await write(
                cluster, at, [Record(n, 1_700_000_000_000, None, f"{value} {n}".encode()) for n in range(count)]
            )


async def commit_groups(where: str) -> None:
    async with Cluster(Site("site", where)) as cluster:
        for group, offset in GROUPS.items():
            await commit_offsets(cluster, group, dict.fromkeys(PARTITIONS, CommittedOffset(offset)))


async def next_values(where: str) -> dict[str, list[str]]:
    """What each group reads next in each partition, in order."""
    found = {}
    async with Cluster(Site("site", where)) as cluster:
        records = {at: await read_all(cluster, at) for at in PARTITIONS} if await list_topics(cluster) else {}
        for group in GROUPS:
            stands = await committed_offsets(cluster, group)
            found[group] = [
                next((str((r.value or b"").decode()) for r in records[at] if r.offset >= stands[at].offset), "")
                for at in PARTITIONS
                if at in stands
            ]
    return found


async def leader_of(where: str, at: TopicPartition) -> int:
    async with Cluster(Site("site", where)) as cluster:
        return (await list_topics(cluster))[at.topic].partitions[at.partition].leader_id


def come_back(shell: Shell) -> None:
    """As the runbook has it from the failover on."""
    *_, standby = written("Unplanned")
    shell.run(f"{standby} --yes", ExitCode.DONE)
    listed, run_back, dry_run, failback, *_ = written("Failback")
    shell.run(listed, ExitCode.DONE)
    shell.begin(run_back)
    wait_until(lambda: is_allowed(shell, dry_run), DEADLINE_S, "nothing to speak against the failback")
    shell.run(f"{failback} --yes", ExitCode.DONE)


def test_a_broker_of_the_site_is_lost_and_comes_back(tmp_path: Path) -> None:
    """It was refused for each group, and its failback never ended."""
    with world(tmp_path) as (shell, brokers):
        east, west = bootstrap(brokers), shell.west.bootstrap
        asyncio.run(append(east, "first", RECORDS))
        asyncio.run(commit_groups(east))
        expected = {group: [f"first {offset}"] * len(PARTITIONS) for group, offset in GROUPS.items()}
        assert asyncio.run(next_values(east)) == expected
        shell.begin("mirror run --link east-west")
        shell.run("status --link east-west --until healthy --timeout 60s", ExitCode.DONE)

        def is_carried() -> bool:
            return asyncio.run(next_values(west)) == expected

        wait_until(is_carried, DEADLINE_S, "the groups to be carried over")
        lost = brokers[asyncio.run(leader_of(east, GONE))]
        lost.kill9()
        alive = bootstrap({node: one for node, one in brokers.items() if one is not lost})
        wait_until(lambda: asyncio.run(leader_of(alive, GONE)) == -1, DEADLINE_S, "its partition to have no leader")

        status, dry_run = written("Partial loss")
        wait_until(lambda: "no_leader_at_source" in shell.ask(f"{status} -o json").stdout, DEADLINE_S, "a hold")
        shell.run(status, ExitCode.FINDINGS)
        plan = json.loads(shell.run(f"{dry_run} -o json", ExitCode.DONE).stdout)
        assert plan["snapshot"]["source_finding"] == "partly_there"
        assert {move["kind"] for move in plan["moves"]} <= {"already_there", "translated"}, plan["moves"]
        (gone,) = [one for one in plan["losses"] if one["partition"] == GONE.partition]
        assert gone["certainty"] == "at_least"
        shell.run(f"{dry_run.replace(' --dry-run', '')} --yes", ExitCode.DONE)
        assert asyncio.run(next_values(west)) == expected
        asyncio.run(append(west, "west", NEWS))
        lost.start()
        come_back(shell)
        assert asyncio.run(next_values(east)) == expected


@pytest.mark.parametrize("is_at_once", [False, True])
def test_a_broker_of_the_site_is_lost_and_all_of_its_links_go(tmp_path: Path, is_at_once: bool) -> None:
    """Nothing said what both links need: each refused the other's one option, and named no link."""
    first_whole, of_others, at_once = written("Partial loss", whole_site=True)
    with world(tmp_path, with_whole=True) as (shell, brokers):
        asyncio.run(append(bootstrap(brokers), "first", RECORDS))
        shell.begin("mirror run")
        shell.run("status --until healthy --timeout 60s", ExitCode.DONE)
        lost = brokers[asyncio.run(leader_of(bootstrap(brokers), GONE))]
        lost.kill9()
        alive = bootstrap({node: one for node, one in brokers.items() if one is not lost})
        wait_until(lambda: asyncio.run(leader_of(alive, GONE)) == -1, DEADLINE_S, "its partition to have no leader")
        if not is_at_once:
            refused = shell.run(at_once.replace("--even-if-source-answers", ""), ExitCode.REFUSED)
            assert "refused: east-west-whole: " in refused.stderr
            shell.run(f"{first_whole} --yes", ExitCode.REFUSED)
        dry_run = at_once if is_at_once else of_others
        going = json.loads(shell.run(f"{dry_run} -o json", ExitCode.DONE).stdout)["moving"]
        assert going == (["east-west", "east-west-whole"] if is_at_once else ["east-west"])
        shell.run(f"{dry_run.replace(' --dry-run', '')} --yes", ExitCode.DONE)
