"""A failover of a source that answers, away from a group that has read what the target lacks, where both sites write:
each command that is proposed on the way goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import DEADLINE_S, Shell, append_records, two_sites, values_at
from tests.deploy.cli.test_lost_state import LINK_BACK
from tests.deploy.cli.test_pending_offsets import commit, committed
from tests.interop.servers import wait_until

RECORDS, TAIL, READ = 6, 4, 2


@pytest.fixture
def ahead(tmp_path: Path) -> Iterator[Shell]:
    """No worker runs by now."""
    with two_sites(tmp_path) as shell:
        append_records(shell.east, "first", RECORDS)
        commit(shell.east.bootstrap, READ)
        wait_until(lambda: committed(shell.west.bootstrap) > 0, DEADLINE_S, "the group at the target")
        wait_until(lambda: len(values_at(shell.west)) == RECORDS, DEADLINE_S, "the records")
        shell.close()
        shell.services.clear()
        with (shell.folder / "farshore.toml").open("a") as file:
            file.write(LINK_BACK)
        append_records(shell.east, "tail", TAIL)
        commit(shell.east.bootstrap, RECORDS + READ)
        yield shell


def document(shell: Shell, line: str, expect: int) -> Any:
    return json.loads(shell.run(f"{line} -o json", expect).stdout)


def test_each_command_that_is_proposed_goes_on(ahead: Shell) -> None:
    """Each hint named the consent of one refusal of three, and behind the move a command was named that was refused."""
    consent = "--even-if-source-answers --allow-data-loss --leave-group app"
    refused = document(ahead, "failover --link east-west --yes", ExitCode.REFUSED)
    assert [one["reason"] for one in refused["refusals"]] == [
        "source_answers",
        "data_loss_not_allowed",
        "group_not_movable",
    ]
    assert refused["hint"].endswith(
        "or add --even-if-source-answers; a failover that goes on then wants --allow-data-loss --leave-group app, too"
    )
    last = document(ahead, f"failover --link east-west {consent.partition(' --leave')[0]} --yes", ExitCode.REFUSED)
    looked_at, _, hint = last["hint"].removeprefix("`farshore ").partition("`")
    assert hint.endswith("add --leave-group app")
    assert ahead.run(looked_at, ExitCode.DONE).stdout

    stood_at = committed(ahead.west.bootstrap)
    moved = document(ahead, f"failover --link east-west {consent} --yes", ExitCode.DONE)
    assert (moved["verified"], moved["left_groups"]) == (True, ["app"])
    assert committed(ahead.west.bootstrap) == stood_at, "it reads again, and skips nothing"
    named = [step["command"].removeprefix("farshore ") for step in moved["next"] if "--group app" in step["command"]]
    assert len(named) == 1
    assert ahead.run(named[0], ExitCode.DONE).stdout
