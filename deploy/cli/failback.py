"""`farshore failback`: back to the site that was lost, with what only it has saved first."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from broker.client.cluster import Cluster
from broker.client.topics import list_topics
from deploy.cli.both_sites import with_both_sites
from deploy.cli.failback_words import (
    hint_of_back,
    refuse,
    show,
    steps_at_end,
    tell_end,
    tell_refusals,
    told_tails,
)
from deploy.cli.failover_tables import tell_next
from deploy.cli.moving import AGAIN, LinkMoved, link_moved, move_link
from deploy.cli.next_steps import links_back
from deploy.cli.operation import take_up
from deploy.cli.parameters import Duration
from deploy.cli.stranded import no_answer, read_shown
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
from failover.elsewhere import look_elsewhere
from failover.failback.carrying import SetBack, await_carried, set_groups
from failover.failback.export import export_stranded
from failover.failback.plan import BackLink, FailbackPlan, FailbackStep, is_back, plan_failback
from failover.failback.stranding import (
    leave_at_source,
    look_for_stranded,
    resume_settled,
    role_in_the_way,
)
from failover.failback.through import reads_through
from failover.failback.waves import GroupsBack, groups_back, moved_along
from failover.freezing import read_roles
from failover.intent import Intent
from failover.journal import OperationLog
from failover.journal_log import load_operations
from failover.observe import observe
from failover.snapshot import Snapshot
from failover.standing import OPEN_STATES, is_verified, standing_of
from failover.steps import Operation
from mirror.api import (
    Link,
    LinkCondition,
    RunState,
    StateEntries,
    StrandedTail,
    read_entries,
    that_are_missing,
)
from mirror.api import is_later as promoted_later
from mirror.heartbeat import Pulse, judge_heartbeat
from mirror.status import condition_now

TAKEN_UP_S = 6.0
"""A worker that lives looks each two seconds whether its link may run, and is its owner soon after that."""
LOOK_AGAIN_S = 0.5
COLUMNS = ("link", "stranded_records", "export_to", "switchover_exit_code", "groups_set_back")


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
        if output == Output.TABLE:
            tell_refusals(app, link, plan)
        raise SystemExit(ExitCode.REFUSED if plan.refusals else ExitCode.DONE)
    if plan.refusals and output != Output.TABLE:
        emit(plan, output)
    refuse(app, link, plan)
    show(plan)
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
    except SystemExit as ended:
        if ended.code == ExitCode.INTERRUPTED:
            click.echo(f"interrupted; the same command goes on: farshore failback --link {link.name}", err=True)
        raise
    emit(way_back.result, output, columns=COLUMNS)
    code = tell_end(link, plan, way_back.result)
    if output == Output.TABLE:
        tell_next(way_back.result["next"])
    raise SystemExit(code)


def _plan(app: AppContext, link: Link, folder: Path) -> FailbackPlan:
    backs = [back for back in links_back(link, app.links()) if back.topic_names == "same"]

    async def look(source: Cluster | None, target: Cluster) -> FailbackPlan | None:
        if source is None:
            return None
        entries = await read_entries(link, target)
        found = await look_for_stranded(link, source, target)
        ends = (source, target)
        seen = tuple([await _back(link, back, app.links(), entries, ends, found.tails) for back in backs])
        same_names = link.topic_names == "same"
        lacks = that_are_missing(found.partings) if same_names else ()
        return plan_failback(found, entries.run, seen, str(folder), same_names=same_names, lacks=lacks)

    plan = run_async(with_both_sites(link, look))
    if plan is None:
        raise no_answer(link)
    return plan


async def _back(
    link: Link,
    back: Link,
    links: Sequence[Link],
    there: StateEntries,
    ends: tuple[Cluster, Cluster],
    found: Sequence[StrandedTail],
) -> BackLink:
    """`ends` are not the link back's, but source and target of the way there; so are the tails that were `found`."""
    source, target = ends
    entries = await read_entries(back, source)
    heartbeat = judge_heartbeat(entries.owner, source.clock.now_ms())
    log = (await load_operations(source)).get(entries.run.operation_id) if entries.run is not None else None
    unfinished = log is not None and not is_verified(log)
    tails: tuple[StrandedTail, ...] = ()
    if entries.run is not None and entries.run.state is RunState.PROMOTED:
        tails = (await look_for_stranded(back, target, source)).undecided
    later = promoted_later(entries, there)
    topics = [name for name in await list_topics(target) if back.selects_topic(name)]
    elsewhere = await look_elsewhere(back, links, topics)
    snapshot = await observe(back, target, source, (), source.clock.now_ms())
    groups = await _groups_back(link, back, snapshot, source, target)
    through = reads_through(found, snapshot.groups, groups.coming)
    return BackLink(
        back.name, condition_now(entries, heartbeat), entries.run, later, unfinished, tails, elsewhere, groups, through
    )


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
            "groups_back": plan.groups_back,
            "groups_stay": plan.groups_stay,
            "groups_gone": plan.groups_gone,
            "switchover_exit_code": int(ExitCode.DONE),
            "groups_set_back": (),
            "stranded_since": (),
            "role_in_the_way": None,
            "stranded_at_target": (),
            "link_is_run": None,
            "next": (),
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
            run_async(with_both_sites(back, lambda here, there: _carry(back, here, there, patience_s)))
            self._did(FailbackStep.CARRY)
        if FailbackStep.SET_GROUPS in steps:
            result["groups_set_back"] = run_async(with_both_sites(back, partial(_set_groups, link, back)))
            self._did(FailbackStep.SET_GROUPS)
        if FailbackStep.SWITCH_OVER in steps:
            self._switch_over()
        if FailbackStep.RESUME in steps and result["switchover_exit_code"] == ExitCode.DONE:
            result |= run_async(with_both_sites(link, partial(_resume_settled, link, back)))
            if not result["stranded_since"] and not result["role_in_the_way"]:
                self._did(FailbackStep.RESUME)
                result["link_is_run"] = run_async(with_both_sites(link, partial(_is_taken_up, link)))
                result["next"] = steps_at_end(link, is_run=result["link_is_run"])

    def _did(self, *steps: FailbackStep) -> None:
        self.result["steps_done"] = (*self.result["steps_done"], *steps)

    def _switch_over(self) -> None:
        """As the same command of a person, consented to by this one's plan."""
        try:
            moved = run_async(_switch_over(self._app, self._link, self._back))
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


async def _carry(back: Link, source: Cluster | None, target: Cluster, patience_s: float) -> None:
    """`source` and `target` are the link back's."""
    if source is None:
        raise no_answer(back)
    with progress() as bars:
        bar = bars.add_task(f"offsets brought to {back.target.name}", total=None)
        await await_carried(
            back, source, target, patience_s, lambda left, there: bars.update(bar, total=there, completed=there - left)
        )


async def _set_groups(link: Link, back: Link, source: Cluster | None, target: Cluster) -> tuple[SetBack, ...]:
    """`source` and `target` are the link back's."""
    if source is None:
        raise no_answer(back)
    snapshot = await observe(back, source, target, (), source.clock.now_ms())
    groups = await _groups_back(link, back, snapshot, target, source)
    return await set_groups(back, source, target, snapshot, groups.untouched)


async def _switch_over(app: AppContext, link: Link, back: Link) -> LinkMoved:
    """What was cut short is brought to its end; it may have been of some groups only, and then the others follow."""
    ended: LinkMoved | None = None
    cut_short = await _cut_short(back)
    if cut_short is not None:
        ended = await link_moved(app, await take_up(app, cut_short))
        if ended.exit_code is not ExitCode.DONE:
            return ended
    async with Cluster(back.source, client_id="farshore-cli") as west, Cluster(back.target) as east:
        groups = await _groups_back(link, back, await observe(back, west, east, (), west.clock.now_ms()), east, west)
    if ended is not None and not groups.coming:
        return ended
    sites = (back.source.name, back.target.name)
    intent = Intent(Operation.SWITCHOVER, (back.name,), *sites, groups=groups.named, no_groups=groups.is_none)
    return await move_link(app, intent)


async def _groups_back(link: Link, back: Link, snapshot: Snapshot, source: Cluster, target: Cluster) -> GroupsBack:
    """`snapshot` is of the link back; `source` and `target` are not that one's, but those of the way there."""
    there, here = await read_entries(link, target, only=()), await read_entries(back, source, only=())
    at_source = await load_operations(source)
    is_later = is_back(there.run, BackLink(back.name, LinkCondition.RUNNING, here.run, promoted_later(here, there)))
    came = partial(moved_along, back.name, here.run if is_later else None, at_source)
    return groups_back(
        [group.group for group in snapshot.groups if any(at.source_offset is not None for at in group.partitions)],
        there.groups.names,
        moved_along(link.name, there.run, await load_operations(target)),
        came(only_verified=True),
        came(),
        [group.group for group in snapshot.groups if any(at.target_offset is not None for at in group.partitions)],
    )


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


async def _is_taken_up(link: Link, _source: Cluster | None, target: Cluster) -> bool:
    """Whether a worker runs the link that was let run: one that lives has waited for that."""
    clock = target.clock
    until_s = clock.monotonic() + TAKEN_UP_S
    while True:
        owner = (await read_entries(link, target)).owner
        if owner is not None and owner.is_worker and judge_heartbeat(owner, clock.now_ms()).pulse is not Pulse.SILENT:
            return True
        if clock.monotonic() > until_s:
            return False
        await clock.sleep(LOOK_AGAIN_S)


def _operation_id() -> str:
    return f"failback-{uuid.uuid4().hex[:12]}"


async def _resume_back(back: Link, source: Cluster | None, target: Cluster) -> None:
    """`source` and `target` are the link back's."""
    if source is None:
        raise no_answer(back)
    if tails := await resume_settled(back, source, target, _operation_id()):
        text = f"{back.source.name} alone has {told_tails(tails)} that link {back.name} would bring behind newer ones"
        raise CommandRefused(f"{text}; it stays promoted", hint_of_back(back.name), ExitCode.REFUSED)
