"""`farshore site`: whether a site's clients may write, by its role, or by its ACLs."""

from __future__ import annotations

import getpass
import shlex
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.site import Site
from broker.client.site_role import has_no_roles, set_site_role, site_standing, site_standings
from broker.wire.site_role import EVERY_TOPIC, SiteRole, SiteStanding
from broker.wire.vocabulary import EVERYBODY
from deploy.cli.site import site_option
from deploy.cli.site_denials import change_denials
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
from failover.freezing.denials import Denials, is_named, names_of
from failover.limits import SOURCE_ROLE_S


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A site and its role. `takes_writes` None: its brokers refuse nobody (Apache Kafka), or do not say. `differing`:
    brokers that go by another role than the newest, or do not say. `topics`: those that the role is of, the others
    being active; none: all. `standby`: of a frozen site those that stay closed when it is thawed for others. `in_part`:
    topics that ACLs close for some of those only whom they are to keep out.
    """

    site: str
    role: str
    epoch: int | None
    takes_writes: bool | None
    reason: str
    differing: tuple[int, ...] = ()
    topics: tuple[str, ...] = ()
    standby: tuple[str, ...] = ()
    in_part: tuple[str, ...] = ()


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
    """Let writes of clients in again. What is standby only where no linked site takes writes to it."""
    site = context.site(site_name)
    others = [] if even_if_other_active else _linked(context, site)
    _change(site, SiteRole.ACTIVE, reason, dry_run=dry_run, yes=yes, output=output, topics=topics, others=others)


def _linked(context: AppContext, site: Site) -> list[Site]:
    """The sites at the other ends of its links."""
    ends = [(link.source, link.target) for link in context.links()]
    found = {other.name: other for pair in ends for other in pair if site in pair and other != site}
    return list(found.values())


def _change(
    site: Site,
    role: SiteRole,
    reason: str,
    *,
    dry_run: bool,
    yes: bool,
    output: str,
    topics: Sequence[str] = (),
    others: Sequence[Site] = (),
) -> None:
    row = changed(site, role, reason, dry_run=dry_run, yes=yes, topics=topics, others=others)
    emit(run_async(row), output, title="would be" if dry_run else "")


async def changed(
    site: Site,
    role: SiteRole,
    reason: str,
    *,
    dry_run: bool,
    yes: bool,
    topics: Sequence[str] = (),
    others: Sequence[Site] = (),
) -> SiteRow:
    """How it is then, or (`dry_run`) would be. Raises GateRefused, ClientError; SiteHasNoRoles also where nothing is
    to be changed.
    """
    who = f"{getpass.getuser()} on {socket.gethostname()}"
    why = f"{who}: {reason}" if reason else who
    async with Cluster(site, client_id="farshore-cli") as cluster:
        known = None if site.freeze_principals else await site_standing(cluster)
        if site.freeze_principals or (known is None and role is SiteRole.ACTIVE and await _is_marked(cluster)):
            if role is SiteRole.ACTIVE:
                await _refuse_second_written(site, await look(cluster), topics, others)

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
        await _refuse_second_active(site, known, wanted, others)
        if not dry_run:
            confirm_plan(_told(site, known, wanted), yes, question=f"Have {site.name} {wanted.role}?")
            if not yes:  # a person has read it meanwhile
                await _refuse_second_active(site, known, wanted, others)
            wanted = await set_site_role(cluster, wanted.role, wanted.reason, known, wanted.topics, wanted.standby)
        return _row_of(site, wanted)


async def _refuse_second_written(site: Site, found: Denials, topics: Sequence[str], others: Sequence[Site]) -> None:
    """As `_refuse_second_active`, by ACLs: these do not say whether they are for the time of a move."""
    let_in = [topic for topic in found.topics if is_named(topic, topics)]
    for other in others if let_in else ():
        row = await row_of(other)
        if row.takes_writes is not False or (row.topics and not set(let_in) <= set(row.topics)):
            raise GateRefused(
                f"{site.name} is closed to {', '.join(let_in)}, and {other.name} is {_role_of(row)}: both would take "
                "writes",
                hint=f"`farshore switchover` moves back; or `farshore site standby --site {other.name}` first; or add "
                "--even-if-other-active, as after a switchover that was given up",
            )


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


async def _refuse_second_active(site: Site, known: SiteStanding, wanted: SiteStanding, others: Sequence[Site]) -> None:
    """Raises GateRefused where a linked site takes writes to what would be let in, or it is not known."""
    let_in = set() if wanted.closed_for_good == (EVERY_TOPIC,) else {*known.closed_for_good} - {*wanted.closed_for_good}
    if not let_in:
        return
    for other in others:
        row = await row_of(other)
        if row.takes_writes is False and (not row.topics or let_in <= set(row.topics)):
            continue
        only = [topic for topic in known.topics or (EVERY_TOPIC,) if topic not in known.closed_for_good]
        named = " ".join(f"--topic {shlex.quote(topic)}" for topic in only)
        frozen = f"; only what is frozen: `farshore site thaw --site {site.name} {named}`" if only else ""
        of = "" if let_in == {EVERY_TOPIC} else f" for {', '.join(sorted(let_in))}"
        raise GateRefused(
            f"{site.name} is a standby site{of}, and {other.name} is {_role_of(row)}: both would take writes",
            hint=f"`farshore switchover` moves back; or `farshore site standby --site {other.name}` first; or add "
            f"--even-if-other-active{frozen}",
        )


async def row_of(site: Site) -> SiteRow:
    """Of one that does not answer, too."""
    try:
        async with Cluster(site, client_id="farshore-cli") as cluster:
            if site.freeze_principals:
                return row_by_denials(site, await look(cluster))
            standings = await site_standings(cluster, laggard_ms=round(SOURCE_ROLE_S * 1_000))
            told, failures = split_failures(standings)
            known = {node_id: standing for node_id, standing in told.items() if standing is not None}
            if told and not known:
                return await _row_without_key(cluster)
    except FarshoreError as error:
        return SiteRow(site.name, "unknown", None, None, str(error))
    if not told:
        return SiteRow(site.name, "unknown", None, None, str(next(iter(failures.values()))))
    newest = max(known.values(), key=lambda standing: standing.epoch)
    return _row_of(site, newest, tuple(sorted(node for node in standings if standings[node] != newest)))


async def _row_without_key(cluster: Cluster) -> SiteRow:
    """Of a site without roles and without freeze_principals in the file: these may have been taken out since."""
    name, why = cluster.site.name, "not farshore's own brokers"
    try:
        found = await look(cluster)
    except (ClientError, FreezeNotAllowed) as error:
        return SiteRow(name, "none", None, None, f"{why}: they have no role; {error}")
    if found.marked:
        return row_by_denials(cluster.site, found)
    return SiteRow(name, "none", None, None, f"{why}: they refuse nobody")


async def _is_marked(cluster: Cluster) -> bool:
    """Whether a freeze left something there, as far as the site tells."""
    with suppress(ClientError, FreezeNotAllowed):
        return bool((await look(cluster)).marked)
    return False


def row_by_denials(site: Site, found: Denials, why: str = "") -> SiteRow:
    """A topic that is closed is so until a move back, or a thaw, opens it. `why`: in place of whose ACLs there are."""
    in_part = found.in_part(site.freeze_principals or (EVERYBODY,))
    closed = tuple(topic for topic in found.topics if topic not in in_part)
    by = "no ACL of a freeze"
    if found.topics:
        by = f"ACLs of {', '.join(found.operations(found.closed))}"
    elif found.marked:
        by += f", but marks of {', '.join(found.operations({*found.marks, *found.leaving}))}, which deny nobody"
    told = [why or by]
    told += [f"{topic} is closed in part: {names_of(still)} can still write" for topic, still in in_part.items()]
    if leaving := sorted(frozenset[str]().union(*found.leaving.values())):
        told.append(
            f"{', '.join(leaving)} began to take the freeze back: if nobody goes on with that, `site thaw` does"
        )
    return SiteRow(
        site.name,
        (SiteRole.STANDBY if closed else SiteRole.ACTIVE).value if closed or not in_part else "closed in part",
        None,
        takes_writes=None if found.differing else False if closed else None if in_part else True,
        reason="; ".join(told),
        differing=found.differing,
        topics=closed,
        in_part=tuple(in_part),
    )


def _row_of(site: Site, standing: SiteStanding, differing: tuple[int, ...] = ()) -> SiteRow:
    takes_writes = standing.takes_writes if not differing else None
    return SiteRow(
        site.name,
        standing.role.value,
        standing.epoch,
        takes_writes,
        standing.reason,
        differing,
        standing.topics,
        standing.standby,
    )


def _role_of(row: SiteRow) -> str:
    return f"{row.role} for {', '.join(row.topics)} only" if row.topics else row.role


def _told(site: Site, known: SiteStanding, wanted: SiteStanding) -> str:
    to = ", ".join(wanted.topics) if wanted.topics else "every topic"
    for_good = f"; {', '.join(wanted.standby)} for good" if wanted.standby else ""
    what = "clients write again" if wanted.takes_writes else f"writes of clients wait, to {to}{for_good}"
    return f"{site.name}: {known.role} -> {wanted.role} (epoch {wanted.epoch}): {what}"
