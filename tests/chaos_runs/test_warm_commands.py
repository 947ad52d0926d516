"""A command in a forked process answers as one that was started by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.chaos_runs.warm_commands import WarmCommands
from tests.interop.servers import ROOT


def test_a_forked_command_says_what_a_started_one_says(tmp_path: Path) -> None:
    missing = ["--config", str(tmp_path / "none.toml"), "status"]
    wrong = ["link", "resume", "--adopt", "--start-at", "yesterday"]
    with WarmCommands() as commands:
        for arguments in (missing, wrong, ["link", "resume", "--help"]):
            started = subprocess.run(
                [sys.executable, "-m", "deploy.cli", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
            )
            said = commands.run(arguments)
            assert (said.code, said.out, said.err) == (started.returncode, started.stdout, started.stderr)
