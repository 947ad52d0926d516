"""From an intent to its end: what `switchover`, `failover` and `apply` do alike, for one link and for a site's."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from broker.base.documents import to_document
from broker.base.errors import FarshoreError
from broker.client.fanout import both, side_by_side
from deploy.cli import failover_tables as link_tables
from deploy.cli import site_tables
from deploy.cli.drain_bars import drain_bars, told_by
from deploy.cli.gate_words import of_a_step, refusal_of
from deploy.cli.interrupted import Begun, told_where_interrupted
from deploy.cli.lines import filled
from deploy.cli.looked import Looked, LookedAtLink, LookedAtSite
from deploy.cli.loss_lines import growth_line
from deploy.cli.next_steps import NextStep, back_at_once, for_refused, for_source_alone, merged, steps_after
from deploy.cli.refusals import refusals_of
from deploy.cli.terminal import AppContext, CommandRefused, ExitCode
from deploy.cli.undecided import undecided_of
from deploy.cli.unknown_groups import refuse_unknown_groups, refuse_unknown_partitions, refuse_unknown_topics
from deploy.cli.waits import told_calls
from deploy.effective import FREEZES_FOR_GOOD, UNDO_HINT
from failover.errors import GateRefused, OperationUnderWay, SkipsMore, WorldChanged
from failover.failback.foreseen import SkipsLost
from failover.journal.opposite import refuse_opposite
from failover.journal.standing import refuse_second
from failover.losses.stated_losses import counted
from failover.losses.statements import LossGrowth, growth
from failover.observing.sites import Sites
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.links import enter_links, plan_links, plan_or_refuse, refuse_heard, source_names, this_process
from failover.planning.moves import GroupMove, MoveKind
from failover.planning.plan import OperationPlan
from failover.planning.plan_file import ANEW, PlanFile, check_holds, write_plan
from failover.planning.site_plan import plan_site
from failover.planning.staying import Away, StayReason, away_of
from failover.planning.undecided import Undecided
from failover.planning.world import ChangeKind, world_of
from failover.running.result import OperationResult
from failover.running.steps import Operation
from failover.running.taking_up import begin

AGAIN = "type the same again, and look at the plan as it is now; --yes goes on without a question"


async def decide(
    app: AppContext,
    intent: Intent,
    *,
    dry_run: bool,
    yes: bool,
    output: str,
    out_file: Path | None = None,
    applied: PlanFile | None = None,
) -> int:
    """Show the plan, get consent, carry it out, show the result; or, with `out_file`, write it there.

    `applied`: the plan that was written before, and must still hold.
    """
    refuse_lasting_freeze(app, intent.operation)
    async with told_where_interrupted(app.site(intent.target)) as begun, AsyncExitStack() as stack:
        names = links_between(app, intent.source, intent.target) if intent.is_site else intent.links
        only_plans = dry_run or out_file is not None
        links, goes_on = [app.link(name) for name in names], yes and not only_plans
        async with told_calls(intent.source, intent.target):
            sites = await enter_links(stack, links, intent, now_ms, app.links(), goes_on=goes_on)
            sites = sites if applied is None else applied.as_found(sites)
            looking = _look_beside if only_plans else _look_alone
            beside = _undecided(app, intent, sites, is_shown=not goes_on)
            (looked, not_alone), undecided = await both(looking(app, intent, sites), beside)
        looked = looked.with_undecided(undecided)
        if applied is not None:
            _check(applied, looked, output)
        else:  # a plan is written of names that were there: what is gone since is no typing error
            await _refuse_unknown_names(looked, names, sites[0])
        if only_plans:
            looked.print_only(output)
            if not_alone is not None:
                raise not_alone  # as the command itself would
            if looked.is_refused:
                return ExitCode.REFUSED
            if out_file is not None:
                write_plan(out_file, looked.intent, looked.moves)
                click.echo(f"next: farshore apply {shlex.quote(str(out_file))}", err=True)
            return ExitCode.DONE
        await _show_and_ask(looked, yes, output)
        shown = looked
        while not yes:  # a person has read it meanwhile
            await stack.aclose()  # who was called then is not called, nor asked, beside those that are now
            async with told_calls(intent.source, intent.target):
                sites = _as_shown(shown).as_found(await enter_links(stack, links, intent, now_ms, app.links()))
                looked = await _look(app, intent, sites, counting=False)
            _check(_as_shown(shown), looked, output, AGAIN, but=(ChangeKind.LOSS,))
            looked.refuse(output)
            if _tell_growth(shown, looked) is not LossGrowth.BEYOND:
                break
            await _show_and_ask(looked, yes, output)
            shown = looked
        try:
            ended = await _begin(looked, begun, "" if applied is None else applied.digest)
        except GateRefused as refused:
            looked.tell_refused(output, refused, refusals_of(refused, intent.source, looked.name))
            raise
        return await tell_results(app, replace(ended, shown=[move.plan for move in shown.moves]), output)


def refuse_lasting_freeze(app: AppContext, operation: Operation) -> None:
    """Raises CommandRefused where it runs the freeze_hook, with --no-freeze, too, and what that does would stay."""
    if operation is not Operation.FAILOVER and app.hooks().is_never_undone:
        raise CommandRefused(FREEZES_FOR_GOOD, UNDO_HINT, ExitCode.USAGE)


async def _undecided(
    app: AppContext, intent: Intent, sites: Sequence[Sites], *, is_shown: bool
) -> tuple[Undecided, ...] | None:
    """For who looks at the plan of a switchover: one that goes at once is not held up for it."""
    is_asked = is_shown and intent.operation is Operation.SWITCHOVER
    return await undecided_of(sites, app.links()) if is_asked else None


async def _refuse_unknown_names(looked: Looked, links: Sequence[str], sites: Sites) -> None:
    """Raises CommandRefused (exit 2). `links`: all that were to be looked at."""
    plans = [move.plan for move in looked.looked_at]
    refuse_unknown_topics(looked.intent, links, plans)
    refuse_unknown_partitions(looked.refusals, links, plans)
    await refuse_unknown_groups(looked.refusals, sites.source, sites.target)


async def _show_and_ask(looked: Looked, yes: bool, output: str) -> None:
    """Raises GateRefused where nothing can be moved, CommandRefused where nobody says yes."""
    if looked.refusals:
        try:
            await refuse_heard(looked.looked_at[0])
        except WorldChanged as error:
            looked.tell_refused(output, error, [GateRefusal(RefusalReason.WORLD_CHANGED, looked.name)])
            raise
    looked.show()
    looked.refuse(output)
    looked.ask(yes, output)


@dataclass(frozen=True, slots=True)
class Ended:
    """How an operation ended. `said`: what its journal has beside the plans; `shown`: those that were told here."""

    intent: Intent
    results: Sequence[OperationResult]
    said: Mapping[str, Any]
    shown: Sequence[OperationPlan] = ()


async def _begin(looked: Looked, begun: Begun, plan_digest: str = "", of: Step | None = None) -> Ended:
    """Carry it out. Raises GateRefused where nothing was changed."""
    begun.operation_id = operation_id = (
        f"{looked.intent.operation.value}-{looked.name}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    )
    said = {**looked.extra, "plan_digest": plan_digest} if plan_digest else looked.extra
    if of is not None:
        said = {**said, "within": of.operation_id, "away": to_document(of.away)}
    tell, still_wanted = link_tables.tell_groups_stand, of.renew if of is not None else None
    with drain_bars() as tell_drain:
        moves = told_by(tell_drain, looked.moves)
        results = await begin(moves, looked.intent, operation_id, this_process(), said, tell, still_wanted)
    return Ended(looked.intent, results, said)


@dataclass(frozen=True, slots=True)
class LinkMoved:
    """What one link's move came to: its result, or the plan that was `refused`, as documents."""

    document: Mapping[str, Any]
    exit_code: ExitCode
    refused: GateRefused | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The failback that a move is a step of; `renew` raises where that is another machine's by now. `away`: what is
    still to come back behind it. `groups_set`: those that it has set to where they are to go on; `skips`: what its plan
    said of them.
    """

    operation_id: str
    renew: Callable[[], Awaitable[None]]
    away: Away
    groups_set: Collection[str] = ()
    skips: Collection[SkipsLost] = ()


async def move_link(app: AppContext, intent: Intent, of: Step) -> LinkMoved:
    """Carry out what another command's consent covers. Raises OperationUnderWay, and what `begin` raises behind the
    gates.
    """
    refuse_lasting_freeze(app, intent.operation)
    async with AsyncExitStack() as stack:
        entered = await enter_links(stack, [app.link(intent.links[0])], intent, now_ms, app.links())
        sites = [replace(one, within=of.operation_id) for one in entered]
        looked: Looked = (await _look_alone(app, intent, sites))[0]
        plan = replace(looked.moves[0].plan, not_named=())  # what it does not name was never to be moved
        looked = replace(looked, moves=[replace(looked.moves[0], plan=plan)])
        refused = refusal_of(plan)
        if refused is None:
            try:
                if unsaid := _unsaid(plan, of):
                    raise unsaid
                return await link_moved(app, await _begin(looked, Begun(), of=of))
            except GateRefused as error:
                refused = error
                more = refusals_of(error, intent.source, looked.name)
                plan = replace(plan, refusals=(*plan.refusals, *more))
        return LinkMoved(to_document(plan), ExitCode.REFUSED, of_a_step(plan, refused))


def _unsaid(plan: OperationPlan, of: Step) -> SkipsMore | None:
    """Of groups that were set back just now: those that stand further again, as who reads there commits as they, and
    those of which the log has lost more of what they read next than was shown.
    """
    said = {(one.group, one.topic, one.partition): one.records for one in of.skips}
    skipped = {
        f"{move.group} on {move.topic}-{move.partition}": move.skipped_records
        for move in plan.moves
        if move.group in of.groups_set
        if _skips_beyond(move, said.get((move.group, move.target_topic, move.partition), 0))
    }
    return SkipsMore(skipped, plan.snapshot.target) if skipped else None


def _skips_beyond(move: GroupMove, said: int | None) -> bool:
    if move.source_offset is None or move.kind is MoveKind.UNKNOWN:
        return False
    if move.kind is not MoveKind.AT_START:
        return move.skipped_records != 0
    return said is not None and (move.skipped_records is None or move.skipped_records > said)


async def link_moved(app: AppContext, ended: Ended) -> LinkMoved:
    """Of one link."""
    (result,) = ended.results
    staying = [one.link for one in away_of(ended.said).links]
    document = link_tables.result_document(result, await steps_after(result, app, staying))
    return LinkMoved(document, exit_code(ended.intent, ended.results))


def links_between(app: AppContext, source: str, target: str) -> tuple[str, ...]:
    """By name, in the order of the file."""
    return tuple(link.name for link in app.links() if (link.source.name, link.target.name) == (source, target))


async def _look_alone(app: AppContext, intent: Intent, sites: Sequence[Sites]) -> tuple[Looked, None]:
    """As `_look`. Raises OperationUnderWay, also."""
    _, looked = await both(_refuse_others(intent, sites[0]), _look(app, intent, sites, counting=False))
    return looked, None


async def _look_beside(app: AppContext, intent: Intent, sites: Sequence[Sites]) -> tuple[Looked, FarshoreError | None]:
    """As `_look`, with the records of a loss counted, and why the command could not begin beside other operations:
    OperationUnderWay, or what keeps that from being told.
    """

    async def why_not_alone() -> FarshoreError | None:
        try:
            await _refuse_others(intent, sites[0])
        except FarshoreError as error:
            return error
        return None

    not_alone, looked = await both(why_not_alone(), _look(app, intent, sites, counting=True))
    if isinstance(not_alone, OperationUnderWay):
        looked = looked.refused_by(refusals_of(not_alone, intent.source, looked.name))
    return looked, not_alone


async def _refuse_others(intent: Intent, sites: Sites) -> None:
    is_failover = intent.operation is Operation.FAILOVER
    of_target = sites.readers.operations.read(sites.target)
    operations, _ = await both(of_target, refuse_opposite(sites, even_without_source=is_failover))
    refuse_second(operations, (intent.source, intent.target), now_ms())


async def _look(app: AppContext, intent: Intent, sites: Sequence[Sites], *, counting: bool) -> Looked:
    """`counting`: the records of a loss are counted; who goes on counts them when it is known how it ended, but where
    offsets would say too much.
    """
    hooks = app.hooks().of_step() if sites[0].within else app.hooks()
    if not intent.is_site:
        move = await plan_or_refuse(intent, sites[0], hooks)
        found = [await counted(move, always=counting)]
        return LookedAtLink(found, found, intent)
    moves, failed = await plan_links(intent, sites, hooks)
    moves = await side_by_side(counted(move, always=counting) for move in moves)
    plan = plan_site(intent, moves, failed, app.links(), await source_names(sites[0].source))
    going = [move for move in moves if move.sites.link.name in plan.moving]
    going = [replace(move, plan=one) for move, one in zip(going, plan.going, strict=True)]
    return LookedAtSite(going, moves, replace(intent, links=plan.moving, refused_links=plan.refused), plan)


def _as_shown(looked: Looked) -> PlanFile:
    """What a person was asked about."""
    found = {move.sites.link.name: move.sites.found_dead_at_ms for move in looked.moves}
    worlds = tuple(world_of(move.plan, move.sites.link) for move in looked.moves)
    return PlanFile(looked.intent, worlds, found_dead_at_ms=found)


def _tell_growth(shown: Looked, now: Looked) -> LossGrowth:
    """What more would be lost than what somebody said yes to -> the worst of the links that go."""
    worst = LossGrowth.NONE
    found = {move.sites.link.name: move.plan for move in now.moves}
    for move in shown.moves:
        plan = found[move.sites.link.name]
        grown = growth(move.plan.loss, plan.loss) if plan.operation is Operation.FAILOVER else LossGrowth.NONE
        if grown is not LossGrowth.NONE:
            line = growth_line(move.plan.loss, plan.loss, plan.snapshot.source, grown)
            click.echo(filled(line), err=True)
            worst = grown if worst is not LossGrowth.BEYOND else worst
    return worst


def _check(before: PlanFile, looked: Looked, output: str, hint: str = ANEW, but: Container[ChangeKind] = ()) -> None:
    """Raises WorldChanged, which names what changed of the links that were to go, or that there are others."""
    links = [(one.intent.links, one.intent.refused_links) for one in (before, looked)]
    by_name = {move.sites.link.name: move for move in looked.looked_at}
    try:
        if by_name.keys() >= set(before.intent.links):
            check_holds(before.worlds, [by_name[name] for name in before.intent.links], hint, but)
        if looked.intent.is_site and links[0] != links[1]:
            told = [_told_links(*one) for one in links]
            raise WorldChanged(f"the plan holds no more: links: {told[0]} -> {told[1]}; nothing was changed", hint=hint)
    except WorldChanged as error:
        looked.tell_refused(output, error, [GateRefusal(RefusalReason.WORLD_CHANGED, looked.name)])
        raise


def _told_links(links: Sequence[str], refused: Sequence[str]) -> str:
    return ", ".join([*links, *(f"{name} (refused)" for name in refused)]) or "none"


async def tell_results(app: AppContext, ended: Ended, output: str) -> int:
    """The results with what to do next -> the worst exit code."""
    intent, results = ended.intent, ended.results
    moved = [result for result in results if result.failure is None]
    together = tuple(dict.fromkeys(topic for result in moved for topic in result.moved_topics))
    topics = together if all(result.moved_topics for result in moved) else ()
    staying = [*intent.refused_links, *(result.link for result in results if result not in moved)]
    steps = [await steps_after(replace(result, moved_topics=topics), app, staying) for result in moved]
    if any(result.failure is not None and not result.failure.is_given_up for result in results):
        what = "a link was cut short: when what stopped it is seen to, from any machine"
        steps.insert(0, (NextStep(what, f"farshore operation resume {results[0].operation_id}"),))
    if intent.is_site:
        backs = links_between(app, intent.target, intent.source)
        gone = {result.link for result in moved} | _moved_before(ended.said)
        there = links_between(app, intent.source, intent.target)
        is_all = gone.issuperset(there)
        if staying:
            is_closed = intent.whole_site and any(one.source_role or one.denied_principals for one in moved)
            steps.append((for_refused(intent, staying, is_closed=is_closed),))
        steps.append(tuple(for_source_alone(ended.said.get("stays", []), intent.source)))
        told_back = back_at_once(merged(steps), intent.source, intent.target, backs, there, is_all=is_all)
        site_tables.print_results(intent, results, ended.said.get("stays", []), told_back, output)
    else:
        link_tables.print_result(results[0], steps[0], output, next(iter(ended.shown), None))
    return exit_code(intent, results)


def _moved_before(said: Mapping[str, Any]) -> set[str]:
    """Links that an earlier run of the same had moved, as the journal's first entry has it."""
    return {stay["subject"] for stay in said.get("stays", []) if stay["reason"] == StayReason.ALREADY_MOVED}


def exit_code(intent: Intent, results: Sequence[OperationResult]) -> ExitCode:
    """The worst of the parts: not verified, then refused, then findings."""
    given_up = [result for result in results if result.failure is not None and result.failure.is_given_up]
    if any(not result.verified for result in results if result not in given_up):
        return ExitCode.ERROR
    if given_up or intent.refused_links:
        return ExitCode.REFUSED
    return ExitCode.FINDINGS if any(result.has_findings for result in results) else ExitCode.DONE


def now_ms() -> int:
    return round(datetime.now(UTC).timestamp() * 1000)
