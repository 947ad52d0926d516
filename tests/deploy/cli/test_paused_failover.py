"""`farshore failover` of a paused link whose source was killed: it states what was written behind the pause."""

from __future__ import annotations

import asyncio
import json

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from deploy.cli.terminal import ExitCode
from mirror.offsets.source_ends import load_observation
from tests.deploy.cli.test_failover import DEADLINE_S, FLIGHTS, Shell, append_records, values_at
from tests.deploy.cli.test_failover import own_shell as own_shell
from tests.interop.servers import wait_until
from tests.mirror.harness import link_between

BEHIND = 50


def seen_end(shell: Shell) -> int:
    async def seen() -> int:
        link = link_between(shell.east.bootstrap, shell.west.bootstrap, [FLIGHTS.topic], name="east-west")
        async with Cluster(Site("west", shell.west.bootstrap)) as west:
            found = (await load_observation(link, west)).ends.get(FLIGHTS)
            return 0 if found is None else found.end

    return asyncio.run(seen())


@pytest.mark.parametrize("output", ["json", "table"])
def test_what_was_written_behind_a_pause_is_stated_as_lost(own_shell: Shell, output: str) -> None:
    """50 records were written behind a pause, and the result said likely 0, and nothing of the pause."""
    append_records(own_shell.east, "before", 5)
    wait_until(lambda: len(values_at(own_shell.west)) == 5, DEADLINE_S, "the records to be mirrored")
    own_shell.run("link pause", ExitCode.DONE)
    log = own_shell.folder / "service.log"
    wait_until(lambda: "event=paused" in log.read_text(), DEADLINE_S, "the worker to notice the pause")
    before = seen_end(own_shell)
    append_records(own_shell.east, "behind", BEHIND)
    wait_until(lambda: seen_end(own_shell) == before + BEHIND, DEADLINE_S, "the end behind the pause to be seen")
    own_shell.east.kill9()
    done = own_shell.run(f"failover --allow-data-loss --yes -o {output}", ExitCode.DONE)
    was_paused = "east-west was paused: since then nothing was mirrored, and east was last seen at "
    if output == "table":
        told = " ".join(done.stderr.split())
        assert was_paused in told
        assert f"{BEHIND} offsets in 1 partition" in told
        return
    result = json.loads(done.stdout)
    assert (result["was_paused"], result["loss"]["offsets"], result["verified"]) == (True, BEHIND, True)
    assert result["loss"]["seen_at"] is not None
    assert was_paused in result["summary"]
