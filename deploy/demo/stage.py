"""The demo's stage: a scratch folder, two sites, one mirror, and the clock and voice of the story."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from broker.client.site import Site
from deploy.demo.results import DemoResult, StepTime
from deploy.errors import DemoFailed
from deploy.local.processes import Processes, free_ports, port_answers, services
from mirror.api import Link

LINK = "east-west"
FLIGHTS = "flights"
LIVE = "departures"
GROUP = "analysts"
PARTITIONS = 4
CONFIG = """
state_dir = "state"

[sites.east]
bootstrap_servers = "127.0.0.1:{east}"
[sites.east.broker]
data_dir = "east"

[sites.west]
bootstrap_servers = "127.0.0.1:{west}"
[sites.west.broker]
data_dir = "west"

[[links]]
name = "{link}"
source = "east"
target = "west"
topics = ["{flights}", "{live}"]
topic_names = "same"
groups = [".*"]

[audit]
jars = {jars}
"""


@dataclass(slots=True)
class Stage:
    """What every scene gets: where things run, and where its findings go."""

    processes: Processes
    link: Link
    east_port: int
    west_port: int
    console: Console
    result: DemoResult

    @property
    def east(self) -> str:
        return self.link.source.bootstrap_servers

    @property
    def west(self) -> str:
        return self.link.target.bootstrap_servers

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step, and say how long it took."""
        self.console.print(f"[bold cyan]▸[/] {name}")
        started_s = time.monotonic()
        yield
        seconds = time.monotonic() - started_s
        self.result.steps.append(StepTime(name, seconds))
        self.console.print(f"  [green]✓[/] {seconds:.1f} s")

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar; yields the function that sets how much is done."""
        shown = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*shown, console=self.console, disable=not self.console.is_terminal) as progress:
            task = progress.add_task(what, total=total)
            yield lambda completed: progress.update(task, completed=completed)

    @asynccontextmanager
    async def within(self, timeout_s: float, what: str) -> AsyncIterator[None]:
        """Give the body so long until `what`. Raises DemoFailed with the end of the mirror's log."""
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError as error:
            told = self.processes.log_tail("mirror")
            raise DemoFailed(f"waited {timeout_s:.0f} s in vain until {what}; the mirror: {told}") from error

    async def command(self, *arguments: str, expect: int = 0) -> Any:
        """Run a `farshore` command with `-o json` and return its document."""
        self.console.print(f"  [dim]$ farshore {' '.join(arguments)}[/]")
        return json.loads((await self.processes.run(*arguments, "-o", "json", expect=expect)).stdout)

    async def show(self, *arguments: str) -> None:
        """Run a `farshore` command and show what it prints."""
        self.console.print(f"  [dim]$ farshore {' '.join(arguments)}[/]")
        self.console.print((await self.processes.run(*arguments)).stdout.rstrip(), highlight=False, markup=False)

    async def start_east(self) -> None:
        """Start the east broker; also again after it was killed."""
        await self.processes.start("east", ["broker", "run", "--site", "east"], lambda: port_answers(self.east_port))

    async def start_west(self) -> None:
        await self.processes.start("west", ["broker", "run", "--site", "west"], lambda: port_answers(self.west_port))

    async def start_mirror(self) -> None:
        await self.processes.start("mirror", ["mirror", "run", "--link", LINK], lambda: True)


def spark_jars() -> list[str]:
    """The connector's jars where `make demo` has put them; empty elsewhere, and Spark then fetches them itself."""
    return [str(jar.resolve()) for jar in sorted(Path(".cache/spark", version("pyspark")).glob("*.jar"))]


@asynccontextmanager
async def stage(console: Console, result: DemoResult) -> AsyncIterator[Stage]:
    """Set everything up; take everything down again, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="farshore-demo-") as folder:
        east_port, west_port = free_ports(2)
        config = Path(folder) / "farshore.toml"
        config.write_text(
            CONFIG.format(
                east=east_port, west=west_port, link=LINK, flights=FLIGHTS, live=LIVE, jars=json.dumps(spark_jars())
            )
        )
        link = Link(
            name=LINK,
            source=Site("east", f"127.0.0.1:{east_port}"),
            target=Site("west", f"127.0.0.1:{west_port}"),
            topics=(FLIGHTS, LIVE),
            groups=(".*",),
        )
        async with services(config, Path(folder), console.width - 2) as processes:
            yield Stage(processes, link, east_port, west_port, console, result)
