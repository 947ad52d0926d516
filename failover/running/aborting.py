"""Giving up an operation that nobody carries on: what can be undone is, and what stays is listed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from broker.base.documents import to_document
from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import side_by_side
from broker.client.topics import list_topics
from broker.wire.site_role import EVERY_TOPIC, SiteStanding
from failover.errors import (
    DenialsMayCome,
    FreezeNotAllowed,
    JournalUnanswered,
    NotAborted,
    OperationEnded,
    PromotedMeanwhile,
    StillFrozen,
)
from failover.freezing.acl_rights import NoAuthorizer, look, shown_and_hidden
from failover.freezing.choice import read_roles
from failover.freezing.denials import topic_options
from failover.freezing.freeze import Freeze, refuse_late_changes
from failover.freezing.hooks import NO_HOOKS, NO_THAW_HOOK, Hooks
from failover.journal.hooks_run import is_freeze_hook_run
from failover.journal.log import OperationJournal, claim
from failover.journal.standing import intent_of, late_denials, role_before
from failover.journal.values import Event, OperationLog
from failover.limits import SOURCE_ROLE_S
from failover.observing.sites import Sites
from failover.running.moves_again import is_promoted_by, run_behind_fence
from failover.running.patience import uncounted
from failover.running.steps import OperationStep
from failover.running.taking_up import begun_steps, still, until_unheard
from failover.running.third_site import active_elsewhere
from mirror.api import Link, LinkRun, MirrorError, RunState, read_entries


class AbortKind(StrEnum):
    """What an abort undoes, and what it leaves."""

    SOURCE_THAWED = "source_thawed"
    LINK_RUNS = "link_runs"
    """It was not promoted by the operation: its mirror goes on as before, or, where the fence was begun, in a new
    session.
    """
    LINK_PAUSED = "link_paused"
    """The operation did not promote it, and somebody paused it, or began to: it stands still until it is resumed."""
    LINK_PROMOTED = "link_promoted"
    LINK_PROMOTED_ELSEWHERE = "link_promoted_elsewhere"
    """By another operation, which the finding names: its mirror brings nothing more."""
    GROUPS_MOVED = "groups_moved"
    """They, or some of them, were set at the target, and stay there."""
    SOURCE_REFUSES_WRITES = "source_refuses_writes"
    SOURCE_TAKES_WRITES = "source_takes_writes"
    """Behind the fence: what comes is carried nowhere."""
    SOURCE_UNKNOWN = "source_unknown"
    """Whether it still refuses writes is not known: it does not answer or show its ACLs, or only the hooks know."""
    DENIALS_MAY_COME = "denials_may_come"
    """ACLs of the freeze may have been asked for that nobody was told of: if one comes yet, it denies writes."""
    TAIL_LEFT = "tail_left"
    """Of a failback, as those that follow: what only the source has was decided to stay there."""
    LINK_RESUMED = "link_resumed"
    """The link back, or the link, was let run."""
    GROUPS_SET_BACK = "groups_set_back"
    """Those that stood further at the source than where they read now, or some of them."""
    SWITCHED_OVER = "switched_over"
    """Along the link back, by the operation that the finding names."""
    SWITCHOVER_UNKNOWN = "switchover_unknown"
    """One may have been begun, and the source, whose journal would tell, does not answer."""


@dataclass(frozen=True, slots=True)
class AbortFinding:
    """One thing that an abort undoes, or leaves changed (`stays`); `command` changes it, or says more, "" where none
    does. `by`: the other operation that changed it, "" where that is this one, or not known. `open_topics`: of a source
    that a freeze closes in part those that take writes. `why`: where a site did not tell, what it said instead.
    """

    kind: AbortKind
    subject: str
    stays: bool
    command: str = ""
    by: str = ""
    open_topics: tuple[str, ...] = ()
    why: str = ""


async def plan_abort(log: OperationLog, sites: Sequence[Sites], hooks: Hooks = NO_HOOKS) -> tuple[AbortFinding, ...]:
    """What it would undo, with these hooks, and leave. Raises OperationEnded, OperationUnderWay, JournalDamaged,
    ClientError.
    """
    await until_unheard(log, sites[0])
    found = await _findings(log, sites, [(await read_entries(one.link, one.target)).run for one in sites])
    return _as_hooked(log, hooks, found)


async def _findings(
    log: OperationLog, sites: Sequence[Sites], runs: Sequence[LinkRun | None]
) -> tuple[AbortFinding, ...]:
    """`runs`: what the link of each of these may do."""
    found = [_link_finding(log, one.link.name, run) for one, run in zip(sites, runs, strict=True)]
    begun = begun_steps(log)
    # A link that was resumed since says nothing of it; applications may be at the target.
    is_moved = OperationStep.MOVE_GROUPS in begun
    is_behind = is_moved or any(finding.stays for finding in found)
    if is_moved:
        target = sites[0].link.target.name
        found.append(_stays(AbortKind.GROUPS_MOVED, target, f"farshore group list --site {target}"))
    if is_behind or OperationStep.FREEZE in begun:  # a failover freezes nothing, and its source may take writes
        found.append(await _role_finding(log, sites, is_behind=is_behind))
    if late_denials(log):
        source = sites[0].link.source.name
        found.append(_stays(AbortKind.DENIALS_MAY_COME, source, f"farshore site role --site {source}"))
    return tuple(found)


def _link_finding(log: OperationLog, name: str, run: LinkRun | None) -> AbortFinding:
    resumes = f"farshore link resume --link {name}"
    if is_promoted_by(log, run):
        return _stays(AbortKind.LINK_PROMOTED, name, resumes)
    if run is not None and run.state is RunState.PROMOTED:
        show = f"farshore operation show {run.operation_id}"
        return AbortFinding(AbortKind.LINK_PROMOTED_ELSEWHERE, name, stays=True, command=show, by=run.operation_id)
    if run is not None and run.state is RunState.PAUSED:
        return AbortFinding(AbortKind.LINK_PAUSED, name, stays=False, command=resumes)
    return AbortFinding(AbortKind.LINK_RUNS, name, stays=False)


async def _role_finding(log: OperationLog, each: Sequence[Sites], *, is_behind: bool) -> AbortFinding:
    """Behind the fence the source is not thawed: what it took would be carried nowhere; nor beside a third site that
    is, or may be, the active one by now. What is named to thaw it opens nothing that others closed there.
    """
    sites, links = each[0], [one.link for one in each]
    name = sites.link.source.name
    own = [EVERY_TOPIC] if intent_of(log).whole_site else dict.fromkeys(topic for one in links for topic in one.topics)
    thaw = f"farshore site thaw --site {name} {topic_options(own)}"
    look_first = f"farshore site role --site {name}" if is_behind else thaw
    if sites.source is None:
        return _stays(AbortKind.SOURCE_UNKNOWN, name, look_first)
    mirrored = await side_by_side(read_entries(one.link, one.target) for one in each)
    known = {name for entries in mirrored for name in entries.mirrored_topics()}
    try:
        role = (await read_roles(sites.link, sites.source, sites.target)).source
        by = await _refusing(role, sites.source, links, known)
    except ClientError as error:
        return replace(_stays(AbortKind.SOURCE_UNKNOWN, name, look_first), why=str(error))
    if is_behind:
        try:
            is_closed, open_topics = await is_denied(sites.source, links, known)
        except (ClientError, FreezeNotAllowed) as error:
            if not by:
                return replace(_stays(AbortKind.SOURCE_UNKNOWN, name, look_first), why=unseen_denials(error))
            is_closed, open_topics = False, ()  # its role refuses them, whatever its ACLs do
        if is_closed:
            return _stays(AbortKind.SOURCE_REFUSES_WRITES, name, thaw)
        if is_closed is None:
            return replace(_stays(AbortKind.SOURCE_UNKNOWN, name, look_first), open_topics=open_topics)
    if by:
        thaw = f"farshore site thaw --site {name} {topic_options(by)}"
    if by and role is not None and (is_behind or role.reason != log.operation_id):
        return _stays(AbortKind.SOURCE_REFUSES_WRITES, name, thaw)
    if is_behind:
        return _stays(AbortKind.SOURCE_UNKNOWN if role is None else AbortKind.SOURCE_TAKES_WRITES, name, "")
    is_open = role is not None and not by  # None: it is frozen by its ACLs, or by a hook
    if not is_open and await _may_be_elsewhere(each):
        return _stays(AbortKind.SOURCE_REFUSES_WRITES, name, thaw)
    return AbortFinding(AbortKind.SOURCE_THAWED, name, stays=False)


async def _refusing(
    role: SiteStanding | None, source: Cluster, links: Sequence[Link], mirrored: Collection[str]
) -> tuple[str, ...]:
    """By which expressions the source's role refuses writes to what the links carry, or have carried; none where it is
    closed to other topics alone. Raises ClientError.
    """
    if role is None or role.takes_writes:
        return ()
    if not role.topics:
        return (EVERY_TOPIC,)
    names = [one for one in await list_topics(source) if any(link.selects_topic(one) for link in links)]
    by = {*role.refusing({*names, *mirrored}), *(topic for link in links for topic in link.topics)}
    return tuple(one for one in role.topics if one in by)


async def _may_be_elsewhere(each: Sequence[Sites]) -> bool:
    """Whether a third site has taken over topics of the links meanwhile, and takes writes to them, or one does not say:
    the source would be a second active one.
    """
    for sites in each:
        link = sites.link
        mirrored = (await read_entries(link, sites.target)).mirrored_topics()
        if await active_elsewhere(sites, mirrored | link.named_topics):
            return True
    return False


async def is_denied(
    source: Cluster, links: Sequence[Link], mirrored: Collection[str] = ()
) -> tuple[bool | None, tuple[str, ...]]:
    """Whether ACLs of a freeze keep clients from writing to what the links carry; None: in part, and then which topics
    take writes, or may, as the site hides them: of those that were `mirrored`, and those that a link names one by one,
    it says so. Raises FreezeNotAllowed where the ACLs of a site that is frozen by them are not shown, ClientError.
    """
    principals = source.site.freeze_principals
    try:
        found = await look(source)
    except NoAuthorizer:
        return False, ()
    except (ClientError, FreezeNotAllowed):
        if principals:
            raise
        return False, ()
    asked = {*mirrored}.union(*(link.named_topics for link in links))
    shown, hidden = await shown_and_hidden(source, asked)
    carried = [*(name for name in shown if any(link.selects_topic(name) for link in links)), *hidden]
    return found.closes(carried, principals), found.open_of(carried, principals)


def unseen_denials(error: FarshoreError) -> str:
    """What is not known where `is_denied` raised this, and what shows it. Pure."""
    told = f"{error}, so that whether ACLs of the freeze still deny writes there is not known"
    if isinstance(error, FreezeNotAllowed):
        told += "; give it Describe on the cluster (`kafka-acls --add --cluster --operation Describe`), and look again"
    return told


def _stays(kind: AbortKind, subject: str, command: str) -> AbortFinding:
    return AbortFinding(kind, subject, stays=True, command=command)


async def abort(
    log: OperationLog, sites: Sequence[Sites], planned: Sequence[AbortFinding], hooks: Hooks, who: str
) -> tuple[AbortFinding, ...]:
    """End an operation that nobody carries on -> what was undone, and what stays changed. `planned`: what the operator
    was told of that.

    Before the fence the source's clients write again; behind it everything stays as it is. What decides is read behind
    a fence of this abort's own: a promotion that was asked for is heard then, or never. Raises OperationEnded,
    OperationUnderWay, PromotedMeanwhile, NotAborted, StillFrozen, OperationTakenUp.
    """
    intent, first = intent_of(log), sites[0]
    between = (intent.source, intent.target)
    try:
        writer, log = await claim(first.target, between, partial(still, log))
    except ClientError as error:
        raise NotAborted(log.operation_id, f"{error}; {intent.source} stays as it is", intent.target) from error
    journal = OperationJournal(first.target, log.operation_id, who, writer, between, log)
    try:
        async with journal.kept((Event.TAKEN_UP, {"who": who})):
            found = await _decided(log, sites, planned, journal)
            if any(finding.kind is AbortKind.SOURCE_THAWED for finding in found):
                await _thaw(log, first, hooks, journal)
            found = _as_hooked(log, hooks, found)
            await journal.record(Event.ABORTED, {"who": who, "findings": [to_document(finding) for finding in found]})
    except (ClientError, JournalUnanswered) as error:
        raise NotAborted(log.operation_id, str(error), intent.target) from error
    return found


async def _decided(
    log: OperationLog, sites: Sequence[Sites], planned: Sequence[AbortFinding], journal: OperationJournal
) -> tuple[AbortFinding, ...]:
    """What stands behind this abort's fence of each link. Raises PromotedMeanwhile, NotAborted, ClientError."""
    runs = []
    for one in sites:
        try:
            runs.append(await run_behind_fence(log, one))
        except (ClientError, MirrorError) as error:
            source = one.link.source.name
            why = f"whether it has promoted {one.link.name} cannot be told, so that {source} stays as it is: {error}"
            refused = NotAborted(log.operation_id, why, one.link.target.name)
            await _left(journal, OperationStep.FENCE, refused)
            raise refused from error
    promoted = [one.link.name for one, run in zip(sites, runs, strict=True) if is_promoted_by(log, run)]
    told = {finding.subject for finding in planned if finding.kind is AbortKind.LINK_PROMOTED}
    if unheard := [name for name in promoted if name not in told]:
        meanwhile = PromotedMeanwhile(log.operation_id, unheard, sites[0].link.source.name)
        await _left(journal, OperationStep.FENCE, meanwhile)
        raise meanwhile
    is_source_settled = await _refuse_late_roles(log, sites[0], journal)
    found = await _findings(log, sites, runs)
    return found if is_source_settled else tuple(_unsettled(one) for one in found)


async def _refuse_late_roles(log: OperationLog, sites: Sites, journal: OperationJournal) -> bool:
    """What a machine before this one may have asked for and not been told: roles are not changed by it any more. Of the
    source in the time that it has; False: that is not known. Raises ClientError where the target does not take it.
    """
    begun = begun_steps(log)
    if begun.isdisjoint((OperationStep.FREEZE, OperationStep.HAND_OVER)):
        return True
    if OperationStep.HAND_OVER in begun:
        await refuse_late_changes(sites.target, journal.renew)
    if sites.source is None:
        return False
    with suppress(ClientError, TimeoutError):
        async with timeout(SOURCE_ROLE_S) as limit:
            await refuse_late_changes(sites.source, partial(uncounted, limit, journal.renew))
            return True
    return False


def _unsettled(found: AbortFinding) -> AbortFinding:
    """Of a source that did not take it that nothing more comes: how it stands now is not how it will."""
    if not found.stays or found.kind not in (AbortKind.SOURCE_REFUSES_WRITES, AbortKind.SOURCE_TAKES_WRITES):
        return found
    return _stays(AbortKind.SOURCE_UNKNOWN, found.subject, f"farshore site role --site {found.subject}")


def _as_hooked(log: OperationLog, hooks: Hooks, found: Sequence[AbortFinding]) -> tuple[AbortFinding, ...]:
    """Of a source that its brokers let clients write to again: what a freeze_hook did stands, without a thaw_hook."""
    if hooks.thaw or not is_freeze_hook_run(log):
        return tuple(found)
    return tuple(
        replace(_stays(AbortKind.SOURCE_UNKNOWN, one.subject, ""), why=NO_THAW_HOOK)
        if one.kind is AbortKind.SOURCE_THAWED
        else one
        for one in found
    )


async def _left(journal: OperationJournal, step: OperationStep, error: FarshoreError) -> None:
    """It stays open, and whoever goes on with it need not wait until this machine is unheard."""
    with suppress(FarshoreError):  # then he waits
        await journal.record(Event.CUT_SHORT, {"step": step.value, "error": str(error)})


async def _thaw(log: OperationLog, sites: Sites, hooks: Hooks, journal: OperationJournal) -> None:
    roles = await read_roles(sites.link, sites.source, sites.target)
    freezing = replace(roles, freezes=True, hooks=hooks, before=role_before(log))
    named = replace(sites.link, name=",".join(intent_of(log).links))
    freeze = Freeze(freezing, named, (sites.source, sites.target), log.operation_id, journal.renew)
    freeze.take_up(late_denials(log))
    try:
        with suppress(DenialsMayCome):  # a finding says so
            await journal.while_held(freeze.undo(OperationEnded(f"{log.operation_id} stays open")))
    except StillFrozen as error:
        await journal.record(Event.CUT_SHORT, {"step": OperationStep.FREEZE.value, "error": str(error)})
        raise
