"""`farshore switchover` and `farshore failover`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import click

from deploy.cli.audited import require_audited
from deploy.cli.both_sites import refuse_one_site
from deploy.cli.moving import decide, links_between, now_ms
from deploy.cli.parameters import Duration, GroupName, Moment, PartitionName, TopicPattern
from deploy.cli.terminal import (
    AppContext,
    CommandRefused,
    ExitCode,
    dry_run_option,
    output_option,
    run_async,
    yes_option,
)
from failover.planning.intent import Intent
from failover.running.steps import Operation


class Asked(TypedDict):
    """What both verbs are given."""

    link_name: str | None
    source_name: str | None
    target_name: str | None
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    left_groups: tuple[str, ...]
    set_back_groups: tuple[str, ...]
    whole_site: bool
    reason: str
    out_file: Path | None
    dry_run: bool
    yes: bool
    output: str


def common_options(command: Any) -> Any:
    """What both verbs take."""
    for option in (
        click.option("--link", "link_name", metavar="LINK", help="The link to move along (default: the only one)."),
        click.option("--from", "source_name", metavar="SITE", help="All links from this site, with --to."),
        click.option("--to", "target_name", metavar="SITE", help="All links to this site, with --from."),
        click.option(
            *("--topic", "topics"),
            multiple=True,
            type=TopicPattern(),
            metavar="REGEX",
            help="Only links all of whose topics match; with --from and --to; may be given again.",
        ),
        click.option(
            *("--group", "groups"),
            multiple=True,
            type=GroupName(),
            help="Only this consumer group; may be given again.",
        ),
        click.option(
            "--leave-group",
            "left_groups",
            multiple=True,
            type=GroupName(),
            metavar="GROUP",
            help="Go on where offsets of this group are unknown, or it does not answer; may be given again.",
        ),
        click.option(
            "--set-back",
            "set_back_groups",
            multiple=True,
            type=GroupName(),
            metavar="GROUP",
            help="Set this group back where it is ahead at the target; may be given again.",
        ),
        click.option(
            "--whole-site",
            is_flag=True,
            help="The source refuses writes to all its topics then, not only to those that the link carries; "
            "between two sites all links go, or none.",
        ),
        click.option("--reason", default="", help="Why; it is kept in the operation's journal."),
        click.option(
            "--out",
            "out_file",
            type=click.Path(path_type=Path, dir_okay=False, writable=True),
            metavar="FILE",
            help="Write the plan there and change nothing: `farshore apply FILE` carries it out. Over a file only with "
            "--yes.",
        ),
        dry_run_option("the plan"),
        yes_option,
        output_option,
        click.pass_obj,
    ):
        command = option(command)
    return command


@click.command()
@common_options
@click.option(
    "--timeout",
    "timeout_ms",
    type=Duration(1_000),
    default="60s",
    show_default=True,
    help="How long to wait for the mirror to drain.",
)
@click.option(
    "--freeze/--no-freeze",
    "freezes",
    default=True,
    show_default=True,
    help="Keep clients of the source from writing: by its role, where farshore's own brokers run it, or by ACLs "
    "(freeze_principals). --no-freeze leaves both as they are; a freeze_hook runs all the same.",
)
@click.option(
    "--max-audit-age",
    "audit_age_max_ms",
    type=Duration(1_000),
    help="Refuse unless the last audit of each link on this machine is no older, equal, and of all that was mirrored.",
)
def switchover(
    app: AppContext, timeout_ms: int, freezes: bool, audit_age_max_ms: int | None, **asked: Unpack[Asked]
) -> None:
    """Move to the target site as planned: freeze, drain, translate, move the groups, verify.

    The source must be alive. Stop its consumers first, and its producers where its brokers cannot refuse them. Nothing
    is lost. Exit code: 0 only when everything was verified, 4 when records came to the source after the fence, groups
    read on there, or a topic of it stays open to its clients.

    With --from and --to all links between the two sites are moved as one operation. A link that is refused stays as it
    is, and the exit code is the worst of them.
    """
    intent = _intent(app, Operation.SWITCHOVER, asked)
    if audit_age_max_ms is not None:
        links = links_between(app, intent.source, intent.target) if intent.is_site else intent.links
        require_audited(app, links, audit_age_max_ms, now_ms())
    _carry_out(app, replace(intent, freezes=freezes, drain_timeout_s=timeout_ms / 1000), asked)


@click.command()
@common_options
@click.option(
    "--to-datetime",
    "timestamp_ms",
    type=Moment(),
    metavar="TIME",
    help="Groups go on at this time, ISO 8601 with its zone, instead of by offset map.",
)
@click.option("--allow-data-loss", is_flag=True, help="Consent to losing what was not mirrored.")
@click.option(
    *("--leave-partition", "left_partitions"),
    multiple=True,
    type=PartitionName(),
    metavar="TOPIC:PARTITION",
    help="Go on where this partition (by the source's name) does not answer at the target, and leave it as it is; "
    "may be given again.",
)
@click.option("--even-if-source-answers", is_flag=True, help="Fail over although the source still answers.")
@click.option(
    "--even-if-source-partly-there",
    is_flag=True,
    help="Fail over although a part of the source still answers, or all of it, and only not this machine.",
)
def failover(
    app: AppContext,
    timestamp_ms: int | None,
    allow_data_loss: bool,
    left_partitions: tuple[str, ...],
    even_if_source_answers: bool,
    even_if_source_partly_there: bool,
    **asked: Unpack[Asked],
) -> None:
    """Move to the target site because the source is lost, and state per partition what is lost with it.

    Groups go on where the mirror had carried them, or at --to-datetime. Exit code: 0 only when everything was verified,
    4 when something that did not answer at the target was left as it is, or a source that answers may be written to or
    read from still, be it in one topic.

    With --from and --to all links between the two sites are moved as one operation. A link that is refused stays as it
    is, and the exit code is the worst of them.
    """
    intent = replace(
        _intent(app, Operation.FAILOVER, asked),
        timestamp_ms=timestamp_ms,
        allow_data_loss=allow_data_loss,
        left_partitions=left_partitions,
        even_if_source_answers=even_if_source_answers,
        even_if_source_partly_there=even_if_source_partly_there,
    )
    _carry_out(app, intent, asked)


def _intent(app: AppContext, operation: Operation, asked: Asked) -> Intent:
    """Raises click.UsageError for links that are not there, or were asked for in two ways, and consents about groups
    that are not moved.
    """
    links, sites, is_site = _links(app, asked)
    for option, names in (("--leave-group", asked["left_groups"]), ("--set-back", asked["set_back_groups"])):
        if asked["groups"] and (others := [name for name in names if name not in asked["groups"]]):
            raise click.UsageError(f"{option} {others[0]}: --group does not name it, so it is not moved")
    return Intent(
        operation,
        links,
        *sites,
        groups=tuple(dict.fromkeys(asked["groups"])),
        left_groups=asked["left_groups"],
        set_back_groups=asked["set_back_groups"],
        whole_site=asked["whole_site"],
        reason=asked["reason"],
        is_site=is_site,
        topics=asked["topics"],
    )


def _links(app: AppContext, asked: Asked) -> tuple[tuple[str, ...], tuple[str, str], bool]:
    """Their names, the two sites, and whether it was the sites that were asked for."""
    source, target = asked["source_name"], asked["target_name"]
    if source is None and target is None:
        if asked["topics"]:
            raise click.UsageError("--topic chooses among the links of two sites: name those by --from and --to")
        link = app.link(asked["link_name"])
        return (link.name,), (link.source.name, link.target.name), False
    if source is None or target is None:
        raise click.UsageError("--from and --to are given together: all links from the one site to the other")
    if asked["link_name"] is not None:
        raise click.UsageError("--link is one link, --from and --to are all between two sites: give one or the other")
    sites = app.site(source).name, app.site(target).name
    refuse_one_site(*sites)
    links = links_between(app, *sites)
    if not links:
        raise click.UsageError(f"no link goes from {source} to {target}: farshore link list")
    return links, sites, True


def _check_writable(out: Path, *, over: bool) -> None:
    """Before the sites are asked, which takes its time."""
    if not out.exists():
        if not (out.parent.is_dir() and os.access(out.parent, os.W_OK | os.X_OK)):
            raise click.UsageError(f"--out {out}: there is no folder {out.parent} that can be written to")
    elif not over:
        raise CommandRefused(f"{out} is there already", "name another file; --yes writes over it", ExitCode.REFUSED)


def _carry_out(app: AppContext, intent: Intent, asked: Asked) -> None:
    if (out := asked["out_file"]) is not None:
        _check_writable(out, over=asked["yes"])
    code = run_async(
        decide(
            app,
            intent,
            dry_run=asked["dry_run"],
            yes=asked["yes"],
            output=asked["output"],
            out_file=asked["out_file"],
        )
    )
    raise SystemExit(code)
