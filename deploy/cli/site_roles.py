"""`farshore site`: whether a site's clients may write, by its role, or by its ACLs."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.site import Site
from broker.client.site_role import has_no_roles, set_site_role, site_standing
from broker.wire.site_role import EVERY_TOPIC, SiteRole, SiteStanding
from deploy.cli.second_active import refuse_second_active, refuse_second_written
from deploy.cli.site import site_option
from deploy.cli.site_denials import change_denials
from deploy.cli.site_rows import SiteRow, row_by_denials, row_of, row_of_role
from deploy.cli.terminal import (
    AppContext,
    confirm_plan,
    dry_run_option,
    emit,
    output_option,
    run_async,
    yes_option,
)
from failover.errors import FreezeNotAllowed, GateRefused
from failover.freezing.acl_rights import look
from mirror.api import Link

topics_option = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="REGEX",
    help="Only topics like this one, in full; may be given again. What is closed beside them stays so.",
)


def change_options(command: Any) -> Any:
    """Decorator: what all commands take that change a role, and the context."""
    for option in (
        click.pass_obj,
        output_option,
        yes_option,
        dry_run_option("what would change"),
        click.option("--reason", default="", help="Why; who and where is noted in any case."),
        site_option,
    ):
        command = option(command)
    return command


@click.group("site")
def site_group() -> None:
    """Roles of sites: who takes writes of clients; freeze, thaw, standby."""


@site_group.command("role")
@click.option("--site", "names", multiple=True, metavar="SITE", help="Only this site; may be given again.")
@output_option
@click.pass_obj
def role_command(context: AppContext, names: Sequence[str], output: str) -> None:
    """Show the role of each site, as its brokers go by it."""
    sites = [context.site(name) for name in dict.fromkeys(names)] or list(context.sites().values())

    async def look() -> list[SiteRow]:
        return [await row_of(site) for site in sites]

    emit(run_async(look()), output)


@site_group.command("freeze")
@topics_option
@change_options
def freeze_command(
    context: AppContext, site_name: str, topics: tuple[str, ...], reason: str, dry_run: bool, yes: bool, output: str
) -> None:
    """Have every broker of a site refuse writes of clients, which wait. Mirrors and groups' commits go on."""
    _change(context.site(site_name), SiteRole.FROZEN, reason, dry_run=dry_run, yes=yes, output=output, topics=topics)


@site_group.command("standby")
@topics_option
@change_options
def standby_command(
    context: AppContext, site_name: str, topics: tuple[str, ...], reason: str, dry_run: bool, yes: bool, output: str
) -> None:
    """As freeze, for good: another site is the active one."""
    _change(context.site(site_name), SiteRole.STANDBY, reason, dry_run=dry_run, yes=yes, output=output, topics=topics)


@site_group.command("thaw")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="REGEX",
    help="Only what was closed by this very expression; may be given again. All else that is closed stays so.",
)
@click.option("--even-if-other-active", is_flag=True, help="Although a linked site takes writes, or does not say.")
@change_options
def thaw_command(
    context: AppContext,
    site_name: str,
    topics: tuple[str, ...],
    reason: str,
    even_if_other_active: bool,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Let writes of clients in again. What is standby only where no linked site takes writes to it, and what is frozen
    only where no site does to which its clients went.
    """
    site = context.site(site_name)
    links = () if even_if_other_active else tuple(context.links())
    _change(site, SiteRole.ACTIVE, reason, dry_run=dry_run, yes=yes, output=output, topics=topics, links=links)


def _change(
    site: Site,
    role: SiteRole,
    reason: str,
    *,
    dry_run: bool,
    yes: bool,
    output: str,
    topics: Sequence[str] = (),
    links: Sequence[Link] = (),
) -> None:
    row = changed(site, role, reason, dry_run=dry_run, yes=yes, topics=topics, links=links)
    emit(run_async(row), output, title="would be" if dry_run else "")


async def changed(
    site: Site,
    role: SiteRole,
    reason: str,
    *,
    dry_run: bool,
    yes: bool,
    topics: Sequence[str] = (),
    links: Sequence[Link] = (),
) -> SiteRow:
    """How it is then, or (`dry_run`) would be. `links`: who may be active beside it, as `refuse_second_active` has it.
    Raises GateRefused, ClientError; SiteHasNoRoles also where nothing is to be changed.
    """
    who = f"{getpass.getuser()} on {socket.gethostname()}"
    why = f"{who}: {reason}" if reason else who
    async with Cluster(site, client_id="farshore-cli") as cluster:
        known = None if site.freeze_principals else await site_standing(cluster)
        if site.freeze_principals or (known is None and role is SiteRole.ACTIVE and await _is_marked(cluster)):
            if role is SiteRole.ACTIVE:
                await refuse_second_written(site, await look(cluster), topics, links)

            def consent(what: str) -> None:
                confirm_plan(what, yes, question=f"Have {site.name} {role}?")

            denied = await change_denials(cluster, role, topics, None if dry_run else consent)
            return row_by_denials(site, denied, why)
        if known is None:
            raise has_no_roles(site.name)
        is_open = known.takes_writes and not known.topics and not topics
        if role is SiteRole.ACTIVE and is_open and not (now := await row_of(site)).differing:
            click.echo(f"{site.name} is active already: nothing was changed", err=True)
            return now
        wanted = known.closed(role, why, topics) if role is not SiteRole.ACTIVE else _opened(site, known, why, topics)
        await refuse_second_active(cluster, known, wanted, links)
        if not dry_run:
            confirm_plan(_told(site, known, wanted), yes, question=f"Have {site.name} {wanted.role}?")
            if not yes:  # a person has read it meanwhile
                await refuse_second_active(cluster, known, wanted, links)
            wanted = await set_site_role(cluster, wanted.role, wanted.reason, known, wanted.topics, wanted.standby)
        return row_of_role(site, wanted)


def _opened(site: Site, known: SiteStanding, why: str, topics: Sequence[str]) -> SiteStanding:
    """Raises GateRefused for an expression that closed nothing: another one may refuse the same topics."""
    named = known.topics or (() if known.takes_writes else (EVERY_TOPIC,))
    if unknown := [topic for topic in topics if topic not in named]:
        closed = ", ".join(named) or "no topic"
        raise GateRefused(
            f"{site.name} was not closed by {', '.join(unknown)}; it refuses {closed}",
            hint=f"`farshore site role --site {site.name}`; without --topic all of it is opened",
        )
    return known.opened(why, topics)


async def _is_marked(cluster: Cluster) -> bool:
    """Whether a freeze left something there, as far as the site tells."""
    with suppress(ClientError, FreezeNotAllowed):
        return bool((await look(cluster)).marked)
    return False


def _told(site: Site, known: SiteStanding, wanted: SiteStanding) -> str:
    to = ", ".join(wanted.topics) if wanted.topics else "every topic"
    for_good = f"; {', '.join(wanted.standby)} for good" if wanted.standby else ""
    what = "clients write again" if wanted.takes_writes else f"writes of clients wait, to {to}{for_good}"
    return f"{site.name}: {known.role} -> {wanted.role} (epoch {wanted.epoch}): {what}"
