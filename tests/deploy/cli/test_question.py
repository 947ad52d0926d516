"""While a question stands at the terminal the world goes on: what was said yes to must still be so."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.base.children import die_with_parent
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import DEADLINE_S, ROOT, Shell, append_records, two_sites, values_at
from tests.interop.servers import wait_until


@pytest.fixture
def own_shell(tmp_path: Path) -> Iterator[Shell]:
    with two_sites(tmp_path) as shell:
        yield shell


def asked(shell: Shell, line: str, question: str, meanwhile: Callable[[], None]) -> subprocess.CompletedProcess[str]:
    """Run at a terminal, let `meanwhile` happen while the question stands there, and say yes."""
    keyboard, terminal = pty.openpty()
    told = shell.folder / "asked.stderr"
    try:
        with told.open("w") as stderr, (shell.folder / "asked.stdout").open("w") as stdout:
            process = subprocess.Popen(
                shell.argv(line),
                cwd=shell.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=terminal,
                stdout=stdout,
                stderr=stderr,
                preexec_fn=die_with_parent,
            )
            wait_until(lambda: question in told.read_text(), DEADLINE_S, "the question")
            meanwhile()
            os.write(keyboard, b"y\n")
            code = process.wait(DEADLINE_S)
    finally:
        os.close(keyboard)
        os.close(terminal)
    return subprocess.CompletedProcess(line, code, (shell.folder / "asked.stdout").read_text(), told.read_text())


def test_a_source_that_is_back_while_the_question_stands_there_is_not_failed_over_from(own_shell: Shell) -> None:
    """The plan said that it is dead; meanwhile it took records that the move would have left behind unsaid."""
    own_shell.east.kill9()

    def come_back() -> None:
        own_shell.east.restart()
        append_records(own_shell.east, "late", 3)
        wait_until(lambda: values_at(own_shell.west) == ["late"] * 3, DEADLINE_S, "them to be mirrored")

    refused = asked(own_shell, "failover --allow-data-loss -o json", "Lose what was not mirrored and move", come_back)
    assert refused.returncode == ExitCode.REFUSED, refused.stderr
    assert "source_finding east-west: dead -> alive" in " ".join(refused.stderr.split())
    assert "nothing was changed" in refused.stderr
    reasons = [refusal["reason"] for refusal in json.loads(refused.stdout)["refusals"]]
    assert reasons == ["source_answers", "world_changed"]
    assert own_shell.operations == []
    moved = asked(own_shell, "switchover -o json", "Move to west?", lambda: append_records(own_shell.east, "more", 2))
    assert moved.returncode == ExitCode.DONE, moved.stderr
    assert json.loads(moved.stdout)["verified"] is True
    assert values_at(own_shell.west) == ["late"] * 3 + ["more"] * 2, "that records come is expected"
