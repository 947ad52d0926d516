"""The steps of a switchover or failover that each of its links takes. Every one may be repeated: draining only waits,
fencing again raises the epoch again, a committed offset is committed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout, timeout_at
from broker.client.fanout import both
from broker.wire.vocabulary import TopicPartition
from failover.errors import GroupsRead, NotMovable, OperationUnderWay, ReadsMore, SkipsMore, TakenOver
from failover.freezing.choice import Freezing
from failover.freezing.denials import is_named
from failover.journal.opposite import refuse_opposite
from failover.limits import DRAINED_HOLDS_S, FENCED_TRIES_MAX, HEARTBEAT_S, LATE_LOOK_S, LATE_WRITES_S, QUIET_S
from failover.losses.statements import PartitionLoss
from failover.losses.stranded import CountedNone, StrandedRange, stranded_ranges
from failover.observing.contact import SiteFinding
from failover.observing.ends_at_fence import ends_at_fence, last_seen_ends, stood_for
from failover.observing.held_silence import SourceHeard
from failover.observing.returned import no_more_returned
from failover.observing.sites import Sites
from failover.planning.left import LeftPartition, left_partitions, let_be
from failover.planning.moves import GroupMove, MoveKind, plan_moves
from failover.planning.plan import Elsewhere, OperationPlan, active_at_source, not_movable
from failover.planning.to_datetime import seen_again
from failover.planning.unplanned import unplanned_read_again, unplanned_skips, with_gone
from failover.running.draining import drain, settle
from failover.running.late_commits import LateCommit, SourceReader, as_asked, late_commits, late_commits_told
from failover.running.moving import KeptGroups, committing, move_groups, promoted_again
from failover.running.patience import patiently
from failover.running.read_on import GroupAt, ReadOn
from failover.running.steps import BEFORE_FENCE, Operation, OperationStep
from failover.running.third_site import refuse_third_site
from failover.running.verification import VerificationDifference, unfenced
from failover.running.verifying import look_as_found, verify
from mirror.api import MirrorError, Promotion, RunState, promote_link, tell_links_back

NOTHING_CHANGED: Final = (OperationUnderWay, SourceHeard)
"""Of the step of the fence: what is asked right before it."""


@dataclass(frozen=True, slots=True)
class LinkMove:
    """One link that is to be moved, and how. `moves`: those of its groups that an earlier run of the operation has
    decided on, after a drain or for good; `are_moved`: and made, but for those of the `uncommitted` groups, of which
    that is not known. `begun_moves`: those that it began to make. `is_source_asked`: it is known that the source was
    asked where groups stand when these were decided on. `verified`: where it had verified groups at the target, and, as
    a switchover, compared the sites; applications may have started there since. None: it had not.
    `consented`: the moves that somebody said yes to, where the plan was made anew since; None: those of the plan.
    `was_paused`: the link, before an earlier run promoted it.
    """

    plan: OperationPlan
    sites: Sites
    moves: tuple[GroupMove, ...] | None = None
    are_moved: bool = False
    uncommitted: frozenset[str] = frozenset()
    begun_moves: tuple[GroupMove, ...] = ()
    is_source_asked: bool = True
    verified: Mapping[GroupAt, int] | None = None
    consented: tuple[GroupMove, ...] | None = None
    was_paused: bool = False


@dataclass(frozen=True, slots=True)
class LinkFailure:
    """Why a link was not brought to the operation's end, and in which step. `is_given_up`: nothing of it was changed,
    and it runs on as before; else it may be moved in part, and the operation is to be resumed.
    """

    step: OperationStep
    error: str
    hint: str
    is_given_up: bool


class LinkRun:
    """What the steps of one link have found so far; after a `failure` it takes none."""

    def __init__(
        self,
        move: LinkMove,
        operation_id: str,
        drain_timeout_s: float,
        freezing: Freezing,
        renew: Callable[[], Awaitable[None]],
    ) -> None:
        """`freezing`: of all links of the operation, as it is carried out."""
        self.plan = move.plan
        self.sites = move.sites
        self.snapshot = move.plan.snapshot
        self.was_paused = move.was_paused or move.plan.snapshot.link_state == "paused"
        self.moves: tuple[GroupMove, ...] = move.plan.moves if move.moves is None else move.moves
        self.consented: tuple[GroupMove, ...] = move.plan.moves if move.consented is None else move.consented
        self.differences: tuple[VerificationDifference, ...] = ()
        self.losses: tuple[PartitionLoss, ...] = move.plan.losses
        self.stated_at_ms: int = move.plan.snapshot.taken_at_ms
        """When the source was asked, or was found not to answer, for what the losses say."""
        self.stranded: tuple[StrandedRange, ...] = ()
        self.unshown: tuple[StrandedRange, ...] = ()
        """What nobody is shown there, where a link back may be bringing it."""
        self.late_commits: tuple[LateCommit, ...] = ()
        self._is_late_look_lost = False
        self.are_late_records_known = False
        """Of a switchover: whether its source told what came behind the fence."""
        self.read_on: tuple[ReadOn, ...] = ()
        self.source_readers: tuple[SourceReader, ...] = ()
        self.not_compared: tuple[str, ...] = ()
        self.uncommitted: frozenset[str] = move.uncommitted
        self.unfenced: dict[str, str] = {}
        self.silent_at_fence: tuple[Elsewhere, ...] = ()
        self._not_fenced: frozenset[TopicPartition] = frozenset()
        self.failure: LinkFailure | None = None
        self._move = move
        self._begun: frozenset[tuple[str, str, int]] = frozenset()
        """Of whose moves it is kept what an earlier run had decided on."""
        self._operation_id = operation_id
        self._drain_timeout_s = drain_timeout_s
        self._freezing = freezing
        self._none_in = CountedNone()
        self._renew = renew
        self._drained_at_s = self._fenced_at_s = 0.0
        self._fenced: Promotion | None = None
        self._promote: Callable[[], Awaitable[Promotion]] | None = None

    @property
    def is_promoted(self) -> bool:
        """Whether an earlier run of this operation fenced the link."""
        seen = self.plan.snapshot
        return (seen.link_state, seen.operation_id) == ("promoted", self._operation_id)

    @property
    def is_fenced(self) -> bool:
        """By this run, or an earlier one."""
        return self.is_promoted or self._fenced is not None

    @property
    def is_look_old(self) -> bool:
        """Of one that was drained while others took long: producers may have written since, where nothing keeps them
        from it.
        """
        is_open = not self._freezing.is_enforced and not self.is_promoted
        return is_open and self._drained_s_ago > DRAINED_HOLDS_S

    @property
    def _drained_s_ago(self) -> float:
        return asyncio.get_running_loop().time() - self._drained_at_s

    @property
    def is_given_up(self) -> bool:
        return self.failure is not None and self.failure.is_given_up

    async def try_to_take(self, step: OperationStep, *, watching: bool = False) -> FarshoreError | None:
        """What it fails with, if it does. `watching`: what is left of the step when the groups stand verified."""
        try:
            await (self.watch_source() if watching else self.take(step))
        except FarshoreError as error:
            self.fail(step, error)
            return error
        return None

    def fail(self, step: OperationStep, error: FarshoreError) -> None:
        is_before = step in BEFORE_FENCE or isinstance(error, NOTHING_CHANGED)
        self.failure = LinkFailure(step, str(error), error.hint, is_before and not self.is_promoted)

    async def take(self, step: OperationStep) -> None:
        plan = self.plan
        match step:
            case OperationStep.DRAIN if self.is_promoted:  # it was drained before that
                return
            case OperationStep.DRAIN:
                if plan.snapshot.is_promoted:
                    self.snapshot = await settle(self.sites, self._drain_timeout_s, self._none_in)
                else:
                    self.snapshot = await drain(self.sites, self._drain_timeout_s, self._freezing, self.snapshot)
                self._drained_at_s = asyncio.get_running_loop().time()
                if reading := active_at_source(self.snapshot.groups, plan.left_groups):
                    raise GroupsRead([refusal.subject for refusal in reading], self.sites.link.source.name)
                self.moves = with_gone(self.consented, plan_moves(self.snapshot, plan.set_back_groups))
                _refuse_unplanned(plan, self.consented, self.moves)
            case OperationStep.FENCE:
                await self._fence()
            case OperationStep.MOVE_GROUPS:
                if not self._move.are_moved or self.uncommitted:
                    await self._move_groups()
            case OperationStep.VERIFY:
                verifying = partial(
                    verify, plan, self.sites, self.snapshot, self.moves, self._operation_id, self._move.verified
                )
                checked = await patiently(verifying)
                self.read_on, self.source_readers = checked.read_on, checked.source_readers
                self.not_compared = checked.not_compared
                self.differences = (*self.differences, *checked.differences)

    def choose_moves(self) -> None:
        """Behind the fence. A group that was to be set back, and may have been, is so once, whatever it read since."""
        if self._move.moves is not None:
            return
        if not self.plan.by_offset_map:
            self.moves = with_gone(self.consented, seen_again(self.plan.moves, self.snapshot))
            return
        back = self.plan.set_back_groups
        begun = {(one.group, one.topic, one.partition): one for one in self._move.begun_moves if one.group in back}
        planned = with_gone(self.consented, plan_moves(self.snapshot, back))
        self.moves = tuple(begun.get((one.group, one.topic, one.partition), one) for one in planned)
        self._begun = frozenset((one.group, one.topic, one.partition) for one in planned) & begun.keys()

    def moves_document(self) -> list[dict[str, Any]]:
        """For the journal: what another machine goes on with."""
        return [move.document() for move in self.moves]

    @property
    def is_source_asked(self) -> bool:
        """Whether it is known that the source had told of all groups where they stand when their moves were decided on:
        then one without an offset there had none.
        """
        if self._move.moves is not None:
            return self._move.is_source_asked
        return self.snapshot.source_answers and (self._move.is_source_asked or not self._begun)

    def _moves_as_asked(self) -> tuple[GroupMove, ...]:
        if self.is_source_asked:
            return self.moves
        if self._move.moves is not None or not self.snapshot.source_answers:
            return as_asked(self.moves, self.snapshot)
        begun = [move for move in self.moves if (move.group, move.topic, move.partition) in self._begun]
        return (*as_asked(begun, self.snapshot), *(move for move in self.moves if move not in begun))

    async def _move_groups(self) -> None:
        """Again where a worker fenced the link that did not know yet that it is not its own: it waits from then on."""
        for tries_left in reversed(range(FENCED_TRIES_MAX)):
            try:
                await self._move_under_fence()
                return
            except TakenOver:
                asked = (self.sites, self._operation_id, self._fenced, self._promote)
                again = await promoted_again(*asked) if tries_left else None
                if again is None:
                    raise
                self._fenced = again

    async def _move_under_fence(self) -> None:
        assert self._fenced is not None, "each run fences the link before"
        target = self.sites.target
        kept = KeptGroups(self.sites, self._fenced.log)
        commits = committing(target, self.sites.link, self._fenced)
        due = tuple(move for move in self.moves if not self._move.are_moved or move.group in self.uncommitted)
        made = await move_groups(target, due, kept.read, kept.write, commits, self.sites.now_ms())
        by_place = {(move.group, move.place): move for move in made.moves}
        self.moves = tuple(by_place.get((move.group, move.place), move) for move in self.moves)
        self.uncommitted = made.uncommitted

    async def refuse_others(self) -> None:
        """Raises OperationUnderWay where somebody has the link, or its clients, since the plan was made."""
        plan, sites = self.plan, self.sites
        is_failover = plan.operation is Operation.FAILOVER
        own = patiently(lambda: _refuse_other(plan, sites, self._operation_id))
        others = both(refuse_opposite(sites, even_without_source=is_failover), refuse_third_site(plan, sites))
        _, (_, self.silent_at_fence) = await both(own, others)

    async def _fence(self) -> None:
        plan, sites = self.plan, self.sites
        is_failover = plan.operation is Operation.FAILOVER
        await self.refuse_others()
        standing = await tell_links_back(sites.link, sites.source, self._operation_id) if sites.source else ()
        after = stood_for(standing, plan.freezing.target, self.snapshot)
        state = sites.readers.states.of(sites.link)

        async def promote() -> Promotion:
            """By ends that are asked for each time: what comes while the target does not answer is before its fence."""
            if not is_failover and self._drained_s_ago <= QUIET_S:  # the drain has just looked
                ends = last_seen_ends(self.snapshot, is_told=True)
            else:
                ends = await ends_at_fence(sites.link, sites.source, self.snapshot, sites.now_ms)
            asked = (self._operation_id, after, state, ends, self._renew, self._refuse_heard)
            return await promote_link(sites.link, sites.target, *asked)

        self._promote = promote
        fence = await patiently(self._promote)
        self._fenced_at_s = asyncio.get_running_loop().time()
        self._fenced = fence
        self.unfenced = {str(at): str(why) for at, why in fence.left_out.items()}
        self.unfenced |= {"groups": str(fence.groups_error)} if fence.groups_error is not None else {}
        seen = await patiently(lambda: look_as_found(plan, self.sites))
        self.snapshot = no_more_returned(plan.snapshot, seen)
        self._not_fenced = frozenset(fence.left_out)
        left = {TopicPartition(view.target_topic, view.partition) for view in let_be(plan, self.snapshot)}
        missed = self._not_fenced - left
        self.differences = tuple(unfenced(sites.link.name, missed, are_groups_fenced=fence.groups_error is None))

    async def _refuse_heard(self) -> None:
        """Raise SourceHeard where a source that was found dead turns out to live. It is the last moment for that."""
        if self.plan.snapshot.source_finding is SiteFinding.DEAD and not self.is_promoted:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            self.sites = await self.sites.still_silent()
            if loop.time() - began_s > HEARTBEAT_S:  # beside the reads it was renewed; it costs a round trip
                await self._renew()

    @property
    def left_partitions(self) -> tuple[LeftPartition, ...]:
        return left_partitions(self.snapshot, self.moves, self._not_fenced)

    @property
    def left_groups(self) -> frozenset[str]:
        """Of which something was left as it is at the target: an offset, or all."""
        unanswered = {group.group for group in self.snapshot.groups if group.unanswered}
        return frozenset(unanswered | {move.group for move in self.moves if move.kind is MoveKind.UNKNOWN})

    @property
    def surprised_groups(self) -> frozenset[str]:
        """Which skip, or read again, what the plan that was consented to did not say."""
        skips = unplanned_skips(self.consented, self.moves, self.plan.left_groups)
        again = unplanned_read_again(self.consented, self.moves)
        return frozenset({*(one.group for one in skips), *(one.group for one in again)})

    @property
    def watches_source(self) -> bool:
        """Not where nothing of it can be asked by now, or another cluster answers in its place."""
        return self.sites.source is not None and not self.snapshot.source_finding.is_gone

    @property
    def is_unwatched(self) -> bool:
        """Whether the source, which is to be watched, does not answer any more, or did not say who commits there."""
        return self._is_late_look_lost or (self.plan.operation is Operation.SWITCHOVER and not self.watches_source)

    async def watch_source(self) -> None:
        """What comes late there is waited for, for as long as most consumers take to their next commit: who writes now
        and then was quiet while it was drained, and a consumer without members nobody can refuse.
        """
        link, source, plan = self.sites.link, self.sites.source, self.plan
        if source is None or not self.watches_source:
            return
        left_s = self._fenced_at_s + LATE_WRITES_S - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, left_s))
        named = (link, (source, self.sites.target), self.sites.groups, self._moves_as_asked(), plan.left_groups)
        self._is_late_look_lost = True
        if plan.operation is Operation.FAILOVER:  # what it wrote on is in the loss
            with suppress(FarshoreError, TimeoutError):  # it is left because it may go
                async with timeout(LATE_LOOK_S):
                    late, untold = await late_commits_told(*named)
                is_whole = self.snapshot.source_finding is SiteFinding.ALIVE  # else some moves go by an earlier look
                self.late_commits = tuple(one for one in late if is_whole or one.moved_offset is not None)
                self._is_late_look_lost = untold is not None
            return
        until_s = asyncio.get_running_loop().time() + LATE_LOOK_S
        with suppress(TimeoutError, MirrorError):  # all is moved and verified: clients wait for no source that hangs
            async with timeout_at(until_s):
                ends = (link, source, self.sites.target, self.snapshot)
                found = await patiently(partial(stranded_ranges, *ends, self._is_closed, until_s, self._none_in))
                self.stranded = tuple(one for one in found if not one.may_be_brought)
                self.unshown = tuple(one for one in found if one.may_be_brought)
                self.are_late_records_known = True
                self.late_commits = await patiently(partial(late_commits, *named))
            self._is_late_look_lost = False

    def _is_closed(self, topic: str) -> bool:
        """Whether every client is refused there by the source's role, as it has told before it was drained."""
        is_drained = self._drained_at_s > 0  # by a machine before this one: somebody may have let it take writes since
        return self._freezing.is_by_role and is_drained and is_named(topic, self._freezing.topics)


def _refuse_unplanned(plan: OperationPlan, consented: Collection[GroupMove], moves: Collection[GroupMove]) -> None:
    """Raise NotMovable, SkipsMore or ReadsMore where the moves are not those that were consented to."""
    if refused := not_movable(moves, plan.left_groups):
        raise NotMovable([refusal.subject for refusal in refused])
    if skips := list(unplanned_skips(consented, moves, plan.left_groups)):
        skipped = {f"{one.group} on {one.topic}-{one.partition}": one.skipped_records for one in skips}
        raise SkipsMore(skipped, plan.snapshot.target)
    if again := list(unplanned_read_again(consented, moves)):
        read_twice = {f"{one.group} on {one.topic}-{one.partition}": one.read_again_records for one in again}
        raise ReadsMore(read_twice, plan.snapshot.source)


async def _refuse_other(plan: OperationPlan, sites: Sites, own_id: str) -> None:
    """Raise OperationUnderWay where the link was moved, or resumed, since the plan was made; not where it was promoted
    by this very operation, whose machine before may be heard late.
    """
    run = (await sites.readers.states.of(sites.link).read(sites.target)).run
    state, operation_id = (run.state.value, run.operation_id) if run else ("running", "")
    if (state, operation_id) == (RunState.PROMOTED.value, own_id):
        return
    if (state, operation_id) != (plan.snapshot.link_state, plan.snapshot.operation_id):
        again = "look again with --dry-run"
        is_moved = state == RunState.PROMOTED.value
        raise OperationUnderWay(
            f"since the plan was made, {operation_id or 'another operation'} set the link {sites.link.name} to {state}",
            hint=f"`farshore operation show {operation_id}` says how it ended; then {again}" if is_moved else again,
            subject=sites.link.name,
            operation_id=operation_id,
        )
