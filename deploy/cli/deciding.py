"""How one goes on where a link was promoted and its source has records of its own, until the case has its end: the
decision about them, the link that is let run behind it, the link back, and the move to the site that is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker.client.cluster import Cluster
from broker.client.topics import list_topics
from deploy.cli.links_to_add import name_back, table_back
from deploy.cli.next_steps import NextStep
from failover.failback.looking import find_link_back
from failover.failback.stranding import Stranded, open_starts, unshown_starts
from failover.observing.transaction_ends import how_they_end, told_starts
from failover.observing.unshown import TO_BE_SHOWN, told_unshown
from mirror.api import Link, LinkCondition, is_later, read_entries, that_are_missing
from mirror.offsets.promotions import promotion_of, went_back

_STOPPED = (LinkCondition.PROMOTED, LinkCondition.PAUSED)


async def are_clients_at_target(
    link: Link, links: Sequence[Link], source: Cluster | None, target: Cluster
) -> bool | None:
    """By what was promoted last of the link and its links back; None: the link is not promoted, or nothing says it.
    `links`: all of the file. Raises ClientError, StateDamaged.
    """
    ours = await read_entries(link, target)
    if source is None or promotion_of(ours) is None:
        return None
    for back in find_link_back(link, links, ours, await list_topics(target)).links:
        theirs = await read_entries(back, source, only=())
        if went_back(ours, theirs):
            return False
        if promotion_of(theirs) is not None and (later := is_later(theirs, ours)) is not False:
            return None if later is None else False
    return True


def steps_to_decide(
    link: Link,
    found: Stranded,
    backs: Sequence[Link],
    conditions: Mapping[str, LinkCondition],
    links: Sequence[Link] = (),
    *,
    is_promoted: bool = False,
    at_target: bool | None = None,
) -> tuple[NextStep, ...]:
    """Where nobody decided yet about records that would come behind newer ones; of a link that `is_promoted`, and whose
    target wrote nothing behind them, the way back. `conditions`: of the links back. `links`: all of the file.
    `at_target`: as of `are_clients_at_target`; where they went back to the source, this link is to run. Pure.
    """
    may_come_back = is_promoted and bool(found.undecided) and link.topic_names == "same"
    if not found.behind_newer and not may_come_back:
        return ()
    if unsettled := tuple(_until_settled(link, found, backs)):
        return unsettled
    if at_target is False and not that_are_missing(found.partings):
        return tuple(_at_source_again(link, found))
    if not found.behind_newer:
        return tuple(_to_come_back(link, found, backs, conditions, links))
    here, there, name = link.source.name, link.target.name, link.name
    steps = [_save(link)]
    steps += _for_back(link, backs, conditions, links)
    if lacks := that_are_missing(found.partings) if link.topic_names == "same" else ():
        return (*steps, *_behind_older_disk(link, is_known=any(one.is_known for one in lacks)))
    if len(backs) == 1 or not backs:
        what = f"then decide. They stay at {here} alone, and applications go on there: stop what reads and writes at "
        steps.append(NextStep(f"{what}{there}, if anything does", f"farshore failback --link {name}"))
    return (*steps, *_ways(link, "or "))


def _save(link: Link) -> NextStep:
    return NextStep("save them before anything else", f"farshore stranded export --link {link.name} --to DIR")


def _ways(link: Link, first: str) -> Iterable[NextStep]:
    here, there, resume = link.source.name, link.target.name, f"farshore link resume --link {link.name} --stranded"
    where = f"{first}they stay at {here} alone, applications stay where they are, and the link goes on behind them"
    yield NextStep(where, f"{resume} leave")
    yield NextStep(f"or {there} gets them behind its own newer records", f"{resume} append")


def _at_source_again(link: Link, found: Stranded) -> Iterable[NextStep]:
    """Clients went back there along a link back since the link was promoted, and it was not let run."""
    here, there = link.source.name, link.target.name
    if found.behind_newer:
        yield _save(link)
        yield from _ways(link, f"then decide: clients went back to {here} since. Either ")
    else:
        what = f"clients went back to {here} since: so that {there} gets what is written there"
        yield NextStep(what, f"farshore link resume --link {link.name}")


def _to_come_back(
    link: Link,
    found: Stranded,
    backs: Sequence[Link],
    conditions: Mapping[str, LinkCondition],
    links: Sequence[Link],
) -> Iterable[NextStep]:
    """Where nothing is to be decided: the failback saves what only the source has itself."""
    here, there = link.source.name, link.target.name
    if lacks := that_are_missing(found.partings):
        yield from _behind_older_disk(link, is_known=any(one.is_known for one in lacks))
        return
    yield from _for_back(link, backs, conditions, links)
    if len(backs) < 2:
        what = f"to come back to {here}, with what only it has saved first: stop what reads and writes at {there}"
        yield NextStep(what, f"farshore failback --link {link.name}")


def _until_settled(link: Link, found: Stranded, backs: Sequence[Link]) -> Iterable[NextStep]:
    """Before that nothing of it can be saved, left or brought back: what it is, or where it ends, is not known."""
    here, there, look = link.source.name, link.target.name, f"farshore stranded list --link {link.name}"
    if starts := open_starts(found.undecided):
        yield NextStep(
            f"a transaction is open in {told_starts(starts)}; {how_they_end(link.source, starts)}; then", look
        )
    elif all(tail.is_end_known for tail in found.undecided) and (starts := unshown_starts(found.undecided)):
        yield NextStep(f"{told_unshown(starts)}; {TO_BE_SHOWN}", look)
    elif not all(tail.is_end_known for tail in found.undecided):
        what = f"nothing says whether {here} or {there} was made the active site later: see who takes writes, or ask"
        yield NextStep(what, "farshore site role")
        for back in backs if len(backs) == 1 else ():
            resume = f"farshore link resume --link {back.name} --stranded append"
            yield NextStep(f"if {there} is the active one, {here} gets what is written there", resume)
            yield NextStep("then look again", look)


def _behind_older_disk(link: Link, *, is_known: bool) -> Iterable[NextStep]:
    """A failback is refused, and the link would stand still, as long as the source has not what was mirrored from it.
    Not `is_known`: that may be so.
    """
    here, there, look = link.source.name, link.target.name, f"farshore stranded list --link {link.name}"
    if not is_known:
        yield NextStep(f"whether {here} has what was mirrored from it is not known: see to the reason, then", look)
        return
    yield NextStep(f"{here} lacks what {there} has from it, and no failback brings that: with a newer disk", look)
    yield NextStep(f"without one they stay at {here} alone", f"farshore stranded leave --link {link.name}")
    close = f"farshore site standby --site {here}"
    yield NextStep(f"then {here} begins with empty disks, and the failback brings everything; first", close)


def steps_behind_resume(
    link: Link,
    backs: Sequence[Link],
    conditions: Mapping[str, LinkCondition],
    at_target: bool | None,
    links: Sequence[Link] = (),
) -> tuple[NextStep, ...]:
    """Of a link that was promoted, and may run now. `at_target`: whether clients are there. Pure."""
    here, there = link.source.name, link.target.name
    if at_target is None:
        return ()
    see = NextStep("see that nothing is left to be done", "farshore status --until healthy")
    if not at_target:
        move = f"applications stay at {here}; or, to move them to {there}: stop producers and consumers at {here}"
        return (see, NextStep(move, f"farshore switchover --link {link.name}"))
    steps = list(_for_back(link, backs, conditions, links, " --stranded append"))
    steps.append(see)
    if link.topic_names == "same" and len(backs) < 2:
        back = backs[0].name if backs else name_back(link, links)
        come = f"applications stay at {there}; or, to come back to {here}: stop producers and consumers at {there}"
        steps.append(NextStep(come, f"farshore switchover --link {back}"))
    return tuple(steps)


def _for_back(
    link: Link,
    backs: Sequence[Link],
    conditions: Mapping[str, LinkCondition],
    links: Sequence[Link],
    promoted: str = "",
) -> Iterable[NextStep]:
    """`promoted`: how a link back that is promoted is let run, where clients are at its source by then."""
    brings = f"so that {link.source.name} gets what is written at {link.target.name}"
    for back in backs:
        condition = conditions.get(back.name, LinkCondition.UNKNOWN)
        if condition in _STOPPED:
            more = promoted if condition is LinkCondition.PROMOTED else ""
            yield NextStep(brings, f"farshore link resume --link {back.name}{more}")
        yield NextStep(f"{brings}, unless link {back.name} runs", f"farshore mirror run --link {back.name}")
    if not backs and link.topic_names == "same":
        name = name_back(link, links)
        yield NextStep(f"{brings}, add a link to farshore.toml", toml=table_back(link, name))
        yield NextStep("and run its mirror", f"farshore mirror run --link {name}")
