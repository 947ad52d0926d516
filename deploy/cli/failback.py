"""`farshore failback`: back to the site that was lost, with what only it has saved first."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from deploy.cli.both_sites import with_both_sites
from deploy.cli.moving import AGAIN, LinkMoved, link_moved, move_link
from deploy.cli.next_steps import links_back, name_back, table_back
from deploy.cli.operation import take_up
from deploy.cli.parameters import Duration
from deploy.cli.stranded import no_answer, read_shown
from deploy.cli.tables import counted, print_table
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
    progress,
    run_async,
    told,
    yes_option,
)
from failover.failback.carrying import SetBack, await_carried, set_groups
from failover.failback.export import export_stranded
from failover.failback.plan import BackLink, FailbackPlan, FailbackRefusal, FailbackStep, plan_failback
from failover.failback.stranding import (
    RoleInTheWay,
    count_in,
    leave_at_source,
    look_for_stranded,
    resume_settled,
    role_in_the_way,
)
from failover.freezing import read_roles
from failover.intent import Intent
from failover.journal import OperationLog
from failover.journal_log import load_operations
from failover.standing import OPEN_STATES, is_verified, standing_of
from failover.steps import Operation
from mirror.api import Link, RunState, StateEntries, StrandedTail, is_later, read_entries
from mirror.heartbeat import judge_heartbeat
from mirror.status import condition_now

COLUMNS = ("link", "stranded_records", "export_to", "switchover_exit_code", "groups_set_back")
_WORDS = {
    FailbackRefusal.NOT_PROMOTED: "link {link} was not moved away from {source}, or it runs again",
    FailbackRefusal.NAMES_DIFFER: "link {link} has prefixed names: what is written at {target} is another topic",
    FailbackRefusal.NO_LINK_BACK: "no link from {target} to {source} is declared",
    FailbackRefusal.SEVERAL_LINKS_BACK: "several links from {target} to {source} are declared",
    FailbackRefusal.LINK_BACK_SILENT: "link {back} is not run by any worker",
    FailbackRefusal.TRANSACTION_OPEN: "a transaction is open in what only {source} has",
    FailbackRefusal.TAIL_UNKNOWN: "nobody can say where what only {source} had ends, and what it wrote anew begins",
    FailbackRefusal.ORDER_UNKNOWN: "links {link} and {back} were both promoted, and nothing says which later: so it is "
    "not known whether {source} or {target} is the active site",
    FailbackRefusal.BACK_TAIL_UNDECIDED: "{target} alone has {back_records} of an earlier failover along link {back}, "
    "which would come behind newer ones",
}
_ROLES = {
    RoleInTheWay.SOURCE_CLOSED: (
        "{source} refuses writes to topics of it",
        "`farshore site role`; if {source} is to be the active site: farshore site thaw --site {source}",
    ),
    RoleInTheWay.BOTH_OPEN: (
        "{target} takes writes, too",
        "`farshore site role`; have one of them active: farshore site standby --site {target}",
    ),
}


@click.command()
@click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
@click.option(
    "--export-to",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where records that only the lost site has are saved (default: a folder in state_dir).",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=Duration(1_000),
    default="60s",
    show_default=True,
    help="How long the link back may bring nothing while something is missing.",
)
@dry_run_option("the plan")
@yes_option
@output_option
@click.pass_obj
def failback(
    app: AppContext,
    link_name: str | None,
    folder: Path | None,
    timeout_ms: int,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Come back to a link's source after a failover.

    Save and count what only it has, bring what was written since, move the groups to the very records that they read
    next, and let the link run as before.

    What came to the source meanwhile keeps the link from that (exit code 4): begun again, it saves that, too.

    Stop consumers at the other site first. Cut short, it is begun again and goes on. Exit code otherwise: that of the
    switchover.
    """
    link = app.link(link_name)
    moment = datetime.now(UTC)
    folder = folder or app.state_dir / "stranded" / f"{link.name}-{moment:%Y%m%dT%H%M%S}"
    plan = _plan(app, link, folder)
    if dry_run:
        emit(plan, output)
        raise SystemExit(ExitCode.REFUSED if plan.refusals else ExitCode.DONE)
    _refuse(app, link, plan)
    _show(plan)
    confirm_plan(None, yes, question=f"Come back to {link.source.name}?")
    if not yes and _plan(app, link, folder) != plan:  # a person has read it meanwhile
        raise CommandRefused("the plan holds no more; nothing was changed", AGAIN, ExitCode.REFUSED)
    way_back = _WayBack(app, link, plan)
    try:
        way_back.go(timeout_ms / 1000)
    except CommandRefused:
        if output != Output.TABLE:
            emit(way_back.result, output)
        raise
    emit(way_back.result, output, columns=COLUMNS)
    raise SystemExit(_tell_end(link, plan, way_back.result))


def _tell_end(link: Link, plan: FailbackPlan, result: Mapping[str, Any]) -> int:
    """What is left to be seen to -> the exit code."""
    code: int = result["switchover_exit_code"]
    again = f"farshore failback --link {link.name}"
    if code != ExitCode.DONE:
        what = "has a finding" if code == ExitCode.FINDINGS else "was not verified"
        click.echo(f"link {link.name} stays promoted: the switchover along {plan.link_back} {what}", err=True)
        look = "stranded list --link " + plan.link_back if code == ExitCode.FINDINGS else "operation list"
        click.echo(f"hint: farshore {look}; when that is seen to, {again} goes on", err=True)
        return code
    if result["stranded_since"]:
        text = f"came to {link.source.name} meanwhile: link {link.name} stays promoted"
        click.echo(f"{_told(result['stranded_since'])} {text}", err=True)
        click.echo(f"hint: {again} saves that, and lets the link run", err=True)
        code = ExitCode.FINDINGS
    if role := result["role_in_the_way"]:
        named = {"source": link.source.name, "target": link.target.name}
        what, hint = (text.format(**named) for text in _ROLES[role])
        click.echo(f"{what}: link {link.name} stays promoted", err=True)
        click.echo(f"hint: {hint}; then {again}", err=True)
        code = ExitCode.FINDINGS
    if tails := result["stranded_at_target"]:
        click.echo(
            f"{link.target.name} alone has {_told(tails)}: it came behind the fence of {plan.link_back}", err=True
        )
        click.echo(f"hint: farshore stranded list --link {plan.link_back}", err=True)
        code = ExitCode.FINDINGS
    return code


def _told(tails: Sequence[StrandedTail]) -> str:
    records = count_in(tails)
    return "what is not counted yet, as a transaction is open," if records is None else counted(records, "record")


def _plan(app: AppContext, link: Link, folder: Path) -> FailbackPlan:
    backs = [back for back in links_back(link, app.links()) if back.topic_names == "same"]

    async def look(source: Cluster | None, target: Cluster) -> FailbackPlan | None:
        if source is None:
            return None
        entries = await read_entries(link, target)
        found = await look_for_stranded(link, source, target)
        seen = tuple([await _back(back, entries, source, target) for back in backs])
        return plan_failback(found, entries.run, seen, str(folder), same_names=link.topic_names == "same")

    plan = run_async(with_both_sites(link, look))
    if plan is None:
        raise no_answer(link)
    return plan


async def _back(back: Link, there: StateEntries, source: Cluster, target: Cluster) -> BackLink:
    """`source` and `target` are not the link back's, but those of the way there."""
    entries = await read_entries(back, source)
    heartbeat = judge_heartbeat(entries.owner, source.clock.now_ms())
    log = (await load_operations(source)).get(entries.run.operation_id) if entries.run is not None else None
    unfinished = log is not None and not is_verified(log)
    tails: tuple[StrandedTail, ...] = ()
    if entries.run is not None and entries.run.state is RunState.PROMOTED:
        tails = (await look_for_stranded(back, target, source)).undecided
    later = is_later(entries, there)
    return BackLink(back.name, condition_now(entries, heartbeat), entries.run, later, unfinished, tails)


def _refuse(app: AppContext, link: Link, plan: FailbackPlan) -> None:
    if not plan.refusals:
        return
    named = {"link": link.name, "source": plan.source, "target": plan.target, "back": plan.link_back}
    named["back_records"] = _told(plan.back_tails)
    texts = [_WORDS[refusal].format(**named) for refusal in plan.refusals]
    hint = f"farshore failback --link {link.name} --dry-run shows the plan"
    if FailbackRefusal.LINK_BACK_SILENT in plan.refusals:
        hint = f"farshore mirror run --link {plan.link_back}"
    if FailbackRefusal.ORDER_UNKNOWN in plan.refusals:
        hint = (
            f"`farshore site role`, or ask who knows; if {plan.target} is the active site: farshore link resume --link "
            f"{plan.link_back} --stranded append, then again; if {plan.source} is: farshore link resume --link "
            f"{plan.link}"
        )
    if FailbackRefusal.BACK_TAIL_UNDECIDED in plan.refusals:
        hint = _hint_of_back(plan.link_back)
    if FailbackRefusal.NO_LINK_BACK in plan.refusals:
        hint = f"add it to {app.file}:\n{table_back(link, name_back(link, app.links()))}"
    raise CommandRefused(f"{'; '.join(texts)}. Nothing was changed", hint, ExitCode.REFUSED)


def _hint_of_back(back: str) -> str:
    return (
        f"see it: farshore stranded list --link {back}; save it: farshore stranded export --link {back} --to DIR; it "
        f"stays where it is: farshore stranded leave --link {back}; or it comes behind newer records: farshore link "
        f"resume --link {back} --stranded append"
    )


def _show(plan: FailbackPlan) -> None:
    if plan.tails:
        print_table(
            to_document(plan.tails), ("topic", "partition", "first_offset", "end_offset", "records"), "", to_stderr=True
        )
        records = counted(sum(tail.records or 0 for tail in plan.tails), "record")
        text = f"{records} that {plan.source} alone has stay in its log, are nobody's to read next, and are saved to"
        click.echo(f"{text} {plan.export_to}", err=True)
    click.echo(f"steps: {', '.join(plan.steps)}", err=True)


class _WayBack:
    """The steps, and in `result` what has come of them so far."""

    def __init__(self, app: AppContext, link: Link, plan: FailbackPlan) -> None:
        self._app, self._link, self._plan = app, link, plan
        self._back = app.link(plan.link_back)
        self.result: dict[str, Any] = {
            "link": link.name,
            "stranded_records": plan.stranded_records,
            "export_to": plan.export_to,
            "steps_done": (),
            "switchover_exit_code": int(ExitCode.DONE),
            "groups_set_back": (),
            "stranded_since": (),
            "role_in_the_way": None,
            "stranded_at_target": (),
        }

    def go(self, patience_s: float) -> None:
        """Raises CommandRefused where it cannot go on."""
        link, back, result, steps = self._link, self._back, self.result, self._plan.steps
        if FailbackStep.EXPORT in steps:
            folder = Path(self._plan.export_to)
            run_async(with_both_sites(link, lambda source, target: _save(link, source, target, folder)))
            self._did(FailbackStep.EXPORT, FailbackStep.LEAVE)
        if FailbackStep.RESUME_BACK in steps:
            run_async(with_both_sites(back, partial(_resume_back, back)))
            self._did(FailbackStep.RESUME_BACK)
        if FailbackStep.CARRY in steps:
            carrying = with_both_sites(back, lambda here, there: _carry(back, here, there, patience_s))
            result["groups_set_back"] = run_async(carrying)
            self._did(FailbackStep.CARRY, FailbackStep.SET_GROUPS)
        if FailbackStep.SWITCH_OVER in steps:
            self._switch_over()
        if FailbackStep.RESUME in steps and result["switchover_exit_code"] == ExitCode.DONE:
            result |= run_async(with_both_sites(link, partial(_resume_settled, link, back)))
            if not result["stranded_since"] and not result["role_in_the_way"]:
                self._did(FailbackStep.RESUME)

    def _did(self, *steps: FailbackStep) -> None:
        self.result["steps_done"] = (*self.result["steps_done"], *steps)

    def _switch_over(self) -> None:
        """As the same command of a person, consented to by this one's plan."""
        try:
            moved = run_async(_switch_over(self._app, self._back))
        except CommandRefused as error:
            self.result["switchover_exit_code"] = error.exit_code
            raise
        self.result |= {"switchover_exit_code": int(moved.exit_code), "switchover": moved.document}
        if moved.refused is not None:
            with told():
                raise moved.refused
        self._did(FailbackStep.SWITCH_OVER)


async def _save(link: Link, source: Cluster | None, target: Cluster, folder: Path) -> None:
    """The files are on the disk before the link's state says anything of the records."""
    reader, found = await read_shown(link, source, target)
    await export_stranded(reader, found.undecided, folder, target.clock.now_ms())
    await leave_at_source(link, target, found.undecided, f"saved to {folder.name} by a failback")


async def _carry(back: Link, source: Cluster | None, target: Cluster, patience_s: float) -> tuple[SetBack, ...]:
    """`source` and `target` are the link back's."""
    if source is None:
        raise no_answer(back)
    with progress() as bars:
        bar = bars.add_task(f"brought to {back.target.name}", total=None)
        snapshot = await await_carried(
            back, source, target, patience_s, lambda left, there: bars.update(bar, total=there, completed=there - left)
        )
    return await set_groups(back, source, target, snapshot)


async def _switch_over(app: AppContext, back: Link) -> LinkMoved:
    cut_short = await _cut_short(back)
    if cut_short is not None:
        return await link_moved(app, await take_up(app, cut_short))
    return await move_link(app, Intent(Operation.SWITCHOVER, (back.name,), back.source.name, back.target.name))


async def _cut_short(back: Link) -> OperationLog | None:
    """The operation of an earlier failback that has not ended."""
    async with Cluster(back.target, client_id="farshore-cli") as target:
        logs, now_ms = (await load_operations(target)).values(), target.clock.now_ms()
    standings = ((log, standing_of(log, now_ms)) for log in logs)
    return next((log for log, one in standings if one.state in OPEN_STATES and one.links == (back.name,)), None)


async def _resume_settled(link: Link, back: Link, source: Cluster | None, target: Cluster) -> dict[str, Any]:
    """Both sites are looked at once more -> what keeps the link from running, and what only the other site has now."""
    if source is None:
        raise no_answer(link)
    role = role_in_the_way(await read_roles(link, source, target))
    since = () if role else await resume_settled(link, source, target, _operation_id())
    there = (await look_for_stranded(back, target, source)).undecided
    return {"role_in_the_way": role, "stranded_since": since, "stranded_at_target": there}


def _operation_id() -> str:
    return f"failback-{uuid.uuid4().hex[:12]}"


async def _resume_back(back: Link, source: Cluster | None, target: Cluster) -> None:
    """`source` and `target` are the link back's."""
    if source is None:
        raise no_answer(back)
    if tails := await resume_settled(back, source, target, _operation_id()):
        text = f"{back.source.name} alone has {_told(tails)} that link {back.name} would bring behind newer ones"
        raise CommandRefused(f"{text}; it stays promoted", _hint_of_back(back.name), ExitCode.REFUSED)
