"""`farshore failover` of a site to which a link back had brought records, with real processes: those are not lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import CONFIG, DEADLINE_S, Shell, append_records, values_at
from tests.interop.servers import FarshoreBroker, wait_until

BACK = """
[[links]]
name = "west-east"
source = "west"
target = "east"
topics = ["flights"]
topic_names = "same"
"""
# More are lost than the mirror had transactions: each had a marker in the target's log, and what is no record of the
# link's may be what its link back brought.
CAME_BACK, LOST, BEFORE = 40, 100, 3


def test_what_a_link_back_brought_is_told_to_be_unclear_and_what_only_the_lost_site_has_to_be_lost(
    tmp_path: Path,
) -> None:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        config = CONFIG.format(east=east.bootstrap, west=west.bootstrap) + BACK
        (tmp_path / "farshore.toml").write_text(config)
        shell = Shell(tmp_path, east, west)
        shell.run("topic create --site east --topic flights --partitions 1 --config retention.ms=-1", ExitCode.DONE)
        shell.begin("mirror run")
        try:
            lose_the_east(shell)
        finally:
            shell.close()


def lose_the_east(shell: Shell) -> None:
    append_records(shell.east, "east", BEFORE)
    wait_until(lambda: values_at(shell.west) == ["east"] * BEFORE, DEADLINE_S, "east's records to be at west")
    append_records(shell.west, "west", BEFORE)
    wait_until(lambda: values_at(shell.east).count("west") == BEFORE, DEADLINE_S, "west's records to be at east")
    shell.run("topic pause --link east-west --topic flights", ExitCode.DONE)
    wait_until(lambda: bool(link_of(shell, "status")["holds"]), DEADLINE_S, "the mirror to have seen the pause")
    append_records(shell.west, "west", CAME_BACK)
    wait_until(lambda: values_at(shell.east).count("west") == BEFORE + CAME_BACK, DEADLINE_S, "them to be at east, too")
    append_records(shell.east, "east", LOST)

    def is_seen() -> bool:
        loss = link_of(shell, "drill")["loss"]
        return bool(loss["offsets"] + loss["unclear_offsets"] >= CAME_BACK + LOST)

    wait_until(is_seen, DEADLINE_S, "the east's end to be seen")
    shell.east.kill9()
    plan = shell.run("failover --link east-west --allow-data-loss --dry-run", ExitCode.DONE)
    assert "may be lost, or hold what a link back had brought there" in " ".join(plan.stdout.split())
    assert "unclear" in plan.stdout, "the table has a column for them"
    result = json.loads(shell.run("failover --link east-west --allow-data-loss --yes -o json", ExitCode.DONE).stdout)
    (loss,) = result["losses"]
    assert (loss["certainty"], loss["records"]) == ("at_least", None)
    assert 0 < loss["offsets"] <= LOST
    assert loss["offsets"] + loss["unclear_offsets"] == loss["end_offset"] - loss["first_offset"] >= CAME_BACK + LOST
    total = result["loss"]
    assert (total["offsets"], total["unclear_offsets"]) == (loss["offsets"], loss["unclear_offsets"])
    assert total["likely_offsets"] >= total["offsets"] + total["unclear_offsets"]


def link_of(shell: Shell, command: str) -> dict[str, Any]:
    """The link to the west, as the command has it."""
    found: list[dict[str, Any]] = json.loads(shell.ask(f"{command} --link east-west -o json").stdout)["items"]
    return found[0]
