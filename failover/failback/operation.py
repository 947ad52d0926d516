"""A failback as an operation: one at a time for a link and its link back, in the journal at the link's target.

That journal is the one of moves along the link, so that none begins meanwhile; a move along the link back looks there
before it begins, and behind its own first entry (`failover/journal/opposite.py`), as a failback looks at that one's.
The switchover among a failback's steps is an operation of its own, at the link back's target, and names the failback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from broker.base.documents import to_document
from broker.base.ending import to_its_end
from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from failover.errors import JournalUnanswered, OperationTakenUp, OtherFile, Overtaken
from failover.failback.plan import FailbackStep
from failover.failback.way_back import WayBack
from failover.freezing.hooks import NO_HOOKS, Hooks
from failover.journal.hooks_run import refuse_lacking
from failover.journal.log import OperationJournal, claim, load_operations
from failover.journal.silence import told_who_went_on
from failover.journal.standing import (
    OPEN_STATES,
    OperationState,
    held_by,
    intent_of,
    is_failback,
    refuse_second,
    results_of,
    standing_of,
    told_standing,
    within,
)
from failover.journal.values import Event, OperationLog
from failover.observing.sites import Sites
from failover.planning.declared import check_declared, declared
from failover.planning.staying import NONE_AWAY, Away
from failover.running.steps import OperationStep
from failover.running.taking_up import begun_steps, still, until_unheard, who_begins
from mirror.api import Link


@dataclass(frozen=True, slots=True)
class Beginning:
    """Who carries it on. `log`: the failback that is taken up; None: one begins, and `detail` is its first entry."""

    operation_id: str
    who: str
    detail: Mapping[str, Any]
    log: OperationLog | None = None


def first_entry(
    intent: Mapping[str, Any],
    who: str,
    link_back: str,
    plan: object,
    away: Away = NONE_AWAY,
    hooks: Hooks = NO_HOOKS,
) -> dict[str, Any]:
    """What `Beginning.detail` says. `away`: what of the same site is not back when this one is."""
    entry = {"intent": intent, "who": who, "link_back": link_back, "way_back": plan, "hooks": to_document(hooks)}
    return {**entry, "away": to_document(away)} if away != NONE_AWAY else entry


async def open_failback(sites: Sites) -> OperationLog | None:
    """That of the link that has not ended, and that nobody carries on; None: there is none. Raises OperationUnderWay
    where somebody does, or another move along the link has not ended; ClientError.
    """
    operations, now_ms = await sites.readers.operations.read(sites.target), sites.now_ms()
    log = _failback_of(sites.link, operations, now_ms)
    others = {name: one for name, one in operations.items() if log is None or name != log.operation_id}
    refuse_second(others, _between(sites), now_ms)
    if log is not None:
        await until_unheard(log, sites)
    return log


def _failback_of(link: Link, operations: Mapping[str, OperationLog], now_ms: int) -> OperationLog | None:
    for log in operations.values():
        if not log.is_ended and is_failback(log):
            standing = standing_of(log, now_ms)
            if standing.state in OPEN_STATES and standing.links == (link.name,):
                return log
    return None


def open_switchover(back: Link, operations: Mapping[str, OperationLog], now_ms: int) -> OperationLog | None:
    """The move along the link back alone that has not ended. `operations`: of its target."""
    for log in (one for one in operations.values() if not one.is_ended):
        standing = standing_of(log, now_ms)
        if standing.state in OPEN_STATES and standing.links == (back.name,) and not is_failback(log):
            return log
    return None


async def refuse_moves_back(sites: Sites, back: Link, operation_id: str) -> None:
    """Raises OperationUnderWay where a move the other way has not ended, but for one along the link back that nobody
    carries on, or that is this failback's own: it brings that to its end.
    """
    if sites.source is None:
        return
    operations, now_ms = await sites.readers.operations_at(sites.source), sites.now_ms()
    to_be_ended = open_switchover(back, operations, now_ms)
    if to_be_ended is not None:
        is_left = standing_of(to_be_ended, now_ms).state is OperationState.CUT_SHORT
        if is_left or within(to_be_ended) == operation_id:
            operations.pop(to_be_ended.operation_id)
    refuse_second(operations, (sites.link.target.name, sites.link.source.name), now_ms)


async def refuse_amid_failback(link: Link, source: Cluster | None, target: Cluster, now_ms: int) -> None:
    """Raises OperationUnderWay where a failback of the link, or one that this is the link back of, has not ended: who
    would let the link run interferes. Where its source does not answer, what stands there is not known.
    """
    at_target = [log for log in (await load_operations(target)).values() if not log.is_ended]
    found = [log for log in at_target if standing_of(log, now_ms).links == (link.name,)]
    if source is not None:
        at_source = [log for log in (await load_operations(source)).values() if not log.is_ended]
        found += [log for log in at_source if link_back_of(log) == link.name]
    for log in found:
        standing = standing_of(log, now_ms)
        if is_failback(log) and standing.state in OPEN_STATES:
            raise held_by(standing, f"{told_standing(standing, now_ms)}; nothing was changed")


def link_back_of(log: OperationLog) -> str:
    """That of a failback, by name; "" of others."""
    found = log.entries[0].detail.get("link_back", "") if is_failback(log) else ""
    return found if isinstance(found, str) else ""


def noted_folder(log: OperationLog) -> str:
    """Where the machines before save what only the old site has, by name; "": nowhere, as far as they told."""
    told = [entry.detail.get("way_back") or entry.detail for entry in log.entries]
    found = [one.get("export_to") for one in told if isinstance(one, Mapping)]
    return next((one for one in reversed(found) if one and isinstance(one, str)), "")


def check_links_of(log: OperationLog, links: Sequence[Link]) -> None:
    """That a failback which is taken up goes on along the link back that it began with: another one of the file that
    takes it up would be a second one beside that. `links`: of the file. Raises OtherFile.
    """
    back = link_back_of(log)
    if back and back not in {link.name for link in links}:
        raise OtherFile(log.operation_id, back, {})
    check_declared(log, [link for link in links if link.name in (back, *intent_of(log).links)])


def check_hooks_of(log: OperationLog, hooks: Hooks) -> None:
    """As of a move that is taken up (`check_hooks`), until clients move. `hooks`: of this machine's file. An earlier
    version noted none. Raises OtherFile.
    """
    noted = log.entries[0].detail.get("hooks", {})
    if isinstance(noted, Mapping) and FailbackStep.SWITCH_OVER not in begun_steps(log):
        refuse_lacking(log, noted, hooks)


async def come_back(sites: Sites, back: Link, way: WayBack, beginning: Beginning) -> None:
    """Carry it out, under the lease. `sites`: of the link, both of which answer.

    Raises OtherFile; OperationUnderWay where somebody else moves along the link or the link back, or takes this one up
    at the same time; OperationTakenUp, JournalUnanswered where another machine may carry it on; and what the steps
    raise. Whatever it raises behind the first step the failback is cut short, to be taken up.
    """
    log = beginning.log
    if log is not None:
        check_links_of(log, (sites.link, back))
        way.take_up(log)
    for may_be_own_again in (True, False):
        known = set[str]()
        journal = await _claimed(sites, beginning, log, known)
        try:
            await _carry_out(sites, back, way, journal, beginning, log)
            return
        except JournalUnanswered as lost:
            raise await told_who_went_on(lost, journal, sites) from lost
        except OperationTakenUp as overtaken:
            if not (may_be_own_again and journal.is_taken_up):
                raise await told_who_went_on(overtaken, journal, sites) from overtaken
            if not journal.is_begun:
                raise await who_begins(sites, _between(sites), known) from overtaken
            # Who begins another one fences this writer before he sees that it is under way, and gives up.
            log = (await load_operations(sites.target)).get(beginning.operation_id)
            if log is None or not journal.wrote_all(log) or log.is_ended:
                raise await told_who_went_on(overtaken, journal, sites) from overtaken


async def _claimed(sites: Sites, beginning: Beginning, log: OperationLog | None, known: set[str]) -> OperationJournal:
    """`known` gets the operations that were there before."""
    between = _between(sites)

    def check(operations: Mapping[str, OperationLog]) -> OperationLog | None:
        known.update(operations)
        own = beginning.operation_id
        refuse_second({name: one for name, one in operations.items() if name != own}, between, sites.now_ms())
        return None if log is None else still(log, operations)

    try:
        writer, found = await claim(sites.target, between, check, sites.readers.operations)
    except Overtaken as overtaken:
        raise await who_begins(sites, between, known) from overtaken
    return OperationJournal(sites.target, beginning.operation_id, beginning.who, writer, between, found)


async def _carry_out(
    sites: Sites,
    back: Link,
    way: WayBack,
    journal: OperationJournal,
    beginning: Beginning,
    log: OperationLog | None,
) -> None:
    taken_up = (Event.TAKEN_UP, {"who": beginning.who})
    said = {**beginning.detail, "declared": {link.name: declared(link) for link in (sites.link, back)}}
    async with journal.kept((Event.PLANNED, said) if log is None else taken_up):
        try:
            await refuse_moves_back(sites, back, beginning.operation_id)
            await way.check_as_seen()
            if way.asks(log):  # which may take long
                await way.ask_before(journal)
                await refuse_moves_back(sites, back, beginning.operation_id)
                await way.check_as_seen()
            if log is not None and (found := await _switched_over(sites, beginning.operation_id)) is not None:
                way.note_before(found)
            await way.go(journal)
        except BaseException as error:  # whatever it is, it goes on when it is told
            is_begun = bool(way.step) or (log is not None and bool(begun_steps(log) - {OperationStep.BEFORE_HOOK}))
            await to_its_end(_end_early(journal, error, way.step, is_begun=is_begun))
            raise


async def _switched_over(sites: Sites, operation_id: str) -> Mapping[str, Any] | None:
    """The result of this failback's switchover, where the last of them came to its end, and had findings."""
    if sites.source is None:
        return None
    own = [log for log in (await load_operations(sites.source)).values() if within(log) == operation_id]
    if not own or standing_of(own[-1], sites.now_ms()).state is not OperationState.FINDINGS:
        return None
    return next(iter(results_of(own[-1])), {"operation_id": own[-1].operation_id})


async def _end_early(journal: OperationJournal, error: BaseException, step: str, *, is_begun: bool) -> None:
    said = {"step": step, "error": str(error) or type(error).__name__}
    with suppress(FarshoreError):  # nobody carries it on then, which the lease will say
        await journal.record(Event.CUT_SHORT if is_begun else Event.GIVEN_UP, said)


def _between(sites: Sites) -> tuple[str, str]:
    return (sites.link.source.name, sites.link.target.name)
