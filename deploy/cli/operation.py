"""`farshore operation`: switchovers, failovers, failbacks, as the journals at their targets have them, anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import click

from broker.base.clock import SystemClock
from broker.base.documents import iso_time, to_document
from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.site import Site
from deploy.cli.consent_again import consent_again
from deploy.cli.failback import resume_failback
from deploy.cli.found_lines import found_in
from deploy.cli.left_lines import not_let_in
from deploy.cli.lines import filled
from deploy.cli.moving import now_ms, tell_results
from deploy.cli.parameters import Duration
from deploy.cli.taking_up import enter_again, refuse_other_file, take_up
from deploy.cli.terminal import (
    AppContext,
    CommandRefused,
    ExitCode,
    Output,
    confirm_plan,
    dry_run_option,
    emit,
    output_option,
    run_async,
    yes_option,
)
from deploy.cli.waits import tell_watch, told_calls
from failover.failback.aborting import abort_failback, plan_failback_abort
from failover.failback.operation import link_back_of
from failover.journal.hearing import Hearing, is_carried_on, is_doubtful, is_heard
from failover.journal.log import load_operations
from failover.journal.standing import (
    OPEN_STATES,
    OperationStanding,
    OperationState,
    is_failback,
    results_of,
    standing_of,
    told_standing,
    way_on,
)
from failover.journal.values import OperationLog, as_told
from failover.limits import HEARTBEAT_S
from failover.observing.contact import CLIENT_ID
from failover.observing.sites import Watch
from failover.planning.links import this_process
from failover.running.aborting import AbortFinding, AbortKind, abort, plan_abort
from failover.running.taking_up import refuse_ended
from mirror.api import STATUS_LIMITS, Link

LIST_COLUMNS = ("operation_id", "state", "started_at", "who")
STEP_COLUMNS = ("step", "started_at", "done_at")
FINDING_COLUMNS = ("kind", "subject", "stays", "by", "command")
LOOK_AGAIN_S = 1.0
_NOT_CHANGED: Mapping[AbortKind, str] = {
    AbortKind.LINK_RUNS: "goes on as before: nothing was moved along it",
    AbortKind.LINK_PAUSED: "stays so: the operation did not pause it",
    AbortKind.SOURCE_THAWED: "takes writes again",
}
EXIT_CODES: Mapping[OperationState, ExitCode] = {
    OperationState.VERIFIED: ExitCode.DONE,
    OperationState.FINDINGS: ExitCode.FINDINGS,
    OperationState.IN_PART: ExitCode.REFUSED,
    OperationState.GIVEN_UP: ExitCode.REFUSED,
    OperationState.ABORTED: ExitCode.REFUSED,
}
"""Of an operation that has ended; of any other end: 1."""


@dataclass(frozen=True, slots=True)
class Found:
    """An operation, and the site whose journal has it. `state`: what watching it has told; None: it was not watched."""

    site: Site
    log: OperationLog
    state: OperationState | None = None

    def standing(self) -> OperationStanding:
        by_clock = standing_of(self.log, now_ms())
        return by_clock if self.state is None else replace(by_clock, state=self.state)


@click.group("operation")
def operation_group() -> None:
    """Switchovers, failovers and failbacks: list, show, wait, resume, abort; from any machine."""


def _one(command: Any) -> Any:
    for option in (click.pass_obj, output_option, click.argument("operation_id", metavar="OPERATION")):
        command = option(command)
    return command


@operation_group.command("list")
@click.option("--site", "names", multiple=True, metavar="SITE", help="Only those to this site; may be given again.")
@click.option("--open", "only_open", is_flag=True, help="Only those that have not ended.")
@output_option
@click.pass_obj
def list_command(context: AppContext, names: Sequence[str], only_open: bool, output: str) -> None:
    """All operations that the sites of the file know of, the newest first.

    Exit code 4 where one of these sites does not answer: it may have more.
    """
    found, silent = run_async(_watched([context.site(name) for name in names] or _targets(context)))
    standings = sorted((one.standing() for one in found), key=lambda one: one.started_at_ms, reverse=True)
    shown = [one for one in standings if one.state in OPEN_STATES or not only_open]
    if output == Output.TABLE:
        emit(shown, output, columns=LIST_COLUMNS, title=f"without those to {', '.join(silent)}" if silent else "")
        for one in shown:
            if one.state in OPEN_STATES:
                click.echo(filled(f"next: {way_on(one)}"))
    else:
        emit({"items": shown, "sites_not_known": silent}, output)
    raise SystemExit(ExitCode.FINDINGS if silent else ExitCode.DONE)


@operation_group.command("show")
@_one
def show_command(context: AppContext, operation_id: str, output: str) -> None:
    """What was asked for, by whom, which steps were taken when, and how it ended."""
    _show(run_async(_watched_one(context, operation_id)), output)


@operation_group.command("wait")
@click.option("--timeout", "timeout_ms", type=Duration(1_000), help="How long, at most; then exit code 5.")
@_one
def wait_command(context: AppContext, operation_id: str, timeout_ms: int | None, output: str) -> None:
    """Wait until an operation has ended, and show it.

    Exit code: that of the operation; 3 where it was given up or aborted; 1 where nobody carries it on; 5 when the time
    is over and it is under way still.
    """
    found = run_async(_wait(context, operation_id, timeout_ms))
    _show(found, output)
    standing = found.standing()
    if standing.state in OPEN_STATES and output != Output.TABLE:
        click.echo(filled(f"hint: {way_on(standing)}"), err=True)
    if standing.state is OperationState.UNDER_WAY:
        raise SystemExit(ExitCode.TIMED_OUT)
    raise SystemExit(EXIT_CODES.get(standing.state, ExitCode.ERROR))


@operation_group.command("resume")
@yes_option
@dry_run_option("how it stands")
@_one
def resume_command(context: AppContext, operation_id: str, dry_run: bool, yes: bool, output: str) -> None:
    """Bring an operation to its end that was cut short, on whichever machine. Exit code: as of the command itself."""

    found = run_async(_find(context, operation_id))
    if is_failback(found.log) and found.standing().state in OPEN_STATES and not dry_run:
        resume_failback(context, found.log, yes, output)

    async def main() -> int:
        if dry_run:
            _show(found, output)
            if found.standing().state not in OPEN_STATES:
                return ExitCode.REFUSED
            refuse_other_file(context, found.log)
            return ExitCode.DONE
        standing = refuse_ended(found.log, now_ms())
        await consent_again(context, found.log, standing, yes)
        return await tell_results(context, await take_up(context, found.log), output)

    raise SystemExit(run_async(main()))


@operation_group.command("abort")
@yes_option
@dry_run_option("what would be undone, and what would stay")
@_one
def abort_command(context: AppContext, operation_id: str, dry_run: bool, yes: bool, output: str) -> None:
    """End an operation that was cut short, undo what can be undone, and list what stays changed.

    Exit code 0: nothing stays changed. 4: something does.
    """

    async def main() -> int:
        async with AsyncExitStack() as stack:
            found = await _find(context, operation_id)
            sites = await enter_again(stack, context, found.log)
            back = _link_back(context, found.log)
            if is_failback(found.log):
                findings = await plan_failback_abort(found.log, sites[0], back)
            else:
                findings = await plan_abort(found.log, sites, context.hooks())
            if not dry_run:
                _tell_findings(findings)
                confirm_plan(told_standing(found.standing(), now_ms()), yes, question="Abort it?")
                sites = await enter_again(stack, context, found.log)
                if is_failback(found.log):
                    findings = await abort_failback(found.log, sites[0], back, this_process())
                else:
                    findings = await abort(found.log, sites, findings, context.hooks(), this_process())
            title = f"an abort of {operation_id} would find" if dry_run else f"{operation_id} is aborted"
            emit(list(findings), output, columns=FINDING_COLUMNS, title=title)
            stays = [finding for finding in findings if finding.stays]
            named = ", ".join(_left(finding) for finding in stays)
            left, none = ("would be left", "would stay") if dry_run else ("left", "stays")
            click.echo(filled(f"{left} as it is: {named}" if stays else f"nothing {none} changed"), err=True)
            return ExitCode.FINDINGS if stays else ExitCode.DONE

    raise SystemExit(run_async(main()))


def _left(finding: AbortFinding) -> str:
    why = f" ({finding.why})" if finding.why else ""
    return f"{finding.kind.replace('_', ' ')} {finding.subject}{why}"


def _link_back(context: AppContext, log: OperationLog) -> Link | None:
    """Of a failback; None where this file has it no more."""
    return next((link for link in context.links() if link.name == link_back_of(log)), None)


def _tell_findings(findings: Iterable[AbortFinding]) -> None:
    for finding in findings:
        told = _NOT_CHANGED.get(finding.kind, "stays so")
        if finding.open_topics:
            told += f"; clients can write to {', '.join(finding.open_topics)}"
        if finding.why:
            told += f", as how it stands cannot be told: {finding.why}"
        by = f" ({finding.by})" if finding.by else ""
        click.echo(filled(f"{finding.kind.replace('_', ' ')}: {finding.subject} {told}{by}"), err=True)


def _targets(context: AppContext) -> list[Site]:
    return list({link.target.name: link.target for link in context.links()}.values())


class Answers(NamedTuple):
    """What the sites keep, and those that do not answer."""

    found: list[Found]
    silent: tuple[str, ...]


async def _search(sites: Sequence[Site]) -> Answers:
    """All that these sites keep; one that does not answer is noted on stderr."""
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(_of_site(site)) for site in sites]
    answers = {site.name: task.result() for site, task in zip(sites, asked, strict=True)}
    failures = {name: answer for name, answer in answers.items() if isinstance(answer, FarshoreError)}
    if failures and len(failures) == len(answers):
        raise next(iter(failures.values()))
    for name, failure in failures.items():
        click.echo(filled(f"note: operations to {name} are not known: {failure}"), err=True)
    found = [one for answer in answers.values() if isinstance(answer, list) for one in answer]
    return Answers(found, tuple(failures))


async def _watched(sites: Sequence[Site]) -> Answers:
    """As `_search`; of what no clock can judge it is watched for some seconds whether somebody carries it on."""
    async with told_calls(*(site.name for site in sites)):
        answers = await _search(sites)
    doubtful = {one.log.operation_id: one for one in answers.found if is_doubtful(one.log, now_ms())}
    judged = await _judged(doubtful) if doubtful else {}
    return answers._replace(found=[judged.get(one.log.operation_id, one) for one in answers.found])


async def _judged(doubtful: Mapping[str, Found]) -> dict[str, Found]:
    clock, watched_s = SystemClock(), 2 * HEARTBEAT_S
    for name, one in doubtful.items():
        tell_watch(Watch(name, one.standing().who, watched_s))
    until_s = clock.monotonic() + watched_s
    judged = {name: replace(one, state=OperationState.CUT_SHORT) for name, one in doubtful.items()}
    silent = dict(doubtful)
    while silent and clock.monotonic() < until_s:
        await clock.sleep(LOOK_AGAIN_S)
        try:
            again = (await _search(list({one.site.name: one.site for one in silent.values()}.values()))).found
        except FarshoreError:
            break  # what was read before is shown
        for now in again:
            name = now.log.operation_id
            if name in silent and is_heard(silent[name].log, now.log):
                lives = is_carried_on(now.log, now_ms())
                judged[name] = replace(now, state=OperationState.UNDER_WAY) if lives else now
                del silent[name]
    return judged


async def _of_site(site: Site) -> list[Found] | FarshoreError:
    try:
        async with Cluster(site, client_id=CLIENT_ID, limits=STATUS_LIMITS) as target:
            return [Found(site, log) for log in (await load_operations(target)).values()]
    except FarshoreError as error:
        return error


async def _watched_one(context: AppContext, operation_id: str) -> Found:
    found = await _find(context, operation_id)
    return (await _judged({operation_id: found}))[operation_id] if is_doubtful(found.log, now_ms()) else found


async def _find(context: AppContext, operation_id: str) -> Found:
    sites = _targets(context)
    async with told_calls(*(site.name for site in sites)):
        answers = await _search(sites)
    for found in answers.found:
        if found.log.operation_id == operation_id:
            return found
    raise CommandRefused(
        f"no site that answers knows the operation {operation_id}", "`farshore operation list`", ExitCode.USAGE
    )


async def _wait(context: AppContext, operation_id: str, timeout_ms: int | None) -> Found:
    clock, hearing = SystemClock(), Hearing()
    deadline_s = None if timeout_ms is None else clock.monotonic() + timeout_ms / 1000
    found, is_silent, is_told = await _find(context, operation_id), False, False
    while True:
        state = None if is_silent else hearing.look(found.log, now_ms(), clock.monotonic())
        if state is not None:
            return replace(found, state=state)
        if deadline_s is not None and clock.monotonic() >= deadline_s:
            return replace(found, state=OperationState.UNDER_WAY)
        if not is_told:
            _tell_wait(found.standing())
            is_told = True
        await clock.sleep(LOOK_AGAIN_S)
        again = await _look_again(found)
        if isinstance(again, FarshoreError):
            if not is_silent:
                click.echo(f"note: {found.site.name} does not tell now, and is asked again: {again}", err=True)
            hearing.missed(clock.monotonic())
        elif is_silent:
            click.echo(f"note: {found.site.name} tells again", err=True)
        is_silent = isinstance(again, FarshoreError)
        found = found if isinstance(again, FarshoreError) else again


def _tell_wait(standing: OperationStanding) -> None:
    """On stderr: it may take as long as the operation does."""
    step = f", in step {standing.step}" if standing.step else ""
    click.echo(filled(f"waiting for the end of {standing.operation_id}; last heard of {standing.who}{step}"), err=True)


async def _look_again(found: Found) -> Found | FarshoreError:
    """Raises CommandRefused where its site keeps it no more, and what asking again does not mend."""
    answer = await _of_site(found.site)
    if isinstance(answer, FarshoreError):
        if not answer.retriable:
            raise answer
        return answer
    for one in answer:
        if one.log.operation_id == found.log.operation_id:
            return one
    text = f"{found.site.name} keeps {found.log.operation_id} no more"
    raise CommandRefused(text, "`farshore operation list`", ExitCode.ERROR)


def _by(log: OperationLog, standing: OperationStanding) -> str:
    """Who began it; and who carried it on last, or ended it, where that was another process."""
    began = next((str(entry.detail["who"]) for entry in log.entries if "who" in entry.detail), "")
    did = "aborted" if standing.state is OperationState.ABORTED else "taken up"
    return f" by {began}" if began == standing.who else f" by {began}, then {did} by {standing.who}"


def _show(found: Found, output: str) -> None:
    standing, log = found.standing(), as_told(found.log)
    if output != Output.TABLE:
        entries = [
            {"at_ms": entry.at_ms, "event": entry.event, "detail": entry.detail, "hash": one_hash}
            for entry, one_hash in zip(log.entries, log.hashes, strict=True)
        ]
        emit({**to_document(standing), "step": standing.step, "site": found.site.name, "entries": entries}, output)
        return
    way = (standing.target, standing.source) if is_failback(log) else (standing.source, standing.target)
    lines = [
        f"{standing.operation_id}: {standing.state.value.replace('_', ' ')}",
        f"{standing.operation} of {', '.join(standing.links)}: {' -> '.join(way)}",
        f"begun {iso_time(standing.started_at_ms)}{_by(log, standing)}, last heard of {iso_time(standing.heard_at_ms)}",
    ]
    lines += [f"reason: {standing.reason}"] if standing.reason else []
    lines += [f"error: {standing.error}"] if standing.error else []
    for result in results_of(log):
        verdict = "verified" if result["verified"] else f"NOT VERIFIED, differences: {len(result['differences'])}"
        lines.append(f"{result['link']}: {verdict}; {len(result['moves'])} offsets of groups")
        lines += [f"finding: {found}" for found in found_in(result)]
    lines += not_let_in(log, standing)
    for line in lines:
        click.echo(filled(line))
    emit(list(standing.steps), output, columns=STEP_COLUMNS)
    if standing.state in OPEN_STATES:
        click.echo(filled(f"next: {way_on(standing)}"))
