"""No client writes at the source while it is moved away from, and none afterwards: by its brokers, or by a hook."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import both
from broker.client.site_role import SiteRoleChanged, await_site_role, has_no_roles, set_site_role, site_standing
from broker.client.topics import list_topics
from broker.wire.errors import ErrorCode
from broker.wire.site_role import EVERY_TOPIC, SiteRole, SiteStanding
from failover.acl_freeze import (
    Closing,
    close,
    denials_to_end,
    denials_to_make,
    open_again,
    standing_in_words,
    thaw_of,
    undo,
    unlock,
)
from failover.denials import SiteDenials
from failover.errors import FreezeNotAllowed, GateRefused, LockedOut, OperationUnderWay, StillFrozen
from failover.hooks import Hooks, run_hook
from failover.limits import SOURCE_ROLE_S
from mirror.api import Link


@dataclass(frozen=True, slots=True)
class Freezing:
    """What keeps clients from writing. The roles are those of the moment when the plan was made; None: that site's
    brokers refuse nobody (Apache Kafka), or it was not asked. `freezes`: writes at the source stop before the drain.
    `topics` of the source stop, as regular expressions, and `target_topics` begin at the target; none: all. `others`:
    topics of the source that the link does not carry, and that stop all the same. `before`: the source's role when the
    operation began, where an earlier run of it has changed that. `source_denials`: where that site's ACLs keep clients
    from writing; `target_denials`: where they did.
    """

    source: SiteStanding | None = None
    target: SiteStanding | None = None
    freezes: bool = False
    hooks: Hooks = field(default_factory=Hooks)
    topics: tuple[str, ...] = ()
    target_topics: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    before: SiteStanding | None = None
    source_denials: SiteDenials | None = None
    target_denials: SiteDenials | None = None

    @property
    def is_enforced(self) -> bool:
        """Whether the source's brokers themselves refuse writes from the freeze on."""
        return self.is_by_role or self.is_by_acls

    @property
    def is_by_role(self) -> bool:
        """Of every client."""
        return self.source is not None and (self.freezes or self.source.covers(self.topics))

    @property
    def is_by_acls(self) -> bool:
        """Of those whom ACLs can keep out: no super user is."""
        return self.source_denials is not None and self.freezes

    @property
    def is_in_the_way(self) -> bool:
        """Whether the source is frozen for other topics: another move is under way, or was cut short."""
        source = self.source
        return source is not None and source.role is SiteRole.FROZEN and not source.covers(self.topics)

    @property
    def was_left(self) -> bool:
        """Whether the source is closed for good to topics of the move: it is not the active site."""
        closed = frozenset() if self.source is None else frozenset(self.source.closed_for_good)
        by_role = bool(closed) and (EVERY_TOPIC in closed or not self.topics or not closed.isdisjoint(self.topics))
        return by_role or (self.source_denials is not None and self.source_denials.closes(self.topics))

    @property
    def hands_over(self) -> bool:
        """Whether a role is left to be changed once the groups are moved."""
        source, target = self.source, self.target
        becomes_standby = self.is_by_role and source is not None and not source.is_as(self.left(source))
        denied = self.target_denials is not None and self.target_denials.marks(self.target_topics)
        opens = denied or (target is not None and not target.is_as(self.begun(target)))
        return self.is_by_acls or becomes_standby or opens

    def left(self, source: SiteStanding, reason: str = "") -> SiteStanding:
        """What the source is to be at the end."""
        return source.closed(SiteRole.STANDBY, reason, self.topics)

    def begun(self, target: SiteStanding, reason: str = "") -> SiteStanding:
        """What the target is to be at the end."""
        return target.opened(reason, self.target_topics)


UNFROZEN: Final = Freezing()
"""Nothing keeps clients from writing."""


def joined(freezings: Sequence[Freezing]) -> Freezing:
    """Of several links between the same sites: their topics together, by the newest of the roles that were read."""
    *_, last = sorted(freezings, key=lambda one: one.source.epoch if one.source else -1)
    *_, newest = sorted(freezings, key=lambda one: one.target.epoch if one.target else -1)
    others = set(last.others).intersection(*(one.others for one in freezings))
    denials = [one.source_denials for one in freezings if one.source_denials is not None]
    is_writable = any(one.is_writable for one in denials)
    return replace(
        last,
        source_denials=replace(denials[-1], is_writable=is_writable) if denials else None,
        target=newest.target,
        topics=_together([one.topics for one in freezings]),
        target_topics=_together([one.target_topics for one in freezings]),
        others=tuple(sorted(others)),
    )


def _together(each: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Expressions of all of them; none of one of them is every topic, and then all are."""
    several = list(each)
    return () if not all(several) else tuple(dict.fromkeys(topic for topics in several for topic in topics))


async def read_roles(
    link: Link, source: Cluster | None, target: Cluster, *, whole_site: bool = False, even_without_source: bool = False
) -> Freezing:
    """The roles of both sites, and the topics that a move of the link is about: those that it carries, or
    (`whole_site`) all. Raises ClientError where a site does not say and may have a role; `even_without_source`: of one
    that cannot be asked in time nothing is known.
    """
    known: SiteStanding | None = None
    others: tuple[str, ...] = ()
    if source is not None and even_without_source:
        with suppress(ClientError, TimeoutError):
            known, others = await asyncio.wait_for(_known(link, source), SOURCE_ROLE_S)
    elif source is not None:
        known, others = await _known(link, source)
    standing = await _standing(target)
    if whole_site or ".*" in link.topics:
        return Freezing(known, standing, others=others)
    prefix = "" if link.topic_names == "same" else re.escape(f"{link.source.name}.")
    target_topics = tuple(f"{prefix}(?:{topic})" if prefix else topic for topic in link.topics)
    return Freezing(known, standing, topics=link.topics, target_topics=target_topics)


async def with_denials(
    freezing: Freezing, source: Cluster | None, target: Cluster, *, even_without_source: bool = False
) -> Freezing:
    """What ACLs deny, where a site is frozen by them. Raises FreezeNotAllowed, ClientError; `even_without_source`: of a
    source that does not say in time, or does not let farshore change them, nothing is known.
    """
    known: SiteDenials | None = None
    if source is not None and freezing.freezes and even_without_source:
        with suppress(ClientError, FreezeNotAllowed, TimeoutError):
            known = await asyncio.wait_for(denials_to_make(source, freezing.topics), SOURCE_ROLE_S)
    elif source is not None and freezing.freezes:
        known = await denials_to_make(source, freezing.topics)
    ended = await denials_to_end(target, freezing.target_topics)
    return replace(freezing, source_denials=known, target_denials=ended)


async def _known(link: Link, source: Cluster) -> tuple[SiteStanding | None, tuple[str, ...]]:
    """The source's role, and its topics that the link does not carry."""
    names = [name for name in await list_topics(source) if not name.startswith("__") and not link.selects_topic(name)]
    return await _standing(source), tuple(sorted(names))


async def _standing(cluster: Cluster) -> SiteStanding | None:
    try:
        return await site_standing(cluster)
    except KafkaError as error:
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # ours ask no rights
            return None
        raise


class Freeze:
    """Of one operation. Each step may be repeated: what it asks for is looked at first."""

    def __init__(
        self,
        plan: Freezing,
        link: Link,
        clusters: tuple[Cluster | None, Cluster],
        operation_id: str,
        check_held: Callable[[], None],
    ) -> None:
        """`check_held` raises where the operation may be another machine's by now: what that one keeps frozen is not
        let in here.
        """
        self._plan = plan
        self._check_held = check_held
        self._link = link
        self._source, self._target = clusters
        self._operation_id = operation_id
        self._begun = False
        self._is_role_asked = False
        self.denied_principals: tuple[str, ...] = ()
        """Whom the source's ACLs keep from writing at the end."""
        self.not_closed = ""
        """How a source stands that is to be closed by ACLs and of which it is not known that it is, in words."""

    @property
    def is_begun(self) -> bool:
        return self._begun

    def take_up(self) -> None:
        """What another process of this operation began is this one's to undo."""
        self._begun = self._is_role_asked = True

    async def begin(self) -> None:
        """Runs the hook. Raises HookFailed; `undo` then, and where `refuse_writes` fails."""
        self._begun = True
        if self._plan.hooks.freeze:
            await self._run_hook("freeze_hook", self._plan.hooks.freeze)

    async def refuse_writes(self) -> None:
        """Returns when no broker of the source takes records of clients. Raises OperationUnderWay, FreezeNotAllowed,
        ClientError, and what `check_held` does.
        """
        known, denials = self._plan.source, self._plan.source_denials
        if self._source is not None and denials is not None and self._plan.freezes:
            await close(self._source, denials, self._plan.topics, self._operation_id, self._check_held)
        if self._source is None or known is None or not self._plan.is_by_role:
            return
        try:
            if known.covers(self._plan.topics) and known.reason == self._operation_id:
                # Anew: a machine that had the operation before, and takes its freeze back late, knows the role's epoch.
                asked = (known.role, self._operation_id, known, known.topics, known.standby)
                await set_site_role(self._source, *asked, check=self._check_held)
            elif known.covers(self._plan.topics):
                await await_site_role(self._source, known)
            else:
                frozen = known.closed(SiteRole.FROZEN, self._operation_id, self._plan.topics)
                asked = (frozen.role, self._operation_id, known, frozen.topics, frozen.standby)
                self._is_role_asked = True
                await set_site_role(self._source, *asked, check=self._check_held)
        except SiteRoleChanged as error:
            raise OperationUnderWay(str(error), hint=error.hint) from error

    async def undo(self, because: BaseException) -> None:
        """Nothing else was changed, and is not going to be: clients write again. Raises StillFrozen, and what
        `check_held` does.
        """
        if not self._begun:
            return
        site = self._link.source.name
        before = self._plan.before or self._plan.source
        try:
            if self._source is not None and before is not None:
                await self._undo_role(self._source, before)
            if self._source is not None and self._source.site.freeze_principals:
                await undo(self._source, self._operation_id, check=self._check_held)
            if self._plan.hooks.thaw:
                self._check_held()
                await self._run_hook("thaw_hook", self._plan.hooks.thaw)
            await self._undo_forgotten()
        except (ClientError, GateRefused) as error:
            raise self._still_frozen(because, str(error)) from because
        if self._source is None and (before is not None or self._link.source.freeze_principals):
            raise self._still_frozen(because, f"{site} does not answer") from because

    async def _undo_role(self, source: Cluster, before: SiteStanding) -> None:
        """What was asked for and not answered may come yet: it follows an epoch that is over then, and is refused."""
        now = await site_standing(source)
        if now is None:
            return
        is_ours = (now.role, now.reason) == (SiteRole.FROZEN, self._operation_id)
        known = self._plan.source
        may_come = self._is_role_asked and known is not None and now.epoch == known.epoch
        if is_ours or may_come:
            then = before if is_ours else now
            asked = (then.role, f"{self._operation_id} was given up", now, then.topics, then.standby)
            await set_site_role(source, *asked, check=self._check_held)

    async def _undo_forgotten(self) -> None:
        """The file may have had its freeze_principals taken out since, as far as the site tells in time."""
        if self._source is not None and not self._source.site.freeze_principals:
            with suppress(ClientError, FreezeNotAllowed, TimeoutError):
                undoing = undo(self._source, self._operation_id, check=self._check_held)
                await asyncio.wait_for(undoing, SOURCE_ROLE_S)

    def _still_frozen(self, because: BaseException, why: str) -> StillFrozen:
        site, said = self._link.source.name, str(because) or type(because).__name__
        return StillFrozen(
            f"{said}; writes at {site} may be frozen still: {why}",
            hint=f"`farshore site role`, then `farshore site thaw --site {site}`, or what the thaw_hook does",
        )

    async def hand_over(self, going: Freezing, *, even_without_source: bool) -> SiteStanding | None:
        """The source becomes standby, then the target active -> the source's standing, None where it was not told. As
        far as their topics are moved: `going` is of the links that go, and what was frozen for the others is let in.

        `even_without_source`: one that does not take it in time is left. Raises ClientError, what `check_held` does.
        """
        leaving = self._leave(going, even_without_source=even_without_source)
        if self._plan.target is None:
            told = await leaving
        else:
            told, is_active = await both(leaving, self._is_active(going))
            if not is_active:
                await _become(self._target, going.begun, self._operation_id, self._check_held)
        if going.target_denials is not None:
            await open_again(self._target, going.target_topics, self._check_held)
        return told

    async def _is_active(self, going: Freezing) -> bool:
        """Whether every broker of the target says that it takes writes already: nothing is to be changed there."""
        now = await site_standing(self._target)
        if now is None or not going.begun(now).is_as(now):
            return False
        await await_site_role(self._target, now)
        return True

    async def _leave(self, going: Freezing, *, even_without_source: bool) -> SiteStanding | None:
        await self._close_for_good(going, even_without_source=even_without_source)
        if self._source is None or not self._plan.is_by_role:
            return None
        becoming = _become(self._source, partial(self._left, going), self._operation_id, self._check_held)
        if not even_without_source:
            return await becoming
        with suppress(ClientError, TimeoutError):
            return await asyncio.wait_for(becoming, SOURCE_ROLE_S)
        return None

    async def _close_for_good(self, going: Freezing, *, even_without_source: bool) -> None:
        """Topics that were born since the freeze, too; and a failover has had none."""
        denials = going.source_denials
        if self._source is None or denials is None or not going.is_by_acls:
            return
        closing = Closing()
        closed = self._closed_for_good(self._source, denials, going, closing)
        self.not_closed = ""
        if not even_without_source:
            await closed
            return
        try:
            await asyncio.wait_for(closed, SOURCE_ROLE_S)
        except LockedOut as locked:  # the way back comes before the closed door
            self.not_closed = await self._unlocked(self._source, locked)
        except (ClientError, FreezeNotAllowed, TimeoutError) as error:
            why = str(error) or f"it did not say so within {SOURCE_ROLE_S:g} s"
            self.not_closed = await standing_in_words(self._source, going.topics, why, closing)

    async def _unlocked(self, source: Cluster, locked: LockedOut) -> str:
        try:
            await asyncio.wait_for(unlock(source, self._operation_id, locked, self._check_held), SOURCE_ROLE_S)
        except LockedOut as unsure:
            return f"{unsure} ({unsure.hint})"
        except TimeoutError:
            return f"{locked}; that the ACLs were taken back no broker said in time: {thaw_of(source)}"
        return f"{source.site.name} was not closed to its clients: {locked}; the ACLs were taken back ({locked.hint})"

    async def _closed_for_good(self, source: Cluster, denials: SiteDenials, going: Freezing, closing: Closing) -> None:
        await close(source, denials, going.topics, self._operation_id, self._check_held, closing)
        await undo(source, self._operation_id, going.topics, self._check_held)
        self.denied_principals = denials.principals

    def _left(self, going: Freezing, now: SiteStanding, reason: str) -> SiteStanding:
        before = self._plan.before or self._plan.source
        is_ours = (now.role, now.reason) == (SiteRole.FROZEN, self._operation_id)
        return going.left(replace(before, epoch=now.epoch) if is_ours and before is not None else now, reason)

    async def _run_hook(self, name: str, command: tuple[str, ...]) -> None:
        source, target = self._link.source, self._link.target
        told = {
            "FARSHORE_OPERATION": self._operation_id,
            "FARSHORE_LINK": self._link.name,
            "FARSHORE_SOURCE": source.name,
            "FARSHORE_SOURCE_BOOTSTRAP_SERVERS": source.bootstrap_servers,
            "FARSHORE_TARGET": target.name,
            "FARSHORE_TARGET_BOOTSTRAP_SERVERS": target.bootstrap_servers,
        }
        await run_hook(name, command, told)


async def _become(
    cluster: Cluster, change: Callable[[SiteStanding, str], SiteStanding], reason: str, check: Callable[[], None]
) -> SiteStanding | None:
    now = await site_standing(cluster)
    if now is None:
        raise has_no_roles(cluster.site.name)
    wanted = change(now, reason)
    if wanted.is_as(now):
        await await_site_role(cluster, now)
        return now
    return await set_site_role(cluster, wanted.role, reason, now, wanted.topics, wanted.standby, check)
