"""`farshore audit repair`: what a run found to differ is mirrored anew, by consent, and audited again."""

from __future__ import annotations

import getpass
import json
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import click

from broker.base.documents import iso_time, to_document
from broker.client.cluster import Cluster
from deploy.cli.audit_lines import exit_code_of, show_outcome
from deploy.cli.audit_options import SparkOptions, folder_of, request_of, spark_options, with_steps
from deploy.cli.both_sites import with_both_sites
from deploy.cli.parameters import Duration, PartitionName
from deploy.cli.terminal import (
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
from monitoring.audit.files import replace_file
from monitoring.audit.model import Place
from monitoring.audit.repair import Consents, PartitionRepair, RepairBlocker, RepairPlan, RepairStage
from monitoring.audit.repairing import RepairRequest, carry_out, look
from monitoring.audit.run import AuditRequest, run_audit
from monitoring.audit.store import add_repair, read_document
from monitoring.errors import RepairStopped, RepairUnfinished

COLUMNS = (
    "topic",
    "partition",
    "found",
    "stage",
    "records_again",
    "deleted_to",
    "only_at_target",
    "groups",
    "blockers",
)
_TIMEOUT_MIN_MS = 1_000


class Manner(NamedTuple):
    """How the command is carried out."""

    dry_run: bool
    yes: bool
    output: str
    out: Path | None
    reason: str
    patience_ms: int


@click.command("repair")
@click.argument("run")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Plan for this topic only; may be given again.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=PartitionName(),
    help="Mirror this one anew; may be given again. Without any the plan is shown, and nothing is done.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the plan there, as JSON, and change nothing. Over a file only with --yes.",
)
@click.option("--allow-data-loss", is_flag=True, help="What the target has and the source does not have may go.")
@click.option("--leave-group", "left", multiple=True, metavar="GROUP", help="It need not follow to its next record.")
@click.option("--reason", default="", help="Why; it is kept with the run, and in the link's ledger of gaps.")
@click.option(
    "--timeout", "timeout_ms", type=Duration(_TIMEOUT_MIN_MS), default="1h", show_default=True, help="How long to wait."
)
@dry_run_option("the plan")
@yes_option
@spark_options
@output_option
@click.pass_obj
def audit_repair(
    context: AppContext,
    run: str,
    topics: tuple[str, ...],
    partitions: tuple[str, ...],
    allow_data_loss: bool,
    left: tuple[str, ...],
    out: Path | None,
    reason: str,
    timeout_ms: int,
    dry_run: bool,
    yes: bool,
    output: str,
    **spark: Unpack[SparkOptions],
) -> None:
    """Show what can be repaired of what a run found to differ; with --partition mirror that anew, and audit it again.

    The mirror sends all that the source has behind what the target has, groups follow to their next record, and then
    the old copy before it is deleted. Cut short, the same command goes on. Exit code 0: audited, and equal.
    """
    manner = Manner(dry_run, yes, output, out, reason, timeout_ms)
    folder = folder_of(context, spark["output_dir"])
    document = read_document(folder, run)
    link = context.link(document["link"])
    chosen = {_place(name) for name in partitions}
    why = ", ".join(filter(None, (f"by {_who()}", reason)))
    consents = Consents(allow_data_loss, frozenset(left))
    request = RepairRequest(link, document, context.links(), consents, chosen or None, why)
    plan = run_async(with_both_sites(link, partial(_look, request)))
    plan = replace(plan, partitions=tuple(one for one in plan.partitions if not topics or one.topic in topics))
    if dry_run or out is not None or not chosen:
        _show(plan, manner)
        return
    refuse(plan, chosen)
    audit = replace(request_of(context, link.name, **spark), topics=tuple({place[0]: None for place in sorted(chosen)}))
    _repair(request, plan, replace(audit, is_full=True), manner)


def _show(plan: RepairPlan, manner: Manner) -> None:
    if manner.out is not None:
        if manner.out.exists() and not manner.yes:
            text = f"{manner.out} is there already"
            raise CommandRefused(text, "name another file; --yes writes over it", ExitCode.REFUSED)
        replace_file(manner.out, json.dumps(to_document(plan), indent=2))
    emit(rows_of(plan) if manner.output == Output.TABLE else plan, manner.output, columns=COLUMNS)
    for blocker in dict.fromkeys(blocker for one in plan.partitions for blocker in one.blockers):
        click.echo(f"{_words(blocker)}: {blocker.explanation}", err=True)


def _repair(request: RepairRequest, plan: RepairPlan, audit: AuditRequest, manner: Manner) -> None:
    """With consent; the exit code is what the audit behind it finds."""
    link = request.link
    if any(one.stage is not RepairStage.OLD_COPY_DELETED for one in plan.partitions):  # else it is audited alone
        confirm_plan(rows_of(plan), manner.yes, question=question_of(plan, link.target.name), columns=COLUMNS)
    told = {"begun_at": iso_time(time.time_ns() // 1_000_000), "by": _who(), "reason": manner.reason}
    told |= {"partitions": to_document(plan)["partitions"]}
    add_repair(audit.directory, request.run_id, told | {"audit": None, "verdict": None})

    async def carried_out(report: Callable[[str], None]) -> None:
        async def job(source: Cluster | None, target: Cluster) -> None:
            await carry_out(request, _required(source, link.source.name), target, report, manner.patience_ms)

        await with_both_sites(link, job)

    try:
        with_steps(f"repair of {request.run_id}", carried_out)
    except RepairStopped as stopped:
        raise CommandRefused(str(stopped), stopped.hint, ExitCode.REFUSED) from stopped
    except RepairUnfinished as late:
        raise CommandRefused(str(late), late.hint, ExitCode.TIMED_OUT) from late
    outcome = with_steps(f"audit of {link.name}", lambda report: run_audit(audit, report=report))
    ended = {"audit": outcome.document["run_id"], "verdict": outcome.verdict.value}
    add_repair(audit.directory, request.run_id, told | ended)
    show_outcome(outcome, manner.output)
    raise SystemExit(exit_code_of(outcome.verdict, strict=False))


async def _look(request: RepairRequest, source: Cluster | None, target: Cluster) -> RepairPlan:
    return await look(request, _required(source, request.link.source.name), target)


def _required(source: Cluster | None, name: str) -> Cluster:
    if source is None:
        raise CommandRefused(f"site {name} does not answer: it has the records", "try again when it answers")
    return source


def refuse(plan: RepairPlan, chosen: Collection[Place]) -> None:
    """Raise CommandRefused where one that was named did not differ, or something is in its way."""
    known = {one.place: one for one in plan.partitions}
    for place in sorted(chosen):
        name = f"{place[0]}:{place[1]}"
        if place not in known:
            text = f"run {plan.run_id} found nothing that differs in {name}"
            raise CommandRefused(f"nothing was changed: {text}", f"see what did: farshore audit show {plan.run_id}")
        if (blocker := known[place].in_the_way) is not None:
            text = f"nothing was changed: {name} is not repaired: {_words(blocker)}{_named(known[place], blocker)}"
            raise CommandRefused(text, blocker.explanation, ExitCode.REFUSED)


def _named(one: PartitionRepair, blocker: RepairBlocker) -> str:
    """Which groups these are."""
    if blocker not in (RepairBlocker.GROUPS_NOT_KNOWN, RepairBlocker.GROUPS_STAY):
        return ""
    stay = [f"{place.group} ({_words(place.stays)})" for place in one.groups if place.stays is not None]
    return f": {', '.join(stay)}"


def question_of(plan: RepairPlan, target: str) -> str:
    """What is consented to."""
    records = sum(one.records_again for one in plan.partitions)
    return (
        f"Send up to {records:,} records again, and then delete what {target} has of these partitions now? Every "
        "offset there changes; who reads there from the beginning, or from a time, meanwhile sees records twice."
    )


def rows_of(plan: RepairPlan) -> list[dict[str, Any]]:
    """The plan for a person, a row for each partition."""
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "found": _found(one),
            "stage": _words(one.stage),
            "records_again": one.records_again,
            "deleted_to": one.deleted_to,
            "only_at_target": "not known" if one.only_at_target is None else one.only_at_target,
            "groups": len(one.groups),
            "blockers": ", ".join(map(_words, one.blockers)),
        }
        for one in plan.partitions
    ]


def _found(one: PartitionRepair) -> str:
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in one.found.items())
    return kinds if one.found_is_whole else f"at least {kinds or 'one range'}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _place(name: str) -> Place:
    topic, _, partition = name.rpartition(":")
    return topic, int(partition)


def _who() -> str:
    return f"{getpass.getuser()} on {socket.gethostname()}"
