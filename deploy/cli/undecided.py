"""What a site has alone from before another one took over from it, told where a link brings clients back to that site.

It is what `status` says of it: nobody decided about these records, and behind such a move whoever lets the other link
run again has to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import click

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from deploy.cli.lines import with_command
from deploy.cli.next_steps import NextStep
from deploy.cli.tables import counted
from mirror.api import STATUS_LIMITS, Link
from mirror.split import look_for_tails


@dataclass(frozen=True, slots=True)
class Undecided:
    """Such records of a promoted link, in so many `partitions`."""

    link: str
    source: str
    target: str
    partitions: int


def tails_text(found: Undecided) -> str:
    """What was lost with the source, and is there: no finding, as somebody decided to take over without it, and nothing
    that is healthy is less so. But whoever decides nothing about it forgets it.
    """
    where = counted(found.partitions, "partition")
    told = f"{found.link}: in {where} {found.source} alone has records from before {found.target} took over"
    return f"{told}, and nobody decided about them"


async def undecided_opposite(moved: Iterable[Link], links: Iterable[Link]) -> list[Undecided]:
    """Of promoted links the other way. `links`: all of the file. What cannot be told hinders nothing."""
    ends = {(link.target.name, link.source.name) for link in moved}
    found = []
    for link in links:
        if (link.source.name, link.target.name) in ends:
            with suppress(FarshoreError):
                partitions = await _partitions(link)
                found += [Undecided(link.name, link.source.name, link.target.name, partitions)] if partitions else []
    return found


async def _partitions(link: Link) -> int:
    async with (
        Cluster(link.source, client_id="farshore-cli", limits=STATUS_LIMITS) as source,
        Cluster(link.target, client_id="farshore-cli", limits=STATUS_LIMITS) as target,
    ):
        return len(await look_for_tails(link, source, target))


def tell_undecided(found: Iterable[Undecided]) -> None:
    """On stderr, beside a plan."""
    for one in found:
        text = (
            f"note: {tails_text(one)}; `farshore stranded list --link {one.link}` has them, and what saves them first"
        )
        click.echo(with_command(text, f"farshore failback --link {one.link}"), err=True)


def steps_undecided(found: Sequence[Undecided]) -> tuple[NextStep, ...]:
    """Instead of a switchover, which asks nobody about them."""
    listed = (NextStep(tails_text(one), f"farshore stranded list --link {one.link}") for one in found)
    back = (
        NextStep(f"to come back to {one.source}, with these saved first", f"farshore failback --link {one.link}")
        for one in found
    )
    return (*listed, *back)
