"""What a move that Ctrl-C ended amid its steps says: how it stands, and how to go on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import click

from broker.base.ending import to_its_end
from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.site import Site
from deploy.cli.lines import filled
from deploy.cli.terminal import CommandRefused, ExitCode, tell_error
from failover.journal.standing import OperationStanding, OperationState, standing_of
from failover.observing.contact import CLIENT_ID
from failover.running.taking_up import find_operation
from mirror.api import STATUS_LIMITS

LOOK_S = 10.0
"""Who pressed Ctrl-C waits no longer for that word."""


@dataclass(slots=True)
class Begun:
    """What a command has begun so far, if anything."""

    operation_id: str = ""


@asynccontextmanager
async def told_where_interrupted(target: Site) -> AsyncIterator[Begun]:
    """`target` keeps the journal of what is begun."""
    begun = Begun()
    try:
        yield begun
    except asyncio.CancelledError:
        await to_its_end(_tell(target, begun.operation_id))
        raise


async def _tell(target: Site, operation_id: str) -> None:
    if sys.stderr.isatty():
        click.echo(err=True)  # behind the terminal's own ^C
    standing = None
    try:
        if operation_id:
            standing = await _look(target, operation_id)
    except (FarshoreError, TimeoutError) as error:
        said = f"interrupted; how {operation_id} stands is not known: {str(error) or 'no answer in time'}"
        _say(said, f"farshore operation show {operation_id}")
        return
    if standing is None:
        _say("interrupted before anything was begun: nothing was changed")
        return
    show = f"farshore operation show {operation_id}"
    match standing.state:
        case OperationState.GIVEN_UP:
            said = f"given up in its step {standing.step}; what it had changed is undone, and nothing was moved"
            _say(f"interrupted: {operation_id} was {said}: {standing.source} is as it was before", show)
        case OperationState.CUT_SHORT:
            said = f"cut short in its step {standing.step}, and may have moved a part"
            resume = f"farshore operation resume {operation_id}"
            _say(f"interrupted: {operation_id} was {said}; nobody carries it on now", resume)
        case state:
            _say(f"interrupted: {operation_id} is {state.value.replace('_', ' ')}", show)


async def _look(target: Site, operation_id: str) -> OperationStanding | None:
    async with timeout(LOOK_S), Cluster(target, client_id=CLIENT_ID, limits=STATUS_LIMITS) as cluster:
        log = await find_operation(cluster, operation_id)
        return None if log is None else standing_of(log, cluster.clock.now_ms())


def _say(text: str, command: str = "") -> None:
    click.echo("\n".join([filled(text), *([f"next: {command}"] if command else [])]), err=True)
    if (context := click.get_current_context(silent=True)) is not None:
        tell_error(context, CommandRefused(text, command, ExitCode.INTERRUPTED))
