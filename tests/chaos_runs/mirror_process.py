"""The mirror as an operator has it: a configuration file, `farshore mirror run` as a process, the other commands."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirror.link import Link
from tests.chaos_runs.warm_commands import Said, WarmCommands
from tests.forking import ForkedProcess, start_farshore
from tests.interop.servers import ROOT

STOP_TIMEOUT_S = 20.0
UNEXPECTED = ("Traceback", "Exception", "AssertionError", "Unclosed", "never awaited")


@dataclass
class Operator:
    """One configuration file with one link, and what can be done with it. `name` tells several files apart.

    `back`: the file declares this link, too, which goes the other way; another mirror runs it.
    """

    link: Link
    folder: Path
    commands: WarmCommands
    name: str = "farshore"
    children: list[ForkedProcess] = field(default_factory=list)
    back: Link | None = None

    @property
    def config(self) -> Path:
        return self.folder / f"{self.name}.toml"

    @property
    def log(self) -> Path:
        """What all mirror processes of this file said."""
        return self.folder / f"{self.name}-mirror.log"

    def write_config(self) -> None:
        lines = [f"state_dir = {json.dumps(str(self.folder / self.name))}"]
        for site in (self.link.source, self.link.target):
            lines += [f"[sites.{site.name}]", f"bootstrap_servers = {json.dumps(site.bootstrap_servers)}"]
            mapped = ", ".join(f"{json.dumps(at)} = {json.dumps(to)}" for at, to in site.address_map.items())
            lines += [f"address_map = {{ {mapped} }}"]
        for link in [self.link, *([self.back] if self.back is not None else [])]:
            lines += ["[[links]]", f'name = "{link.name}"', f'source = "{link.source.name}"']
            lines += [f'target = "{link.target.name}"', f"topics = {json.dumps(list(link.topics))}"]
            lines += [f"groups = {json.dumps(list(link.groups))}"]
        self.config.write_text("\n".join(lines) + "\n")

    def start_mirror(self) -> ForkedProcess:
        only = ["--link", self.link.name] if self.back is not None else []
        child = start_farshore(["--config", str(self.config), "mirror", "run", *only], ROOT, self.log)
        self.children.append(child)
        return child

    def kill_mirrors(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()
        self.children.clear()

    def stop_mirrors(self) -> None:
        """As an operator stops them. AssertionError when one does not end by itself."""
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.wait(STOP_TIMEOUT_S)
        self.children.clear()

    def signal_mirrors(self, number: signal.Signals) -> None:
        for child in self.children:
            os.kill(child.pid, number)

    def farshore(self, *arguments: str) -> Said:
        """Run a command to its end, whatever its exit code."""
        return self.commands.run(["--config", str(self.config), *arguments])

    def as_printed(self, command: str, *more: str) -> Said:
        """Run a command that farshore printed, word by word."""
        words = shlex.split(command)
        assert words[0] == "farshore", f"not a command of farshore: {command}"
        return self.farshore(*words[1:], *more)

    def status(self, *more: str) -> dict[str, Any]:
        """The link in `farshore status -o json`."""
        said = self.farshore("status", "--link", self.link.name, "-o", "json", *more)
        assert said.code in (0, 4), f"status ended with {said.code}: {said.err}"
        found = json.loads(said.out)["items"]
        (link,) = found
        return dict(link)

    def unexpected_lines(self) -> list[str]:
        """Lines of the mirrors' logs that no mirror should say."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [line for line in text.splitlines() if any(word in line for word in UNEXPECTED)]

    def ended_mirrors(self) -> Sequence[int]:
        """Exit codes of mirrors that ended by themselves."""
        return [code for child in self.children if (code := child.poll()) is not None]
