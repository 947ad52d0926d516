"""What a failback says: why there is no way back now, what is going to be done, and what is left to be seen to."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import click

from broker.client.site import Site
from deploy.cli.failback_plan import NAMES_SHOWN, names_of
from deploy.cli.gate_words import reason_of
from deploy.cli.lines import filled
from deploy.cli.links_to_add import name_back, table_back
from deploy.cli.next_steps import NextStep, held_rights
from deploy.cli.tables import counted
from deploy.cli.terminal import AppContext, CommandRefused, ExitCode
from failover.failback.plan import FailbackPlan, FailbackRefusal, StandsStill
from failover.failback.stranding import count_in, open_starts, unshown_starts
from failover.journal.values import OperationLog
from failover.observing.transaction_ends import how_they_end, told_starts
from failover.observing.unshown import FEWER_IN_SYNC, TO_BE_SHOWN, TO_BE_TOLD, told_unshown, told_untold
from failover.planning.staying import NONE_AWAY, Away
from mirror.api import Link, SourceParting, StrandedTail

_WORDS = {
    FailbackRefusal.NOT_PROMOTED: "link {link} was not moved away from {source}, or it runs again",
    FailbackRefusal.NAMES_DIFFER: "link {link} has prefixed names: what is written at {target} is another topic",
    FailbackRefusal.NO_LINK_BACK: "no link from {target} to {source} is declared that brings back what {link} mirrors",
    FailbackRefusal.SEVERAL_LINKS_BACK: "what link {link} mirrors is brought back by several links, each a part: "
    "{backs}{left_out}",
    FailbackRefusal.BACK_IN_PART: "link {back} brings back a part of what {link} mirrors{left_out}",
    FailbackRefusal.LINK_BACK_SILENT: "link {back} is not run by any worker",
    FailbackRefusal.LINK_BACK_TOPIC_PAUSED: "paused along link {back}, so that what is missing would not come: "
    "{paused}",
    FailbackRefusal.LINK_BACK_STANDS_STILL: "link {back} stands still, so what is missing would not come: {still}",
    FailbackRefusal.TRANSACTION_OPEN: "a transaction is open in what only {source} has: {open}",
    FailbackRefusal.TAIL_NOT_SHOWN: "of what only {source} has {unshown}",
    FailbackRefusal.TAIL_END_UNTOLD: "{untold}",
    FailbackRefusal.TAIL_UNKNOWN: "nobody can say where what only {source} had ends, and what it wrote anew begins",
    FailbackRefusal.ORDER_UNKNOWN: "links {link} and {back} were both promoted, and nothing says which later: so it is "
    "not known whether {source} or {target} is the active site",
    FailbackRefusal.BACK_TAIL_UNDECIDED: "{target} alone has {back_records} of an earlier failover along link {back}, "
    "which would come behind newer ones",
    FailbackRefusal.SOURCE_LACKS: "{source} lacks records that {target} has from it, and no link brings them: {lacks}",
    FailbackRefusal.SOURCE_NOT_COMPARED: "{not_compared}",
    FailbackRefusal.ACTIVE_ELSEWHERE: "{elsewhere} took over from {target}, and is the active site",
    FailbackRefusal.TOPICS_GONE: "{target} has {gone} no more, and {source} would go on with what it had of them",
    FailbackRefusal.NOTHING_TO_BRING: "{target} has no topic that link {back} carries: there is nothing to come back "
    "with",
    FailbackRefusal.OFFSETS_IN_DOUBT: "offsets of {doubted} may mean other records at {source} than at {target}: the "
    "switchover along {back} would be refused",
    FailbackRefusal.GROUP_NOT_MOVABLE: "it is not known where these groups would go on at {source}: {not_movable}",
    FailbackRefusal.GROUPS_IN_USE: "{in_use}: the switchover along {back} would be refused",
}
_STANDS_STILL = (
    "`farshore status --link {back} --all` and `farshore status --link {link} --all` say what stands still, and what "
    "lets it go on; then type the same again"
)
_HINTS = {
    FailbackRefusal.NOT_PROMOTED: "a failback is for after a failover; how the link stands: farshore status "
    "--link {link}",
    FailbackRefusal.NAMES_DIFFER: "move back what reads and writes, then let the link run: farshore link resume --link "
    "{link}",
    FailbackRefusal.LINK_BACK_SILENT: "farshore mirror run --link {back}; where a mirror that runs it was just "
    "started, or the link just resumed, see first: farshore status --link {back} --until healthy",
    FailbackRefusal.TAIL_UNKNOWN: "see it: farshore stranded list --link {link}; save it: farshore stranded export "
    "--link {link} --to DIR",
    FailbackRefusal.TAIL_NOT_SHOWN: f"{TO_BE_SHOWN}. {FEWER_IN_SYNC}",
    FailbackRefusal.TAIL_END_UNTOLD: TO_BE_TOLD,
    FailbackRefusal.SOURCE_NOT_COMPARED: "see to the reason, then type the same again; farshore status --link {link}",
    FailbackRefusal.NOTHING_TO_BRING: "make at {target} what is to be carried (farshore topic create --site {target}), "
    "or have {source} go on without it: `farshore site role`, then farshore link resume --link {link}",
    FailbackRefusal.OFFSETS_IN_DOUBT: _STANDS_STILL,
    FailbackRefusal.GROUP_NOT_MOVABLE: "`farshore group describe --link {back} --group GROUP` says of each what of it "
    "is not known, and why. Does its offset mean no record of {target}: set it to one that does, or delete the group "
    "there; then type the same again",
    FailbackRefusal.GROUPS_IN_USE: "stop what is in these groups, then type the same again; `farshore group describe` "
    "with --site {target}, and with --site {source}, shows their members",
    FailbackRefusal.ACTIVE_ELSEWHERE: "`farshore site role`; move from there first, as `farshore switchover --from "
    "{elsewhere} --to {target}` does, where a link goes that way",
    FailbackRefusal.OPERATION_UNDER_WAY: "`farshore operation show {under_way}`",
}


def told_tails(tails: Sequence[StrandedTail]) -> str:
    records = count_in(tails)
    return "what is not counted yet, as not all can be read," if records is None else counted(records, "record")


def refuse(app: AppContext, link: Link, plan: FailbackPlan, log: OperationLog | None) -> None:
    """Raises CommandRefused for all that speaks against it, with the last one's hint. `log`: of the failback that is
    gone on with.
    """
    if plan.refusals:
        told = _told_refusals(app, link, plan, log)
        text, hint = "; ".join(said for said, _ in told), told[-1][1]
        if log is None:
            raise CommandRefused(f"{text}. Nothing was changed", hint, ExitCode.REFUSED)
        text = f"{log.operation_id} cannot go on: {text}. Nothing more was changed"
        first, *toml = hint.split("\n")
        hint = "\n".join([f"{first}; `farshore operation abort {log.operation_id}` gives it up", *toml])
        raise CommandRefused(text, hint, ExitCode.REFUSED)


def tell_refusals(app: AppContext, link: Link, plan: FailbackPlan, log: OperationLog | None) -> None:
    """Of a dry run: each with what to do about it. `log`: as of `refuse`."""
    for said, hint in _told_refusals(app, link, plan, log):
        first, *toml = f"hint: {hint}".split("\n")
        click.echo("\n".join([filled(f"refused: {said}"), filled(first), *toml]), err=True)


def _told_refusals(app: AppContext, link: Link, plan: FailbackPlan, log: OperationLog | None) -> list[tuple[str, str]]:
    failback = "" if log is None else log.operation_id
    named = {"link": link.name, "source": plan.source, "target": plan.target, "back": plan.link_back}
    named |= {"doubted": names_of(plan.foreseen.in_doubt), "not_movable": names_of(plan.foreseen.not_movable)}
    named |= {"open": told_starts(open_starts(plan.open_tails)), "gone": names_of(plan.topics_gone)}
    untold = told_untold(plan.source, plan.untold_ends)
    named |= {"unshown": told_unshown(unshown_starts(plan.open_tails)), "untold": untold}
    named |= {"back_records": told_tails(plan.back_tails), "elsewhere": ", ".join(plan.active_elsewhere)}
    lacks, unknown = ([one for one in plan.source_lacks if one.is_known is known] for known in (True, False))
    named |= {"lacks": told_partings(lacks, plan.source), "not_compared": told_partings(unknown, plan.source)}
    named |= {"paused": ", ".join(plan.paused_topics), "still": _told_still(plan.stands_still)}
    used = plan.foreseen.in_use
    told_used = [reason_of(one, plan.target, plan.source)[0] for one in used[:NAMES_SHOWN]]
    told_used += [f"and {len(used) - NAMES_SHOWN} more"] if len(used) > NAMES_SHOWN else []
    named["in_use"] = "; ".join(told_used)
    left_out = f"; not {names_of(plan.not_carried)}" if plan.not_carried else ""
    named |= {"backs": ", ".join(plan.links_back), "left_out": left_out, "under_way": plan.under_way}
    told = [one for one in plan.refusals if one in _WORDS]  # of another operation its journal says more
    return [(_WORDS[one].format(**named), _hint(app, link, plan, one, failback, named)) for one in told]


def _hint(
    app: AppContext, link: Link, plan: FailbackPlan, refusal: FailbackRefusal, failback: str, named: Mapping[str, str]
) -> str:
    """`failback`: one that has not ended, amid which no link is let run but by itself."""
    first = f"farshore operation abort {failback}, then " if failback else ""
    match refusal:
        case FailbackRefusal.NO_LINK_BACK:
            back = name_back(link, app.links())
            return f"add it to {app.file}, and run it: farshore mirror run --link {back}\n{table_back(link, back)}"
        case FailbackRefusal.SEVERAL_LINKS_BACK:
            return (
                f"have one link of {app.file} carry back what {link.name} mirrors; or let each link that goes there "
                "have one that carries back the same topics"
            )
        case FailbackRefusal.BACK_IN_PART:
            run = f"farshore mirror run --link {plan.link_back}"
            return f"add these topics to link {plan.link_back} in {app.file}, and have it run by that: {run}"
        case FailbackRefusal.LINK_BACK_TOPIC_PAUSED:
            topics = shlex.quote(",".join(plan.paused_topics))
            return f"let them be mirrored again: farshore topic resume --link {plan.link_back} --topic {topics}"
        case FailbackRefusal.LINK_BACK_STANDS_STILL:
            ways = (f"{first if one.is_gap else ''}{one.command}" for one in plan.stands_still[:NAMES_SHOWN])
            return f"farshore status --link {plan.link_back} has all of it; {'; '.join(dict.fromkeys(ways))}"
        case FailbackRefusal.TRANSACTION_OPEN:
            return how_they_end(link.source, open_starts(plan.open_tails))
        case FailbackRefusal.ORDER_UNKNOWN:
            return (
                f"`farshore site role`, or ask who knows; if {plan.target} is the active site: {first}farshore link "
                f"resume --link {plan.link_back} --stranded append, then again; if {plan.source} is: {first}farshore "
                f"link resume --link {plan.link}"
            )
        case FailbackRefusal.BACK_TAIL_UNDECIDED:
            return hint_of_back(plan.link_back, failback)
        case FailbackRefusal.SOURCE_LACKS:
            return hint_of_partings(plan.link, plan.source)
        case FailbackRefusal.TOPICS_GONE:
            delete = f"farshore topic delete --site {plan.source} --topic {plan.topics_gone[0]}"
            return f"read from {plan.source} what is wanted of each, delete it there, too, and go on: {delete}"
        case _:
            return _HINTS[refusal].format(**named)


def _told_still(places: Sequence[StandsStill]) -> str:
    told = [f"{one.topic}:{one.partition} ({one.why})" for one in places[:NAMES_SHOWN]]
    more = [f"and {len(places) - NAMES_SHOWN} partitions more"] if len(places) > NAMES_SHOWN else []
    return ", ".join([*told, *more])


def steps_at_end(
    link: Link,
    stands: Sequence[SourceParting] = (),
    back: Link | None = None,
    *,
    is_run: bool | None,
    stays_paused: Sequence[str] = (),
    away: Away = NONE_AWAY,
) -> tuple[NextStep, ...]:
    """Where all is back along `back`, and the link may run. `is_run` None: it is not known whether a worker does that.
    `stands`: where its source is another log than was mirrored, so that it asks. `stays_paused`: topics of the link.
    `away`: what is to come back yet along others.
    """
    start = [*(held_rights(back) if back is not None else ())]
    start += [start_at(link.source, link.target.name, away)]
    asks = []
    if stands:
        gaps = " ".join(f"--gap {one.topic}:{one.partition}" for one in stands[:NAMES_SHOWN])
        more = f", and {len(stands) - NAMES_SHOWN} more" if len(stands) > NAMES_SHOWN else ""
        where = f"{', '.join(str(one.where) for one in stands[:NAMES_SHOWN])}{more}"
        what = f"link {link.name} stands still at {where}, as its log at {link.source.name} is another one than was "
        what += "mirrored, and brings nothing more of it before you consent; --dry-run says what that means"
        what += "; `farshore status` names the others" if more else ""
        asks = [NextStep(what, f"farshore link resume --link {link.name} {gaps}")]
    asks += [_resume_paused(link, stays_paused)] if stays_paused else []
    if is_run:
        return (*start, *asks)
    brings = f"link {link.name}, which brings to {link.target.name} what is written there"
    what = f"no worker runs {brings}"
    if is_run is None:
        what = f"{link.target.name} does not say whether a worker runs {brings}: unless one does"
    return (*start, NextStep(what, f"farshore mirror run --link {link.name}"), *asks)


def start_at(site: Site, other: str = "", away: Away = NONE_AWAY) -> NextStep:
    """`away`: what is not back, and was at the `other` site."""
    but = f"; but not {told_away(away)}: that was at {other}, and is not back yet" if away.links else ""
    return NextStep(f"start producers and consumers at {site.name}: {site.bootstrap_servers}{but}")


def rest_of_site(source: str, target: str, away: Away) -> tuple[NextStep, ...]:
    """Of a failback that was begun with others of its site, and is gone on with alone: those are `away` still."""
    if not away.links:
        return ()
    links = ", ".join(one.link for one in away.links)
    what = f"{links}: at {target} when this one was begun; what of it is there still comes back with all links"
    return (NextStep(what, f"farshore failback --from {source} --to {target}"),)


def told_away(away: Away) -> str:
    groups = f", groups {names_of(away.groups)} among it" if away.groups else ""
    return f"what reads or writes along {', '.join(one.link for one in away.links)}{groups}"


def _resume_paused(link: Link, topics: Sequence[str]) -> NextStep:
    what = f"paused along link {link.name} by a person, so that nothing of them comes to {link.target.name}: "
    resume = f"farshore topic resume --link {link.name} --topic {shlex.quote(','.join(topics))}"
    return NextStep(f"{what}{names_of(topics)}; let them be mirrored again", resume)


def told_partings(partings: Sequence[SourceParting], source: str) -> str:
    """Partition by partition."""
    told = [f"{one.where}: {one.in_words(source)}" for one in partings[:NAMES_SHOWN]]
    more = [f"and {len(partings) - NAMES_SHOWN} partitions more"] if len(partings) > NAMES_SHOWN else []
    return "; ".join([*told, *more])


def lacks_line(lacks: Sequence[SourceParting], target: str) -> str:
    """What the `target` lacks of its own, or may lack, and no link brings."""
    known, unknown = [one for one in lacks if one.is_known], [one for one in lacks if not one.is_known]
    told = [f"no link brings what {target} had before: {told_partings(known, target)}"] if known else []
    if unknown:
        names = ", ".join(f"{one.where} ({one.detail})" for one in unknown[:NAMES_SHOWN])
        more = f" and {len(unknown) - NAMES_SHOWN} partitions more" if len(unknown) > NAMES_SHOWN else ""
        told.append(
            f"{target} may have lost records of its own that were mirrored from it before, and no link would bring "
            f"them back; whether it has is not known of {names}{more}"
        )
    return ". ".join(told)


def hint_of_partings(link: str, source: str) -> str:
    return (
        f"bring the newer disk of {source} back; or save what it alone has (farshore stranded export --link {link} "
        "--to DIR), and have it begin with empty disks: the link back then brings everything"
    )


def hint_of_back(back: str, failback: str = "") -> str:
    """`failback`: one that has not ended, amid which no link is let run but by itself."""
    first = f"farshore operation abort {failback}, then " if failback else ""
    return (
        f"see it: farshore stranded list --link {back}; save it: farshore stranded export --link {back} --to DIR; it "
        f"stays where it is: farshore stranded leave --link {back}; or it comes behind newer records: {first}farshore "
        f"link resume --link {back} --stranded append"
    )


def tell_cut_short(link: Link, operation_id: str, step: str) -> None:
    """Where a step did not come to its end: the failback keeps both links until it is gone on with, or given up."""
    if step:
        said = f"{operation_id} was cut short in its step {step}: `farshore failback --link {link.name}`, or from any"
        ways = f"machine `farshore operation resume {operation_id}`, goes on with it"
        click.echo(filled(f"{said} {ways}; `farshore operation abort {operation_id}` gives it up"), err=True)
