"""A failback as this machine carries it out: its bars, the switchover among its steps, and what it has come to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rich.progress import Progress, TaskID

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from deploy.cli.both_sites import with_both_sites
from deploy.cli.failback_words import hint_of_back
from deploy.cli.interrupted import told_where_interrupted
from deploy.cli.moving import LinkMoved, Step, link_moved, move_link, now_ms
from deploy.cli.stranded import no_answer
from deploy.cli.taking_up import take_up
from deploy.cli.terminal import AppContext, CommandRefused, ExitCode, exit_code_of, progress
from failover.errors import BackTailUndecided, HookFailed, OperationTakenUp
from failover.failback.foreseen import SkipsLost
from failover.failback.looking import groups_to_come
from failover.failback.operation import Beginning, come_back, open_switchover
from failover.failback.plan import FailbackPlan
from failover.failback.stranding import Report
from failover.failback.way_back import CameBack, Hands, SwitchoverEnd, WayBack
from failover.freezing.hooks import hook_environment, run_hook
from failover.journal.log import OperationJournal, load_operations
from failover.journal.standing import intent_of
from failover.journal.values import OperationLog
from failover.observing.observe import observe
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.staying import Away, away_of
from failover.running.result import HOOK_ERROR, is_all_but_told, only_hook_failed
from failover.running.steps import Operation
from mirror.api import STATUS_LIMITS, Link, Pulse, SourceParting, judge_heartbeat, read_entries
from mirror.worker.parted import source_partings

TAKEN_UP_S = 6.0
"""A worker that lives looks each two seconds whether its link may run, and is its owner soon after that."""
LOOK_AGAIN_S = 0.5
_ENDS: Mapping[ExitCode, SwitchoverEnd] = {
    ExitCode.DONE: SwitchoverEnd.VERIFIED,
    ExitCode.FINDINGS: SwitchoverEnd.FINDINGS,
}


class Coming:
    """The steps, and in `result` what has come of them so far. `away`: what is not back when the link is."""

    def __init__(
        self, app: AppContext, link: Link, plan: FailbackPlan, beginning: Beginning, patience_s: float
    ) -> None:
        self._app, self._link, self._plan = app, link, plan
        self._back = app.link(plan.link_back)
        self._beginning = beginning
        log = beginning.log
        asked = beginning.detail if log is None else log.entries[0].detail
        self.away = away_of(asked)
        self._reason: str = asked["intent"]["reason"] if log is None else intent_of(log).reason
        self._patience_s = patience_s
        self._exit_code = ExitCode.DONE
        self._switchover: Mapping[str, Any] | None = None
        self._way: WayBack | None = None
        self._is_elsewhere = False

    @property
    def operation_id(self) -> str:
        return self._beginning.operation_id

    @property
    def step(self) -> str:
        """The last that was begun, of a failback that is this machine's still; "": none was."""
        return self._way.step if self._way is not None and not self._is_elsewhere else ""

    @property
    def is_begun(self) -> bool:
        """Whether this machine began a step, also of one that another machine carries on by now."""
        return self._way is not None and bool(self._way.step)

    @property
    def came_back(self) -> CameBack:
        return self._way.came_back if self._way is not None else CameBack()

    async def go(self) -> None:
        """Raises CommandRefused, and what the steps do, where it cannot go on."""
        async with told_where_interrupted(self._link.target) as begun:
            begun.operation_id = self._beginning.operation_id
            await with_both_sites(self._link, self._go)

    async def _go(self, source: Cluster | None, target: Cluster) -> None:
        link, back = self._link, self._back
        if source is None:
            raise no_answer(link)
        with progress() as bars:
            hands = Hands(
                partial(self._switch_over, bars),
                self._patience_s,
                _bar(bars, f"read at {link.source.name}"),
                _left(_bar(bars, f"offsets brought to {link.source.name}")),
                self._before if self._app.hooks().before else None,
            )
            self._way = WayBack(link, back, (source, target), self._plan, hands)
            try:
                await come_back(Sites(link, source, target, (), now_ms), back, self._way, self._beginning)
            except OperationTakenUp:
                self._is_elsewhere = True
                raise
            except BackTailUndecided as error:
                hint = hint_of_back(back.name, self._beginning.operation_id)
                raise CommandRefused(str(error), hint, ExitCode.REFUSED) from error
            except HookFailed as error:
                if self._beginning.log is None or self.step:
                    raise
                text = f"{self.operation_id} cannot go on: the before_hook {error.problem}; nothing more was changed"
                raise CommandRefused(text, error.hint, ExitCode.REFUSED) from error
            if (before := self._way.came_back.switched_over_before) is not None:
                self._exit_code, self._switchover = ExitCode.FINDINGS, before

    async def _before(self) -> None:
        """Of the clients' move, which the failback is about. Raises HookFailed."""
        told = hook_environment(self.operation_id, Operation.FAILBACK, self._back, self._back.name)
        await run_hook("before_hook", self._app.hooks().before, told)

    async def _switch_over(self, bars: Progress, journal: OperationJournal) -> SwitchoverEnd:
        """As the same command of a person, consented to by this one's plan."""
        bars.stop()
        try:
            asked = (self._app, self._link, self._back, journal, self.away, self._plan.foreseen.skips)
            moved = await _switch_over(*asked, reason=self._reason)
        except FarshoreError as error:
            self._exit_code = exit_code_of(error)
            raise
        self._exit_code, self._switchover = moved.exit_code, moved.document
        if moved.refused is not None:
            raise moved.refused
        if moved.exit_code is ExitCode.FINDINGS and is_all_but_told(moved.document):
            return SwitchoverEnd.HOOK_FAILED
        return _ENDS.get(moved.exit_code, SwitchoverEnd.NOT_VERIFIED)

    def result(self) -> dict[str, Any]:
        """The document."""
        plan, came_back = self._plan, self.came_back
        found: dict[str, Any] = {
            "operation_id": self._beginning.operation_id,
            "link": self._link.name,
            "stranded_records": plan.stranded_records,
            "left_records": plan.left_records,
            "left_at_target": plan.left_at_target,
            "export_to": plan.export_to,
            "steps_done": tuple(came_back.steps_done),
            "groups_back": plan.groups_back,
            "groups_stay": plan.groups_stay,
            "groups_gone": plan.groups_gone,
            "switchover_exit_code": int(self._exit_code),
            "groups_set_back": came_back.groups_set_back,
            "stranded_since": came_back.stranded_since,
            "role_in_the_way": came_back.role_in_the_way,
            "stranded_at_target": came_back.stranded_at_target,
            "link_is_run": None,
            "stands_still": (),
            "stays_paused": plan.stays_paused,
            "closed_at_both": (),
            "closed_for_third": (),
            "next": (),
        }
        if self._switchover is None:
            return found
        closed = ("closed_at_both", "closed_for_third")  # that a version before has written in no journal
        told = {name: tuple(self._switchover.get(name, ())) for name in closed}
        return {**found, **told, "switchover": self._switchover}


def _bar(bars: Progress, told: str) -> Report:
    """Is there when there is something to show."""
    tasks: list[TaskID] = []

    def report(done: int, there: int) -> None:
        if not tasks:
            tasks.append(bars.add_task(told, total=None))
        bars.update(tasks[0], total=there, completed=done)

    return report


def _left(report: Report) -> Report:
    """For who tells how many are left."""
    return lambda left, there: report(there - left, there)


async def _switch_over(
    app: AppContext,
    link: Link,
    back: Link,
    journal: OperationJournal,
    away: Away,
    skips: Collection[SkipsLost] = (),
    *,
    reason: str = "",
) -> LinkMoved:
    """What was cut short is brought to its end; it may have been of some groups only, and then the others follow."""
    ended: LinkMoved | None = None
    cut_short = await _cut_short(back)
    if cut_short is not None:
        ended = await link_moved(app, await take_up(app, cut_short, journal.operation_id))
        if ended.exit_code is not ExitCode.DONE and not only_hook_failed(ended.document):
            return ended
    async with Cluster(back.source, client_id="farshore-cli") as west, Cluster(back.target) as east:
        seen = await observe(back, west, east, (), west.clock.now_ms())
        groups = await groups_to_come(link, back, seen, (east, west))
    if ended is not None and not groups.coming:
        return ended
    sites = (back.source.name, back.target.name)
    chosen: dict[str, Any] = {"groups": groups.named, "no_groups": groups.is_none}
    intent = Intent(Operation.SWITCHOVER, (back.name,), *sites, reason=reason, **chosen)
    moved = await move_link(app, intent, Step(journal.operation_id, journal.renew, away, groups.untouched, skips))
    untold = ended.document.get(HOOK_ERROR) if ended is not None and not app.hooks().after else None
    if untold and moved.exit_code is ExitCode.DONE:
        return replace(moved, document={**moved.document, HOOK_ERROR: untold}, exit_code=ExitCode.FINDINGS)
    return moved


async def _cut_short(back: Link) -> OperationLog | None:
    """The operation of an earlier failback that has not ended."""
    async with Cluster(back.target, client_id="farshore-cli") as target:
        return open_switchover(back, await load_operations(target), target.clock.now_ms())


async def is_taken_up(link: Link) -> bool | None:
    """Whether a worker runs the link that was let run: one that lives has waited for that. None: its target does not
    say, and all is done without that.
    """
    try:
        return await _is_taken_up(link)
    except FarshoreError:
        return None


async def standing_still(link: Link, *, is_run: bool | None) -> tuple[SourceParting, ...]:
    """The partitions at which the link that was let run stands still, or is going to when a worker runs it: its source
    is not what was mirrored any more. Of one that is run it is waited for that they can be consented to.
    """
    if is_run is None:  # its target does not say
        return ()
    try:
        return await with_both_sites(link, partial(_standing_still, link, is_run))
    except FarshoreError:
        return ()  # all is done without that, and `farshore status` says it, too


async def _standing_still(
    link: Link, is_run: bool, source: Cluster | None, target: Cluster
) -> tuple[SourceParting, ...]:
    if source is None:
        return ()
    found = tuple(one for one in await source_partings(link, source, target) if one.is_known)
    clock = target.clock
    until_s = clock.monotonic() + TAKEN_UP_S
    while found and is_run and clock.monotonic() < until_s:
        if {(one.topic, one.partition) for one in found} <= (await read_entries(link, target)).open_gaps().keys():
            break
        await clock.sleep(LOOK_AGAIN_S)
    return found


async def _is_taken_up(link: Link) -> bool:
    async with Cluster(link.target, client_id="farshore-cli", limits=STATUS_LIMITS) as target:
        clock = target.clock
        until_s = clock.monotonic() + TAKEN_UP_S
        while True:
            owner = (await read_entries(link, target)).owner
            is_heard = owner is not None and judge_heartbeat(owner, clock.now_ms()).pulse is not Pulse.SILENT
            if owner is not None and owner.is_worker and is_heard:
                return True
            if clock.monotonic() > until_s:
                return False
            await clock.sleep(LOOK_AGAIN_S)
