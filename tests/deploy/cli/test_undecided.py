"""Who comes back along the link back is told what the site that was lost has alone, before and not behind the move."""

from __future__ import annotations

import asyncio
import json

from click.testing import CliRunner

from broker.client.cluster import Cluster
from deploy.cli.root import cli
from mirror.offsets.fence_ends import FenceEnd
from mirror.offsets.operations import promote_link
from mirror.offsets.source_ends import load_observation
from mirror.offsets.state import read_entries
from tests.deploy.cli.test_stranded import SHARED, STRANDED, WHERE, Operator, operator
from tests.mirror.harness import eventually, make_topic, running, some_records, wait_for_records, write

__all__ = ["operator"]

TOLD = "east-west: in 1 partition east alone has records from before west took over, and nobody decided about them"
LIST, BACK = "farshore stranded list --link east-west", "farshore failback --link east-west"


async def lose_east(operator: Operator) -> None:
    """With a tail that was there before west took over; the link back ran meanwhile."""
    async with Cluster(operator.link.source) as east, Cluster(operator.link.target) as west:
        await make_topic(east, WHERE.topic)
        await write(east, WHERE, some_records(0, SHARED))

        async def have_run() -> bool:
            """Both: where the ends of the source's logs are kept is made by the first worker."""
            is_seen = (await load_observation(operator.link, west)).last is not None
            return is_seen and (await read_entries(operator.back, east)).owner is not None

        async with running(operator.link), running(operator.back):
            await wait_for_records(west, WHERE, SHARED)
            await eventually(have_run, "both links to run")
        await write(east, WHERE, some_records(1_000, STRANDED))
        end = FenceEnd(SHARED + STRANDED, east.clock.now_ms(), is_told=True)
        await promote_link(operator.link, west, "failover-1", ends={WHERE: end})


def said_by(operator: Operator, line: str) -> str:
    """On stderr. Whether the move itself may go hangs on how long ago a worker was heard."""
    return CliRunner().invoke(cli, ["--config", str(operator.config), *line.split()]).stderr


def test_a_move_back_along_the_link_back_names_what_nobody_decided_about(operator: Operator) -> None:
    """Only `status` did; the switchover went, and the link that had been promoted was refused behind it."""
    asyncio.run(lose_east(operator))
    operator.run("link pause --link west-east")
    resumed = json.loads(operator.run("link resume --link west-east --yes -o json").stdout)
    assert [step["command"] for step in resumed["next"]][:2] == [LIST, BACK]
    assert resumed["next"][0]["what"] == TOLD
    for line in ("switchover --link west-east --dry-run", "switchover --from west --to east --dry-run"):
        told = said_by(operator, line)
        assert TOLD in " ".join(told.split())
        assert f"\n  {BACK}\n" in told
    operator.run("stranded leave --link east-west --yes")
    assert TOLD not in " ".join(said_by(operator, "switchover --link west-east --dry-run").split())
