"""A switchover or failover against living clusters: its steps in turn, each announced in the journal before it runs.

What one link does in a step is in `link_run.py`. All links of an operation take a step before any takes the next one;
so what refuses one of them before the fence refuses all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from broker.base.documents import to_document
from broker.base.ending import to_its_end
from broker.base.errors import FarshoreError, first_of
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.wire.site_role import SiteStanding
from failover.errors import CutShort, HookFailed, OperationTakenUp, OperationUnderWay, StillFrozen
from failover.freezing import Freeze
from failover.hooks import run_hook
from failover.journal import Event
from failover.journal_log import OperationJournal, load_operations
from failover.link_run import LinkMove, LinkRun, patiently, stated_losses
from failover.losses import LossTotal, PartitionLoss, total_loss
from failover.plan import GroupMove, GroupTotal, MoveKind, group_totals
from failover.snapshot import Snapshot
from failover.standing import is_verified
from failover.steps import BEFORE_FENCE, Operation, OperationStep
from failover.stranded import StrandedRange
from failover.verification import VerificationDifference


@dataclass(frozen=True, slots=True)
class OperationResult:
    """How an operation ended for one link. Its exit code says whether it is `verified`, and nothing is `stranded`: what
    came to the source after the fence, and is only there. `source_role`: what the source's brokers have taken; None:
    not told. `hook_error`: why the after_hook failed, "" where it did not.
    """

    operation_id: str
    operation: Operation
    link: str
    source: str
    target: str
    verified: bool
    seconds: float
    losses: tuple[PartitionLoss, ...]
    moves: tuple[GroupMove, ...]
    differences: tuple[VerificationDifference, ...]
    loss: LossTotal
    group_totals: tuple[GroupTotal, ...] = ()
    left_groups: tuple[str, ...] = ()
    """The groups that stayed behind, as was consented to: some of their moves are not known."""
    stranded: tuple[StrandedRange, ...] = ()
    source_role: SiteStanding | None = None
    hook_error: str = ""
    takes_writes: bool = False
    """The source's brokers could refuse writes (both sites' are farshore's own), and were not told to."""
    moved_topics: tuple[str, ...] = ()
    """Of the source, as regular expressions, whose roles the move is about; none: all."""

    @property
    def has_findings(self) -> bool:
        return bool(self.stranded or self.hook_error)


@dataclass(frozen=True, slots=True)
class Opening:
    """The first entry of a run: what was planned, or who takes it up."""

    event: Event
    detail: Mapping[str, Any]


async def mark_interrupted(snapshot: Snapshot, target: Cluster) -> Snapshot:
    """The snapshot, marked where the operation that promoted the link never came to a verified end.

    Raises JournalDamaged, ClientError.
    """
    if snapshot.link_state != "promoted":
        return snapshot
    log = (await load_operations(target)).get(snapshot.operation_id)
    return replace(snapshot, interrupted=log is not None and not is_verified(log.whole()))


async def carry_out(
    moves: Sequence[LinkMove],
    journal: OperationJournal,
    opening: Opening,
    drain_timeout_s: float,
    done: Sequence[OperationStep] = (),
) -> tuple[OperationResult, ...]:
    """Run the steps of these links, all from one site to another, but for those that are `done` -> one result per link.

    Raises GateRefused and ClientError before anything was changed, StillFrozen where all but the freeze is as it was,
    OperationTakenUp and JournalUnanswered when another machine may carry it on, then CutShort.
    """
    run = _Run(moves, journal, drain_timeout_s)
    try:
        async with journal.kept():
            await journal.record(opening.event, opening.detail)
            return await run.to_the_end([step for step in moves[0].plan.steps if step not in done])
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None


class _Run:
    """One process's part in an operation."""

    def __init__(self, moves: Sequence[LinkMove], journal: OperationJournal, drain_timeout_s: float) -> None:
        self._links = [LinkRun(move, journal.operation_id, drain_timeout_s) for move in moves]
        self._journal = journal
        self._plan = moves[0].plan
        sites = moves[0].sites
        self._named = replace(sites.link, name=",".join(move.sites.link.name for move in moves))
        self._freeze = Freeze(self._plan.freezing, self._named, (sites.source, sites.target), journal.operation_id)
        self._source_role: SiteStanding | None = None
        self._hook_error = ""

    async def to_the_end(self, steps: Sequence[OperationStep]) -> tuple[OperationResult, ...]:
        started_s = asyncio.get_running_loop().time()
        last = steps[0]
        try:
            for last in steps:
                with self._told_as_cut_short(last):
                    await self._take(last)
            with self._told_as_cut_short(last):
                results = await self._results(started_s)
            await self._journal.record(
                Event.FINISHED,
                {
                    "verified": all(result.verified for result in results),
                    "has_findings": any(result.has_findings for result in results),
                    "results": [to_document(result) for result in results],
                },
            )
        except BaseException as error:  # whatever it is, it goes on when what is to be undone is undone, and it is told
            await to_its_end(self._end_early(last, error))
            raise
        return results

    async def _take(self, step: OperationStep) -> None:
        journal = self._journal
        await journal.record(Event.STARTED, {"step": step.value})
        match step:
            case OperationStep.BEFORE_HOOK:
                await self._run_hook("before_hook", self._plan.freezing.hooks.before)
            case OperationStep.FREEZE:
                await self._freeze.begin()
                await patiently(self._freeze.refuse_writes)
            case OperationStep.HAND_OVER:
                is_lost = self._plan.operation is Operation.FAILOVER
                self._source_role = await patiently(partial(self._freeze.hand_over, even_without_source=is_lost))
            case OperationStep.AFTER_HOOK:
                await self._run_after_hook()
            case _:
                await self._take_all(step)
        detail: dict[str, Any] = {"step": step.value}
        if step in (OperationStep.DRAIN, OperationStep.MOVE_GROUPS):
            detail["moves"] = {link.sites.link.name: link.moves_document() for link in self._links}
        await journal.record(Event.DONE, detail)

    async def _take_all(self, step: OperationStep) -> None:
        """All links side by side. Raises what the first of them raises."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for link in self._links:
                    tasks.create_task(link.take(step))
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        reasons = {f"{link.sites.link.name} {at}": why for link in self._links for at, why in link.unfenced.items()}
        if step is OperationStep.FENCE and reasons:
            await self._journal.record(Event.NOT_FENCED, reasons)

    async def _end_early(self, step: OperationStep, error: BaseException) -> None:
        """Undo the freeze where nothing else was changed, and say how it stands. Raises StillFrozen."""
        if isinstance(error, OperationTakenUp):  # it is another machine's: whatever is to be undone, too
            return
        said = {"step": step.value, "error": str(error) or type(error).__name__}
        is_before = step in BEFORE_FENCE or isinstance(error, OperationUnderWay)
        if any(link.is_promoted for link in self._links) or not is_before:
            with suppress(FarshoreError):  # nobody carries it on then, which the lease will say
                await self._journal.record(Event.CUT_SHORT, said)
            return
        try:
            await self._journal.record(Event.GIVING_UP, said)
        except OperationTakenUp:
            return
        except FarshoreError as unwritten:
            if OperationStep.FREEZE not in self._plan.steps:
                return
            if not self._journal.is_held:
                raise StillFrozen(
                    f"{said['error']}; writes at {self._named.source.name} may be frozen still: {unwritten}",
                    hint=unwritten.hint,
                ) from error
        try:
            await self._freeze.undo(error)
        except StillFrozen:
            with suppress(FarshoreError):
                await self._journal.record(Event.CUT_SHORT, said)
            raise
        with suppress(FarshoreError):
            await self._journal.record(Event.GIVEN_UP, said)

    @contextmanager
    def _told_as_cut_short(self, step: OperationStep) -> Iterator[None]:
        """Before the fence nothing has been changed, and the site's own error says enough."""
        try:
            yield
        except ClientError as error:
            if step in BEFORE_FENCE:
                raise
            operation_id, target = self._journal.operation_id, self._named.target.name
            said = f"{operation_id} was cut short in its step {step}, and {self._named.name} may be moved in part"
            raise CutShort(
                f"{said}: {error}",
                hint=f"when {target} answers, from any machine: `farshore operation resume {operation_id}`",
            ) from error

    async def _run_after_hook(self) -> None:
        try:
            await self._run_hook("after_hook", self._plan.freezing.hooks.after)
        except HookFailed as error:  # all is moved: it is a finding of the result
            self._hook_error = f"the after_hook {error.problem}"

    async def _run_hook(self, name: str, command: tuple[str, ...]) -> None:
        source, target = self._named.source, self._named.target
        told = {
            "FARSHORE_OPERATION": self._journal.operation_id,
            "FARSHORE_VERB": self._plan.operation.value,
            "FARSHORE_LINK": self._named.name,
            "FARSHORE_SOURCE": source.name,
            "FARSHORE_SOURCE_BOOTSTRAP_SERVERS": source.bootstrap_servers,
            "FARSHORE_TARGET": target.name,
            "FARSHORE_TARGET_BOOTSTRAP_SERVERS": target.bootstrap_servers,
            "FARSHORE_VERIFIED": "" if name == "before_hook" else str(self._is_verified).lower(),
        }
        await run_hook(name, command, told)

    @property
    def _is_verified(self) -> bool:
        return not any(link.differences for link in self._links)

    async def _results(self, started_s: float) -> tuple[OperationResult, ...]:
        seconds = asyncio.get_running_loop().time() - started_s
        return tuple([await self._result(link, seconds) for link in self._links])

    async def _result(self, link: LinkRun, seconds: float) -> OperationResult:
        losses = await stated_losses(link.sites, link.snapshot)
        return OperationResult(
            operation_id=self._journal.operation_id,
            operation=link.plan.operation,
            link=link.sites.link.name,
            source=link.snapshot.source,
            target=link.snapshot.target,
            verified=not link.differences,
            seconds=seconds,
            losses=losses,
            moves=link.moves,
            differences=link.differences,
            group_totals=group_totals(link.moves),
            loss=total_loss(losses, link.sites.now_ms(), link.snapshot.last_look),
            left_groups=tuple(sorted({move.group for move in link.moves if move.kind is MoveKind.UNKNOWN})),
            stranded=link.stranded,
            source_role=self._source_role,
            hook_error=self._hook_error,
            takes_writes=link.plan.freezing.target is not None and self._source_role is None,
            moved_topics=link.plan.freezing.topics,
        )
