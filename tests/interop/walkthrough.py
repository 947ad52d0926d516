"""A document whose commands are typed in their order, as a reader would, and whose outputs are compared.

A block `console` has commands behind `$ ` and what each prints. `…` stands for what differs: within a line for any
text, alone in a line for any lines. A comment before the block says where it is typed (see `Place`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from broker.base.children import die_with_parent
from tests.interop.servers import wait_until

BLOCK: Final = re.compile(r"(?:<!-- (?P<place>[^>]*) -->\n)?```(?:console|text)\n(?P<body>.*?)```", re.DOTALL)
ANY: Final = "…"
SENTINEL: Final = "~~~ the prompt again ~~~"
WARNING: Final = re.compile(r"\bWARN\b")
"""Kafka's tools print these as their logger is set up; they are no part of a tool's output."""
PATIENCE_S: Final = 180.0
AGAIN_S: Final = 0.5


class Place(StrEnum):
    """Where and how a block is typed."""

    SECOND = ""
    """In the one shell of the second terminal."""
    REPEATED = "repeat until"
    """There, again and again until it prints what it should."""
    FIRST = "first terminal"
    """A service in a terminal of its own; what it prints comes while it runs."""
    THIRD = "third terminal"
    TOLD = "in the first terminal"
    """Nothing is typed: the service there says it."""
    STARTED_AGAIN = "Ctrl-C in both, then first terminal"


@dataclass(frozen=True, slots=True)
class Step:
    """A command, "" where nothing is typed, and what comes then."""

    place: Place
    command: str
    output: str


def steps(document: str) -> Iterator[Step]:
    for block in BLOCK.finditer(document):
        place, body = Place(block["place"] or ""), block["body"]
        if place is Place.TOLD:
            yield Step(place, "", body)
            continue
        for typed in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, output = typed.partition("\n")
            yield Step(place, command, output)


def comes_as(expected: str, printed: str, *, so_far: bool = False) -> bool:
    """Whether what was printed is what should be; `so_far`: or more behind it, and anything before."""
    lines = [line if line == ANY else re.escape(line).replace(ANY, "[^\n]*?") + "\n" for line in _lines(expected)]
    pattern = "".join("(?:[^\n]*\n)*?" if line == ANY else line for line in lines)
    text = "".join(f"{line}\n" for line in _lines(printed))
    return re.search(rf"^{pattern}" if so_far else rf"\A{pattern}\Z", text, re.MULTILINE) is not None


def _lines(text: str) -> list[str]:
    """Without what is layout: spaces, how long a table's rules are, empty lines; and without warnings of a logger."""
    plain = (re.sub(r"─+", "─", re.sub(r"\s+", " ", line)).strip() for line in text.splitlines())
    return [line for line in plain if line and not WARNING.search(line)]


class Shell:
    """The second terminal: one bash, which keeps its folder and variables."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent,
        )

    def type(self, command: str) -> str:
        """What it prints, on both outputs."""
        reader, writer = self._process.stdout, self._process.stdin
        assert reader is not None
        assert writer is not None
        writer.write(f"{command}\necho '{SENTINEL}'\n")
        writer.flush()
        printed = list(iter(reader.readline, f"{SENTINEL}\n"))
        return "".join(printed)

    def close(self) -> None:
        self._process.communicate()


class Service:
    """A terminal with a command in the foreground."""

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                preexec_fn=die_with_parent,
            )

    def wait_for(self, expected: str) -> None:
        """Until it has printed that. AssertionError with all that it printed."""

        def printed_or_ended() -> bool:
            return comes_as(expected, self._log.read_text(), so_far=True) or self._process.poll() is not None

        wait_until(printed_or_ended, PATIENCE_S, f"\n{expected}\nfrom a terminal")
        assert comes_as(expected, self._log.read_text(), so_far=True), self._log.read_text()

    def interrupt(self) -> None:
        """Ctrl-C; it ends as one that was told to."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(PATIENCE_S) == 0, self._log.read_text()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)


class Reader:
    """Does what a document says, in a folder; `close` ends what is left."""

    def __init__(self, folder: Path, programs: Path, workplace: Path) -> None:
        """`programs`: where commands are looked for first. Services begin in the folder, the third terminal's in the
        `workplace`.
        """
        self._folder, self._workplace = folder, workplace
        self._environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "120"}
        self._environment.pop("JDK_JAVA_OPTIONS", None)  # a JVM says that it found them, among what a tool prints
        self._shell = Shell(folder, self._environment)
        self._services: dict[Place, Service] = {}

    def do(self, step: Step) -> None:
        """AssertionError where something else comes than the document says."""
        match step.place:
            case Place.FIRST | Place.STARTED_AGAIN | Place.THIRD:
                self.interrupt_all() if step.place is Place.STARTED_AGAIN else None
                self._serve(step)
            case Place.TOLD:
                self._services[Place.FIRST].wait_for(step.output)
            case _:
                self._type(step)

    def _serve(self, step: Step) -> None:
        place = Place.THIRD if step.place is Place.THIRD else Place.FIRST
        where = self._workplace if place is Place.THIRD else self._folder
        log = self._folder / f"{place.replace(' ', '-')}.log"
        self._services[place] = service = Service(step.command, where, self._environment, log)
        service.wait_for(step.output)

    def _type(self, step: Step) -> None:
        deadline_s = time.monotonic() + (PATIENCE_S if step.place is Place.REPEATED else 0)
        while True:
            printed = self._shell.type(step.command)
            if comes_as(step.output, printed):
                return
            assert time.monotonic() < deadline_s, f"$ {step.command}\n{printed}\nis not\n{step.output}"
            time.sleep(AGAIN_S)

    def interrupt_all(self) -> None:
        """Those that were started last, first."""
        while self._services:
            self._services.popitem()[1].interrupt()

    def close(self) -> None:
        self._shell.close()
        for service in self._services.values():
            service.kill()


def write_program(place: Path, name: str, command: Sequence[str]) -> None:
    """A program of this name, which passes its arguments on."""
    place.mkdir(parents=True, exist_ok=True)
    quoted = " ".join(f"'{word}'" for word in command)
    (place / name).write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
    (place / name).chmod(0o755)
