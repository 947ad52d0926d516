"""East comes back with an older disk: each way back there is refused."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from deploy.cli.terminal import ExitCode
from mirror.offsets.operations import promote_link
from tests.deploy.cli.test_failback import command, wait_for_worker
from tests.deploy.cli.test_stranded import WHERE, Operator
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import make_topic, running, some_records, wait_for_records, write

OLDER, SINCE, NEWER = 20, 12, 9
"""Records of the older disk, that east had more when it was lost, and that west wrote since."""


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        operator = Operator(tmp_path, east.bootstrap, west.bootstrap)
        asyncio.run(mirror(operator, 0, OLDER))
        east.stop()
        shutil.copytree(east.data_dir, tmp_path / "older")
        east.start()
        asyncio.run(mirror(operator, 100, SINCE))
        asyncio.run(go_on(operator))
        east.kill9()
        shutil.rmtree(east.data_dir)
        (tmp_path / "older").rename(east.data_dir)
        east.start()
        yield operator


async def mirror(operator: Operator, start: int, count: int) -> None:
    async with Cluster(operator.link.source) as east, Cluster(operator.link.target) as west:
        if not start:
            await make_topic(east, WHERE.topic)
        await write(east, WHERE, some_records(start, count))
        async with running(operator.link):
            await wait_for_records(west, WHERE, OLDER + count if start else count)


async def go_on(operator: Operator) -> None:
    """West is promoted, and written to."""
    async with Cluster(operator.link.target) as west:
        await promote_link(operator.link, west, "failover-1")
        await write(west, WHERE, some_records(200, NEWER))


def test_each_way_back_is_refused_and_names_what_is_missing(operator: Operator) -> None:
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        asyncio.run(brought(operator, OLDER + NEWER))
        refused = operator.run("failback --link east-west --dry-run -o json", ExitCode.REFUSED)
        plan = json.loads(refused.stdout)
        (lacks,) = plan["source_lacks"]
        assert plan["refusals"] == ["source_lacks"]
        assert (lacks["topic"], lacks["partition"], lacks["from_offset"]) == (*WHERE, OLDER)
        for line in ("failback --link east-west --yes", "switchover --link west-east --yes"):
            told = " ".join(operator.run(line, ExitCode.REFUSED).stderr.split())
            assert f"east has lost what was mirrored from its offsets {OLDER} to" in told
        moved = json.loads(operator.run("switchover --link west-east --yes -o json", ExitCode.REFUSED).stdout)
        assert [(one["reason"], one["subject"]) for one in moved["refusals"]] == [("target_lacks", "flights-0")]
        drilled = json.loads(operator.run("drill --link west-east -o json", ExitCode.FINDINGS).stdout)["items"][0]
        assert "target_lacks" in [one["kind"] for one in drilled["findings"]]
        told = " ".join(operator.run("link resume --link east-west --dry-run").stderr.split())
        assert "the link is going to stand still, and ask: flights-0: east has lost" in told


async def brought(operator: Operator, count: int) -> None:
    async with Cluster(operator.link.source) as east:
        await wait_for_records(east, WHERE, count)
