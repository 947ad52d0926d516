"""What a drain waits for, as it waits: on a terminal only, since writes may be refused at the source meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn, TimeElapsedColumn

from deploy.cli.tables import counted
from failover.observing.sites import DrainStands, TellDrain
from failover.running.link_run import LinkMove


@contextmanager
def drain_bars(console: Console | None = None) -> Iterator[TellDrain]:
    """A line for each link that is drained, which is gone when that is over."""
    console = console or Console(stderr=True)
    columns = TextColumn("{task.description}"), TimeElapsedColumn()
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    tasks: dict[str, TaskID] = {}

    def tell(stands: DrainStands) -> None:
        if stands.is_over:
            if stands.link in tasks:
                bars.remove_task(tasks.pop(stands.link))
            if not tasks:
                bars.stop()
            return
        if not tasks:
            bars.start()
        if stands.link not in tasks:
            tasks[stands.link] = bars.add_task("", total=None)
        bars.update(tasks[stands.link], description=drain_line(stands), refresh=True)

    try:
        yield tell
    finally:
        bars.stop()


def drain_line(stands: DrainStands) -> str:
    """What is waited for, and for how long at most."""
    where = counted(stands.partitions, "partition")
    waits = f"{counted(stands.offsets, 'offset')} in {where} to come"
    waits = waits if stands.offsets else "all is there; until nothing more comes"
    return f"draining {stands.link}: {waits}; given up in {stands.seconds_left:.0f} s"


def told_by(tell: TellDrain, moves: Iterable[LinkMove]) -> list[LinkMove]:
    """The moves, whose drains are told."""
    return [replace(move, sites=replace(move.sites, tell_drain=tell)) for move in moves]
