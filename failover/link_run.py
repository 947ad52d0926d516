"""The steps of a switchover or failover that each of its links takes. Every one may be repeated: draining only waits,
fencing again raises the epoch again, a committed offset is committed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from broker.base.errors import FarshoreError
from broker.client.errors import ClientError
from broker.wire.vocabulary import TopicPartition
from failover.contact import SiteFinding
from failover.ends_at_fence import ends_at_fence, last_seen_ends, stood_for
from failover.errors import GroupsRead, NotDrained, NotMovable, OperationUnderWay, TakenOver
from failover.late_commits import LateCommit, late_commits
from failover.left import LeftPartition, left_partitions, let_be, promised
from failover.limits import DRAIN_POLL_S, FENCED_TRIES_MAX, LATE_WRITES_S, LOOK_AGAIN_S, QUIET_S, TAKEN_OVER_S
from failover.losses import Certainty, state_loss, total_loss
from failover.moves import GroupMove, MoveKind, plan_moves
from failover.moving import KeptGroups, committing, move_groups, promoted_again
from failover.open_transactions import Holding, open_transactions
from failover.patience import patiently
from failover.plan import OperationPlan, active_at_source, not_movable
from failover.read_on import GroupAt, ReadOn, who_read_on
from failover.sites import Sites
from failover.snapshot import Snapshot
from failover.steps import BEFORE_FENCE, Operation, OperationStep
from failover.stranded import StrandedRange, stranded_ranges
from failover.verification import (
    DifferenceKind,
    VerificationDifference,
    unfenced,
    verify_ends,
    verify_groups,
    verify_own,
    verify_readers,
)
from mirror.api import Promotion, RunState, promote_link, tell_links_back


@dataclass(frozen=True, slots=True)
class LinkMove:
    """One link that is to be moved, and how. `moves`: those of its groups that an earlier run of the operation has
    decided on, after a drain or for good; `are_moved`: and made, but for those of the `uncommitted` groups, of which
    that is not known. `begun_moves`: those that it began to make. `verified`: where it had verified groups at the
    target, and, as a switchover, compared the sites; applications may have started there since. None: it had not.
    """

    plan: OperationPlan
    sites: Sites
    moves: tuple[GroupMove, ...] | None = None
    are_moved: bool = False
    uncommitted: frozenset[str] = frozenset()
    begun_moves: tuple[GroupMove, ...] = ()
    verified: Mapping[GroupAt, int] | None = None


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
        self, move: LinkMove, operation_id: str, drain_timeout_s: float, renew: Callable[[], Awaitable[None]]
    ) -> None:
        self.plan = move.plan
        self.sites = move.sites
        self.snapshot = move.plan.snapshot
        self.moves: tuple[GroupMove, ...] = move.plan.moves if move.moves is None else move.moves
        self.differences: tuple[VerificationDifference, ...] = ()
        self.stranded: tuple[StrandedRange, ...] = ()
        self.late_commits: tuple[LateCommit, ...] = ()
        self.read_on: tuple[ReadOn, ...] = ()
        self.uncommitted: frozenset[str] = move.uncommitted
        self.unfenced: dict[str, str] = {}
        self._not_fenced: frozenset[TopicPartition] = frozenset()
        self.failure: LinkFailure | None = None
        self._move = move
        self._operation_id = operation_id
        self._drain_timeout_s = drain_timeout_s
        self._renew = renew
        self._fenced_at_s = 0.0
        self._fenced: Promotion | None = None
        self._promote: Callable[[], Awaitable[Promotion]] | None = None

    @property
    def is_promoted(self) -> bool:
        """Whether an earlier run of this operation fenced the link."""
        seen = self.plan.snapshot
        return (seen.link_state, seen.operation_id) == ("promoted", self._operation_id)

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
        is_before = step in BEFORE_FENCE or isinstance(error, OperationUnderWay)
        self.failure = LinkFailure(step, str(error), error.hint, is_before and not self.is_promoted)

    async def take(self, step: OperationStep) -> None:
        plan = self.plan
        match step:
            case OperationStep.DRAIN if self.is_promoted:  # it was drained before that
                return
            case OperationStep.DRAIN:
                draining = settle if plan.snapshot.is_promoted else drain
                self.snapshot = await draining(self.sites, self._drain_timeout_s)
                if reading := active_at_source(self.snapshot.groups):
                    raise GroupsRead([refusal.subject for refusal in reading])
                self.moves = tuple(plan_moves(self.snapshot, plan.set_back_groups))
                if refused := not_movable(self.moves, plan.left_groups):
                    raise NotMovable([refusal.subject for refusal in refused])
            case OperationStep.FENCE:
                await self._fence()
            case OperationStep.MOVE_GROUPS:
                if not self._move.are_moved or self.uncommitted:
                    await self._move_groups()
            case OperationStep.VERIFY:
                verifying = partial(
                    verify, plan, self.sites, self.snapshot, self.moves, self._operation_id, self._move.verified
                )
                differences, self.read_on = await patiently(verifying)
                self.differences = (*self.differences, *differences)

    def choose_moves(self) -> None:
        """Behind the fence. A group that was to be set back, and may have been, is so once, whatever it read since."""
        if not self.plan.by_offset_map or self._move.moves is not None:
            return
        back = self.plan.set_back_groups
        begun = {(one.group, one.topic, one.partition): one for one in self._move.begun_moves if one.group in back}
        planned = plan_moves(self.snapshot, back)
        self.moves = tuple(begun.get((one.group, one.topic, one.partition), one) for one in planned)

    def moves_document(self) -> list[dict[str, Any]]:
        """For the journal: what another machine goes on with."""
        return [move.document() for move in self.moves]

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
        known = await kept.read()
        commits = committing(target, self.sites.link, self._fenced)
        due = tuple(move for move in self.moves if not self._move.are_moved or move.group in self.uncommitted)
        made = await move_groups(target, due, known, kept.write, commits, self.sites.now_ms())
        by_place = {(move.group, move.place): move for move in made.moves}
        self.moves = tuple(by_place.get((move.group, move.place), move) for move in self.moves)
        self.uncommitted = made.uncommitted

    async def _fence(self) -> None:
        plan, sites = self.plan, self.sites
        await patiently(lambda: _refuse_other(plan, sites, self._operation_id))
        standing = await tell_links_back(sites.link, sites.source, self._operation_id) if sites.source else ()
        if plan.operation is Operation.FAILOVER:
            ends = await ends_at_fence(sites.link, sites.source, self.snapshot, sites.now_ms)
        else:  # the drain has just looked
            ends = last_seen_ends(self.snapshot, is_told=True)
        after = stood_for(standing, plan.freezing.target, self.snapshot)
        state = sites.readers.states.of(sites.link)
        asked = (self._operation_id, after, state, ends, self._renew)
        self._promote = partial(promote_link, sites.link, sites.target, *asked)
        fence = await patiently(self._promote)
        self._fenced_at_s = asyncio.get_running_loop().time()
        self._fenced = fence
        self.unfenced = {str(at): str(why) for at, why in fence.left_out.items()}
        self.unfenced |= {"groups": str(fence.groups_error)} if fence.groups_error is not None else {}
        self.snapshot = await patiently(lambda: _look_as_found(plan, sites))
        self._not_fenced = frozenset(fence.left_out)
        left = {TopicPartition(view.target_topic, view.partition) for view in let_be(plan, self.snapshot)}
        missed = self._not_fenced - left
        self.differences = tuple(unfenced(sites.link.name, missed, are_groups_fenced=fence.groups_error is None))

    @property
    def left_partitions(self) -> tuple[LeftPartition, ...]:
        return left_partitions(self.snapshot, self.moves, self._not_fenced)

    @property
    def left_groups(self) -> frozenset[str]:
        """Of which something was left as it is at the target: an offset, or all."""
        unanswered = {group.group for group in self.snapshot.groups if group.unanswered}
        return frozenset(unanswered | {move.group for move in self.moves if move.kind is MoveKind.UNKNOWN})

    @property
    def watches_source(self) -> bool:
        return self.plan.operation is Operation.SWITCHOVER and self.sites.source is not None

    @property
    def is_unwatched(self) -> bool:
        """Whether the source, which is to be watched, does not answer any more."""
        return self.plan.operation is Operation.SWITCHOVER and self.sites.source is None

    async def watch_source(self) -> None:
        """Where nobody refuses records they are waited for: who writes now and then was quiet while it was drained.
        Then who reads on is looked for, too: a consumer without members nobody can refuse.
        """
        source = self.sites.source
        if source is None or not self.watches_source:
            return
        if not self.plan.freezing.is_by_role:  # a super user passes by the ACLs
            left_s = self._fenced_at_s + LATE_WRITES_S - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, left_s))
        self.stranded = await patiently(
            partial(stranded_ranges, self.sites.link, source, self.sites.target, self.snapshot)
        )
        plan, asked = self.plan, self.sites.groups
        named = (self.sites.link, (source, self.sites.target), asked, self.moves, plan.left_groups)
        self.late_commits = await patiently(partial(late_commits, *named))


async def drain(sites: Sites, timeout_s: float) -> Snapshot:
    """Wait until the mirror has everything and the source has been quiet for QUIET_S.

    A look that fails, as one does while a broker's partitions have no leader, is followed by another one.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    quiet_since: float | None = None
    holding = Holding()
    ends: tuple[int | None, ...] = ()
    while True:
        asked_at_s = loop.time()
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
        if snapshot.paused_topics:
            topics = ",".join(snapshot.paused_topics)
            text = f"{topics} of {snapshot.link} was paused, so what is missing would not come; nothing was changed"
            raise NotDrained(text, hint=f"farshore topic resume --link {snapshot.link} --topic {topics}")
        behind = total_loss(state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions)
        now_ends = tuple(view.source_end for view in snapshot.partitions)
        drained = behind.certainty is Certainty.EXACT and not behind.offsets
        if now_ends == ends and not drained and sites.source is not None:
            holding.note(await open_transactions(sites.source, snapshot.partitions), loop.time())
        if now_ends != ends or not drained:
            quiet_since, ends = loop.time() if drained else None, now_ends
        elif quiet_since is None:
            quiet_since = loop.time()
        if drained and quiet_since is not None and loop.time() - quiet_since >= QUIET_S:
            return snapshot
        if loop.time() > deadline:
            raise holding.error(snapshot.source, timeout_s) or NotDrained(
                f"{behind.offsets} offsets in {behind.partitions_with_loss} partitions were still not mirrored "
                f"after {timeout_s:.0f} s; nothing was changed"
                if behind.offsets
                else f"{snapshot.source} was still being written to after {timeout_s:.0f} s; nothing was changed",
                hint="stop the producers at the source, see `farshore status`, then try again",
            )
        await asyncio.sleep(DRAIN_POLL_S if quiet_since is None else _until_quiet(quiet_since, asked_at_s, deadline))


def _until_quiet(quiet_since_s: float, asked_at_s: float, deadline_s: float) -> float:
    """Seconds until the look that ends when the source has been quiet for long enough: those in between would say
    nothing more, and cost the mirror and both sites what they do for it. One takes as long as the last one.
    """
    now_s = asyncio.get_running_loop().time()
    left_s = quiet_since_s + QUIET_S - now_s - (now_s - asked_at_s) / 2
    return max(DRAIN_POLL_S, min(left_s, deadline_s - now_s))


async def settle(sites: Sites, timeout_s: float) -> Snapshot:
    """Of a link that was moved before, whose mirror brings nothing more: see that its source has nothing of its own
    that nobody decided about. What a link back brought there the target has. Raises NotDrained, ClientError.
    """
    assert sites.source is not None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        snapshot = await patiently(sites.look)
        stranded = await patiently(partial(stranded_ranges, sites.link, sites.source, sites.target, snapshot))
        if not stranded:
            return snapshot
        counts = [one.records for one in stranded]
        if None not in counts or loop.time() > deadline:  # a transaction that is open ends, one way or the other
            link, source, known = sites.link.name, sites.link.source.name, sum(count or 0 for count in counts)
            least = "at least " if None in counts else ""
            raise NotDrained(
                f"{source} alone has {least}{known} records of {link}, which was moved before and brings no more; "
                "nothing was changed",
                hint=f"see `farshore stranded list --link {link}`; they stay there: `farshore stranded leave --link "
                f"{link}`, then try again; or the link brings them: `farshore link resume --link {link}`",
            )
        await asyncio.sleep(DRAIN_POLL_S)


async def _look(plan: OperationPlan, sites: Sites) -> Snapshot:
    """Of a failover: brokers that take over from one that went have their time, and what was left has none."""
    if plan.operation is Operation.FAILOVER:
        return await sites.look_past_source(plan.snapshot.unanswered, TAKEN_OVER_S)
    return await sites.look()


async def _look_as_found(plan: OperationPlan, sites: Sites) -> Snapshot:
    """As `_look`, again where a source that answered wholly before tells but a part now: a line that was lost must not
    keep groups where the plan had them move. One that went away in between is taken as it is after LOOK_AGAIN_S.
    """
    loop = asyncio.get_running_loop()
    give_up_at_s = loop.time() + LOOK_AGAIN_S
    was_whole = plan.snapshot.source_finding is SiteFinding.ALIVE
    seen = await _look(plan, sites)
    while was_whole and seen.source_finding is SiteFinding.PARTLY_THERE and loop.time() < give_up_at_s:
        seen = await _look(plan, sites)
    return seen


async def verify(
    plan: OperationPlan,
    sites: Sites,
    before: Snapshot,
    moves: tuple[GroupMove, ...],
    operation_id: str,
    verified: Mapping[GroupAt, int] | None,
) -> tuple[tuple[VerificationDifference, ...], tuple[ReadOn, ...]]:
    """Look again: what was promised must be what is there, but for who was `verified` before, and read on since."""
    after = await _look(plan, sites)
    read_on, others = who_read_on(after, moves, verified or {})
    differences = [
        *verify_own(after, operation_id),
        *verify_groups(after, promised(plan, before, others), plan.left_groups),
    ]
    if plan.operation is Operation.SWITCHOVER and sites.source is None and verified is None:
        kind, source = DifferenceKind.SOURCE_NOT_COMPARED, sites.link.source.name
        differences.append(VerificationDifference(kind, source, -1, None, None))
    elif plan.operation is Operation.SWITCHOVER and sites.source is not None:
        differences += verify_readers(after)
        was_moved_before = plan.snapshot.is_promoted
        differences += await verify_ends(sites.source, sites.target, before, _as_mirrored(after, was_moved_before))
    return tuple(differences), read_on


async def _refuse_other(plan: OperationPlan, sites: Sites, own_id: str) -> None:
    """Raise OperationUnderWay where the link was moved, or resumed, since the plan was made; not where it was promoted
    by this very operation, whose machine before may be heard late.
    """
    run = (await sites.readers.states.of(sites.link).read(sites.target)).run
    state, operation_id = (run.state.value, run.operation_id) if run else ("running", "")
    if (state, operation_id) == (RunState.PROMOTED.value, own_id):
        return
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
