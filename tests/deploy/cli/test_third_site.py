"""East was left for west: whoever moves from east to north is told so, before anything changes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import DEADLINE_S, Shell
from tests.interop.servers import FarshoreBroker, wait_until
from tests.mirror.harness import make_topic, some_records, write

FLIGHTS = TopicPartition("flights", 0)
LINK = """
[[links]]
name = "east-{target}"
source = "east"
target = "{target}"
topics = ["flights"]
topic_names = "same"
groups = ["analysts"]
"""


async def fill(east: FarshoreBroker) -> None:
    async with Cluster(Site("east", east.bootstrap)) as cluster:
        await make_topic(cluster, FLIGHTS.topic)
        await write(cluster, FLIGHTS, some_records(0, 20))
        await commit_offsets(cluster, "analysts", {FLIGHTS: CommittedOffset(7)})


async def is_carried(*sites: FarshoreBroker) -> bool:
    for site in sites:
        async with Cluster(Site("site", site.bootstrap)) as cluster:
            if FLIGHTS not in await committed_offsets(cluster, "analysts"):
                return False
    return True


def test_a_move_from_a_site_that_was_left_is_refused_with_who_is_active_and_a_way_on(tmp_path: Path) -> None:
    with (
        FarshoreBroker(tmp_path / "east") as east,
        FarshoreBroker(tmp_path / "west") as west,
        FarshoreBroker(tmp_path / "north") as north,
    ):
        sites = "".join(
            f'[sites.{name}]\nbootstrap_servers = "{site.bootstrap}"\n'
            for name, site in (("east", east), ("west", west), ("north", north))
        )
        links = LINK.format(target="west") + LINK.format(target="north")
        (tmp_path / "farshore.toml").write_text(f'state_dir = "state"\n{sites}{links}')
        shell = Shell(tmp_path, east, west)
        asyncio.run(fill(east))
        shell.begin("mirror run")
        try:
            wait_until(lambda: asyncio.run(is_carried(west, north)), DEADLINE_S, "the group at west and north")
            shell.run("site standby --site north --yes", ExitCode.DONE)
            shell.run("switchover --link east-west --yes", ExitCode.DONE)
            refused = shell.run("switchover --link east-north --yes -o json", ExitCode.REFUSED)
            refusals = json.loads(refused.stdout)["refusals"]
            assert {"reason": "active_elsewhere", "subject": "east-west", "detail": "west"} in refusals
            said = " ".join(refused.stderr.split())
            assert "west is the active site" in said
            assert "farshore failback --link east-west" in said
            (row,) = json.loads(shell.run("site role --site north -o json", ExitCode.DONE).stdout)["items"]
            assert row["role"] == "standby"
            drill = json.loads(shell.run("drill --link east-north -o json", ExitCode.FINDINGS).stdout)
            found = [one for link in drill["items"] for one in link["findings"] if one["kind"] == "active_elsewhere"]
            assert [(one["subject"], one["detail"].split()[0]) for one in found] == [("east-west", "west")]
        finally:
            shell.close()
