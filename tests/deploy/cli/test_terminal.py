"""Output forms, consent, exit codes, signals."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from broker.base.documents import iso_time, to_document
from broker.base.durations import human_seconds
from broker.client.errors import ConnectionLost
from deploy.cli.tables import cell, human_bytes
from deploy.cli.terminal import CommandRefused, ExitCode, confirm_plan, emit, output_option, progress, run_async
from failover.errors import GateRefused
from mirror.errors import LinkFenced


class Colour(StrEnum):
    RED = "red"


class Where(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True)
class Row:
    where: Where
    seen_at_ms: int | None
    first_timestamp_ms: int
    lag_ms: int
    size_bytes: int
    colour: Colour


ROW = Row(Where("t", 3), 1_356_998_400_000, -1, 1500, 2048, Colour.RED)
DOCUMENT = {
    "where": {"topic": "t", "partition": 3},
    "seen_at": "2013-01-01T00:00:00.000Z",
    "first_timestamp": None,
    "lag_seconds": 1.5,
    "size_bytes": 2048,
    "colour": "red",
}


def test_documents_have_times_seconds_and_bytes() -> None:
    assert to_document(ROW) == DOCUMENT
    moment = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)
    plain = to_document([moment, timedelta(seconds=90), Path("/x"), uuid.UUID(int=1), b"k", {"b", "a"}])
    assert plain[:4] == ["2013-01-01T05:15:00.000Z", 90.0, "/x", "00000000-0000-0000-0000-000000000001"]
    assert plain[4:] == ["k", ["a", "b"]]
    assert iso_time(10**18) == str(10**18)


def printed(main: Callable[[], None], *arguments: str, text: str | None = None) -> Result:
    command = main if isinstance(main, click.Command) else click.command()(main)
    return CliRunner().invoke(command, list(arguments), input=text)


def test_json_and_yaml_are_one_document() -> None:
    listed = json.loads(printed(lambda: emit([ROW], "json")).stdout)
    assert listed == {"schema_version": 1, "items": [DOCUMENT]}
    single = json.loads(printed(lambda: emit(ROW, "json")).stdout)
    assert single == {"schema_version": 1} | DOCUMENT
    assert yaml.safe_load(printed(lambda: emit([ROW], "yaml")).stdout) == listed


def test_tables_show_units_for_people() -> None:
    shown = printed(lambda: emit([ROW], "table")).stdout
    assert "2.0 KiB" in shown
    assert "1.5 s" in shown
    assert "size" in shown
    assert "none" in printed(lambda: emit([], "table")).stdout
    one = printed(lambda: emit({"link": "l", "rows": [{"a": 1}]}, "table")).stdout
    assert "link" in one
    assert "rows" in one
    assert "orders-[a-z]" in printed(lambda: emit([{"topics": ["orders-[a-z]"]}], "table")).stdout


def test_cells() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1536, 3 << 30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
    assert [human_seconds(s) for s in (0.0421, 2, 75.2, 7300, 4e8)] == [
        "42 ms",
        "2.0 s",
        "1 min 15 s",
        "2 h 1 min",
        "4,629.6 days",
    ]
    assert [cell("", value) for value in (None, True, [], ["a", 1], {"a": None})] == ["-", "yes", "-", "a, 1", "a=-"]


def test_the_output_option_refuses_other_forms() -> None:
    @click.command()
    @output_option
    def show(output: str) -> None:
        emit({"a": 1}, output)

    assert json.loads(printed(show, "-o", "json").stdout)["a"] == 1
    assert printed(show, "-o", "xml").exit_code == ExitCode.USAGE


def test_without_a_terminal_consent_must_be_given_by_name() -> None:
    refused = printed(lambda: confirm_plan([ROW], False))
    assert refused.exit_code == ExitCode.REFUSED
    assert "--yes" in refused.stderr
    assert refused.stdout == ""
    agreed = printed(lambda: confirm_plan([ROW], True))
    assert agreed.exit_code == 0
    assert "red" in agreed.stderr


def test_a_no_on_a_terminal_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> None:
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        confirm_plan("delete all", False)

    assert printed(ask, text="n\n").exit_code == ExitCode.REFUSED
    assert printed(ask, text="y\n").exit_code == 0


def test_a_plan_in_words_fits_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plan = f"switchover-east-west-20261127T222508580182 moves {'east-west, ' * 9}and was cut short in its step drain"
    confirm_plan(plan, True)
    assert capsys.readouterr().err == f"{plan}\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    confirm_plan(plan, True)
    assert max(map(len, capsys.readouterr().err.splitlines())) <= 100


def test_errors_are_two_lines_and_an_exit_code() -> None:
    async def fail() -> None:
        raise ConnectionLost("the connection is gone")

    async def fail_in_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.Event().wait())

    for main in (fail, fail_in_group):
        result = printed(lambda main=main: run_async(main()))  # type: ignore[misc]  # its default is not inferred
        assert result.exit_code == ExitCode.ERROR
        assert result.stderr.splitlines()[0] == "error: the connection is gone"
        assert result.stderr.splitlines()[1].startswith("hint: ")
        assert "Traceback" not in result.output


def test_an_error_carries_its_own_exit_code() -> None:
    async def fail() -> None:
        raise GateRefused("not now", "later")

    assert printed(lambda: run_async(fail())).exit_code == 3
    assert LinkFenced("x").hint


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "var/audit"), "error: var/audit: No space left on device"),
        (TimeoutError(), "error: timed out"),
        (PermissionError(13, "Permission denied", "/journal"), "error: /journal: Permission denied"),
    ],
)
def test_what_the_system_refuses_is_told(error: OSError, words: str) -> None:
    async def fail() -> None:
        async with asyncio.TaskGroup():
            raise error

    result = printed(lambda: run_async(fail()))
    assert result.exit_code == ExitCode.ERROR
    assert result.stderr.splitlines()[0] == words
    assert result.stderr.splitlines()[1].startswith("hint: ")


def test_a_bug_is_not_dressed_up() -> None:
    async def bug() -> None:
        raise KeyError("oops")

    result = printed(lambda: run_async(bug()))
    assert isinstance(result.exception, KeyError)
    assert not isinstance(result.exception, CommandRefused)


def test_progress_is_silent_without_a_terminal() -> None:
    def work() -> None:
        with progress() as bars:
            task = bars.add_task("mirroring", total=10)
            bars.update(task, completed=10)

    assert printed(work).output == ""


SCRIPT = """
import asyncio, sys
from deploy.cli.terminal import run_async
async def main():
    print("ready", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("rolled back", flush=True)
run_async(main(), service=sys.argv[1] == "service")
"""


@pytest.mark.parametrize(
    ("kind", "number", "code"),
    [("command", signal.SIGINT, 130), ("command", signal.SIGTERM, 130), ("service", signal.SIGTERM, 0)],
)
def test_signals_cancel_and_roll_back(kind: str, number: int, code: int) -> None:
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, kind],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "rolled back\n"
        assert process.wait(60) == code


ASKS = """
import asyncio, sys
from deploy.cli.terminal import confirm_plan, run_async, told

async def main():
    confirm_plan(None, False, question="Move?")

with told():
    run_async(main())
print("moved")
"""


@pytest.mark.parametrize(
    ("typed", "exit_code", "said"),
    [
        (b"y\n", ExitCode.DONE, "moved"),
        (b"n\n", ExitCode.REFUSED, "nothing was changed: the answer was no"),
        (b"\x04", ExitCode.REFUSED, "nothing was changed: the answer was no"),
        (b"\x03", ExitCode.INTERRUPTED, "nothing was changed: interrupted"),
    ],
)
def test_a_question_is_answered_or_ended_while_an_event_loop_waits_behind_it(
    typed: bytes, exit_code: ExitCode, said: str
) -> None:
    code = f"import click\n@click.command()\ndef main():\n    exec({ASKS!r}, {{}})\nmain()"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", code])
    waiting = select.poll()
    waiting.register(terminal, select.POLLIN)
    shown = b""
    with suppress(OSError):  # the terminal's other end is gone
        while True:
            # Typed again after a while: a signal between Python's last look for one and its wait for keys is not seen.
            if not waiting.poll(2_000) and b"Move?" in shown:
                os.write(terminal, typed)
                continue
            piece = os.read(terminal, 1000)
            if b"Move?" in piece:
                os.write(terminal, typed)
            shown += piece
            if not piece:
                break
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == exit_code
    assert said in shown.decode()
