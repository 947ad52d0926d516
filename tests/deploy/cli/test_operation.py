"""`farshore operation`: a switchover whose process was killed, gone on with or given up from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import DEADLINE_S, Shell, is_draining, role_of_east, two_sites
from tests.interop.servers import wait_until


@pytest.fixture
def own_shell(tmp_path: Path) -> Iterator[Shell]:
    with two_sites(tmp_path) as shell:
        yield shell


def kill_while_it_drains(shell: Shell) -> str:
    """-> the operation, which nobody carries on."""
    before = shell.operations
    operation = shell.start("switchover --yes --reason maintenance")
    wait_until(lambda: is_draining(shell, before), DEADLINE_S, "the drain to start")
    operation.kill()
    operation.communicate(timeout=DEADLINE_S)
    (operation_id,) = [one for one in shell.operations if one not in before]
    return operation_id


def test_a_switchover_that_is_killed_while_it_drains_is_said_and_resumed_with_another_folder(own_shell: Shell) -> None:
    operation_id = kill_while_it_drains(own_shell)
    assert role_of_east(own_shell) == ("frozen", 1)
    said = own_shell.run("switchover --dry-run", ExitCode.DONE).stdout
    assert "east is frozen already for flights, since switchover-east-west-" in " ".join(said.split())
    refused = own_shell.run("switchover --yes", ExitCode.REFUSED)
    assert operation_id in refused.stderr
    assert "nothing was changed" in refused.stderr
    listed = json.loads(own_shell.run("operation list --open -o json", ExitCode.DONE).stdout)["items"]
    assert [(one["operation_id"], one["links"]) for one in listed] == [(operation_id, ["east-west"])]
    told = own_shell.run(f"operation show {operation_id}", ExitCode.DONE).stdout
    assert "reason: maintenance" in told
    assert max(map(len, told.splitlines())) <= 80
    config = own_shell.folder / "farshore.toml"
    config.write_text(config.read_text().replace('state_dir = "state"', 'state_dir = "elsewhere"'))
    waited = own_shell.run(f"operation wait {operation_id}", ExitCode.ERROR)
    assert f"farshore operation resume {operation_id}" in waited.stderr
    own_shell.run(f"operation resume {operation_id} --dry-run", ExitCode.DONE)
    result = json.loads(own_shell.run(f"operation resume {operation_id} --yes -o json", ExitCode.DONE).stdout)
    assert (result["operation_id"], result["verified"]) == (operation_id, True)
    assert own_shell.operations == [operation_id]
    events = [entry["event"] for entry in own_shell.shown(operation_id)["entries"]]
    assert (events[0], events[-1], events.count("taken_up")) == ("planned", "finished", 1)


def test_a_switchover_that_is_killed_while_it_drains_is_aborted(own_shell: Shell) -> None:
    operation_id = kill_while_it_drains(own_shell)
    planned = json.loads(own_shell.run(f"operation abort {operation_id} --dry-run -o json", ExitCode.DONE).stdout)
    assert role_of_east(own_shell) == ("frozen", 1)
    done = json.loads(own_shell.run(f"operation abort {operation_id} --yes -o json", ExitCode.DONE).stdout)
    assert done == planned
    assert [(one["kind"], one["stays"]) for one in done["items"]] == [("link_runs", False), ("source_thawed", False)]
    assert role_of_east(own_shell) == ("active", 2)
    own_shell.run(f"operation wait {operation_id}", ExitCode.REFUSED)
    own_shell.run("switchover --yes", ExitCode.DONE)
