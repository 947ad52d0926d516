"""The steps of a switchover or failover against living clusters, each announced in the journal before it runs.

Every step may be repeated: draining only waits, fencing again raises the epoch again, a committed offset is committed
again. An operation that was cut short is finished by starting it anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.wire.site_role import SiteStanding
from broker.wire.vocabulary import TopicPartition
from failover.contact import BrokerAnswer, SiteFinding, call_site
from failover.counting import count_losses, with_edges
from failover.errors import CutShort, GroupsRead, NotDrained, NotMovable, OperationUnderWay
from failover.freezing import Freeze
from failover.journal import FINISHED, Journal, is_unfinished
from failover.limits import DRAIN_POLL_S, LATE_WRITES_S, QUIET_S, SOURCE_LOOK_MS, TAKEN_OVER_S
from failover.losses import Certainty, LossTotal, PartitionLoss, state_loss, total_loss
from failover.observe import observe
from failover.plan import (
    GroupMove,
    GroupTotal,
    MoveKind,
    Operation,
    OperationPlan,
    OperationStep,
    active_at_source,
    group_totals,
    not_movable,
    plan_moves,
)
from failover.snapshot import Snapshot
from failover.stranded import StrandedRange, stranded_ranges
from failover.verification import (
    VerificationDifference,
    unfenced,
    verify_ends,
    verify_groups,
    verify_own,
    verify_readers,
)
from mirror.api import Link, MirrorError, promote_link, read_entries

T = TypeVar("T")

BEFORE_FENCE: Final = (OperationStep.FREEZE, OperationStep.DRAIN)
"""What is undone, or has changed nothing, where the operation is given up."""


@dataclass(frozen=True, slots=True)
class OperationResult:
    """How an operation ended. Its exit code says whether it is `verified`, and nothing is `stranded`: what came to the
    source after the fence, and is only there. `source_role`: what the source's brokers have taken; None: not told.
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
    journal: str
    loss: LossTotal
    group_totals: tuple[GroupTotal, ...] = ()
    left_groups: tuple[str, ...] = ()
    """The groups that stayed behind, as was consented to: some of their moves are not known."""
    stranded: tuple[StrandedRange, ...] = ()
    source_role: SiteStanding | None = None


@dataclass(frozen=True, slots=True)
class Sites:
    """The two ends of the link; `source` is None when it does not answer, `answers` what its brokers said at first.

    `in_part`: the source was found to be there in part, and is not asked for the whole again.
    """

    link: Link
    source: Cluster | None
    target: Cluster
    groups: tuple[str, ...]
    now_ms: Callable[[], int]
    answers: tuple[BrokerAnswer, ...] = ()
    in_part: bool = False

    async def look(self) -> Snapshot:
        """Both sites as they are. Raises ClientError when one of them does not answer wholly."""
        return self._with_evidence(
            await observe(self.link, self.source, self.target, self.groups, self.now_ms()), self.answers
        )

    async def look_past_source(self) -> Snapshot:
        """The same for a failover, which a source that answers slowly, in part or not at all does not hold up.

        What a part of it still tells is used; what cannot be read there is a part that does not. It is dead only where
        none of its brokers answers anything, and in part only where it is the source that left out something. Raises
        ClientError, MirrorError for what the target does.
        """
        answers = self.answers
        if self.source is not None:
            if not self.in_part:
                with suppress(ClientError, MirrorError):  # of either site: the looks that follow tell them apart
                    if seen := await self._observed(in_part=False):
                        return self._with_evidence(seen, answers)
            answers = await call_site(self.source, self.now_ms)
            if any(answer.answered for answer in answers) and (seen := await self._observed(in_part=True)):
                return self._with_evidence(seen, answers)
        return self._with_evidence(await observe(self.link, None, self.target, self.groups, self.now_ms()), answers)

    async def _observed(self, *, in_part: bool) -> Snapshot | None:
        """None where it takes too long. Raises ClientError and MirrorError, as `observe` does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SOURCE_LOOK_MS / 1000):
                return await observe(self.link, self.source, self.target, self.groups, self.now_ms(), in_part=in_part)
        return None

    def as_found(self, snapshot: Snapshot) -> Sites:
        """The sites as the looks that follow may rely on them."""
        if snapshot.source_finding is SiteFinding.DEAD:
            return replace(self, source=None)
        return replace(self, in_part=snapshot.source_finding is SiteFinding.PARTLY_THERE)

    @staticmethod
    def _with_evidence(snapshot: Snapshot, answers: tuple[BrokerAnswer, ...]) -> Snapshot:
        """A source of which nothing but a first word came is not dead."""
        finding = snapshot.source_finding
        if finding is SiteFinding.DEAD and any(answer.answered for answer in answers):
            finding = SiteFinding.PARTLY_THERE
        return replace(snapshot, source_finding=finding, evidence=answers)


def mark_interrupted(snapshot: Snapshot, journals: Path) -> Snapshot:
    """The snapshot, marked where the operation that promoted the link was cut short. Raises JournalDamaged."""
    promoted = snapshot.link_state == "promoted"
    return replace(snapshot, interrupted=promoted and is_unfinished(journals, snapshot.operation_id))


async def carry_out(plan: OperationPlan, sites: Sites, journal: Journal, drain_timeout_s: float) -> OperationResult:
    """Run the plan's steps. Raises GateRefused and ClientError before anything was changed, StillFrozen where all but
    the freeze is as it was, then CutShort.
    """
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    journal.record("planned", to_document(plan))
    run = _Run(plan, sites, journal, drain_timeout_s)
    for step in plan.steps:
        journal.record("started", {"step": step.value})
        with _told_as_cut_short(step, sites):
            try:
                await run.take(step)
            except BaseException as error:  # whatever it is, it goes on when clients of the source may write again
                if step in BEFORE_FENCE or isinstance(error, OperationUnderWay):
                    await run.freeze.undo(error)
                raise
        journal.record("done", {"step": step.value})
    losses = await stated_losses(sites, run.snapshot)
    result = OperationResult(
        operation_id=journal.operation_id,
        operation=plan.operation,
        link=sites.link.name,
        source=run.snapshot.source,
        target=run.snapshot.target,
        verified=not run.differences,
        seconds=loop.time() - started_s,
        losses=losses,
        moves=run.moves,
        differences=run.differences,
        journal=str(journal.path),
        group_totals=group_totals(run.moves),
        loss=total_loss(losses, sites.now_ms(), run.snapshot.last_look),
        left_groups=tuple(sorted({move.group for move in run.moves if move.kind is MoveKind.UNKNOWN})),
        stranded=run.stranded,
        source_role=run.source_role,
    )
    journal.record(FINISHED, to_document(result))
    return result


class _Run:
    """What the steps of one operation have found so far."""

    def __init__(self, plan: OperationPlan, sites: Sites, journal: Journal, drain_timeout_s: float) -> None:
        self.snapshot = plan.snapshot
        self.moves: tuple[GroupMove, ...] = plan.moves
        self.differences: tuple[VerificationDifference, ...] = ()
        self.stranded: tuple[StrandedRange, ...] = ()
        self.source_role: SiteStanding | None = None
        self.freeze = Freeze(plan.freezing, sites.link, (sites.source, sites.target), journal.operation_id)
        self._plan = plan
        self._sites = sites
        self._journal = journal
        self._drain_timeout_s = drain_timeout_s
        self._fenced_at_s = 0.0

    async def take(self, step: OperationStep) -> None:
        plan, sites = self._plan, self._sites
        match step:
            case OperationStep.FREEZE:
                await self.freeze.begin()
                await _patiently(self.freeze.refuse_writes)
            case OperationStep.DRAIN:
                self.snapshot = await drain(sites, self._drain_timeout_s)
                if reading := active_at_source(self.snapshot.groups):
                    raise GroupsRead([refusal.subject for refusal in reading])
                if refused := not_movable(plan_moves(self.snapshot, plan.set_back_groups), plan.left_groups):
                    raise NotMovable([refusal.subject for refusal in refused])
            case OperationStep.FENCE:
                await self._fence()
            case OperationStep.MOVE_GROUPS:
                if plan.by_offset_map:
                    self.moves = tuple(plan_moves(self.snapshot, plan.set_back_groups))
                await move_groups(sites, self.moves)
            case OperationStep.HAND_OVER:
                is_lost = plan.operation is Operation.FAILOVER
                self.source_role = await _patiently(partial(self.freeze.hand_over, even_without_source=is_lost))
            case OperationStep.VERIFY:
                verifying = partial(verify, plan, sites, self.snapshot, self.moves, self._journal.operation_id)
                self.differences = (*self.differences, *await _patiently(verifying))
                if plan.operation is Operation.SWITCHOVER and sites.source is not None:
                    await self._watch_late_writes(sites.source)

    async def _fence(self) -> None:
        plan, sites, journal = self._plan, self._sites, self._journal
        await _patiently(lambda: _refuse_other(plan, sites))
        fence = await _patiently(partial(promote_link, sites.link, sites.target, journal.operation_id))
        self._fenced_at_s = asyncio.get_running_loop().time()
        self.differences = tuple(
            unfenced(sites.link.name, fence.left_out, are_groups_fenced=fence.groups_error is None)
        )
        if self.differences:
            reasons = {str(at): str(why) for at, why in fence.left_out.items()}
            reasons |= {"groups": str(fence.groups_error)} if fence.groups_error is not None else {}
            journal.record("not_fenced", reasons)
        self.snapshot = await _patiently(lambda: _look(plan.operation, sites))

    async def _watch_late_writes(self, source: Cluster) -> None:
        """Where nobody refuses them, they are waited for: who writes now and then was quiet while it was drained."""
        if not self._plan.freezing.is_enforced:
            left_s = self._fenced_at_s + LATE_WRITES_S - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, left_s))
        self.stranded = await _patiently(partial(stranded_ranges, self._sites.link, source, self.snapshot))


@contextmanager
def _told_as_cut_short(step: OperationStep, sites: Sites) -> Iterator[None]:
    """Before the fence nothing has been changed, and the site's own error says enough."""
    try:
        yield
    except ClientError as error:
        if step in BEFORE_FENCE:
            raise
        raise CutShort(
            f"the operation was cut short in its step {step}, and {sites.link.name} may be moved in part: {error}",
            hint=f"when {sites.target.site.name} answers, run the same command again: it finishes what was begun",
        ) from error


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Asked again while brokers take over from one that went: what may be repeated. Raises ClientError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TAKEN_OVER_S
    while True:
        try:
            return await ask()
        except ClientError as error:
            if not error.retriable or loop.time() > deadline:
                raise
        await asyncio.sleep(DRAIN_POLL_S)


async def drain(sites: Sites, timeout_s: float) -> Snapshot:
    """Wait until the mirror has everything and the source has been quiet for QUIET_S.

    A look that fails, as one does while a broker's partitions have no leader, is followed by another one.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    quiet_since: float | None = None
    ends: tuple[int | None, ...] = ()
    while True:
        try:
            snapshot = await sites.look()
        except ClientError as error:
            if not error.retriable:
                raise
            if loop.time() > deadline:
                text = f"after {timeout_s:.0f} s it is not known whether everything is mirrored: {error}"
                raise NotDrained(f"{text}; nothing was changed", hint=error.hint) from error
            quiet_since, ends = None, ()
            await asyncio.sleep(DRAIN_POLL_S)
            continue
        behind = total_loss(state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions)
        now_ends = tuple(view.source_end for view in snapshot.partitions)
        drained = behind.certainty is Certainty.EXACT and not behind.offsets
        if now_ends != ends or not drained:
            quiet_since, ends = None, now_ends
        elif quiet_since is None:
            quiet_since = loop.time()
        if drained and quiet_since is not None and loop.time() - quiet_since >= QUIET_S:
            return snapshot
        if loop.time() > deadline:
            raise NotDrained(
                f"{behind.offsets} offsets in {behind.partitions_with_loss} partitions were still not mirrored "
                f"after {timeout_s:.0f} s; nothing was changed"
                if behind.offsets
                else f"{snapshot.source} was still being written to after {timeout_s:.0f} s; nothing was changed",
                hint="stop the producers at the source, see `farshore status`, then try again",
            )
        await asyncio.sleep(DRAIN_POLL_S)


async def _look(operation: Operation, sites: Sites) -> Snapshot:
    return await (sites.look_past_source() if operation is Operation.FAILOVER else sites.look())


async def move_groups(sites: Sites, moves: tuple[GroupMove, ...]) -> None:
    """Commit each group's offsets at the target, all of a group in one request."""
    by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for move in moves:
        if move.commits and move.target_offset is not None:
            at = TopicPartition(move.target_topic, move.partition)
            by_group.setdefault(move.group, {})[at] = CommittedOffset(move.target_offset, move.metadata)
    for group, offsets in by_group.items():
        with suppress(KafkaError):  # a consumer has come, say: the others are moved, and the check finds this one
            await commit_offsets(sites.target, group, offsets)


async def verify(
    plan: OperationPlan, sites: Sites, before: Snapshot, moves: tuple[GroupMove, ...], operation_id: str
) -> tuple[VerificationDifference, ...]:
    """Look again: what was promised must be what is there."""
    after = await _look(plan.operation, sites)
    differences = [*verify_own(after, operation_id), *verify_groups(after, moves, plan.left_groups)]
    if plan.operation is Operation.SWITCHOVER and sites.source is not None:
        differences += verify_readers(after)
        was_moved_before = plan.snapshot.link_state == "promoted"
        differences += await verify_ends(sites.source, sites.target, before, _as_mirrored(after, was_moved_before))
    return tuple(differences)


async def _refuse_other(plan: OperationPlan, sites: Sites) -> None:
    """Raise OperationUnderWay where the link was moved, or resumed, since the plan was made."""
    run = (await read_entries(sites.link, sites.target)).run
    state, operation_id = (run.state.value, run.operation_id) if run else ("running", "")
    if (state, operation_id) != (plan.snapshot.link_state, plan.snapshot.operation_id):
        raise OperationUnderWay(
            f"since the plan was made, {operation_id or 'another operation'} set the link {sites.link.name} to {state}",
            hint="look again with --dry-run",
        )


def _as_mirrored(snapshot: Snapshot, was_moved_before: bool) -> Snapshot:
    """The target's ends as the mirror left them, where applications may have written there since an earlier run."""
    if not was_moved_before:
        return snapshot
    return replace(
        snapshot,
        partitions=tuple(
            view if view.mirrored_target_next is None else replace(view, target_end=view.mirrored_target_next)
            for view in snapshot.partitions
        ),
    )


async def stated_losses(sites: Sites, snapshot: Snapshot) -> tuple[PartitionLoss, ...]:
    """What the target lacks, counted, and with first and last timestamps, where the source can still be read."""
    losses = tuple(state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions)
    if sites.source is None:
        return losses
    shared = {TopicPartition(view.topic, view.partition) for view in snapshot.partitions if view.has_local_writers}
    counted = await count_losses(sites.source, losses, shared)
    dated = [loss for loss in counted if loss.records != 0 and loss.certainty is Certainty.EXACT]
    edges = {(loss.topic, loss.partition): loss for loss in await with_edges(sites.source, dated)}
    return tuple(edges.get((loss.topic, loss.partition), loss) for loss in counted)
