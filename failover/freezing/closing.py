"""What is known of a close, by ACLs or a role, that did not come to its end, and how that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from broker.client.acls import Asked, WriteDenial
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.site_role import site_standings
from broker.wire.site_role import EVERY_TOPIC, SiteStanding
from failover.errors import FreezeNotAllowed
from failover.freezing.acl_rights import look
from failover.freezing.denials import Denials, is_named, names_of, topic_options, without_marks
from failover.limits import SOURCE_ROLE_S

MAY_COME: Final = "were asked for, and may come yet"


@dataclass
class Closing:
    """What a close knows of itself that may be cut short. `asked`: denials that it asked for, with their marks;
    `is_lock_out_known`: whether it is known that farshore itself is, or is not, denied to write by what came of them;
    `inherited`: topics (regular expressions) of which a machine before this one may have asked for denials, too.
    """

    asked: Asked = field(default_factory=Asked)
    is_lock_out_known: bool = True
    inherited: tuple[str, ...] = ()

    @property
    def may_come(self) -> frozenset[WriteDenial]:
        """Denials that were asked for and not answered."""
        return without_marks(self.asked.unanswered)

    @property
    def topics_to_come(self) -> tuple[str, ...]:
        """Of those, and of what is inherited: how many that were, and which of them came, nobody can tell."""
        return tuple(sorted({*self.inherited, *(one.topic for one in self.may_come)}))

    @property
    def coming_in_words(self) -> str:
        """Of those; none where nothing may come."""
        return _coming(self.topics_to_come) if self.topics_to_come else ""

    def note_seen(self, found: Denials, operation_id: str, undone: Collection[WriteDenial]) -> None:
        """One request has come of each denial that is seen now, and was not before it was asked for, or is among those
        that were `undone` since.
        """
        for one in self.may_come & found.there:
            by = found.marks.get(one, frozenset())
            is_new = one in undone or (by == {operation_id} and not self.asked.answered[one])
            if operation_id in by and is_new:
                self.asked.answered[one] += 1


async def standing_in_words(cluster: Cluster, topics: Sequence[str], why: str, closing: Closing) -> str:
    """What a site's ACLs deny of these topics behind a close that did not come to its end, for the reason `why`. Raises
    nothing: what the site does not say in time is told as unknown.
    """
    site, role = cluster.site.name, role_of(cluster)
    takes_back = f"{role}, {thaw_of(cluster, topics)} takes them back"
    if not closing.is_lock_out_known:
        takes_back = f"whether they deny farshore itself to write there, too, is not known; {takes_back}"
    try:
        found = await asyncio.wait_for(look(cluster), SOURCE_ROLE_S)
    except (ClientError, FreezeNotAllowed, TimeoutError):
        unknown = f"whether ACLs keep clients from writing at {site} is not known ({why})"
        return "; ".join(filter(None, (unknown, closing.coming_in_words, takes_back if closing.asked.sent else role)))
    closed = [topic for topic in found.topics if is_named(topic, topics)]
    coming = closing.may_come - found.there
    if not closed and not coming:
        return f"no ACL of a freeze keeps clients from writing at {site} ({why})"
    topics_to_come = sorted({one.topic for one in coming})
    if not closed:
        not_yet = f"no ACL of a freeze keeps clients from writing at {site} yet ({why})"
        return f"{not_yet}; {_coming(topics_to_come)}; {takes_back}"
    told = f"ACLs deny clients of {site} to write to {', '.join(closed)}"
    if found.differing:
        told += f", and brokers {', '.join(map(str, found.differing))} have not said that they go by them"
    for topic, still in found.in_part(cluster.site.freeze_principals).items():
        told += f"; {topic} is closed in part: {names_of(still)} can still write"
    if coming:
        told += f"; {_coming(topics_to_come)}"
    return f"{told} ({why}); {takes_back}"


async def role_in_words(cluster: Cluster, why: str) -> str:
    """What the brokers of a site go by whose role was to be changed, and was not seen to be everywhere, for the reason
    `why`. Raises nothing, as `standing_in_words`.
    """
    site, told = cluster.site.name, dict[int, SiteStanding | ClientError | None]()
    with suppress(ClientError, TimeoutError):
        told |= await asyncio.wait_for(site_standings(cluster), SOURCE_ROLE_S)
    said = [standing for standing in told.values() if isinstance(standing, SiteStanding)]
    newest = max(said, key=lambda one: one.epoch, default=None)
    if newest is None:
        return f"whether {site} refuses writes is not known ({why}); {role_of(cluster)}"
    late = [str(node_id) for node_id, standing in told.items() if standing != newest]
    behind = f", and brokers {', '.join(late)} have not said that they go by it" if late else ""
    return f"{site} is {newest.role}{behind} ({why}); {role_of(cluster)}"


def _coming(topics: Sequence[str]) -> str:
    return f"ACLs that deny to write to {', '.join(topics)} {MAY_COME}"


def role_of(cluster: Cluster) -> str:
    return f"`farshore site role --site {cluster.site.name}` says how it stands"


def thaw_of(cluster: Cluster, topics: Sequence[str]) -> str:
    """The command that takes back what freezes have made of these topics there (regular expressions; none: of all), and
    nothing that others closed.
    """
    return f"`farshore site thaw --site {cluster.site.name} {topic_options(topics or (EVERY_TOPIC,))}`"
