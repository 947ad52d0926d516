"""How to go on after a switchover or failover, and how to come back: sentences, each with the command that does it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final

from broker.base.documents import iso_time
from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.fanout import both
from broker.client.topics import list_topics
from deploy.cli.late_lines import closing_open_topics, stopping_writers, until_counted
from deploy.cli.left_lines import groups_not_moved, groups_to_move, groups_unknown, unknown_moves
from deploy.cli.links_to_add import name_back, table_back
from deploy.cli.tables import counted
from deploy.cli.terminal import AppContext
from failover.errors import leave_options
from failover.failback.looking import find_link_back
from failover.freezing.denials import topic_options
from failover.observing.contact import SiteFinding
from failover.planning.intent import Intent
from failover.planning.staying import StayReason
from failover.running.result import OperationResult
from failover.running.steps import Operation
from failover.running.verification import DifferenceKind
from mirror.api import STATUS_LIMITS, CarriedBack, Link, LinkCondition, carried_back
from mirror.offsets.state import read_entries
from mirror.status import condition_of

LEAVES_SOURCE: Final = {
    SiteFinding.ALIVE: " --even-if-source-answers",
    SiteFinding.REPLACED: " --even-if-source-answers",
    SiteFinding.PARTLY_THERE: " --even-if-source-partly-there",
    SiteFinding.UNREACHABLE: " --even-if-source-partly-there",
}


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do next: by a command, by lines that are added to farshore.toml, or without farshore ("")."""

    what: str
    command: str = ""
    toml: str = ""


async def links_back(link: Link, links: Sequence[Link]) -> CarriedBack:
    """The declared ones; by their patterns alone where the link's target does not tell what it has."""
    try:
        async with Cluster(link.target, client_id="farshore-cli", limits=STATUS_LIMITS) as target:
            entries, there = await both(read_entries(link, target), list_topics(target))
            return find_link_back(link, links, entries, there)
    except FarshoreError:
        return carried_back(link, links)


async def steps_after(result: OperationResult, app: AppContext, staying: Sequence[str] = ()) -> tuple[NextStep, ...]:
    """As `next_steps`, with what the file has, and the sites say of the links back."""
    link, links = app.link(result.link), app.links()
    back, conditions = await look_at_links_back(link, links, are_asked=is_asked(result))
    is_own = app.runs_brokers(link.source.name)
    return next_steps(result, link, back.links, conditions, links, back.not_carried, staying, is_own_source=is_own)


async def look_at_links_back(
    link: Link, links: Sequence[Link], *, are_asked: bool
) -> tuple[CarriedBack, dict[str, LinkCondition]]:
    """`are_asked`: how they stand, too, by name."""
    back = await links_back(link, links)
    return back, await conditions_of(back.links) if are_asked else {}


async def conditions_of(links: Sequence[Link]) -> dict[str, LinkCondition]:
    """Of each link, by its state; unknown where its target does not answer."""
    found = dict.fromkeys((link.name for link in links), LinkCondition.UNKNOWN)
    for link in links:
        try:
            async with Cluster(link.target, client_id="farshore-cli", limits=STATUS_LIMITS) as target:
                found[link.name] = condition_of(await read_entries(link, target))
        except FarshoreError:
            continue
    return found


def is_asked(result: OperationResult) -> bool:
    """Whether the source is asked how links back stand there: one that is lost would be waited for. Pure."""
    is_there = result.is_source_open or result.source_role is not None or bool(result.denied_principals)
    return result.operation is Operation.SWITCHOVER or (is_there and not result.seen_by)


def next_steps(
    result: OperationResult,
    link: Link,
    back: Sequence[Link],
    conditions: dict[str, LinkCondition],
    links: Sequence[Link] = (),
    not_carried: Sequence[str] = (),
    staying: Sequence[str] = (),
    *,
    is_own_source: bool = False,
) -> tuple[NextStep, ...]:
    """`conditions`: of the links back, by their names. `links`: all of the file. `not_carried`: mirrored topics that no
    link brings back. `staying`: links of the same move that were refused. `is_own_source`: the file has farshore's own
    brokers there. Pure.
    """
    here, there = link.source.name, link.target.name
    if not result.verified:
        return tuple(_not_verified(result, link))
    steps = [*_starting(result, link, staying, is_two_way=bool(back))]
    lost = result.operation is Operation.FAILOVER
    if result.is_unwatched and not lost:
        what = f"when {here} answers again, before a producer reaches it: what only it has"
        steps.append(NextStep(what, f"farshore stranded list --link {link.name}"))
    if lost:
        steps += _closing(result, link, is_own_source=is_own_source)
        what = f"when {here} is back, before a producer is: what only it has"
        what = f"what only {here} has, which answers" if _answered(result) else what
        steps.append(NextStep(what, f"farshore stranded list --link {link.name}"))
    carried = f"{'then, ' if lost else ''}so that {here} gets what is written at {there}"
    names = [one.name for one in back]
    for name in names:
        condition = conditions.get(name, LinkCondition.UNKNOWN)
        verb = "link resume" if condition in (LinkCondition.PROMOTED, LinkCondition.PAUSED) else "mirror run"
        unless = f"unless link {name} runs"
        if lost and condition is LinkCondition.UNKNOWN:  # its state is at the site that is lost
            unless += f"; if it was promoted or paused, first `farshore link resume --link {name}`"
        steps.append(NextStep(f"{carried}, {unless}", f"farshore {verb} --link {name}"))
    if not back and link.topic_names == "same":
        names = [name_back(link, links)]
        steps.append(NextStep(f"{carried}, add a link to farshore.toml", toml=table_back(link, names[0])))
        steps.append(NextStep("and run its mirror", f"farshore mirror run --link {names[0]}"))
    if not_carried:
        told = ", ".join(not_carried)
        steps.append(NextStep(f"no link brings back {told}: add it in farshore.toml to the topics of one of these"))
    stop = f"to come back to {here}: stop producers and consumers at {there}"
    if lost and names:
        if len(names) > 1:
            stop = f"have one link carry back what {link.name} mirrors, not {' and '.join(names)} a part each; {stop}"
        steps.append(NextStep(f"{stop}; what only {here} has is saved first", f"farshore failback --link {link.name}"))
        return tuple(steps)
    for name in names:
        steps.append(NextStep(stop, f"farshore switchover --link {name}"))
    steps.append(NextStep(f"then let {there} follow {here} again", f"farshore link resume --link {link.name}"))
    return tuple(steps)


def _starting(result: OperationResult, link: Link, staying: Sequence[str], *, is_two_way: bool) -> Iterable[NextStep]:
    """Up to the start of applications at the target, with those that are not to start with the others. `is_two_way`: a
    link brings back what is written there.
    """
    here, there = link.source.name, link.target.name
    yield from map(NextStep, stopping_writers(result))
    if topics := result.open_topics:
        named = topic_options(topic.replace(".", r"\.") for topic in topics)  # they are taken for expressions
        yield NextStep(closing_open_topics(result), f"farshore site standby --site {here} {named}")
    yield from (NextStep(what, f"farshore stranded list --link {link.name}") for what in until_counted(result))
    if result.hook_error:
        yield hook_by_hand(there)
    if result.source_readers:
        yield NextStep(f"stop what reads at {here}")
    if result.late_commits:
        named = _group_options({late.group for late in result.late_commits})
        if beyond := _read_beyond(result) if is_two_way else ():
            named += f" {leave_options(beyond)}"
        what = f"stop what reads at {here} as these groups without joining them; then, before it starts at {there}"
        yield NextStep(what, f"farshore {result.operation.value} --link {link.name} {named}{_consent(result)}")
    yield from held_rights(link)
    but = f"; but not what reads or writes along {', '.join(staying)}: that stays at {here}" if staying else ""
    yield NextStep(f"start producers and consumers at {there}: {link.target.bootstrap_servers}{but}")
    yield from _groups_behind(result, link)
    yield from closed_at_both(result.closed_at_both, there, here)
    yield from closed_for_third(result.closed_for_third, there)


def hook_by_hand(there: str) -> NextStep:
    """Behind an after_hook that failed; `there`: where the clients went."""
    return NextStep(f"do by hand what the after_hook was to do, or run it again: {there} is there for its clients")


def closed_at_both(topics: Sequence[str], target: str, source: str) -> Iterable[NextStep]:
    """Of topics that no move was about, and that no client can write to at either site."""
    if topics:
        closed = f"{target} stays closed to {', '.join(topics)}, and so is {source}: no client writes there at either"
        what = f"{closed}; open them where they belong: at {target}, or, with --site {source} instead, there"
        yield NextStep(what, f"farshore site thaw --site {target} {topic_options(topics)}")


def closed_for_third(topics: Sequence[str], target: str) -> Iterable[NextStep]:
    """Of topics that a third site has, or may have: one that started frozen takes no writes either."""
    if topics:
        what = (
            f"{target} stays closed to {', '.join(topics)}, which another site has, or may have: `farshore site role` "
        )
        what += "says who takes writes; where nobody takes those, open them where they belong"
        yield NextStep(what, f"farshore site thaw --site {target} {topic_options(topics)}")


def held_rights(link: Link) -> Iterable[NextStep]:
    """Behind a move to the link's target, where the link carries ACLs."""
    if link.sync_acls:
        what = f"give the rights that were held back while {link.target.name} stood by: nothing may write there before"
        yield NextStep(what, f"farshore acls apply --link {link.name} --promote")


def _answered(result: OperationResult) -> bool:
    """Whether all of the source that was left did, up to the end: it is there, and not to be waited for."""
    return result.source_finding is SiteFinding.ALIVE and not result.is_unwatched


def _closing(result: OperationResult, link: Link, *, is_own_source: bool) -> Iterable[NextStep]:
    """How a source that was left is to refuse writes, if it is lost when it is back. Brokers that nothing says to be
    farshore's own may refuse nobody, unless the site has `freeze_principals`.
    """
    if result.open_topics:  # the others are closed, and these are told of before
        return
    is_there = _answered(result)
    here, is_closed = link.source.name, result.source_role is not None or bool(result.denied_principals)
    standby = f"farshore site standby --site {here}"
    standby += "".join(f" --topic {shlex.quote(topic)}" for topic in result.moved_topics)
    if result.takes_writes and (is_own_source or link.source.freeze_principals):
        when = f"as soon as {here} answers, and before a producer reaches it"
        yield NextStep(f"before a producer reaches {here}, which answers" if is_there else when, standby)
    elif result.takes_writes and not is_closed:
        away, does = (", which answers", "does") if is_there else (" when it is back", "does, as soon as it answers")
        what = f"keep producers away from {here}{away}: nothing in farshore.toml closes it to them (are its brokers "
        yield NextStep(f"{what}farshore's own, `{standby}` {does})")


def _consent(result: OperationResult) -> str:
    """What another failover of this link is to be given, as its source was found at the fence."""
    if result.operation is Operation.SWITCHOVER:
        return ""
    return f" --allow-data-loss{LEAVES_SOURCE.get(result.source_finding, '')}"


def _groups_behind(result: OperationResult, link: Link) -> Iterable[NextStep]:
    """Those that are not to start with the others, and how they follow."""
    there, consent = link.target.name, _consent(result)
    if result.not_named:
        what = f"but not these groups, which were not asked for: before they start at {there}"
        command = f"farshore {result.operation.value} --link {link.name} {_group_options(result.not_named)}{consent}"
        yield NextStep(what, command)
    yield from _groups_unknown(result, link)
    if left := groups_to_move(result):
        what = f"but not these groups: first, when what did not answer at {there} does again"
        yield NextStep(what, f"farshore failover --link {link.name} {_group_options(left)}{consent}")


def _groups_unknown(result: OperationResult, link: Link) -> Iterable[NextStep]:
    """Those that were left by consent. Of a source that told where they stand there asking again says no more."""
    here, there = link.source.name, link.target.name
    unknown, told = groups_unknown(result), set[str]()
    if result.source_finding is SiteFinding.ALIVE:
        moves = unknown_moves(result)
        told = {move.group for move in moves} - {move.group for move in moves if move.source_offset is None}
    if later := [group for group in unknown if group not in told]:
        what = (
            f"but not these groups, of which it is not known where they go on: before they start at {there}, when "
            f"{here} tells that (a failover with --to-datetime sets them to a time)"
        )
        consent = ""  # it answers by then, in part or wholly
        if result.operation is Operation.FAILOVER:
            consent = " --allow-data-loss --even-if-source-answers --even-if-source-partly-there"
        yield NextStep(what, f"farshore {result.operation.value} --link {link.name} {_group_options(later)}{consent}")
    for group in (one for one in unknown if one in told):
        what = f"but not group {group} with them: {_where_it_stands(result, group)}"
        yield NextStep(what, f"farshore group describe --link {link.name} --group {shlex.quote(group)}")


def _where_it_stands(result: OperationResult, group: str) -> str:
    """Of one that stands at the source where the target has no place for it, and what it reads there if it starts."""
    moves, here, there = [move for move in unknown_moves(result) if move.group == group], result.source, result.target
    lost = [one for one in result.losses if (one.offsets if one.records is None else one.records)]
    stranded = {(one.topic, one.partition) for one in result.stranded if one.is_end_told}
    lacking = {(one.topic, one.partition) for one in lost} | stranded
    is_lacking = lacking.issuperset((move.topic, move.partition) for move in moves)
    place = f"no place at {there}, which lacks records" if is_lacking else f"no place known at {there}"
    reads = f"started as it stands there, it reads again what it read at {here} since it was carried"
    if nowhere := sum(move.stood_at is None for move in moves):
        reads = f"it has no offset there in {counted(nowhere, 'partition')}, where its client's own auto.offset.reset "
        reads += "decides (latest skips all): set that before it starts"
    return f"where it stands at {here} is {place}; {reads}"


def _read_beyond(result: OperationResult) -> tuple[str, ...]:
    """Groups that committed behind the fence where the target lacks records: there no offset of it means the same,
    where others write behind what it has.
    """
    ends = {(loss.topic, loss.partition): loss.first_offset for loss in result.losses if not loss.is_none}
    ends |= {(one.topic, one.partition): one.first_offset for one in result.stranded}
    found = set[str]()
    for late in result.late_commits:
        end = ends.get((late.topic, late.partition))
        if end is not None and late.found_offset is not None and late.found_offset > end:
            found.add(late.group)
    return tuple(sorted(found))


def _group_options(groups: Iterable[str]) -> str:
    return " ".join(f"--group {shlex.quote(group)}" for group in sorted(groups))


def _not_verified(result: OperationResult, link: Link) -> Iterable[NextStep]:
    """Groups that were not moved are moved alone: the others stand where they are to, and may read on by now."""
    if unmoved := groups_not_moved(result):
        named = _group_options(unmoved)
        what = f"these groups were not moved: before they start at {link.target.name}, when nothing keeps them any more"
        yield NextStep(what, f"farshore {result.operation.value} --link {link.name} {named}{_consent(result)}")
    if any(one.kind is not DifferenceKind.GROUP_NOT_MOVED for one in result.differences) or not unmoved:
        yield NextStep("it was not verified: when what was found is seen to, run the same command again")


def merged(each: Sequence[Sequence[NextStep]]) -> tuple[NextStep, ...]:
    """Of several links of one operation: what is the same for all is said once."""
    rounds = zip_longest(*each)
    return tuple(dict.fromkeys(step for one in rounds for step in one if step is not None))


def for_refused(intent: Intent, staying: Sequence[str], *, is_closed: bool = False) -> NextStep:
    """How the links that were refused follow those that a site's move took: by what was typed for all of them.
    `is_closed`: the source was, as a whole.
    """
    options = [f"--topic {shlex.quote(topic)}" for topic in intent.topics]
    options += [f"--group {shlex.quote(group)}" for group in intent.groups]
    options += [f"--leave-group {shlex.quote(group)}" for group in intent.left_groups]
    options += [f"--leave-partition {shlex.quote(place)}" for place in intent.left_partitions]
    options += [f"--set-back {shlex.quote(group)}" for group in intent.set_back_groups]
    options += ["--whole-site"] if intent.whole_site else []
    options += [f"--to-datetime {iso_time(intent.timestamp_ms)}"] if intent.timestamp_ms is not None else []
    options += ["--no-freeze"] if intent.operation is Operation.SWITCHOVER and not intent.freezes else []
    options += ["--allow-data-loss"] if intent.allow_data_loss else []
    options += ["--even-if-source-answers"] if intent.even_if_source_answers else []
    options += ["--even-if-source-partly-there"] if intent.even_if_source_partly_there else []
    one = "it was" if len(staying) == 1 else "they were"
    closed = f", which takes no writes to {'its' if len(staying) == 1 else 'their'} topics either" if is_closed else ""
    stayed = f"{', '.join(staying)} stayed at {intent.source}{closed}"
    what = f"{stayed}: when what {one} refused for is seen to, the same again"
    command = f"farshore {intent.operation.value} --from {intent.source} --to {intent.target}"
    return NextStep(what, " ".join([command, *options]))


def for_source_alone(stays: Iterable[Mapping[str, Any]], source: str) -> Iterable[NextStep]:
    """Of links that the move of a site passed over: what their source alone has since they were moved."""
    for stay in stays:
        if stay["reason"] == StayReason.SOURCE_ALONE:
            link = stay["subject"]
            what = f"{link} was moved before, and {source} has been written to since: see to what is there alone"
            yield NextStep(what, f"farshore stranded list --link {link}")


def back_at_once(
    steps: Sequence[NextStep],
    source: str,
    target: str,
    backs: Sequence[str],
    there: Sequence[str] = (),
    *,
    is_all: bool = False,
) -> tuple[NextStep, ...]:
    """Behind the move of a site: where the way back is along all links that go from the target to the source (`backs`),
    or, behind a loss, is the failback of all that were moved (`there`), it is one command, as the move was; so it is
    behind the last of several moves (`is_all`).
    """
    as_planned = _at_once(steps, "switchover", backs, f"--from {target} --to {source}", is_all=is_all)
    return _at_once(as_planned, "failback", there, f"--from {source} --to {target}", is_all=is_all)


def _at_once(
    steps: Sequence[NextStep], verb: str, links: Sequence[str], sites: str, *, is_all: bool
) -> tuple[NextStep, ...]:
    by_link = {f"farshore {verb} --link {name}" for name in links}
    own = [step for step in steps if step.command in by_link]
    if len(links) < 2 or not own or ({step.command for step in own} != by_link and not is_all):
        return tuple(steps)
    whole = replace(own[0], command=f"farshore {verb} {sites}")
    return tuple(dict.fromkeys(whole if step in own else step for step in steps))
