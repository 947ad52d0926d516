"""What is to keep clients from writing at the source while it is moved away from, and afterwards."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from broker.base.expressions import any_of
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.site_role import site_standing
from broker.client.topics import list_topics
from broker.wire.site_role import EVERY_TOPIC, SiteRole, SiteStanding
from failover.errors import FreezeNotAllowed
from failover.freezing.acl_rights import denials_to_end, denials_to_make
from failover.freezing.denials import SiteDenials
from failover.freezing.hooks import Hooks
from failover.limits import SOURCE_ROLE_S
from failover.running.steps import OperationStep
from mirror.api import Link


@dataclass(frozen=True, slots=True)
class Freezing:
    """What keeps clients from writing. The roles are those of the moment when the plan was made; None: that site's
    brokers refuse nobody (Apache Kafka), or it was not asked. `freezes`: writes at the source stop before the drain.
    `topics` of the source stop, as regular expressions, and `target_topics` begin at the target; none: all. `others`:
    topics of the source that the link does not carry, and that stop all the same; `beside`: other links that carry some
    of those. `before`: the source's role when the
    operation began, where an earlier run of it has changed that. `source_denials`: where that site's ACLs keep clients
    from writing; `target_denials`: where they did. `target_kept`: topics of the target that are another site's, and
    stay closed there as far as they are; `closed_at_both`: those of them that the source refuses, too, at the end;
    `closed_for_third`: those that the target refuses then since a third site has them, or may have.
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
    target_kept: tuple[str, ...] = ()
    closed_at_both: tuple[str, ...] = ()
    closed_for_third: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

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
    def frozen_for_others(self) -> tuple[str, ...]:
        """By which expressions the source is frozen, where not by those of the move: another move is under way, or was
        cut short, or somebody froze it.
        """
        source = self.source
        if source is None or source.role is not SiteRole.FROZEN or source.covers(self.topics):
            return ()
        return tuple(topic for topic in source.topics if topic not in source.standby)

    @property
    def was_left(self) -> bool:
        """Whether the source is closed for good to topics of the move, or in part: it may not be the active site."""
        return self.was_left_by_role or (self.source_denials is not None and self.source_denials.touches(self.topics))

    @property
    def was_left_by_role(self) -> bool:
        """As `was_left`, by what no operation does before it has moved its links; ACLs are its own sooner."""
        closed = frozenset() if self.source is None else frozenset(self.source.closed_for_good)
        return bool(closed) and (EVERY_TOPIC in closed or not self.topics or not closed.isdisjoint(self.topics))

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
        return target.opened(reason, self.target_topics, self.target_kept)

    def kept_closed(self, topics: Iterable[str]) -> list[str]:
        """Those that the target refuses at the end, by its role or by ACLs of a freeze."""
        then = self.begun(self.target) if self.target is not None else SiteStanding()
        denied = self.target_denials.closed if self.target_denials is not None else ()
        is_kept = any_of(self.target_kept)
        return [one for one in topics if then.refuses(one) or (one in denied and is_kept(one))]

    @property
    def opens_others(self) -> bool:
        """Whether more than the topics of the move would be opened at the target, but for what is `target_kept`."""
        target, denials = self.target, self.target_denials
        by_role = target is not None and not target.takes_writes and not (target.topics and self.target_topics)
        return by_role or (denials is not None and bool(denials.marked) and not self.target_topics)


UNFROZEN: Final = Freezing()
"""Nothing keeps clients from writing."""


def joined(freezings: Sequence[Freezing]) -> Freezing:
    """Of several links between the same sites: their topics together, by the newest of the roles that were read."""
    *_, last = sorted(freezings, key=lambda one: one.source.epoch if one.source else -1)
    *_, newest = sorted(freezings, key=lambda one: one.target.epoch if one.target else -1)
    others = set(last.others).intersection(*(one.others for one in freezings))
    kept = set(last.target_kept).intersection(*(one.target_kept for one in freezings))
    at_both = kept.intersection(*(one.closed_at_both for one in freezings))
    for_third = kept.intersection(*(one.closed_for_third for one in freezings))
    beside = set(last.beside).intersection(*(one.beside for one in freezings))
    denials = [one.source_denials for one in freezings if one.source_denials is not None]
    is_writable = any(one.is_writable for one in denials)
    hidden = tuple(sorted({name for one in denials for name in one.hidden}))
    left_open = tuple(sorted({name for one in denials for name in one.left_open}))
    merged = [replace(one, is_writable=is_writable, hidden=hidden, left_open=left_open) for one in denials[-1:]]
    return replace(
        last,
        source_denials=merged[0] if merged else None,
        target=newest.target,
        topics=together([one.topics for one in freezings]),
        target_topics=together([one.target_topics for one in freezings]),
        others=tuple(sorted(others)),
        target_kept=tuple(sorted(kept)),
        closed_at_both=tuple(sorted(at_both)),
        closed_for_third=tuple(sorted(for_third)),
        beside=tuple(sorted(beside)),
    )


def together(each: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
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
    standing = await site_standing(target)
    if whole_site or ".*" in link.topics:
        return Freezing(known, standing, others=others)
    return Freezing(known, standing, topics=link.topics, target_topics=target_topics_of(link))


def target_topics_of(link: Link) -> tuple[str, ...]:
    """Its topics as a role of its target has them: regular expressions."""
    prefix = "" if link.topic_names == "same" else re.escape(f"{link.source.name}.")
    return tuple(f"{prefix}(?:{topic})" if prefix else topic for topic in link.topics)


async def with_denials(
    freezing: Freezing,
    source: Cluster | None,
    target: Cluster,
    known_topics: Collection[str] = (),
    *,
    even_without_source: bool = False,
) -> Freezing:
    """What ACLs deny, where a site is frozen by them. `known_topics`: of the source, which may hide them.

    Raises FreezeNotAllowed, ClientError; `even_without_source`: of a source that does not say in time, or does not let
    farshore change them, nothing is known, and topics of which its ACLs would be the first are left open.
    """
    known: SiteDenials | None = None
    if source is not None and freezing.freezes and even_without_source:
        with suppress(ClientError, FreezeNotAllowed, TimeoutError):
            denials = denials_to_make(source, freezing.topics, known_topics, leaves_open=True)
            known = await asyncio.wait_for(denials, SOURCE_ROLE_S)
    elif source is not None and freezing.freezes:
        known = await denials_to_make(source, freezing.topics, known_topics)
    ended = await denials_to_end(target, freezing.target_topics)
    return replace(freezing, source_denials=known, target_denials=ended)


async def _known(link: Link, source: Cluster) -> tuple[SiteStanding | None, tuple[str, ...]]:
    """The source's role, and its topics that the link does not carry."""
    standing = await site_standing(source)  # first: it finds a broker that answers
    names = [name for name in await list_topics(source) if not name.startswith("__") and not link.selects_topic(name)]
    return standing, tuple(sorted(names))


def first_steps(freezing: Freezing) -> list[OperationStep]:
    return [OperationStep.BEFORE_HOOK] if freezing.hooks.before else []


def moving_steps(freezing: Freezing) -> tuple[OperationStep, ...]:
    """From the fence on, as both verbs do it."""
    hand_over = [OperationStep.HAND_OVER] if freezing.hands_over else []
    after = [OperationStep.AFTER_HOOK] if freezing.hooks.after else []
    return (OperationStep.FENCE, OperationStep.MOVE_GROUPS, *hand_over, OperationStep.VERIFY, *after)
