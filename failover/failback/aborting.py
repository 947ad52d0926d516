"""Giving up a failback that nobody carries on: none of its steps is undone, and what stays of them is listed.

Nothing of it needs to be undone: what was saved and left stays in the source's log, a link back that runs brings what
it would have brought, and groups that were set read nothing twice. The switchover among its steps is an operation of
its own, and is aborted or resumed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from broker.base.documents import to_document
from broker.base.errors import FarshoreError
from broker.client.errors import ClientError
from broker.client.site_role import site_standing
from broker.client.topics import list_topics
from failover.errors import FreezeNotAllowed, JournalUnanswered, NotAborted, SwitchoverOpen
from failover.failback.operation import link_back_of
from failover.failback.plan import FailbackStep
from failover.freezing.denials import topic_options
from failover.journal.log import OperationJournal, claim, load_operations
from failover.journal.standing import OPEN_STATES, intent_of, standing_of, within
from failover.journal.values import Event, OperationLog
from failover.observing.sites import Sites
from failover.running.aborting import AbortFinding, AbortKind, is_denied, unseen_denials
from failover.running.taking_up import begun_steps, still, until_unheard
from mirror.api import Link, LinkRun, MirrorError, RunState, fence_groups, read_entries, refuse_promotion


async def plan_failback_abort(log: OperationLog, sites: Sites, back: Link | None) -> tuple[AbortFinding, ...]:
    """What would stay. `sites`: of the link; `back`: the link back, None where the file has it no more. Raises
    OperationEnded, OperationUnderWay, SwitchoverOpen, ClientError.
    """
    await until_unheard(log, sites)
    return await _findings(log, sites, back, is_last=False)


async def abort_failback(log: OperationLog, sites: Sites, back: Link | None, who: str) -> tuple[AbortFinding, ...]:
    """End it -> what stays. What a machine before this one may have asked for, and was not told of, is heard by now, or
    never is. Raises OperationEnded, OperationUnderWay, OperationTakenUp, SwitchoverOpen, NotAborted.
    """
    intent = intent_of(log)
    between = (intent.source, intent.target)
    try:
        writer, log = await claim(sites.target, between, partial(still, log))
    except ClientError as error:
        raise NotAborted(log.operation_id, str(error), intent.target) from error
    journal = OperationJournal(sites.target, log.operation_id, who, writer, between, log)
    try:
        async with journal.kept((Event.TAKEN_UP, {"who": who})):
            try:
                found = await _findings(log, sites, back, is_last=True)
            except FarshoreError as error:  # it stays open, and whoever goes on with it need not wait
                await journal.record(Event.CUT_SHORT, {"step": _last_step(log), "error": str(error)})
                raise
            await journal.record(Event.ABORTED, {"who": who, "findings": [to_document(one) for one in found]})
    except (ClientError, JournalUnanswered, MirrorError) as error:
        raise NotAborted(log.operation_id, str(error), intent.target) from error
    return found


def _last_step(log: OperationLog) -> str:
    return standing_of(log, 0).step


async def _findings(log: OperationLog, sites: Sites, back: Link | None, *, is_last: bool) -> tuple[AbortFinding, ...]:
    """`is_last`: nobody else carries it on, so that what is on its way may be refused."""
    begun, link, source = begun_steps(log), sites.link, sites.link.source.name
    found: list[AbortFinding] = []
    if FailbackStep.LEAVE in begun:
        if is_last and not _is_done(log, FailbackStep.LEAVE):
            await refuse_promotion(link, sites.target, log.operation_id)
        found.append(_stays(AbortKind.TAIL_LEFT, source, f"farshore stranded list --link {link.name}"))
    if FailbackStep.RESUME_BACK in begun:
        found += await _link_back(log, sites, back, is_last=is_last)
    if FailbackStep.SET_GROUPS in begun:
        if is_last and sites.source is not None and back is not None and back.groups:
            await fence_groups(sites.source, back)
        found.append(_stays(AbortKind.GROUPS_SET_BACK, source, f"farshore group list --site {source}"))
    if FailbackStep.SWITCH_OVER in begun:
        found += await _switchovers(log, sites, link_back_of(log) or link.name)
    if FailbackStep.RESUME in begun:
        refusing = refuse_promotion(link, sites.target, log.operation_id) if is_last else None
        run = (await read_entries(link, sites.target)).run if refusing is None else await refusing
        found += _resumed(log, link, run)
    return tuple(found)


async def _link_back(log: OperationLog, sites: Sites, back: Link | None, *, is_last: bool) -> Sequence[AbortFinding]:
    if sites.source is None or back is None:  # nobody can look: it was asked to run
        name = link_back_of(log) if back is None else back.name
        return [_stays(AbortKind.LINK_RESUMED, name, f"farshore link pause --link {name}")] if name else []
    is_on_its_way = is_last and not _is_done(log, FailbackStep.RESUME_BACK)
    if is_on_its_way:
        return _resumed(log, back, await refuse_promotion(back, sites.source, log.operation_id))
    return _resumed(log, back, (await read_entries(back, sites.source)).run)


def _resumed(log: OperationLog, link: Link, run: LinkRun | None) -> Sequence[AbortFinding]:
    if run is None or (run.state, run.operation_id) != (RunState.RUNNING, log.operation_id):
        return []
    return [_stays(AbortKind.LINK_RESUMED, link.name, f"farshore link pause --link {link.name}")]


async def _switchovers(log: OperationLog, sites: Sites, back: str) -> Sequence[AbortFinding]:
    """Raises SwitchoverOpen."""
    source = sites.link.source.name
    if sites.source is None:
        unknown = _stays(AbortKind.SWITCHOVER_UNKNOWN, back, f"farshore operation list --site {source}")
        return [unknown, *await _frozen(sites)]
    own = [one for one in (await load_operations(sites.source)).values() if within(one) == log.operation_id]
    for one in own:
        if standing_of(one, sites.now_ms()).state in OPEN_STATES:
            raise SwitchoverOpen(log.operation_id, one.operation_id)
    return [
        AbortFinding(
            AbortKind.SWITCHED_OVER,
            back,
            stays=True,
            command=f"farshore operation show {one.operation_id}",
            by=one.operation_id,
        )
        for one in own
        if any(entry.event == Event.FINISHED for entry in one.entries)
    ]


async def _frozen(sites: Sites) -> Sequence[AbortFinding]:
    """The site that the switchover leaves, where it refuses writes: with the other one gone none takes them."""
    standing, link, name = await site_standing(sites.target), sites.link, sites.link.target.name
    names = [*filter(link.selects_topic, await list_topics(sites.target)), *link.named_topics]
    by = () if standing is None else standing.refusing(names)
    try:
        denied, open_topics = await is_denied(sites.target, [link])
    except (ClientError, FreezeNotAllowed) as error:
        if not by:
            look_first = f"farshore site role --site {name}"
            return [replace(_stays(AbortKind.SOURCE_UNKNOWN, name, look_first), why=unseen_denials(error))]
        denied, open_topics = False, ()
    if denied is False and not by:
        return []
    by = link.topics if denied is not False else by
    # The other site does not say that no client went there, and somebody has to. A site that is closed as a whole is
    # opened so, too, and with an expression that has more than the link's topics all of those.
    thaw = f"farshore site thaw --site {name} {topic_options(by)} --even-if-other-active"
    finding = _stays(AbortKind.SOURCE_REFUSES_WRITES, name, thaw)
    return [replace(finding, open_topics=open_topics)]


def _is_done(log: OperationLog, step: FailbackStep) -> bool:
    return any(entry.event == Event.DONE and entry.detail["step"] == step.value for entry in log.entries)


def _stays(kind: AbortKind, subject: str, command: str) -> AbortFinding:
    return AbortFinding(kind, subject, stays=True, command=command)
