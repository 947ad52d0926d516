"""What is said at the end of a failback, which is over by then."""

from __future__ import annotations

import socket

from broker.client.site import Site
from deploy.cli.failback_words import steps_at_end
from deploy.cli.way_back import is_taken_up
from mirror.link import Link


async def test_a_target_that_goes_away_at_the_end_takes_no_result_with_it() -> None:
    """All was done and verified; the command ended with that site's error, exit code 1, and told nothing of it."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        link = Link("east-west", Site("east", "e:1"), Site("west", f"127.0.0.1:{nobody.getsockname()[1]}"), (".*",))
        is_run = await is_taken_up(link)
    assert is_run is None
    start, run = steps_at_end(link, is_run=is_run)
    assert start.what.startswith("start producers and consumers at east")
    assert run.what.startswith("west does not say whether a worker runs link east-west")
    assert run.command == "farshore mirror run --link east-west"
