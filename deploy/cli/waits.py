"""What a command waits for, told while it waits: who sees nothing for seconds may think that it hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import click
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from deploy.cli.lines import filled
from failover.observing.sites import Watch

UNTOLD_S: Final = 0.5
"""What takes no longer is not worth a line."""


@asynccontextmanager
async def told_if_long(what: str, console: Console | None = None, after_s: float = UNTOLD_S) -> AsyncIterator[None]:
    """On stderr: a terminal shows a line until it is over, a log gets one."""
    console = console or Console(stderr=True)
    columns = TextColumn("{task.description}"), TimeElapsedColumn()
    bars = Progress(*columns, console=console, transient=True)

    def tell() -> None:
        if console.is_terminal:
            bars.add_task(what, total=None)
            bars.start()
        else:
            console.print(what, markup=False, highlight=False, soft_wrap=True)

    telling = asyncio.get_running_loop().call_later(after_s, tell)
    try:
        yield
    finally:
        telling.cancel()
        if console.is_terminal:
            bars.stop()


def told_calls(*sites: str) -> AbstractAsyncContextManager[None]:
    """By their names: whom a command calls, where that takes long."""
    return told_if_long(f"calling {' and '.join(sites)}")


def tell_watch(watch: Watch) -> None:
    """On stderr, before it is waited: a line, beside whatever line a terminal has then."""
    line = f"watching for {watch.seconds:.0f} s whether {watch.who} still carries {watch.operation_id} on"
    click.echo(filled(line), err=True)
