"""What is said where the two sites of a command are one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_root import FILE


@pytest.mark.parametrize("command", ["drill", "switchover", "failover", "failback"])
def test_two_sites_that_are_one_are_said_to_be_that(tmp_path: Path, command: str) -> None:
    """A drill knew no such link, as though one could be declared."""
    file = tmp_path / "farshore.toml"
    file.write_text(FILE)
    said = CliRunner().invoke(cli, ["--config", str(file), command, "--from", "west", "--to", "west"])
    assert said.exit_code == ExitCode.USAGE
    assert "--from and --to both name west" in " ".join(said.stderr.split())
