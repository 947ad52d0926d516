"""Beginning an operation, and going on with one that another process left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from broker.base.documents import to_document
from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.fanout import side_by_side
from failover.errors import (
    GateRefused,
    JournalDamaged,
    OperationEnded,
    OperationTakenUp,
    OperationUnderWay,
    Overtaken,
)
from failover.freezing.choice import Freezing, joined
from failover.freezing.hooks import Hooks
from failover.journal.hooks_run import NO_AFTER_HOOK, check_hooks, is_freeze_hook_run, lacks_after_hook
from failover.journal.log import OperationJournal, claim, load_operations
from failover.journal.silence import if_lost
from failover.journal.standing import (
    OPEN_STATES,
    OperationStanding,
    OperationState,
    given_up_links,
    held_by,
    intent_of,
    is_told_after,
    late_denials,
    refuse_second,
    standing_of,
    to_forget,
    told_standing,
)
from failover.journal.values import Event, OperationLog, check_not_gone_back
from failover.limits import DRAIN_POLL_S, LEASE_S, OPERATIONS_KEPT, UNHEARD_S
from failover.observing.sites import Sites, Watch
from failover.planning.declared import check_declared, declared
from failover.planning.gates import RefusalReason
from failover.planning.intent import Intent
from failover.planning.site_plan import found_together
from failover.planning.staying import away_of, staying_links
from failover.running.groups_stand import Tell, tell_nobody
from failover.running.link_run import LinkMove
from failover.running.moves_again import NotTaken, move_or_error, untold_link
from failover.running.opening import Opening
from failover.running.operation import carry_out
from failover.running.result import OperationResult
from failover.running.steps import OperationStep
from failover.running.whole_site import closed_too, is_whole_site
from mirror.api import RunState


async def begin(
    moves: Sequence[LinkMove],
    intent: Intent,
    operation_id: str,
    who: str,
    extra: Mapping[str, Any],
    tell: Tell = tell_nobody,
    still_wanted: Callable[[], Awaitable[None]] | None = None,
) -> tuple[OperationResult, ...]:
    """Carry out plans that were consented to, as a new operation; `extra` is noted beside them, `tell` as in
    `carry_out`. `still_wanted` raises, behind the claim of the journal and before the first entry, where this is not to
    begin any more.

    Raises OperationUnderWay where another one between these sites has not ended, and what `carry_out` raises.
    """
    sites = moves[0].sites
    between = (intent.source, intent.target)

    known: set[str] = set()

    def check(operations: Mapping[str, OperationLog]) -> Mapping[str, OperationLog]:
        known.update(operations)
        refuse_second(operations, between, sites.now_ms())
        return operations

    try:
        writer, before = await claim(sites.target, between, check, sites.readers.operations)
    except Overtaken as overtaken:
        raise await who_begins(sites, between, known) from overtaken
    if still_wanted is not None:
        await still_wanted()
    journal = OperationJournal(sites.target, operation_id, who, writer, between)
    freezing = joined([move.plan.freezing for move in moves])
    detail = planned(moves, intent, who, freezing, extra)
    staying, away = staying_links(detail, ()), away_of(detail).groups
    opening = Opening(Event.PLANNED, detail, staying=staying, groups_away=away, is_whole_site=is_whole_site(intent))
    try:
        results = await carry_out(moves, journal, opening, intent.drain_timeout_s, tell=tell)
    except OperationTakenUp as overtaken:
        if not journal.is_begun:
            raise await who_begins(sites, between, known) from overtaken
        # Who begins another one fences this writer before he sees that it is under way, and gives up.
        log = await find_operation(sites.target, operation_id)
        if log is None or not journal.wrote_all(log):
            raise
        if begun_steps(log):
            return await resume(log, [move.sites for move in moves], freezing.hooks, who, tell)
        journal = await _own_again(log, sites.target, between, who)
        opening = replace(opening, event=Event.TAKEN_UP, detail={"who": who})
        results = await carry_out(moves, journal, opening, intent.drain_timeout_s, tell=tell)
    with suppress(FarshoreError):  # all is done, and the next one forgets them
        await journal.forget(to_forget(before, between, OPERATIONS_KEPT))
    return results


def planned(
    moves: Sequence[LinkMove], intent: Intent, who: str, freezing: Freezing, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The first entry: what was asked for, how the source stood, and what was consented to."""
    role, denials = freezing.source, freezing.source_denials
    return {
        "intent": intent.document(),
        "who": who,
        "role_before": None if role is None else role.configs(),
        "is_writable_before": denials is not None and denials.is_writable,
        **extra,
        "declared": {move.sites.link.name: declared(move.sites.link) for move in moves},
        "plans": [to_document(move.plan) for move in moves],
    }


async def who_begins(sites: Sites, between: tuple[str, str], known: Container[str]) -> OperationUnderWay:
    """Of two that begin at once, both behind their looks, one is overtaken: by whom, the other's first entry says.
    `known`: the operations that were there before.
    """
    clock = sites.target.clock
    until_s = clock.boottime() + LEASE_S
    while clock.boottime() < until_s:
        operations = await sites.readers.operations.read(sites.target)
        try:
            refuse_second(operations, between, sites.now_ms())
        except OperationUnderWay as found:
            return found
        for log in operations.values():
            now = standing_of(log, sites.now_ms())
            if log.operation_id not in known and (now.source, now.target) == between:
                said = f"{log.operation_id} by {now.who} began at the same time, and has ended: {now.state.value}"
                subject, show = ",".join(now.links), f"`farshore operation show {log.operation_id}` says what it did"
                text, hint = f"{said}; nothing was changed", f"{show}; then look again with --dry-run"
                return OperationUnderWay(text, hint, subject=subject, operation_id=log.operation_id)
        await clock.sleep(DRAIN_POLL_S)
    return Overtaken(*between)


async def _own_again(log: OperationLog, target: Cluster, between: tuple[str, str], who: str) -> OperationJournal:
    """Who began another operation raised the epoch, saw this one, and gave up: then this one is carried on here, of
    which no step was begun yet. Raises OperationUnderWay where somebody took it up.
    """
    writer, now = await claim(target, between, partial(still, log))
    return OperationJournal(target, now.operation_id, who, writer, between, now)


async def find_operation(target: Cluster, operation_id: str) -> OperationLog | None:
    """What the target keeps of it; None: nothing. Raises ClientError."""
    return (await load_operations(target)).get(operation_id)


async def resume(
    log: OperationLog, sites: Sequence[Sites], hooks: Hooks, who: str, tell: Tell = tell_nobody
) -> tuple[OperationResult, ...]:
    """Take up an operation that nobody carries on, and bring it to its end; `sites` per link, as its intent has them.

    A link that was not fenced yet and is refused by now is given up, and stays as it is. So is one that cannot be
    looked at, where another one is promoted and goes on to its end; one that may be moved fails then, and the operation
    stays open for it. Where none is known to be promoted, why it cannot be looked at is raised: it may pass.
    GateRefused where no other one is left, or the role of a whole site is moved and none is fenced (then it can be
    tried again, or aborted). Raises OtherFile, OperationEnded, OperationUnderWay, and what `carry_out` raises.
    """
    intent, target = intent_of(log), sites[0].target
    check_declared(log, [one.link for one in sites])
    check_hooks(log, hooks)
    await until_unheard(log, sites[0])
    given_up = given_up_links(log)
    # What was seen while somebody may have carried it on is no look to go by.
    going = [replace(one, ahead=None) for one in sites if one.link.name not in given_up]
    taken = await side_by_side(move_or_error(log, intent, one, hooks) for one in going)
    moves = found_together([one for one in taken if isinstance(one, LinkMove)])
    failed = [one for one in taken if isinstance(one, NotTaken)]
    untold = [one for one in failed if one.may_be_moved]
    is_begun = any(_is_promoted(move, log.operation_id) for move in moves)
    if failed and not is_begun:  # then nobody waits for the others to be brought to their end
        raise (untold or failed)[0].error
    refused = {move.sites.link.name: said for move in moves if (said := _refusals(move, log.operation_id))}
    goes_on = len(refused) < len(moves)
    refused |= {one.link.name: str(one.error) for one in failed if not one.may_be_moved}
    is_cut = is_whole_site(intent) and not is_begun and bool(refused or given_up)
    if is_cut or not goes_on:
        raise _cannot_go_on(log.operation_id, intent, moves, {**given_up, **refused} if is_cut else refused)
    if is_whole_site(intent):
        links, closing = {one.link.name: one.link for one in going}, moves[0].plan.freezing
        refused = {name: f"{said}{closed_too(links[name], closing)}" for name, said in refused.items()}
    moves = left_by_all([move for move in moves if move.sites.link.name not in refused], log.operation_id)
    between = (intent.source, intent.target)
    writer, log = await claim(target, between, partial(still, log))
    journal = OperationJournal(target, log.operation_id, who, writer, between, log)
    begun_by = log.entries[0].detail
    staying, groups_away = staying_links(begun_by, [*given_up, *refused]), away_of(begun_by).groups
    is_frozen, late = OperationStep.FREEZE in begun_steps(log), late_denials(log)
    left = tuple(one.link for one in sites if one.link.name in {*given_up, *refused})
    done = _done(log, moves)
    opening = Opening(
        *(Event.TAKEN_UP, {"who": who}, refused, is_frozen, staying, groups_away, late, is_whole_site(intent), left),
        is_freeze_hook_run=is_freeze_hook_run(log),
        untold=tuple(untold_link(log, intent, one) for one in untold),
        hook_error=NO_AFTER_HOOK if lacks_after_hook(log, hooks) and OperationStep.AFTER_HOOK not in done else "",
    )
    try:
        return await carry_out(moves, journal, opening, intent.drain_timeout_s, done, tell)
    except OperationTakenUp:
        # Another one who wants it fences this writer before he sees that it is carried on here, and gives up.
        now = await find_operation(target, log.operation_id)
        if now is None or not journal.wrote_all(now):
            raise
        return await resume(now, sites, hooks, who, tell)


def _cannot_go_on(
    operation_id: str, intent: Intent, moves: Sequence[LinkMove], refused: Mapping[str, str]
) -> GateRefused:
    """Of links that do not go on, without which no other one does."""
    which = f"--from {intent.source} --to {intent.target}" if intent.is_site else f"--link {intent.links[0]}"
    is_unanswered = any(one.reason is RefusalReason.SOURCE_UNREACHABLE for m in moves for one in m.plan.refusals)
    told = "; ".join(dict.fromkeys(refused.values()))
    hint = (
        f"`farshore {intent.operation} {which} --dry-run` says more; "
        f"`farshore operation abort {operation_id}` gives it up"
    )
    if is_whole_site(intent) and len(refused) < len(intent.links):
        told = f"with --whole-site all links go, or none, and {', '.join(refused)} does not: {told}"
        hint = f"{hint}, and without --whole-site the other links go alone then"
    return GateRefused(
        f"{operation_id} cannot go on: {told}; nothing more was changed",
        hint=if_lost(operation_id, intent.source) if is_unanswered else hint,
    )


def left_by_all(moves: Sequence[LinkMove], operation_id: str) -> list[LinkMove]:
    """A site that one link has left in this operation is left by the others, too, whatever is heard from there since:
    half of it would be active at both sites.
    """
    is_left = any(_is_promoted(move, operation_id) for move in moves)
    return [replace(move, sites=replace(move.sites, silence=None)) if is_left else move for move in moves]


def _refusals(move: LinkMove, operation_id: str) -> str:
    """Of a link that is moved already nothing is refused any more: what is not as it should be, the end will say."""
    if _is_promoted(move, operation_id):
        return ""
    return ", ".join(dict.fromkeys(f"{refusal.reason.value} ({refusal.subject})" for refusal in move.plan.refusals))


def _is_promoted(move: LinkMove, operation_id: str) -> bool:
    snapshot = move.plan.snapshot
    return (snapshot.link_state, snapshot.operation_id) == (RunState.PROMOTED.value, operation_id)


def _done(log: OperationLog, moves: Sequence[LinkMove]) -> list[OperationStep]:
    """What is not taken again. The rest may be; each step looks at its own effect."""
    done = {entry.detail["step"] for entry in log.entries if entry.event == Event.DONE}
    skipped = {OperationStep.BEFORE_HOOK} & done
    if is_told_after(log, [move.sites.link.name for move in moves]):
        skipped.add(OperationStep.AFTER_HOOK)
    if all(_is_promoted(move, log.operation_id) for move in moves):
        skipped |= {OperationStep.BEFORE_HOOK, OperationStep.FREEZE, OperationStep.DRAIN}
    return [step for step in OperationStep if step in skipped]


def begun_steps(log: OperationLog) -> set[str]:
    return {str(entry.detail["step"]) for entry in log.entries if entry.event == Event.STARTED}


def still(before: OperationLog, operations: Mapping[str, OperationLog]) -> OperationLog:
    """The operation, which nobody has taken up since it was looked at. Raises OperationUnderWay, JournalDamaged."""
    found, name = operations.get(before.operation_id), before.operation_id
    if found is None:
        raise JournalDamaged(
            f"the journal of {name} is gone since a moment ago: its site lost it; nothing more was changed"
        )
    check_not_gone_back(before, found)
    now = found.whole()
    if (now.entries, now.lease) != (before.entries, before.lease):
        raise OperationUnderWay(
            f"{before.operation_id} is carried on elsewhere just now",
            hint=f"`farshore operation wait {before.operation_id}` says how it ends",
            operation_id=before.operation_id,
        )
    return now


def refuse_ended(log: OperationLog, now_ms: int) -> OperationStanding:
    """How it stands. Raises OperationEnded, JournalDamaged, NewerVersion."""
    standing = standing_of(log.whole(), now_ms)
    if standing.state not in OPEN_STATES:
        raise OperationEnded(
            f"{log.operation_id} has ended: {standing.state.value}",
            hint=f"`farshore operation show {log.operation_id}`; what is left to be moved, a new operation moves",
        )
    return standing


async def until_unheard(log: OperationLog, sites: Sites) -> None:
    """Two clocks tell nothing for certain: a machine that lives is heard again, or stops by itself, within its lease.
    `sites.tell_watch` is told once that it waits for that.

    Raises OperationEnded, OperationUnderWay, JournalDamaged.
    """
    standing = refuse_ended(log, sites.now_ms())
    if log.entries[-1].event == Event.CUT_SHORT:
        return
    clock = sites.target.clock
    silent_s = max(0.0, (sites.now_ms() - standing.heard_at_ms) / 1000)
    seconds = max(LEASE_S, UNHEARD_S - silent_s)
    until_s = clock.boottime() + seconds
    sites.tell_watch(Watch(log.operation_id, standing.who, seconds))
    while clock.boottime() < until_s:
        await clock.sleep(DRAIN_POLL_S * 4)
        try:
            still(log, await sites.readers.operations.read(sites.target))
        except OperationUnderWay as heard:
            now = replace(standing, state=OperationState.UNDER_WAY, heard_at_ms=sites.now_ms())
            raise held_by(now, told_standing(now, sites.now_ms())) from heard
