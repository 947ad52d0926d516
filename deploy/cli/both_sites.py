"""What commands about both sites of a link share: the connections, where the source may be lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext
from typing import TypeVar

import click

from broker.client.cluster import Cluster
from broker.client.errors import ClusterUnreachable
from deploy.cli.waits import told_calls
from mirror.link import Link

T = TypeVar("T")


async def with_both_sites(
    link: Link, job: Callable[[Cluster | None, Cluster], Awaitable[T]], *, is_told: bool = False
) -> T:
    """Run `job` with source and target. Raises ClientError where the target does not answer.

    A source that is lost is when a person asks: `job` gets None for it. `is_told`: that they are called, where it takes
    long.
    """
    async with AsyncExitStack() as stack:
        async with told_calls(link.source.name, link.target.name) if is_told else nullcontext():
            target = await stack.enter_async_context(Cluster(link.target, client_id="farshore-cli"))
            source: Cluster | None = None
            try:
                source = await stack.enter_async_context(Cluster(link.source, client_id="farshore-cli"))
            except ClusterUnreachable:
                source = None
        return await job(source, target)


def refuse_one_site(source: str | None, target: str | None) -> None:
    """Of --from and --to. Raises click.UsageError where they are the same."""
    if source is not None and source == target:
        raise click.UsageError(f"--from and --to both name {source}: a link goes from one site to another")


def note_lost_source(link: Link) -> None:
    """Say that the answer is of the target alone."""
    text = f"site {link.source.name} does not answer: only what {link.target.name} knows of the link is shown"
    click.echo(f"note: {text}", err=True)
