"""No client writes at the source while it is moved away from, and none afterwards: by its brokers, or by a hook."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from broker.base.expressions import any_of
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both
from broker.client.same_leaders import BrokersDiffer, await_same_leaders
from broker.client.site_role import SiteRoleChanged, await_site_role, has_no_roles, set_site_role, site_standing
from broker.wire.site_role import EVERY_TOPIC, SiteRole, SiteStanding
from failover.errors import (
    DenialsMayCome,
    FreezeNotAllowed,
    GateRefused,
    LockedOut,
    NotDrained,
    OperationUnderWay,
    StillFrozen,
)
from failover.freezing.acl_freeze import AclFreeze, open_again
from failover.freezing.acl_rights import first_acl
from failover.freezing.choice import Freezing
from failover.freezing.closing import Closing, role_in_words, standing_in_words, thaw_of
from failover.freezing.denials import topic_options
from failover.freezing.hooks import NO_THAW_HOOK, run_hook
from failover.journal.values import LATE_DENIALS
from failover.limits import SOURCE_ROLE_S
from failover.running.patience import uncounted
from mirror.api import Link


class Freeze:
    """Of one operation. Each step may be repeated: what it asks for is looked at first."""

    def __init__(
        self,
        plan: Freezing,
        link: Link,
        clusters: tuple[Cluster | None, Cluster],
        operation_id: str,
        renew: Callable[[], Awaitable[None]],
    ) -> None:
        """`renew` is awaited between each look and what is changed by it, and raises where the operation may be another
        machine's by now: what that one keeps frozen is not let in here.
        """
        self._plan = plan
        self._renew = renew
        self._link = link
        self._source, self._target = clusters
        self._operation_id = operation_id
        self._begun = self._is_hook_run = False
        self._is_role_asked = False
        self._closing = Closing()
        self._closings = [self._closing]
        self.denied_principals: tuple[str, ...] = ()
        """Whom the source's ACLs keep from writing at the end."""
        self.not_closed = ""
        """How a source stands that is to be closed and of which it is not known that it is, in words."""
        self.left_open: tuple[str, ...] = ()
        """Topics of the source that no ACL is about, and that everybody may write to by that, or may for all that is
        known.
        """

    @property
    def is_begun(self) -> bool:
        return self._begun

    @property
    def lets_in(self) -> bool:
        """Whether `undo` may let clients in: not where the source stood by before, and its role alone closes it."""
        before = self._plan.before or self._plan.source
        stood_by = before is not None and before.role is SiteRole.STANDBY and before.covers(self._plan.topics)
        return not stood_by or bool(self._plan.hooks.thaw or self._link.source.freeze_principals)

    @property
    def topic_options(self) -> str:
        """All that it freezes, in the words of a shell."""
        return topic_options(self._plan.topics or (EVERY_TOPIC,))

    def take_up(self, late_denials: tuple[str, ...] = (), *, is_hook_run: bool = False) -> None:
        """What another process of this operation began is this one's to undo; `late_denials`: as `noted` of that one
        said last; `is_hook_run`: its freeze_hook, too.
        """
        self._begun = self._is_role_asked = True
        self._is_hook_run = is_hook_run
        self._closing.inherited = late_denials

    def noted(self, *, asking: bool = False) -> dict[str, list[str]]:
        """For the journal, where the source is closed by ACLs: the topics (regular expressions) of which denials were
        asked for that may come when nobody waits for them any more; `asking`: or are from now on.
        """
        if self._source is None or not self._plan.is_by_acls:
            return {}
        late = {topic for closing in self._closings for topic in closing.topics_to_come}
        return {LATE_DENIALS: sorted(late.union(self._plan.topics or (EVERY_TOPIC,)) if asking else late)}

    async def begin(self) -> None:
        """Runs the hook. Raises HookFailed; `undo` then, and where `refuse_writes` fails."""
        self._begun = True
        if self._plan.hooks.freeze:
            self._is_hook_run = True
            await self._run_hook("freeze_hook", self._plan.hooks.freeze)

    async def refuse_writes(self) -> None:
        """Returns when no broker of the source takes records of clients. Raises OperationUnderWay, FreezeNotAllowed,
        ClientError, and what `renew` does.
        """
        known, denials = self._plan.source, self._plan.source_denials
        if self._source is not None and denials is not None and self._plan.freezes:
            await self._denials_at(self._source, self._closing).close(denials, self._plan.topics)
        if self._source is None or known is None or not self._plan.is_by_role:
            return
        try:
            if known.covers(self._plan.topics) and known.reason == self._operation_id:
                # Anew: a machine that had the operation before, and takes its freeze back late, knows the role's epoch.
                asked = (known.role, self._operation_id, known, known.topics, known.standby)
                await set_site_role(self._source, *asked, check=self._renew)
            elif known.covers(self._plan.topics):
                await await_site_role(self._source, known)
            else:
                frozen = known.closed(SiteRole.FROZEN, self._operation_id, self._plan.topics)
                asked = (frozen.role, self._operation_id, known, frozen.topics, frozen.standby)
                self._is_role_asked = True
                await set_site_role(self._source, *asked, check=self._renew)
        except SiteRoleChanged as error:
            raise OperationUnderWay(str(error), error.hint, subject=self._link.source.name) from error

    async def await_same_leaders(self, *, is_unchanged: bool) -> None:
        """By what one broker of the source tells it is drained, so where it is closed by its role all have to tell the
        same: asked before the freeze, so that nothing is closed where they do not, and behind it, so that each knows of
        all that has records of clients. `is_unchanged`: nothing was changed so far. Raises
        NotDrained, ClientError.
        """
        if self._source is None or not self._plan.is_by_role:
            return
        try:
            await await_same_leaders(self._source, any_of(self._plan.topics or (EVERY_TOPIC,)))
        except BrokersDiffer as differ:
            text = f"{differ}, so that none of them is known to tell all that {self._link.source.name} has"
            raise NotDrained(text + "; nothing was changed" * is_unchanged, hint=differ.hint) from differ

    async def undo(self, because: BaseException) -> None:
        """Nothing else was changed, and is not going to be: clients write again. Raises StillFrozen
        (DenialsMayCome where all that is there is undone), and what `renew` does.
        """
        if not self._begun:
            return
        site = self._link.source.name
        before = self._plan.before or self._plan.source
        try:
            if self._source is not None and before is not None:
                await self._undo_role(self._source, before)
            if self._source is not None and self._source.site.freeze_principals:
                await self._denials_at(self._source, self._closing).undo()
            if self._plan.hooks.thaw:
                await self._renew()
                await self._run_hook("thaw_hook", self._plan.hooks.thaw)
            await self._undo_forgotten()
        except (ClientError, GateRefused) as error:
            why = "; ".join(filter(None, (str(error), self._closing.coming_in_words)))
            raise self._still_frozen(because, why) from because
        if self._is_hook_run and not self._plan.hooks.thaw:
            why = "; ".join(filter(None, (NO_THAW_HOOK, self._closing.coming_in_words)))
            still = self._still_frozen(because, why)
            still.hint = f"or write the thaw_hook in [failover]; then `farshore operation abort {self._operation_id}`"
            raise still from because
        if self._source is not None and self._closing.topics_to_come:
            raise self._still_frozen(because, self._closing.coming_in_words, DenialsMayCome) from because
        if self._source is None and (before is not None or self._link.source.freeze_principals):
            raise self._still_frozen(because, f"{site} does not answer") from because

    def left_closed(self, because: BaseException, active: Iterable[str]) -> StillFrozen:
        """Where `undo` would let clients in beside these sites, which are active by now, or may be."""
        site, said = self._link.source.name, str(because) or type(because).__name__
        return StillFrozen(
            f"{said}; writes at {site} stay refused: its clients may be at {', '.join(sorted(active))} by now, and "
            f"beside that {site} would be a second active site",
            hint=f"`farshore site role` says who takes writes; where nobody else does, `farshore site thaw --site "
            f"{site} {self.topic_options}`, or what the thaw_hook does",
        )

    async def _undo_role(self, source: Cluster, before: SiteStanding) -> None:
        """What was asked for and not answered may come yet: it follows an epoch that is over then, and is refused. What
        the freeze never changed is set as it is, with the reason of who set it.
        """
        now = await site_standing(source)
        if now is None:
            return
        is_ours = (now.role, now.reason) == (SiteRole.FROZEN, self._operation_id)
        known = self._plan.source
        may_come = self._is_role_asked and known is not None and now.epoch == known.epoch
        if is_ours or may_come:
            then = replace(before, reason=f"{self._operation_id} was given up") if is_ours else now
            asked = (then.role, then.reason, now, then.topics, then.standby)
            await set_site_role(source, *asked, check=self._renew)

    async def _undo_forgotten(self) -> None:
        """The file may have had its freeze_principals taken out since, as far as the site tells in time."""
        if self._source is not None and not self._source.site.freeze_principals:
            with suppress(ClientError, FreezeNotAllowed, TimeoutError):
                async with timeout(SOURCE_ROLE_S) as limit:
                    await self._denials_at(self._source, Closing(), limit).undo()

    def _still_frozen(self, because: BaseException, why: str, kind: type[StillFrozen] = StillFrozen) -> StillFrozen:
        site, said = self._link.source.name, str(because) or type(because).__name__
        at = f"--site {site}"
        thaw = f"farshore site thaw {at} {self.topic_options}"
        return kind(
            f"{said}; writes at {site} may be frozen still: {why}",
            hint=f"`farshore site role {at}`, then `{thaw}`, or what the thaw_hook does; then, as it stays open, "
            f"`farshore operation abort {self._operation_id}`",
        )

    async def hand_over(self, going: Freezing, *, even_without_source: bool) -> SiteStanding | None:
        """The source becomes standby, then the target active -> the source's standing, None where it was not told. As
        far as their topics are moved: `going` is of the links that go, and what was frozen for the others is let in.

        `even_without_source`: one that does not take it in time is left. Raises ClientError, what `renew` does.
        """
        leaving = self._leave(going, even_without_source=even_without_source)
        if self._plan.target is None:
            told = await leaving
        else:
            told, is_active = await both(leaving, self._is_active(going))
            if not is_active:
                await _become(self._target, going.begun, self._operation_id, self._renew)
        if going.target_denials is not None:
            await open_again(self._target, going.target_topics, self._renew, going.target_kept)
        return told

    async def _is_active(self, going: Freezing) -> bool:
        """Whether every broker of the target says that it takes writes already: nothing is to be changed there."""
        now = await site_standing(self._target)
        if now is None or not going.begun(now).is_as(now):
            return False
        await await_site_role(self._target, now)
        return True

    async def _leave(self, going: Freezing, *, even_without_source: bool) -> SiteStanding | None:
        self.not_closed, self.left_open = "", ()
        await self._close_for_good(going, even_without_source=even_without_source)
        if self._source is None or not self._plan.is_by_role:
            return None
        becoming = partial(self._become_left, self._source, going)
        if not even_without_source:
            return await becoming(self._renew)
        try:
            async with timeout(SOURCE_ROLE_S) as limit:
                return await becoming(partial(uncounted, limit, self._renew))
        except (ClientError, TimeoutError) as error:
            why = str(error) or f"it did not say so within {SOURCE_ROLE_S:g} s"
            told = await role_in_words(self._source, why)
            self.not_closed = "; ".join(filter(None, (self.not_closed, told)))
        return None

    async def _become_left(
        self, source: Cluster, going: Freezing, renew: Callable[[], Awaitable[None]]
    ) -> SiteStanding | None:
        told = await _become(source, partial(self._left, going), self._operation_id, renew)
        if told is not None and self.left_open and all(map(told.refuses, self.left_open)):
            self.not_closed, self.left_open = "", ()  # whoever its ACLs let write, the brokers refuse
        return told

    async def _close_for_good(self, going: Freezing, *, even_without_source: bool) -> None:
        """Topics that were born since the freeze, too; and a failover has had none."""
        denials = going.source_denials
        if self._source is None or denials is None or not going.is_by_acls:
            return
        closing = Closing()
        self._closings.append(closing)
        if not even_without_source:
            await self._closed_for_good(self._denials_at(self._source, closing), going)
            return
        try:
            async with timeout(SOURCE_ROLE_S) as limit:
                await self._closed_for_good(self._denials_at(self._source, closing, limit), going)
        except LockedOut as locked:  # the way back comes before the closed door
            self.not_closed = await self._unlocked(self._source, going.topics, locked, closing)
        except (ClientError, FreezeNotAllowed, TimeoutError) as error:
            why = str(error) or f"it did not say so within {SOURCE_ROLE_S:g} s"
            self.not_closed = await standing_in_words(self._source, going.topics, why, closing)

    async def _unlocked(self, source: Cluster, topics: Sequence[str], locked: LockedOut, closing: Closing) -> str:
        try:
            async with timeout(SOURCE_ROLE_S) as limit:
                await self._denials_at(source, closing, limit).unlock(locked, topics)
        except LockedOut as unsure:
            return f"{unsure} ({unsure.hint})"
        except TimeoutError:
            return f"{locked}; that the ACLs were taken back no broker said in time: {thaw_of(source, topics)}"
        return f"{source.site.name} was not closed to its clients: {locked}; the ACLs were taken back ({locked.hint})"

    async def _closed_for_good(self, denying: AclFreeze, going: Freezing) -> None:
        assert going.source_denials is not None, "it is closed by them"
        closed = await denying.close(going.source_denials, going.topics, leaves_open=True)
        await replace(denying, closing=Closing()).undo(going.topics)
        self.left_open = left_open = closed.left_open.names
        if left_open:
            error = first_acl(denying.cluster.site, closed.left_open)
            self.not_closed = f"{', '.join(left_open)} stays open at {self._link.source.name}: {error}; then "
            self.not_closed += f"`farshore site standby --site {self._link.source.name}` closes it ({error.hint})"
        if closed.topics or not left_open:
            self.denied_principals = going.source_denials.principals

    def _denials_at(self, source: Cluster, closing: Closing, limit: asyncio.Timeout | None = None) -> AclFreeze:
        """`limit`: of the time that the source has, in which the target's answers do not count."""
        renew = self._renew if limit is None else partial(uncounted, limit, self._renew)
        return AclFreeze(source, self._operation_id, renew, closing)

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
    cluster: Cluster,
    change: Callable[[SiteStanding, str], SiteStanding],
    reason: str,
    renew: Callable[[], Awaitable[None]],
) -> SiteStanding | None:
    now = await site_standing(cluster)
    if now is None:
        raise has_no_roles(cluster.site.name)
    wanted = change(now, reason)
    if wanted.is_as(now):
        await await_site_role(cluster, now)
        return now
    return await set_site_role(cluster, wanted.role, reason, now, wanted.topics, wanted.standby, renew)


async def refuse_late_changes(cluster: Cluster, renew: Callable[[], Awaitable[None]]) -> None:
    """The site's role is set once more as it stands, so that a change that was asked for before, and has not come,
    follows an epoch that is over. Nothing where the site has no role. Raises ClientError, and what `renew` does.
    """
    while (now := await site_standing(cluster)) is not None:
        with suppress(SiteRoleChanged):  # it has just come
            await set_site_role(cluster, now.role, now.reason, now, now.topics, now.standby, renew)
            return
