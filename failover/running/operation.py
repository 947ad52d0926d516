"""A switchover or failover against living clusters: its steps in turn, each announced in the journal before it runs.

What one link does in a step is in `link_run.py`. All links of an operation take a step before any takes the next one.
One that fails takes no more of them, and stops no other; what is the sites' own (hooks, the freeze, the roles) is done
once, for all that go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from broker.base.documents import to_document
from broker.base.ending import to_its_end
from broker.base.errors import FarshoreError, first_of
from broker.client.errors import ClientError
from broker.client.fanout import both, side_by_side
from broker.wire.site_role import SiteStanding
from failover.errors import (
    CutShort,
    HookFailed,
    JournalUnanswered,
    OperationTakenUp,
    StillFrozen,
)
from failover.freezing.choice import joined
from failover.freezing.freeze import Freeze
from failover.freezing.hooks import hook_environment, run_hook
from failover.journal.hooks_run import FREEZE_HOOK
from failover.journal.log import OperationJournal
from failover.journal.silence import cut_short_hint, silent_of, told_who_went_on
from failover.journal.values import Event
from failover.limits import DRAINED_AGAIN_MAX
from failover.planning.staying import StayingLink
from failover.running.groups_stand import GroupsStand, Tell, tell_nobody
from failover.running.link_run import LinkMove, LinkRun
from failover.running.opening import Opening
from failover.running.outcome import SourceEnd, result_of
from failover.running.patience import patiently
from failover.running.read_on import verified_document
from failover.running.result import OperationResult
from failover.running.stating import Stating
from failover.running.steps import BEFORE_FENCE, Operation, OperationStep
from failover.running.third_site import active_by_now
from failover.running.whole_site import NONE_GOES, going, refuse_cut, refuse_cut_at_fence, tell_closed


async def carry_out(
    moves: Sequence[LinkMove],
    journal: OperationJournal,
    opening: Opening,
    drain_timeout_s: float,
    done: Sequence[OperationStep] = (),
    tell: Tell = tell_nobody,
) -> tuple[OperationResult, ...]:
    """Run the steps of these links, all from one site to another, but for those that are `done` -> one result per link.
    `tell` is called as soon as applications may start at the target, if they may.

    Where all links fail it raises what the first of them does: GateRefused and ClientError before anything was changed,
    StillFrozen where all but the freeze is as it was, then CutShort. OperationTakenUp and JournalUnanswered: another
    machine may carry it on.
    """
    run = _Run(moves, journal, opening, drain_timeout_s, tell)
    planned = {step for move in moves for step in move.plan.steps}
    steps = [step for step in OperationStep if step in planned and step not in done]
    given_up = [(Event.LINK_GIVEN_UP, {"link": link, "why": why}) for link, why in opening.given_up.items()]
    try:
        try:
            async with journal.kept((opening.event, opening.detail), *given_up):
                return await run.to_the_end(steps)
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
    except (OperationTakenUp, JournalUnanswered, CutShort) as lost:
        told = await told_who_went_on(lost, journal, moves[0].sites)
        if (
            told is lost and run.still_frozen is not None
        ):  # behind the lost lease, which comes first out of a task group
            raise run.still_frozen from lost
        raise told from lost


class _Run:
    """One process's part in an operation."""

    def __init__(
        self,
        moves: Sequence[LinkMove],
        journal: OperationJournal,
        opening: Opening,
        drain_timeout_s: float,
        tell: Tell,
    ) -> None:
        operation_id = journal.operation_id
        self._journal = journal
        self._operation = moves[0].plan.operation
        self._freezing = joined([move.plan.freezing for move in moves])
        how = (operation_id, drain_timeout_s, self._freezing, journal.renew)
        self._links = [LinkRun(move, *how) for move in moves]
        self._steps: Sequence[OperationStep] = ()
        sites = next((move.sites for move in moves if move.sites.source is not None), moves[0].sites)
        self._named = replace(sites.link, name=",".join(move.sites.link.name for move in moves))
        self._clusters = (sites.source, sites.target)
        self._freeze = Freeze(self._freezing, self._named, self._clusters, operation_id, journal.renew)
        if opening.is_freeze_begun:
            self._freeze.take_up(opening.late_denials, is_hook_run=opening.is_freeze_hook_run)
        self._source_role: SiteStanding | None = None
        self._hook_error = opening.hook_error
        self.still_frozen: StillFrozen | None = None
        """Where the freeze could not be undone, since the target does not answer."""
        self._staying, self._groups_away = opening.staying, opening.groups_away
        self._is_whole_site, self._left, self._untold = opening.is_whole_site, opening.left, opening.untold
        self._tell = tell
        self._stating = Stating()
        self._done: list[tuple[Event, dict[str, Any]]] = []
        """What the journal does not say yet: it does with its next entry."""

    async def to_the_end(self, steps: Sequence[OperationStep]) -> tuple[OperationResult, ...]:
        started_s = asyncio.get_running_loop().time()
        self._steps, last = steps, steps[0]
        try:
            for last in steps:
                async with self._told_as_cut_short(last):
                    await self._take(last)
            await self._stating.end()
            results = self._results(started_s)
            await self._record_end(results)
        except BaseException as error:  # whatever it is, it goes on when what is to be undone is undone, and it is told
            self._stating.stop()
            await to_its_end(self._end_early(last, error))
            raise
        return results

    async def _record_end(self, results: Sequence[OperationResult]) -> None:
        documents = {"results": [to_document(result) for result in results]}
        failures = [result.failure for result in results if result.failure is not None]
        if unfinished := [failure for failure in failures if not failure.is_given_up]:
            said = {"step": unfinished[0].step.value, "error": unfinished[0].error}
            await self._note(Event.CUT_SHORT, {**said, **documents})
            return
        ended = [result for result in results if result.failure is None]
        await self._note(
            Event.FINISHED,
            {
                "verified": all(result.verified for result in ended),
                "has_findings": any(result.has_findings for result in ended),
                **documents,
            },
        )

    async def _take(self, step: OperationStep) -> None:
        if step is OperationStep.FREEZE:
            if self._done:  # nothing is begun for which it could not be said later
                await self._note_done()
            await patiently(partial(self._freeze.await_same_leaders, is_unchanged=not self._is_any_promoted))
        starting: dict[str, Any] = {"step": step.value}
        if step is OperationStep.MOVE_GROUPS:
            for link in self._live:
                link.choose_moves()
            starting |= self._moves()
        if step is OperationStep.FREEZE:
            starting[FREEZE_HOOK] = bool(self._freezing.hooks.freeze)
        closes = step in (OperationStep.FREEZE, OperationStep.HAND_OVER)
        noting = self._note(Event.STARTED, starting | (self._freeze.noted(asking=True) if closes else {}))
        if step is OperationStep.VERIFY:  # which changes nothing: over a distance a round trip less
            await both(noting, self._take_all(step))
        else:
            await noting
        match step:
            case OperationStep.BEFORE_HOOK:
                await self._run_hook("before_hook", self._freezing.hooks.before)
            case OperationStep.FREEZE:
                await self._freeze.begin()
                await patiently(self._freeze.refuse_writes)
                await patiently(partial(self._freeze.await_same_leaders, is_unchanged=False))
            case OperationStep.DRAIN:
                await self._drain()
            case OperationStep.FENCE:
                if self._is_whole_site:
                    await refuse_cut_at_fence(self._links)
                await self._take_all(step)
            case OperationStep.HAND_OVER:
                is_lost = self._operation is Operation.FAILOVER
                goes = going(self._links, self._left, [one.link for one in self._untold])
                handing = partial(self._freeze.hand_over, goes, even_without_source=is_lost)
                self._source_role = await patiently(handing)
            case OperationStep.AFTER_HOOK:
                await self._run_after_hook()
            case OperationStep.VERIFY:
                if self._is_verified:
                    await self._let_in()
                await self._take_all(step, watching=True)
                await self._stating.begin(self._links)
            case _:
                await self._take_all(step)
        detail: dict[str, Any] = {"step": step.value}
        if step in (OperationStep.DRAIN, OperationStep.MOVE_GROUPS):
            detail |= self._moves()
        if step is OperationStep.MOVE_GROUPS:
            detail["uncommitted"] = {link.sites.link.name: sorted(link.uncommitted) for link in self._live}
        if step is OperationStep.AFTER_HOOK:
            links = [link.sites.link.name for link in self._live]
            detail |= {"links": links, "verified": self._is_verified, "error": self._hook_error}
        self._done = [(Event.DONE, detail | (self._freeze.noted() if closes else {}))]
        if step is OperationStep.AFTER_HOOK:  # before anything that may fail: who takes it up tells nobody twice
            await self._note_done()

    async def _let_in(self) -> None:
        """Applications may start from here on: the journal says so before anybody is told."""
        offsets = {link.sites.link.name: verified_document(link.moves) for link in self._live}
        kept_back = ((*link.left_groups, *link.surprised_groups, *link.plan.not_named) for link in self._live)
        left = sorted({*self._groups_away, *(group for groups in kept_back for group in groups)})
        given_up = [
            StayingLink(link.sites.link.name, len(link.plan.snapshot.groups))
            for link in self._links
            if link.is_given_up
        ]
        stand = GroupsStand(
            self._journal.operation_id,
            self._named.source.name,
            self._named.target.name,
            is_watched=any(link.watches_source for link in self._live),
            left_groups=tuple(left),
            staying_links=(*self._staying, *given_up),
        )
        said = {"left_groups": left, "staying_links": to_document(stand.staying_links)}
        await self._note(Event.GROUPS_VERIFIED, {"step": OperationStep.VERIFY.value, "offsets": offsets, **said})
        self._tell(stand)

    async def _note(self, event: Event, detail: Mapping[str, Any]) -> None:
        """With what was done before it, which nothing happened behind."""
        self._done = [*self._done, (event, dict(detail))]
        await self._note_done()

    async def _note_done(self) -> None:
        noted, self._done = self._done, []
        await self._journal.record_all(noted)

    def _moves(self) -> dict[str, Any]:
        moves = {link.sites.link.name: link.moves_document() for link in self._live}
        return {"moves": moves, "source_asked": [link.sites.link.name for link in self._live if link.is_source_asked]}

    @property
    def _is_any_promoted(self) -> bool:
        return bool(self._untold) or any(link.is_promoted for link in self._links)

    @property
    def _live(self) -> list[LinkRun]:
        return [link for link in self._links if link.failure is None]

    async def _drain(self) -> None:
        """Those that were drained long before the last one again: of what came there since, and was not mirrored, it
        would be said that it came after the fence.
        """
        await self._take_all(OperationStep.DRAIN)
        for _ in range(DRAINED_AGAIN_MAX):
            if not (old := [link for link in self._live if link.is_look_old]):
                return
            await self._take_all(OperationStep.DRAIN, old)

    async def _take_all(
        self, step: OperationStep, some: Sequence[LinkRun] | None = None, *, watching: bool = False
    ) -> None:
        """All links, or `some`, side by side. Where none is left, raises what the first of those raises that may be
        changed.
        """
        taking = self._live if some is None else some
        try:
            async with asyncio.TaskGroup() as tasks:
                taken = [tasks.create_task(link.try_to_take(step, watching=watching)) for link in taking]
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        failed = [(link, error) for link, task in zip(taking, taken, strict=True) if (error := task.result())]
        if failed and not self._live:
            raise min(failed, key=lambda one: one[0].is_given_up)[1]
        if self._is_whole_site:
            refuse_cut(self._links, failed)
            tell_closed([link for link, _ in failed], self._freezing)
        for link, error in failed:
            if link.is_given_up:
                said = {"link": link.sites.link.name, "why": f"{step}: {link.failure.error if link.failure else error}"}
                await self._note(Event.LINK_GIVEN_UP, said)
        reasons = {f"{link.sites.link.name} {at}": why for link in self._live for at, why in link.unfenced.items()}
        if step is OperationStep.FENCE and reasons:
            await self._note(Event.NOT_FENCED, reasons)

    async def _end_early(self, step: OperationStep, error: BaseException) -> None:
        """Undo the freeze where nothing else was changed, and say how it stands. Raises StillFrozen,
        OperationTakenUp.
        """
        if isinstance(error, OperationTakenUp):  # it is another machine's: whatever is to be undone, too
            return
        said = {"step": step.value, "error": str(error) or type(error).__name__, **self._freeze.noted()}
        is_before = step in BEFORE_FENCE or isinstance(error, NONE_GOES)
        if self._is_any_promoted or not is_before:
            with suppress(FarshoreError):  # nobody carries it on then, which the lease will say
                await self._note(Event.CUT_SHORT, said)
            return
        try:
            await self._note(Event.GIVING_UP, said)
        except OperationTakenUp:
            return
        except FarshoreError as unwritten:
            if not self._freeze.is_begun:
                return
            if not self._journal.is_held:
                raise self._may_be_frozen(error, unwritten) from error
        try:
            if self._freeze.is_begun:
                await self._journal.while_held(self._undo_freeze(error))
        except JournalUnanswered as lost:
            raise self._may_be_frozen(error, lost) from error
        except StillFrozen:
            with suppress(FarshoreError):
                await self._note(Event.CUT_SHORT, said | self._freeze.noted())
            raise
        with suppress(FarshoreError):
            await self._note(Event.GIVEN_UP, said)

    async def _undo_freeze(self, because: BaseException) -> None:
        """Raises as `Freeze.undo`, and StillFrozen beside a third site to which the clients went meanwhile, or may
        have.
        """
        asked = [active_by_now(one.plan, one.sites) for one in self._links if self._freeze.lets_in]
        if active := frozenset().union(*await side_by_side(asked)):
            raise self._freeze.left_closed(because, active) from because
        await self._freeze.undo(because)

    def _may_be_frozen(self, error: BaseException, why: FarshoreError) -> StillFrozen:
        """Neither site takes writes then, and nothing but a hand changes that while the target does not answer."""
        source, target = self._named.source.name, self._named.target.name
        said = (str(error), f"writes at {source} may be frozen still: {why}")
        frozen = f"--site {source} {self._freeze.topic_options}"  # and nothing that is closed for good
        command = f"`farshore site thaw {frozen} --even-if-other-active`"  # the target does not answer
        thaw = f"is {target} lost: {command} lets clients write at {source} again"
        self.still_frozen = StillFrozen("; ".join(filter(None, said)), hint="; ".join(filter(None, (why.hint, thaw))))
        return self.still_frozen

    @asynccontextmanager
    async def _told_as_cut_short(self, step: OperationStep) -> AsyncIterator[None]:
        """Before the fence nothing has been changed, and the site's own error says enough; unless another machine had
        it begun, and a link is promoted.
        """
        try:
            yield
        except (OperationTakenUp, JournalUnanswered, *NONE_GOES):
            raise
        except FarshoreError as error:
            if step in BEFORE_FENCE and not self._is_any_promoted:
                raise
            operation_id = self._journal.operation_id
            said = f"{operation_id} was cut short in its step {step}, and {self._named.name} may be moved in part"
            hint = f"{error.hint or 'then'}, from any machine: `farshore operation resume {operation_id}`"
            if isinstance(error, ClientError):
                source, target = self._clusters
                asked = (target,) if source is None or self._operation is Operation.FAILOVER else (source, target)
                is_fenced = any(link.is_fenced for link in self._links)
                hint = cut_short_hint(operation_id, self._named, await silent_of(asked), is_fenced=is_fenced)
            raise CutShort(f"{said}: {error}", hint=hint) from error

    async def _run_after_hook(self) -> None:
        try:
            await self._run_hook("after_hook", self._freezing.hooks.after)
        except HookFailed as error:  # all is moved: it is a finding of the result
            self._hook_error = f"the after_hook {error.problem}"

    async def _run_hook(self, name: str, command: tuple[str, ...]) -> None:
        links = ",".join(link.sites.link.name for link in self._live)
        told = hook_environment(self._journal.operation_id, self._operation, self._named, links)
        told |= {} if name == "before_hook" else {"FARSHORE_VERIFIED": str(self._is_verified).lower()}
        await run_hook(name, command, told)

    @property
    def _is_verified(self) -> bool:
        faults = (link.differences or (link.failure and not link.is_given_up) for link in self._links)
        return not self._untold and not any(faults)

    def _results(self, started_s: float) -> tuple[OperationResult, ...]:
        seconds = asyncio.get_running_loop().time() - started_s
        freeze, frozen = self._freeze, joined([link.plan.freezing for link in self._live])
        closed = (frozen.closed_at_both, frozen.closed_for_third)
        stands = (self._source_role, freeze.denied_principals, freeze.not_closed, self._hook_error)
        at_source = SourceEnd(*stands, *closed, left_open=freeze.left_open)
        operation_id = self._journal.operation_id
        taken = (result_of(operation_id, link, seconds, at_source) for link in self._links)
        return (*taken, *(one.result for one in self._untold))
