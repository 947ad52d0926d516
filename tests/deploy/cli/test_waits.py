"""Who waits for a site sees within a second what for, on a terminal and in a log."""

from __future__ import annotations

import asyncio
import socket
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode
from deploy.cli.waits import told_if_long

WHAT = "calling east and west"


async def waited(told: StringIO, *, is_terminal: bool, after_s: float = 0.0) -> str:
    async with told_if_long(WHAT, Console(file=told, force_terminal=is_terminal, width=80), after_s):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return told.getvalue()


async def test_a_terminal_shows_a_line_that_is_gone_when_it_is_over() -> None:
    told = StringIO()
    assert WHAT in await waited(told, is_terminal=True)
    assert told.getvalue().endswith("\x1b[2K"), "the line is cleared"


async def test_a_log_gets_one_line() -> None:
    told = StringIO()
    assert await waited(told, is_terminal=False) == f"{WHAT}\n" == told.getvalue()


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_what_takes_no_time_is_not_told(is_terminal: bool) -> None:
    told = StringIO()
    await waited(told, is_terminal=is_terminal, after_s=3_600.0)
    assert WHAT not in told.getvalue()


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("failback --link east-west --dry-run", WHAT),
        ("failback --from east --to west --dry-run", WHAT),
        ("operation resume switchover-1 --yes", "calling west"),
        ("operation list", "calling west"),
        ("switchover --dry-run", WHAT),
        ("stranded list", WHAT),
        ("stranded export --to saved", WHAT),
        ("drill", WHAT),
    ],
)
def test_who_calls_sites_that_say_nothing_says_whom(tmp_path: Path, command: str, what: str) -> None:
    """Nothing was to be seen until they were given up."""
    with socket.create_server(("127.0.0.1", 0)) as east, socket.create_server(("127.0.0.1", 0)) as west:
        at = {"east": east.getsockname()[1], "west": west.getsockname()[1]}
        sites = "".join(f'[sites.{name}]\nbootstrap_servers = "127.0.0.1:{port}"\n' for name, port in at.items())
        link = '[[links]]\nname = "east-west"\nsource = "east"\ntarget = "west"\ntopics = ["flights"]\n'
        (config := tmp_path / "farshore.toml").write_text(sites + link)
        ended = CliRunner().invoke(cli, ["--config", str(config), *command.split()])
    assert ended.exit_code not in (ExitCode.DONE, ExitCode.USAGE), ended.output
    assert ended.stderr.splitlines()[0] == what
