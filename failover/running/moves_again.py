"""Each link of an operation that is taken up: as it is now, or why that cannot be told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from broker.base.errors import FarshoreError
from failover.errors import JournalDamaged, NewerVersion
from failover.freezing.hooks import Hooks
from failover.journal.asked import is_source_asked
from failover.journal.consented import consented_loss, consented_moves, refusing_skips, was_paused
from failover.journal.noted_lacks import as_noted
from failover.journal.standing import (
    done_moves,
    is_behind_fence,
    role_before,
    uncommitted_groups,
    was_writable_before,
)
from failover.journal.values import Event, OperationLog
from failover.losses.stated_losses import counted
from failover.losses.statements import Certainty, total_loss
from failover.observing.contact import SiteFinding
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.links import plan_link, plan_or_refuse
from failover.running.link_run import LinkFailure, LinkMove
from failover.running.opening import UntoldLink
from failover.running.read_on import verified_offsets
from failover.running.result import OperationResult
from failover.running.steps import Operation, OperationStep
from mirror.api import Link, LinkRun, RunState, read_entries, refuse_promotion


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A link that could not be looked at, and whether the operation has promoted it, or may have."""

    link: Link
    error: FarshoreError
    may_be_moved: bool


async def run_behind_fence(log: OperationLog, sites: Sites) -> LinkRun | None:
    """What the link may do, as far as this operation goes for good: who began its fence may have asked for a promotion
    that is still on its way, and then the link is taken over before that is read.

    To be asked when that machine has stopped, or may not write any more (`OperationJournal.check_held`). Raises
    LinkFenced, ClientError.
    """
    run = (await read_entries(sites.link, sites.target)).run
    if is_promoted_by(log, run) or not is_behind_fence(log):
        return run
    return await refuse_promotion(sites.link, sites.target, log.operation_id)


def is_promoted_by(log: OperationLog, run: LinkRun | None) -> bool:
    """Whether it is the operation that the link was promoted by."""
    return run is not None and (run.state, run.operation_id) == (RunState.PROMOTED, log.operation_id)


async def move_or_error(log: OperationLog, intent: Intent, sites: Sites, hooks: Hooks) -> LinkMove | NotTaken:
    """As `move_again`; one link's fault is its own. Raises JournalDamaged, NewerVersion."""
    may_be_moved = is_behind_fence(log)
    try:
        may_be_moved = is_promoted_by(log, await run_behind_fence(log, sites))
        return await move_again(log, intent, sites, hooks, is_moved=may_be_moved)
    except (JournalDamaged, NewerVersion):
        raise
    except FarshoreError as error:
        return NotTaken(sites.link, error, may_be_moved)


def untold_link(log: OperationLog, intent: Intent, found: NotTaken) -> UntoldLink:
    """The operation stays open for it. Its loss is that of the plan. Raises JournalDamaged."""
    error, link = found.error, found.link
    said = f"it may be moved, in part or wholly, and is not gone on with: {error}"
    return UntoldLink(
        link,
        OperationResult(
            operation_id=log.operation_id,
            operation=intent.operation,
            link=link.name,
            source=intent.source,
            target=intent.target,
            verified=False,
            seconds=0.0,
            losses=(),
            moves=(),
            differences=(),
            loss=consented_loss(log, link.name) or replace(total_loss(()), certainty=Certainty.UNKNOWN),
            failure=LinkFailure(OperationStep.FENCE, said, error.hint, is_given_up=False),
        ),
    )


async def move_again(log: OperationLog, intent: Intent, sites: Sites, hooks: Hooks, *, is_moved: bool) -> LinkMove:
    """The link as it is now, with what is known of its groups' moves. `is_moved`: the operation has promoted it."""
    name = sites.link.name
    if is_moved and intent.operation is Operation.SWITCHOVER:
        found = await sites.look_past_source()  # it may have died since it was drained
        sites = sites.as_found(found)
        if found.source_finding is SiteFinding.PARTLY_THERE:
            sites = replace(sites, source=None)
    # Behind a fence of any link clients may have nowhere to go: nothing is waited for then.
    planning = plan_link if is_moved else partial(plan_or_refuse, waits=not is_behind_fence(log))
    move = await planning(intent, as_noted(log, sites), hooks)
    freezing, denials = move.plan.freezing, move.plan.freezing.source_denials
    if denials is not None:
        denials = replace(denials, is_writable=was_writable_before(log))
    freezing = replace(freezing, before=role_before(log), source_denials=denials)
    move = replace(move, plan=replace(move.plan, freezing=freezing), consented=consented_moves(log, name))
    if not is_moved:  # or let run since by hand: what was done behind that fence is done behind the next one
        return await counted(replace(move, plan=refusing_skips(log, move.plan)), always=False)
    move = replace(move, verified=verified_offsets(log).get(name), was_paused=was_paused(log, name))
    made = done_moves(log, OperationStep.MOVE_GROUPS)
    if name in made:
        # Of one that was verified since, applications may have been told that it stands.
        left = uncommitted_groups(log).get(name, frozenset()) - {group for group, _, _ in move.verified or ()}
        asked = is_source_asked(log, name, OperationStep.MOVE_GROUPS)
        return replace(move, moves=made[name], are_moved=True, uncommitted=left, is_source_asked=asked)
    begun = done_moves(log, OperationStep.MOVE_GROUPS, Event.STARTED).get(name)
    if begun is not None:
        is_decided = move.sites.source is None or not move.plan.by_offset_map
        move = replace(move, is_source_asked=is_source_asked(log, name, OperationStep.MOVE_GROUPS, Event.STARTED))
        return replace(move, moves=begun) if is_decided else replace(move, begun_moves=begun)
    drained = done_moves(log, OperationStep.DRAIN)
    if name in drained and move.sites.source is None:
        asked = is_source_asked(log, name, OperationStep.DRAIN)
        return replace(move, moves=drained[name], is_source_asked=asked)
    return move
