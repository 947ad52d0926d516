"""Whoever reads a command's words may leave: it goes on to its own end, and its exit code is its own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.draining import drain_held_up
from tests.deploy.cli.test_failover import CONFIG, DEADLINE_S, ROOT, Shell, is_draining, two_sites
from tests.interop.servers import wait_until
from tests.ports import free_port

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def unread(argv: Sequence[str], folder: Path) -> int:
    """Run it with stdout and stderr into a pipe of which only the first byte is read (`| head -1`) -> its exit code."""
    reader, writer = os.pipe()
    with subprocess.Popen(
        argv, cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer
    ) as process:
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        return process.wait(DEADLINE_S)


@pytest.fixture
def nowhere(tmp_path: Path) -> list[str]:
    """The beginning of a command, with a file of two sites that do not answer."""
    file = tmp_path / "farshore.toml"
    file.write_text(CONFIG.format(east=f"127.0.0.1:{free_port()}", west=f"127.0.0.1:{free_port()}"))
    return [sys.executable, "-m", "deploy.cli", "--config", str(file)]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("status", ExitCode.FINDINGS),
        ("status -o json", ExitCode.FINDINGS),
        ("config validate", ExitCode.DONE),
        ("--help", ExitCode.DONE),
        ("topic list --site east", ExitCode.ERROR),
        ("topic list --site", ExitCode.USAGE),
    ],
)
def test_an_exit_code_is_the_commands_own_also_where_nobody_reads_on(
    nowhere: list[str], tmp_path: Path, line: str, code: ExitCode
) -> None:
    assert unread([*nowhere, *line.split()], tmp_path) == code


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "<&- 1>&- 2>&-"])
def test_so_it_is_where_a_stream_was_closed_from_the_beginning(nowhere: list[str], closed: str) -> None:
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *nowhere, "status"], env=ENVIRONMENT, check=False)
    assert done.returncode == ExitCode.FINDINGS


def test_what_shows_itself_for_ever_ends_with_its_reader(nowhere: list[str], tmp_path: Path) -> None:
    assert unread([*nowhere, "status", "--watch"], tmp_path) == ExitCode.DONE


def test_what_a_file_cannot_take_is_an_error_as_ever(nowhere: list[str]) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >/dev/full', "sh", *nowhere, "status", "-o", "json"],
        env=ENVIRONMENT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == ExitCode.ERROR
    assert "No space left on device" in done.stderr


def test_a_switchover_that_nobody_reads_comes_to_its_verified_end(tmp_path: Path) -> None:
    with two_sites(tmp_path) as shell:
        assert unread(shell.argv("switchover --yes"), shell.folder) == ExitCode.DONE
        (operation_id,) = shell.operations
        assert shell.shown(operation_id)["state"] == "verified"


def test_a_terminal_that_goes_away_is_as_ctrl_c_in_the_journal(tmp_path: Path) -> None:
    """It was killed, and others waited for its lease."""
    with two_sites(tmp_path) as shell, drain_held_up(shell.east.bootstrap):
        process, keyboard = at_a_terminal(shell, "switchover --yes --timeout 170s")
        wait_until(lambda: is_draining(shell, []), DEADLINE_S, "the drain to start")
        os.close(keyboard)
        assert process.wait(DEADLINE_S) == ExitCode.INTERRUPTED
        (operation_id,) = shell.operations
        assert shell.shown(operation_id)["state"] == "given_up"


def at_a_terminal(shell: Shell, line: str) -> tuple[subprocess.Popen[bytes], int]:
    """A terminal of its own, which goes away when the other end is closed -> and that."""
    keyboard, terminal = pty.openpty()
    code = (
        "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); "  # these tests may run under nohup
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    argv = [sys.executable, "-c", code, *shell.argv(line)]
    process = subprocess.Popen(
        argv,
        cwd=shell.folder,
        env=ENVIRONMENT,
        start_new_session=True,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    return process, keyboard


def test_nohup_holds(tmp_path: Path) -> None:
    with two_sites(tmp_path) as shell:
        with drain_held_up(shell.east.bootstrap):
            argv = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *shell.argv("switchover --yes --timeout 170s")]
            process = subprocess.Popen(argv, cwd=shell.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL)
            wait_until(lambda: is_draining(shell, []), DEADLINE_S, "the drain to start")
            process.send_signal(signal.SIGHUP)
        assert process.wait(DEADLINE_S) == ExitCode.DONE
        assert json.loads(shell.run("operation list -o json", ExitCode.DONE).stdout)["items"][0]["state"] == "verified"


BLIND = """
from deploy.cli.streams import outlive_readers
from deploy.cli.terminal import confirm_plan
import click
outlive_readers()
click.command(lambda: confirm_plan("a plan", False))()
"""


def test_nobody_says_yes_to_what_he_cannot_read() -> None:
    keyboard, terminal = pty.openpty()
    os.write(keyboard, b"y\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", BLIND], env=ENVIRONMENT, stdin=terminal, stderr=writer, check=False)
    for descriptor in (keyboard, terminal, writer):
        os.close(descriptor)
    assert done.returncode == ExitCode.REFUSED
