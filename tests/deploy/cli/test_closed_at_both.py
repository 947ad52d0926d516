"""Both sites start frozen, and one of two pairs of links is moved and comes back alone: what becomes of the other's."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import DEADLINE_S
from tests.deploy.cli.test_two_pairs import BACK, THERE, commands, produce, read_on, role, two_pairs, until_equal
from tests.deploy.test_runbook import is_allowed
from tests.interop.servers import wait_until


def test_topics_of_the_other_pair_that_both_sites_refuse_then_are_named_with_what_opens_them(tmp_path: Path) -> None:
    """Nothing said that no client writes to the orders at either site."""
    with two_pairs(tmp_path, held_at_start=("east", "west")) as shell:
        produce(shell.east, "first", 9)
        read_on(shell.east, 2)
        shell.begin("mirror run " + " ".join(f"--link {link}" for link in (*THERE, *BACK)))
        until_equal(shell)
        wait_until(partial(is_allowed, shell, "drill"), DEADLINE_S, "each link to have seen its topics and groups")
        shell.east.kill9()
        shell.run("failover --link east-west --allow-data-loss --yes", ExitCode.DONE)
        assert role(shell, "west") == ("standby", ["orders-.*"])
        produce(shell.west, "west alone", 4, "flights")
        shell.east.start()
        line = "failback --link east-west"
        wait_until(partial(is_allowed, shell, f"{line} --dry-run"), DEADLINE_S, "nothing to speak against it")
        came = json.loads(shell.run(f"{line} --yes -o json", ExitCode.DONE).stdout)
        assert role(shell, "east") == ("standby", ["orders-.*"])
        assert role(shell, "west") == ("standby", ["flights", "orders-.*"])
        assert came["closed_at_both"] == came["switchover"]["closed_at_both"] == ["orders-.*"]
        (thaw,) = [one for one in commands(came) if one.startswith("site thaw")]
        assert thaw == "site thaw --site east --topic 'orders-.*'"
        shell.run(f"{thaw} --yes".replace("'", ""), ExitCode.DONE)
        assert role(shell, "east") == ("active", [])
