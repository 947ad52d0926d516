"""What a site that was lost has alone, told to who is about to bring clients back there along a link back: behind that
move it stays behind newer records, and whoever lets the other link run again has to decide about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

import click

from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout_at
from broker.client.cluster import Cluster
from broker.client.fanout import both
from deploy.cli.lines import with_command
from deploy.cli.next_steps import NextStep, look_at_links_back
from deploy.cli.status import tails_text
from deploy.cli.tables import counted
from failover.failback.plan import FailbackRefusal
from failover.failback.undecided import Limit, look_for_undecided, not_told, opposite
from failover.limits import UNDECIDED_S
from failover.observing.sites import Sites
from failover.planning.undecided import Undecided
from mirror.api import STATUS_LIMITS, CarriedBack, Link, LinkCondition


async def undecided_of(moved: Sequence[Sites], links: Sequence[Link]) -> tuple[Undecided, ...]:
    """Beside the look at these sites, which are those of one move, and over its connections."""
    ends = moved[0].source, moved[0].target
    return await look_for_undecided([one.link.name for one in moved], links, ends, Limit.from_now())


def tell_undecided(found: Iterable[Undecided], *, to_stderr: bool) -> None:
    """Behind a plan, and before the question."""
    for step in steps_undecided(found):
        click.echo(with_command(step.what, step.command), err=to_stderr)


def steps_undecided(found: Iterable[Undecided]) -> tuple[NextStep, ...]:
    """Of each what it is, with the command that shows it; and the way back that saves it, where there is one now."""
    steps = []
    for one in found:
        see, *come_back = one.commands
        what = f"to come back to {one.source} with these saved first, stop what reads and writes at {one.target}"
        steps += [NextStep(_text(one), see), *(NextStep(what, command) for command in come_back)]
    return tuple(steps)


def _text(one: Undecided) -> str:
    if one.partitions is None or one.records is None:
        what = f"whether {one.source} alone has records that nobody decided about is not known"
        return f"{one.link}: {what}: {one.why_not_known}"  # nor, it may be, whether the other site ever took over
    count = counted(one.records, "record")
    if not one.why_not_known:
        return tails_text(one.link, one.source, one.target, one.partitions, count)
    told = tails_text(one.link, one.source, one.target, one.partitions, f"at least {count}")
    return f"{told}; whether it has more of these is not known: {one.why_not_known}"


async def looks_behind_resume(
    link: Link, links: Sequence[Link], *, are_asked: bool
) -> tuple[CarriedBack, dict[str, LinkCondition], tuple[NextStep, ...]]:
    """As `look_at_links_back`, and beside it what nobody decided about at the link's target, to which it may bring
    clients back. `links`: all of the file.
    """
    (back, conditions), found = await both(
        look_at_links_back(link, links, are_asked=are_asked), _undecided_behind(link, links)
    )
    return back, conditions, steps_undecided(found)


async def _undecided_behind(link: Link, links: Sequence[Link]) -> tuple[Undecided, ...]:
    """Of a link that was just let run: that no worker was seen to run it yet is over in some seconds."""
    if not (asked := opposite([link.name], links)):
        return ()
    limit, sites = Limit.from_now(), (link.source, link.target)
    async with AsyncExitStack() as stack:
        clusters = [Cluster(site, client_id="farshore-cli", limits=STATUS_LIMITS) for site in sites]
        try:
            async with timeout_at(limit.ends_s):
                ends = await both(*(stack.enter_async_context(cluster) for cluster in clusters))
        except TimeoutError:
            return not_told(asked, f"{link.source.name} and {link.target.name} did not answer within {UNDECIDED_S:g} s")
        except FarshoreError as error:
            return not_told(asked, str(error))
        passing = (FailbackRefusal.LINK_BACK_SILENT,)
        return await look_for_undecided([link.name], links, ends, limit, passing)
