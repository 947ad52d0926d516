"""Letting a link run again: what was looked at must still be so when that is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import click

from broker.client.cluster import Cluster
from deploy.cli.both_sites import with_both_sites
from deploy.cli.failback_words import lacks_line, told_partings
from deploy.cli.terminal import run_async
from failover.errors import FailoverError, GateRefused, WorldChanged
from failover.failback.operation import refuse_amid_failback
from failover.failback.plan import LinkStands
from failover.failback.stranding import leave_at_source
from failover.journal.log import load_operations
from failover.journal.standing import is_failback, refuse_amid
from failover.observing.partings import target_lacks
from mirror.api import Link, StrandedTail
from mirror.offsets.entries import Gap, LinkRun, RunState
from mirror.offsets.operations import resume_link
from mirror.offsets.state import read_entries
from mirror.worker.declared import complete_link
from mirror.worker.parted import SourceParting, source_partings


@dataclass(frozen=True, slots=True)
class Resuming:
    """One command's part in it. `seen`: what the link might do when it was looked at. `amid_failback`: where
    nothing is let run that did not: a failback may be waiting for what stands still or is held, or to be decided there.
    """

    link: Link
    seen: LinkRun | None
    operation_id: str
    amid_failback: bool = False

    async def resume(
        self, gaps: Sequence[Gap], stays: Sequence[StrandedTail], source: Cluster | None, target: Cluster
    ) -> None:
        """Let it run, behind these gaps, and behind what `stays` at its source. Raises OperationUnderWay, WorldChanged,
        and what the writing does.
        """
        check = partial(self.check, source, target)
        await leave_at_source(self.link, target, stays, "by link resume", check)
        try:
            await resume_link(self.link, target, self.operation_id, gaps, check)
        except GateRefused as refused:
            if not stays:
                raise
            text = (
                f"it was written down that those records stay at {self.link.source.name}, and the link was not let run"
            )
            why = str(refused).removesuffix("; nothing was changed")
            raise FailoverError(f"{text}: {why}", hint=refused.hint) from refused

    async def check(self, source: Cluster | None, target: Cluster) -> None:
        """Behind a fence of the link's state: since then nobody has moved or paused it, and no operation along it has
        begun. Raises OperationUnderWay, WorldChanged.
        """
        if self.amid_failback:
            await amid_no_move(self.link, target)
        else:
            await amid_no_operation(self.link, source, target)
        await self.as_seen(target)

    async def as_seen(self, target: Cluster) -> None:
        """The first half of `check`. Raises WorldChanged."""
        run = (await read_entries(self.link, target, only=())).run
        before, now = (LinkStands.of(self.link.name, one) for one in (self.seen, run))
        may_run = before.state is now.state is RunState.RUNNING  # whoever let it run
        if not may_run and now.operation_id != self.operation_id and now != before:
            text = f"the plan holds no more: {before} -> {now}; nothing was changed"
            raise WorldChanged(text, hint=f"farshore status --link {self.link.name}; then type the same again")


async def amid_no_operation(link: Link, source: Cluster | None, target: Cluster) -> None:
    """A failback lets the link run itself, and the link back, when that is due; a switchover or a failover that is open
    has fenced it, or is about to, and opens the target. Raises OperationUnderWay, NewerVersion.
    """
    now_ms = target.clock.now_ms()
    await refuse_amid_failback(link, source, target, now_ms)
    refuse_amid(link.name, await load_operations(target), now_ms)


async def amid_no_move(link: Link, target: Cluster) -> None:
    """Of a link that runs, or stays promoted. Raises OperationUnderWay, NewerVersion where an operation has fenced it,
    or is about to, that has not ended: who lets it run means to stay, and that may have closed the source to its
    clients; who writes to its state takes the fence. A failback lets it run itself, or waits for what it brings, or for
    what is decided.
    """
    moves = {name: log for name, log in (await load_operations(target)).items() if not is_failback(log)}
    refuse_amid(link.name, moves, target.clock.now_ms())


def refuse_amid_move(link: Link) -> None:
    """As `amid_no_move`."""

    async def look() -> None:
        async with Cluster(link.target, client_id="farshore-cli") as target:
            await amid_no_move(link, target)

    run_async(look())


def tell_nothing_to_do(link: Link, text: str, *, dry_run: bool) -> None:
    """Raises as `amid_no_move`."""
    if not dry_run:
        refuse_amid_move(link)
    click.echo(text, err=True)


def note_partings(link: Link) -> None:
    """Say where the link is going to stop at once: its source is not what was mirrored any more; and what its target
    lacks of its own that it does not bring.
    """

    async def look(
        source: Cluster | None, target: Cluster
    ) -> tuple[tuple[SourceParting, ...], tuple[SourceParting, ...]]:
        if source is None:
            return (), ()
        complete = await complete_link(link, source, target)
        return await source_partings(link, source, target), await target_lacks(complete, source, target)

    found, lacks = run_async(with_both_sites(link, look))
    if found:
        text = f"the link is going to stand still, and ask: {told_partings(found, link.source.name)}"
        click.echo(f"note: {text}", err=True)
    if lacks:
        click.echo(f"note: {lacks_line(lacks, link.target.name)}", err=True)
