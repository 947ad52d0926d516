"""`farshore failback --from SITE --to SITE`: all links of a site that was lost come back, one after the other.

Each is an operation of its own, as a failback of one link is: they open and close topics of the same sites, and of two
sites one operation is under way at a time. So what one link comes to says nothing of the next, which is looked at again
in its turn. Behind one that was cut short none begins, as that one keeps both sites.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

import click

from broker.base.documents import to_document
from broker.client.fanout import side_by_side
from deploy.cli.both_sites import refuse_one_site
from deploy.cli.coming_back import coming_back, look_at, look_at_one, refuse_other_files, shown_folder, told_end
from deploy.cli.failback_plan import show
from deploy.cli.failback_words import refuse, start_at, tell_cut_short
from deploy.cli.failover_tables import tell_next
from deploy.cli.lines import filled
from deploy.cli.moving import AGAIN, links_between
from deploy.cli.next_steps import NextStep, merged
from deploy.cli.terminal import AppContext, CommandRefused, ExitCode, Output, confirm_plan, emit, run_async, told
from deploy.cli.waits import told_calls
from failover.errors import OperationUnderWay
from failover.failback.consented import does_no_more
from failover.failback.plan import FailbackPlan, FailbackRefusal
from failover.journal.values import OperationLog
from failover.observing.readers import Journals
from failover.planning.intent import Intent
from failover.planning.staying import Away, StayingLink
from failover.running.steps import Operation
from mirror.api import Link

PLAN_COLUMNS = ("link", "link_back", "outcome", "stranded_records", "export_to")
RESULT_COLUMNS = ("link", "outcome", "exit_code", "operation_id", "error")


class Outcome(StrEnum):
    """What becomes of a link."""

    COMES_BACK = "comes_back"
    """Of a plan."""
    BACK = "back"
    NOT_AWAY = "not_away"
    """It was not moved, or came back before."""
    REFUSED = "refused"
    """Nothing of it was changed."""
    FINDINGS = "findings"
    NOT_VERIFIED = "not_verified"
    CUT_SHORT = "cut_short"
    NOT_BEGUN = "not_begun"
    """As one before it was cut short."""


@dataclass(frozen=True, slots=True)
class LinkBack:
    """One link as it was found. `refused`: why it cannot come back now; of the `log` its failback goes on."""

    link: Link
    folder: Path | None
    plan: FailbackPlan | None
    log: OperationLog | None
    refused: CommandRefused | None

    @property
    def groups(self) -> tuple[str, ...]:
        """Those that come back along it, as far as that is known."""
        return self.plan.groups_back if self.plan is not None else ()

    @property
    def outcome(self) -> Outcome:
        if self.log is None and self.plan is not None and FailbackRefusal.NOT_PROMOTED in self.plan.refusals:
            return Outcome.NOT_AWAY
        if self.refused is not None:
            return Outcome.REFUSED if self.log is None else Outcome.CUT_SHORT
        return Outcome.COMES_BACK


def come_back_all(
    app: AppContext,
    sites: tuple[str, str],
    folder: Path | None,
    patience_s: float,
    reason: str,
    *,
    dry_run: bool,
    yes: bool,
    output: str,
) -> NoReturn:
    """From the look to the exit code. `sites`: as of the failover, the one that was lost first. `folder`: where each
    link gets a folder of its own, None: those that a failback has by itself.
    """
    source, target = app.site(sites[0]).name, app.site(sites[1]).name
    refuse_one_site(source, target)
    names = links_between(app, source, target)
    if not names:
        raise click.UsageError(f"no link goes from {source} to {target}: farshore link list")
    folders = {name: folder / name if folder is not None else None for name in names}
    for own in folders.values():
        refuse_other_files(own)
    found = run_async(_look_at_all(app, folders, source, target))
    if dry_run:
        _tell_plan(source, target, found, output)
        raise SystemExit(ExitCode.DONE if _are_coming(found) and not _are_refused(found) else ExitCode.REFUSED)
    coming = _are_coming(found)
    if not coming:
        if output != Output.TABLE:
            emit(_plan_document(source, target, found), output)
        raise _none_comes(found, source, target)
    _show_coming(coming, to_stderr=True)
    _tell_refused(found)
    confirm_plan(None, yes, question=f"Come back to {source} along {', '.join(one.link.name for one in coming)}?")
    results = _come_back_in_turn(app, found, patience_s, reason, yes=yes)
    _tell_results(source, target, found, results, output)


def _tell_plan(source: str, target: str, found: Sequence[LinkBack], output: str) -> None:
    """Of a dry run: what is read before the question, too."""
    if output == Output.TABLE:
        _show_coming(_are_coming(found), to_stderr=False)
    emit(_planned(found) if output == Output.TABLE else _plan_document(source, target, found), output)
    _tell_refused(found)


def _show_coming(coming: Sequence[LinkBack], *, to_stderr: bool) -> None:
    for one in coming:
        assert one.plan is not None
        click.echo(f"link {one.link.name}:", err=to_stderr)
        show(one.plan, one.log, to_stderr=to_stderr)


def _are_coming(found: Sequence[LinkBack]) -> list[LinkBack]:
    return [one for one in found if one.outcome is Outcome.COMES_BACK]


def _are_refused(found: Sequence[LinkBack]) -> list[LinkBack]:
    return [one for one in found if one.outcome in (Outcome.REFUSED, Outcome.CUT_SHORT)]


async def _look_at_all(app: AppContext, folders: Mapping[str, Path | None], *sites: str) -> list[LinkBack]:
    """As `_look_beside`; where that takes long, whom it waits for is told."""
    async with told_calls(*sites):
        return await _look_beside(app, folders)


async def _look_beside(app: AppContext, folders: Mapping[str, Path | None]) -> list[LinkBack]:
    """Side by side. A failback of one of these links that was cut short keeps the others only until it has ended, and
    it goes first, where it can go on.
    """
    journals = Journals()
    found = await side_by_side(_look(app, app.link(name), folder, journals) for name, folder in folders.items())
    own = {one.log.operation_id for one, _ in found if one.log is not None and one.refused is None}
    behind = [one for one, held in found if held in own]
    again = dict(
        zip(
            (one.link.name for one in behind),
            await side_by_side(_look(app, one.link, one.folder, journals, alone=False) for one in behind),
            strict=True,
        )
    )
    looked = [again.get(one.link.name, (one, ""))[0] for one, _ in found]
    return sorted(looked, key=lambda one: one.log is None)


async def _look(
    app: AppContext, link: Link, folder: Path | None, journals: Journals, *, alone: bool = True
) -> tuple[LinkBack, str]:
    """-> also the operation that keeps it, "" where none does."""
    plan: FailbackPlan | None = None
    log: OperationLog | None = None
    try:
        with told():
            plan, log = await look_at(app, link, folder, "", alone=alone, journals=journals)
            refuse(app, link, plan, log)
    except CommandRefused as refused:
        held = refused.__cause__.operation_id if isinstance(refused.__cause__, OperationUnderWay) else ""
        return LinkBack(link, folder, plan, log, refused), held
    return LinkBack(link, folder, plan, log, None), ""


def _planned(found: Sequence[LinkBack]) -> list[dict[str, Any]]:
    return [
        {
            "link": one.link.name,
            "link_back": one.plan.link_back if one.plan is not None else "",
            "outcome": one.outcome,
            "stranded_records": one.plan.stranded_records if one.plan is not None else None,
            "export_to": one.plan.export_to if one.plan is not None else "",
            "error": one.refused.message if one.refused is not None else "",
        }
        for one in found
    ]


def _plan_document(source: str, target: str, found: Sequence[LinkBack]) -> dict[str, Any]:
    plans = [to_document(one.plan) for one in found if one.plan is not None]
    return {"source": source, "target": target, "links": _planned(found), "plans": plans}


def _tell_refused(found: Sequence[LinkBack]) -> None:
    for one in found:
        if one.outcome is Outcome.NOT_AWAY:
            click.echo(filled(f"link {one.link.name} is not away: nothing of it comes back"), err=True)
        elif one.refused is not None:
            click.echo(filled(f"link {one.link.name} does not come back now:"), err=True)
            one.refused.show()


def _none_comes(found: Sequence[LinkBack], source: str, target: str) -> CommandRefused:
    refused = [one.refused for one in _are_refused(found) if one.refused is not None]
    if refused:
        text = "; ".join(dict.fromkeys(one.message for one in refused))
        return CommandRefused(text, refused[-1].hint, worst_of([one.exit_code for one in refused]))
    text = f"no link from {source} to {target} is away; nothing was changed"
    hint = "--from and --to are those of the failover: the site that was lost, and the one that took over"
    return CommandRefused(text, hint, ExitCode.REFUSED)


def still_away(found: Sequence[LinkBack], home: Container[str], groups: Iterable[str]) -> Away:
    """What is away of all that was `found` when the links at `home` are back, and these groups with them. Pure."""
    left = [one for one in found if one.link.name not in home and one.outcome is not Outcome.NOT_AWAY]
    counts = [None if one.refused is not None and not one.groups else len(one.groups) for one in left]
    links = tuple(StayingLink(one.link.name, count) for one, count in zip(left, counts, strict=True))
    reading = {group for one in left for group in one.groups}
    return Away(links, tuple(sorted(reading.intersection(groups))))


def _home(results: Sequence[Mapping[str, Any]]) -> set[str]:
    """The links whose applications are back, whatever else is to be seen to."""
    return {one["link"] for one in results if one["outcome"] in (Outcome.BACK, Outcome.FINDINGS, Outcome.NOT_AWAY)}


def _come_back_in_turn(
    app: AppContext, found: Sequence[LinkBack], patience_s: float, reason: str, *, yes: bool
) -> list[dict[str, Any]]:
    """The results, of links that are not begun, too."""
    coming = _are_coming(found)
    results = list[dict[str, Any]]()
    is_stopped = False
    for one in coming:
        if is_stopped:
            results.append(_result(one.link, Outcome.NOT_BEGUN, ExitCode.REFUSED))
            continue
        click.echo(f"link {one.link.name}:", err=True)
        away = still_away(found, {*_home(results), one.link.name}, one.groups)
        result = _come_back(app, one, patience_s, reason, away, yes=yes)
        is_stopped = result["outcome"] == Outcome.CUT_SHORT
        results.append(result)
    return results


def _come_back(
    app: AppContext, one: LinkBack, patience_s: float, reason: str, away: Away, *, yes: bool
) -> dict[str, Any]:
    link = one.link
    sites = (link.source.name, link.target.name)
    intent = Intent(Operation.FAILBACK, (link.name,), *sites, drain_timeout_s=patience_s, reason=reason)
    step, operation_id, is_begun = "", "", False
    try:
        plan, log = run_async(look_at_one(app, link, shown_folder(one.plan, one.folder), ""))
        if replace(one, plan=plan, log=log).outcome is Outcome.NOT_AWAY:
            click.echo(filled(f"link {link.name} is not away any more: somebody else let it run meanwhile"), err=True)
            return _result(link, Outcome.NOT_AWAY, ExitCode.DONE)
        refuse(app, link, plan, log)
        if not yes and one.plan is not None and not _is_consented(one.plan, plan):
            raise CommandRefused(f"the plan of {link.name} holds no more", AGAIN, ExitCode.REFUSED)
        coming = coming_back(app, link, plan, log, intent, away)
        operation_id = coming.operation_id
        try:
            run_async(coming.go())
        finally:
            step, is_begun = coming.step, coming.is_begun
    except CommandRefused as error:
        error.show()
        if step:
            tell_cut_short(link, operation_id, step)
        outcome = Outcome.CUT_SHORT if is_begun or one.log is not None else Outcome.REFUSED
        return _result(link, outcome, error.exit_code, operation_id=operation_id, error=error.message, hint=error.hint)
    code, result = told_end(app, link, plan, coming)
    ends = {ExitCode.DONE: Outcome.BACK, ExitCode.FINDINGS: Outcome.FINDINGS}
    return {**result, **_result(link, ends.get(ExitCode(code), Outcome.NOT_VERIFIED), code, operation_id=operation_id)}


def _is_consented(shown: FailbackPlan, now: FailbackPlan) -> bool:
    return _consented(shown) == _consented(now) and does_no_more(shown, now)


def _consented(plan: FailbackPlan) -> tuple[object, ...]:
    """What a person has read, and said yes to, beside what groups read again and skip."""
    records = (plan.tails, plan.left_records, plan.left_replayed)
    return (*records, plan.groups_back, plan.groups_gone, plan.reads_tail, plan.stays_paused)


def _result(
    link: Link, outcome: Outcome, code: int, *, operation_id: str = "", error: str = "", hint: str = ""
) -> dict[str, Any]:
    return {
        "link": link.name,
        "outcome": outcome,
        "exit_code": int(code),
        "operation_id": operation_id,
        "error": error,
        "hint": hint,
    }


def _tell_results(
    source: str, target: str, found: Sequence[LinkBack], results: Sequence[Mapping[str, Any]], output: str
) -> NoReturn:
    refused = [
        _result(one.link, one.outcome, one.refused.exit_code, error=one.refused.message, hint=one.refused.hint)
        for one in _are_refused(found)
        if one.refused is not None
    ]
    at_home = [_result(one.link, Outcome.NOT_AWAY, ExitCode.DONE) for one in found if one.outcome is Outcome.NOT_AWAY]
    results = _but_what_is_away(target, found, results)
    links = [*results, *refused, *at_home]
    steps = [*merged([tuple(one.get("next", ())) for one in results])]
    stay = [one["link"] for one in links if one["outcome"] not in (Outcome.BACK, Outcome.NOT_AWAY)]
    if stay:
        what = f"not back yet: {', '.join(stay)}; when what is said of each is seen to, the same goes on with these"
        steps.append(NextStep(what, f"farshore failback --from {source} --to {target}"))
    if output == Output.TABLE:
        emit(links, output, columns=RESULT_COLUMNS)
        tell_next(steps)
    else:
        emit({"source": source, "target": target, "links": links, "next": steps}, output)
    raise SystemExit(worst_of([one["exit_code"] for one in links]))


def _but_what_is_away(
    target: str, found: Sequence[LinkBack], results: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The results, whose next steps have no application start that uses a link which is not back by now: others came
    back behind them.
    """
    home = _home(results)
    groups = [group for one in found if one.link.name in home for group in one.groups]
    site, away = found[0].link.source, still_away(found, home, groups)
    plain, start = start_at(site), start_at(site, target, away)

    def by_now(steps: Sequence[NextStep]) -> tuple[NextStep, ...]:
        return tuple(start if step.what.startswith(plain.what) else step for step in steps)

    return [{**one, "next": by_now(one["next"])} if "next" in one else one for one in results]


def worst_of(codes: Sequence[int]) -> int:
    """Not verified, or cut short, before refused, and that before findings. Pure."""
    order = (ExitCode.ERROR, ExitCode.USAGE, ExitCode.REFUSED, ExitCode.FINDINGS, ExitCode.DONE)
    return next((code for code in order if code in codes), ExitCode.ERROR)
