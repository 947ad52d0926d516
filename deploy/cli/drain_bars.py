"""What a drain waits for, as it waits: writes may be refused at the source meanwhile."""

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
    """A line for each link that is drained; on a terminal it is kept as it stands, and gone when that is over."""
    console = console or Console(stderr=True)
    columns = TextColumn("{task.description}"), TimeElapsedColumn()
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    tasks: dict[str, TaskID] = {}
    logged: set[str] = set()

    def log(stands: DrainStands) -> None:
        if not stands.is_over and stands.link not in logged:
            logged.add(stands.link)
            console.print(drain_line(stands), markup=False, highlight=False, soft_wrap=True)

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
        yield tell if console.is_terminal else log
    finally:
        bars.stop()


def drain_line(stands: DrainStands) -> str:
    """What is waited for, and for how long at most."""
    held = f"{counted(stands.offsets, 'offset')} in {counted(stands.partitions, 'partition')}"
    until = f"given up in {stands.seconds_left:.0f} s"
    if stands.is_moved:
        waits = f"{held} are in transactions that have not ended" if stands.offsets else "offsets of groups are pending"
        return f"settling {stands.link}, which was moved before: {waits}; {until}"
    waits = f"{held} to come" if stands.offsets else "all is there; until nothing more comes"
    return f"draining {stands.link}: {waits}; {until}"


def told_by(tell: TellDrain, moves: Iterable[LinkMove]) -> list[LinkMove]:
    """The moves, whose drains are told."""
    return [replace(move, sites=replace(move.sites, tell_drain=tell)) for move in moves]
