"""`farshore acls`: the source's ACLs at the target, as a plan; and the users whose passwords nobody can carry over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from broker.base.documents import to_document
from broker.client.acl_bindings import Acl
from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.fanout import both
from broker.client.scram_users import scram_credentials
from broker.wire.errors import ErrorCode
from deploy.cli.both_sites import note_lost_source, with_both_sites
from deploy.cli.lines import filled
from deploy.cli.terminal import (
    LINK_HELP,
    AppContext,
    CommandRefused,
    ExitCode,
    Output,
    confirm_plan,
    dry_run_option,
    emit,
    output_option,
    run_async,
    yes_option,
)
from mirror.acls.findings import said_of_beyond
from mirror.acls.plan import AclStep, PlannedAcl, lines_of
from mirror.acls.sync import AclChanges, AclsSeen, apply_acls, look_at_acls
from mirror.acls.users import UserAtTarget, compare_users
from mirror.link import Link
from mirror.offsets.state import read_entries
from mirror.status import LinkCondition, condition_of

COLUMNS = ("step", "permission", "principal", "operation", "resource", "name", "pattern", "host", "detail")

link_option = click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
rebuilt_option = click.option(
    "--rebuilt",
    is_flag=True,
    help="The target lost its ACLs: bring also those that a link back once carried from it.",
)


@click.group("acls")
def acls_group() -> None:
    """The source's ACLs at the target: plan, apply; users that are missing there."""


@acls_group.command("plan")
@link_option
@rebuilt_option
@output_option
@click.pass_obj
def plan_command(context: AppContext, link_name: str | None, rebuilt: bool, output: str) -> None:
    """Compare the ACLs of both sites, and show what would be made, held back, or removed at the target."""
    link = context.link(link_name)
    seen = _look(link, rebuilt=rebuilt)
    _show(link, seen, output)


@acls_group.command("apply")
@link_option
@click.option("--promote", is_flag=True, help="Give the rights that were held back: the target has taken over.")
@click.option("--remove", is_flag=True, help="Take away, too, what the link made and the source has no more.")
@rebuilt_option
@dry_run_option("the plan")
@yes_option
@output_option
@click.pass_obj
def apply_command(
    context: AppContext,
    link_name: str | None,
    promote: bool,
    remove: bool,
    rebuilt: bool,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Make at the target what `farshore acls plan` says, denials first.

    While the target stands by, rights to write are held back. When it has taken over, --promote gives them, also where
    the source is lost: what was held back is written down at the target.
    """
    link = context.link(link_name)
    seen = _look(link, rebuilt=rebuilt)
    _refuse_otherwise(link, seen, promote=promote)
    if dry_run:
        _show(link, seen, output)
        return
    due = [
        line for line in lines_of(seen.plan) if line.step is AclStep.CREATE or (remove and line.step is AclStep.REMOVE)
    ]
    if output == Output.TABLE:
        _note(link, seen)
    dropped = sorted(seen.record.beyond) if remove else []
    if not due and not dropped:
        # What is held back is written down for the day of the promotion.
        run_async(apply_seen(link, seen, remove=remove))
        click.echo(f"link {link.name}: there is nothing to make at {link.target.name}", err=True)
        if output != Output.TABLE:
            emit(_document(link, seen, AclChanges((), (), ())), output)
        return
    _confirm(link, due, dropped, yes)
    changes = run_async(apply_seen(link, seen, remove=remove))
    if output != Output.TABLE:
        emit(_document(link, seen, changes, dropped), output)
    told = f"link {link.name}: {len(changes.created)} ACLs made at {link.target.name}, {len(changes.removed)} removed"
    told += f", {len(dropped)} taken out of its record" if dropped else ""
    click.echo(told, err=True)
    if changes.unsettled:
        text = f"not every broker of {link.target.name} has said that it goes by {len(changes.unsettled)} of them: "
        text += "whether the mirror may do what it did before is not known; `farshore status` has its partitions if not"
        click.echo(filled(text), err=True)
    if changes.failures:
        acl, error = changes.failures[0]
        text = f"{len(changes.failures)} ACLs could not be changed; the first, {acl}: {error}"
        raise CommandRefused(text, error.hint or "", ExitCode.ERROR)


def _confirm(link: Link, due: Sequence[PlannedAcl], dropped: Sequence[Acl], yes: bool) -> None:
    """Raises CommandRefused. `dropped`: what goes out of the record."""
    there = link.target.name
    if dropped:
        _say(f"out of {link.acls_topic} go these ACLs; one of them that is at {there} counts as its own from then on:")
        for acl in dropped:
            _say(f"  {acl}")
    question = f"Change these ACLs at {there}?" if due else f"Take these out of the record at {there}?"
    confirm_plan(due or None, yes, question=question, columns=COLUMNS)


@acls_group.command("users")
@link_option
@output_option
@click.pass_obj
def users_command(context: AppContext, link_name: str | None, output: str) -> None:
    """List who can log in by SCRAM at the source, and whether at the target. Passwords cannot be carried over."""
    link = context.link(link_name)
    found = run_async(with_both_sites(link, partial(_users, link)))
    emit(found, output)
    missing = [one for one in found if one.iterations_at_target is None]
    if missing:
        text = f"{len(missing)} of {len(found)} are missing at {link.target.name}: set their passwords there by "
        click.echo(filled(f"{text}`kafka-configs --alter --entity-type users`; no cluster gives them away"), err=True)


def _look(link: Link, *, rebuilt: bool) -> AclsSeen:
    async def look(source: Cluster | None, target: Cluster) -> AclsSeen:
        promoted = await _is_promoted(link, target)
        return await look_at_acls(link, source, target, promoted=promoted, rebuilt=rebuilt)

    try:
        return run_async(with_both_sites(link, look))
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            raise CommandRefused(str(error), "a cluster without an authorizer has no ACLs") from error
        raise


async def _is_promoted(link: Link, target: Cluster) -> bool:
    return condition_of(await read_entries(link, target)) is LinkCondition.PROMOTED


async def apply_seen(link: Link, seen: AclsSeen, *, remove: bool) -> AclChanges:
    """Raises CommandRefused where the link moved since the look: a question may have stood for long between the two."""
    async with Cluster(link.target, client_id="farshore-cli") as target:
        if await _is_promoted(link, target) is not seen.plan.promoted:
            since = "stands by again" if seen.plan.promoted else "has taken over"
            text = f"nothing was changed: {link.target.name} {since} since the plan was made"
            raise CommandRefused(text, f"farshore acls plan --link {link.name}", ExitCode.REFUSED)
        return await apply_acls(link, target, seen, seen.plan.create, remove=remove)


async def _users(link: Link, source: Cluster | None, target: Cluster) -> list[UserAtTarget]:
    if source is None:
        text = f"site {link.source.name} does not answer: it knows its users"
        raise CommandRefused(text, "try again when it answers")
    return compare_users(link, *await both(scram_credentials(source), scram_credentials(target)))


def _refuse_otherwise(link: Link, seen: AclsSeen, *, promote: bool) -> None:
    here, there = link.source.name, link.target.name
    if promote and not seen.plan.promoted:
        text = f"{there} has not taken over: rights to write there would open it beside the mirror"
        raise CommandRefused(
            text, "leave --promote out, or move first: farshore switchover, farshore failover", ExitCode.REFUSED
        )
    if seen.plan.promoted and not promote:
        text = f"{there} has taken over, and the rights that were held back are among what would be made"
        raise CommandRefused(text, f"farshore acls apply --link {link.name} --promote", ExitCode.REFUSED)
    if not seen.source_answers and not promote:
        raise CommandRefused(
            f"site {here} does not answer: it has the ACLs", "try again when it answers", ExitCode.REFUSED
        )


def _show(link: Link, seen: AclsSeen, output: str) -> None:
    if output != Output.TABLE:
        emit(_document(link, seen, None), output)
        return
    emit(lines_of(seen.plan), output, columns=COLUMNS)
    _note(link, seen)


def _note(link: Link, seen: AclsSeen) -> None:
    """What the lines do not say, on stderr."""
    plan, there = seen.plan, link.target.name
    if not seen.source_answers:
        note_lost_source(link)
    if seen.record.damage:
        _say(f"note: of {link.acls_topic} at {there} {seen.record.damage}: who made which ACL is not known")
    if seen.record.beyond:
        _say(f"note: {said_of_beyond(link, seen.record)}")
        _say(
            "a link that was declared with fewer topics or groups leaves such: take away by kafka-acls what is not to "
            "stay. Else somebody wrote them: see who but farshore may write to that topic. "
            f"farshore acls apply --link {link.name} --remove takes them out of it"
        )
    for acl in plan.written_out:
        _say(f"note: {acl}: at {there} only for what the link carries, name by name")
    if plan.hold:
        step = f"farshore acls apply --link {link.name} --promote"
        _say(f"note: {len(plan.hold)} rights are held back while {there} stands by; after a move: {step}")
    if plan.remove and not plan.promoted:
        _say(f"note: {len(plan.remove)} are removed by farshore acls apply --link {link.name} --remove")


def _say(text: str) -> None:
    click.echo(filled(text), err=True)


def _document(link: Link, seen: AclsSeen, changes: AclChanges | None, dropped: Sequence[Acl] = ()) -> dict[str, object]:
    plan = seen.plan
    document: dict[str, object] = {
        "link": link.name,
        "promoted": plan.promoted,
        "source_answers": seen.source_answers,
        "in_place": plan.in_place,
        "acls": [to_document(line) for line in lines_of(plan)],
        "written_out": [str(acl) for acl in plan.written_out],
        "record_damage": seen.record.damage,
        "record_beyond": [str(acl) for acl in sorted(seen.record.beyond)],
    }
    if changes is not None:
        document["created"] = [str(acl) for acl in changes.created]
        document["removed"] = [str(acl) for acl in changes.removed]
        document["failures"] = [{"acl": str(acl), "error": str(error)} for acl, error in changes.failures]
        document["taken_out_of_record"] = [str(acl) for acl in dropped]
    return document
