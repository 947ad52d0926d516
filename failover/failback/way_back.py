"""The steps of a failback, each in its journal before it runs. Each sees to its own effect, and may be repeated.

What is changed is changed behind a renewal of the lease, which is asked for behind a fence of the machine's own: of the
link's state where that is written, of the groups where they are set. So of a machine that hung, and of the one that
took the failback up, the later one's fence refuses the other (docs/adr/0033-a-failback-is-an-operation.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from failover.errors import BackTailUndecided
from failover.failback.carrying import await_carried, fenced_commits, set_before, set_groups
from failover.failback.export import export_stranded, is_exported
from failover.failback.foreseen import SetBack
from failover.failback.looking import check_as_seen, groups_to_come
from failover.failback.plan import FailbackPlan, FailbackStep
from failover.failback.stranding import (
    Report,
    RoleInTheWay,
    leave_at_source,
    look_for_stranded,
    read_stranded,
    resume_settled,
    role_in_the_way,
)
from failover.freezing.choice import read_roles
from failover.journal.log import OperationJournal
from failover.journal.values import Event, OperationLog
from failover.limits import DRAIN_POLL_S, SET_TRIES_MAX
from failover.observing.observe import observe
from failover.running.result import is_all_but_told
from failover.running.steps import OperationStep
from failover.running.taking_up import begun_steps
from mirror.api import Link, StrandedTail

SET_BACK: Final = "groups_set_back"
TO_SET: Final = "groups_to_set"


class SwitchoverEnd(StrEnum):
    """How the switchover along the link back ended."""

    VERIFIED = "verified"
    HOOK_FAILED = "hook_failed"
    """Its after_hook, and that is all that is to be seen to: nobody can write where the clients were, so that the link
    may run, and they may be told by hand.
    """
    FINDINGS = "findings"
    NOT_VERIFIED = "not_verified"


def tell_nobody(_done: int, _there: int) -> None:
    """Whoever waits for the end."""


@dataclass(frozen=True, slots=True)
class Hands:
    """What the steps leave to who runs them. `switch_over` moves along the link back, as a step of the operation whose
    journal it is given; it raises GateRefused where that is refused. `before` raises HookFailed where it says no; None:
    there is none. `told_read`, `told_carried`: offsets, and of how many.
    """

    switch_over: Callable[[OperationJournal], Awaitable[SwitchoverEnd]]
    patience_s: float
    told_read: Report = tell_nobody
    told_carried: Report = tell_nobody
    before: Callable[[], Awaitable[None]] | None = None


@dataclass(slots=True)
class CameBack:
    """What has come of the steps so far."""

    steps_done: list[FailbackStep] = field(default_factory=list)
    groups_set_back: tuple[SetBack, ...] = ()
    switchover: SwitchoverEnd = SwitchoverEnd.VERIFIED
    switched_over_before: Mapping[str, Any] | None = None
    """The result of a switchover with findings, of which the machine before did not come to tell."""
    stranded_since: tuple[StrandedTail, ...] = ()
    role_in_the_way: RoleInTheWay | None = None
    stranded_at_target: tuple[StrandedTail, ...] = ()

    @property
    def is_stopped(self) -> bool:
        """Whether something is to be seen to before the link may run."""
        is_done = self.switchover in (SwitchoverEnd.VERIFIED, SwitchoverEnd.HOOK_FAILED)
        return bool(not is_done or self.stranded_since or self.role_in_the_way is not None)

    def end(self) -> dict[str, Any]:
        """As the journal has it."""
        return {
            "verified": self.switchover is not SwitchoverEnd.NOT_VERIFIED,
            "has_findings": self.switchover is not SwitchoverEnd.VERIFIED
            or self.is_stopped
            or bool(self.stranded_at_target),
            "results": [],
        }


class WayBack:
    """One process's part in a failback; `came_back` says what was done, also where a step failed."""

    def __init__(self, link: Link, back: Link, ends: tuple[Cluster, Cluster], plan: FailbackPlan, hands: Hands) -> None:
        """`ends`: the link's source and target, which are the link back's target and source."""
        self._link, self._back = link, back
        self._ends, self._ends_back = ends, (ends[1], ends[0])
        self._plan = plan
        self._hands = hands
        self._saved: Sequence[StrandedTail] = ()
        self._to_set: Sequence[SetBack] = ()
        """By machines before this one, as they said right before it."""
        self.step = ""
        """The one that was begun last."""
        self.came_back = CameBack()

    def asks(self, log: OperationLog | None) -> bool:
        """Whether the before_hook has a say: before clients move, and once for all machines."""
        step, entries = {"step": OperationStep.BEFORE_HOOK.value}, log.entries if log is not None else ()
        is_asked = any(entry.event == Event.DONE and entry.detail == step for entry in entries)
        is_moving = log is not None and FailbackStep.SWITCH_OVER in begun_steps(log)
        moves = FailbackStep.SWITCH_OVER in self._plan.steps and not is_moving
        return self._hands.before is not None and moves and not is_asked

    async def ask_before(self, journal: OperationJournal) -> None:
        """Ahead of the first step: where it says no, nothing was changed. Raises HookFailed."""
        assert self._hands.before is not None
        step = {"step": OperationStep.BEFORE_HOOK.value}
        await journal.record(Event.STARTED, step)
        await self._hands.before()
        await journal.record(Event.DONE, step)

    async def check_as_seen(self) -> None:
        """Raises WorldChanged where the plan was made from what is not so any more, and no step was taken by it."""
        if self._plan.steps and not self.step:
            await check_as_seen(self._link, self._back, self._ends, self._plan)

    def note_before(self, switched_over: Mapping[str, Any]) -> None:
        """Of a failback that is taken up: it had ended its switchover with findings, and ends with them here."""
        if FailbackStep.SWITCH_OVER not in self._plan.steps:
            is_hook = is_all_but_told(switched_over)
            self.came_back.switchover = SwitchoverEnd.HOOK_FAILED if is_hook else SwitchoverEnd.FINDINGS
            self.came_back.switched_over_before = switched_over

    async def go(self, journal: OperationJournal) -> None:
        """Take the steps that are not done. Raises FarshoreError, OSError."""
        done = self.came_back.steps_done
        for step in self._plan.steps if not self.came_back.is_stopped else ():
            if step in done:
                continue
            self.step = step.value
            await journal.record(Event.STARTED, {"step": step.value, **self._noted(step)})
            await self._take(step, journal)
            if step is FailbackStep.RESUME and self.came_back.is_stopped:
                break
            done.append(step)
            await journal.record(Event.DONE, {"step": step.value, **self._came_of(step)})
            if self.came_back.is_stopped:
                break
        if not self._plan.steps:  # who let the link run may have died before it looked
            await self._look_at_target()
        await journal.record(Event.FINISHED, self.came_back.end())

    def _noted(self, step: FailbackStep) -> dict[str, Any]:
        """For whoever looks for the files: they are on the machine that took the step."""
        return {"export_to": self._plan.export_to} if step is FailbackStep.EXPORT else {}

    def _came_of(self, step: FailbackStep) -> dict[str, Any]:
        """For whoever takes it up behind this step: the world does not show any more which groups were set back."""
        done = self.came_back.groups_set_back if step is FailbackStep.SET_GROUPS else ()
        return {SET_BACK: [to_document(one) for one in done]} if done else {}

    def take_up(self, log: OperationLog) -> None:
        """What came of the steps of those before it belongs to what came of all."""
        self.came_back.groups_set_back = tuple(dict.fromkeys(_noted(log, SET_BACK)))  # each tells of all before it
        self._to_set = tuple(_noted(log, TO_SET))

    async def _take(self, step: FailbackStep, journal: OperationJournal) -> None:
        match step:
            case FailbackStep.EXPORT:
                await self._export()
            case FailbackStep.LEAVE:
                reason = f"saved to {Path(self._plan.export_to).name} by a failback"
                await leave_at_source(self._link, self._ends[1], self._saved, reason, journal.renew)
            case FailbackStep.RESUME_BACK:
                if await resume_settled(self._back, *self._ends_back, journal.operation_id, journal.renew):
                    raise BackTailUndecided(self._back.name, self._back.source.name)
            case FailbackStep.CARRY:
                asked = (self._hands.patience_s, self._hands.told_carried)
                await await_carried(self._back, *self._ends_back, *asked)
            case FailbackStep.SET_GROUPS:
                await self._set_groups(journal)
            case FailbackStep.SWITCH_OVER:
                self.came_back.switchover = await self._hands.switch_over(journal)
            case FailbackStep.RESUME:
                await self._resume(journal)

    async def _export(self) -> None:
        """The files are on the disk before the link's state says anything of the records."""
        reader, found = await read_stranded(self._link, *self._ends, self._hands.told_read)
        self._saved = found.undecided
        folder = Path(self._plan.export_to)
        if self._saved and not await is_exported(reader, self._saved, folder):
            await export_stranded(reader, self._saved, folder, self._ends[1].clock.now_ms())

    async def _set_groups(self, journal: OperationJournal) -> None:
        """From a new look where a group was carried on meanwhile."""
        for tries_left in reversed(range(SET_TRIES_MAX)):
            refused = await self._try_to_set_groups(journal) if self._back.groups else {}
            if not refused:
                return
            if not tries_left:
                raise next(iter(refused.values()))
            await asyncio.sleep(DRAIN_POLL_S)

    async def _try_to_set_groups(self, journal: OperationJournal) -> Mapping[str, ClientError]:
        """-> the groups of which it is not known that they are set."""
        commits = await fenced_commits(self._back, self._ends[0], journal.renew)
        before, self._to_set = await set_before(self._ends[0], self._to_set), ()
        self.came_back.groups_set_back = tuple(dict.fromkeys((*self.came_back.groups_set_back, *before)))
        snapshot = await observe(self._back, *self._ends_back, (), self._ends[1].clock.now_ms())
        names = (await groups_to_come(self._link, self._back, snapshot, self._ends)).untouched

        async def note(found: Sequence[SetBack]) -> None:
            """Who takes it up finds them where they are to be, and could not tell that this was not always so."""
            to_set = [to_document(one) for one in found]
            await journal.record(Event.STARTED, {"step": FailbackStep.SET_GROUPS.value, TO_SET: to_set})

        asked = (self._back, self._ends_back, snapshot, names, commits, journal.renew, note)
        done, refused = await set_groups(*asked)
        self.came_back.groups_set_back += done
        return refused

    async def _resume(self, journal: OperationJournal) -> None:
        """Both sites are looked at once more: what keeps the link from running, and what only the other site has."""
        link, came_back = self._link, self.came_back
        came_back.role_in_the_way = role_in_the_way(await read_roles(link, *self._ends))
        if came_back.role_in_the_way is None:
            settled = resume_settled(link, *self._ends, journal.operation_id, journal.renew)
            came_back.stranded_since = await settled
        await self._look_at_target()

    async def _look_at_target(self) -> None:
        self.came_back.stranded_at_target = (await look_for_stranded(self._back, *self._ends_back)).undecided


def _noted(log: OperationLog, name: str) -> Iterator[SetBack]:
    fields = ("group", "topic", "partition", "from_offset", "to_offset")
    return (SetBack(*(one[field] for field in fields)) for entry in log.entries for one in entry.detail.get(name, ()))
