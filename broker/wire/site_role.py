"""A site's role: what its brokers take from clients. farshore's own, carried as configs that all brokers share.

They are written together, and only with the epoch that follows the one that was read: of two that change the role
at the same time one is refused (`docs/adr/0020-a-sites-role.md`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from broker.base.expressions import any_of

SITE_ROLE: Final = "farshore.site.role"
SITE_EPOCH: Final = "farshore.site.epoch"
SITE_REASON: Final = "farshore.site.reason"
SITE_TOPICS: Final = "farshore.site.topics"
SITE_STANDBY: Final = "farshore.site.standby"
SITE_CONFIGS: Final = (SITE_ROLE, SITE_EPOCH, SITE_REASON, SITE_TOPICS, SITE_STANDBY)
EVERY_TOPIC: Final = ".*"
REASON_CHARACTERS_MAX: Final = 200
OWN_CLIENT: Final = "farshore"
"""How the ids of farshore's own clients begin: the mirror, its state, the canary."""


class SiteRole(StrEnum):
    """Records of clients are taken by an ACTIVE site alone; FROZEN is for the time of a move, STANDBY for good."""

    ACTIVE = "active"
    FROZEN = "frozen"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class SiteStanding:
    """A site's role, since the change `epoch` (0: it was never changed), and who or what changed it.

    `topics`: regular expressions, matched in full, of those that the role is of, the others being active; empty: all.
    `standby`: of a FROZEN site, expressions that are closed for good beside what is frozen, and stay so after that.
    """

    role: SiteRole = SiteRole.ACTIVE
    epoch: int = 0
    reason: str = ""
    topics: tuple[str, ...] = ()
    standby: tuple[str, ...] = ()

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> SiteStanding:
        """Raises ValueError for what is no role, no number, or no list of regular expressions."""
        role = SiteRole(configs.get(SITE_ROLE, SiteRole.ACTIVE))
        topics = () if role is SiteRole.ACTIVE else _topics(configs.get(SITE_TOPICS, ""))
        standby = _topics(configs.get(SITE_STANDBY, "")) if role is SiteRole.FROZEN else ()
        if topics:  # who does not know of it may have changed the others since
            standby = tuple(topic for topic in standby if topic in topics)
        return cls(role, int(configs.get(SITE_EPOCH, "0")), configs.get(SITE_REASON, ""), topics, standby)

    def configs(self) -> dict[str, str]:
        """What is standby beside a freeze is left out where nothing is: brokers of before know no such config."""
        standby = {SITE_STANDBY: json.dumps(self.standby)} if self.standby else {}
        return {
            SITE_ROLE: self.role.value,
            SITE_EPOCH: str(self.epoch),
            SITE_REASON: self.reason,
            SITE_TOPICS: json.dumps(self.topics) if self.topics else "",
            **standby,
        }

    @property
    def closed_for_good(self) -> tuple[str, ...]:
        """The expressions that a standby site refuses, or a frozen one beside what is frozen."""
        return (self.topics or (EVERY_TOPIC,)) if self.role is SiteRole.STANDBY else self.standby

    @property
    def takes_writes(self) -> bool:
        """To every topic."""
        return self.role is SiteRole.ACTIVE

    def refuses(self, topic: str) -> bool:
        return not self.takes_writes and (not self.topics or _is_one_of(self.topics, topic))

    def refusing(self, names: Iterable[str]) -> tuple[str, ...]:
        """The expressions by which some of these topics are refused."""
        refused = [name for name in names if self.refuses(name)]
        by = self.topics or (EVERY_TOPIC,)
        return tuple(one for one in by if any(map(any_of((one,)), refused)))

    def covers(self, topics: Collection[str]) -> bool:
        """Whether all these, by their expressions, are refused; none: every topic is."""
        return not self.takes_writes and (not self.topics or (bool(topics) and set(topics) <= set(self.topics)))

    def then(
        self, role: SiteRole, reason: str, topics: Iterable[str] = (), standby: Iterable[str] = ()
    ) -> SiteStanding:
        """The next standing."""
        kept = () if role is SiteRole.ACTIVE else tuple(topics)
        beside = tuple(standby) if role is SiteRole.FROZEN else ()
        return SiteStanding(role, self.epoch + 1, reason[:REASON_CHARACTERS_MAX], kept, beside)

    def closed(self, role: SiteRole, reason: str, topics: Iterable[str]) -> SiteStanding:
        """The next standing, where these topics (none: all) are refused beside those that are. What is closed for good
        is not only frozen by that, and what is frozen for others stays so.
        """
        wanted = set(topics)
        is_all = not wanted or (not self.takes_writes and not self.topics)
        every = {EVERY_TOPIC} if is_all else wanted | set(self.topics)
        standby = set(self.closed_for_good)
        if role is SiteRole.STANDBY:
            standby |= wanted or {EVERY_TOPIC}
        return self._next(reason, every, standby)

    def opened(self, reason: str, topics: Iterable[str], but: Iterable[str] = ()) -> SiteStanding:
        """The next standing, where these topics (none: all) are let in; of a site that refuses all, all are, but for
        what is closed for good beside that, and for those of `but`: these are another site's, and closed for good then.
        """
        wanted, kept = set(topics), set(but)
        closed = set(self.topics or self.standby)
        if not self.takes_writes and not self.topics:
            closed |= kept
        closed = closed - wanted if wanted else closed & kept
        return self._next(reason, closed, ({*self.closed_for_good} | (kept & closed)) - wanted)

    def _next(self, reason: str, every: set[str], standby: set[str]) -> SiteStanding:
        """`every` expression is closed, and those that are `standby`, too, for good."""
        if not every:
            return self.then(SiteRole.ACTIVE, reason)
        role = SiteRole.STANDBY if EVERY_TOPIC in standby or every <= standby else SiteRole.FROZEN
        is_all = EVERY_TOPIC in every
        return self.then(role, reason, () if is_all else sorted(every), sorted(standby if is_all else standby & every))

    def is_as(self, other: SiteStanding) -> bool:
        """Whether both refuse the same in the same role."""
        return (self.role, self.topics, self.standby) == (other.role, other.topics, other.standby)


def _topics(text: str) -> tuple[str, ...]:
    found = json.loads(text) if text else []
    if not isinstance(found, list) or not all(isinstance(topic, str) for topic in found):
        raise ValueError(f"{text} is no list of regular expressions")
    for topic in found:
        try:
            re.compile(topic)
        except re.error as error:
            raise ValueError(f"{topic!r} is no regular expression: {error}") from error
    return tuple(found)


@lru_cache(maxsize=4096)
def _is_one_of(patterns: tuple[str, ...], topic: str) -> bool:
    """Asked for each batch of a producer."""
    return any_of(patterns)(topic)


def is_own_client(client_id: str | None) -> bool:
    """Whether a client says that it is farshore's. Nothing proves it: a role guards against mistakes, not malice."""
    return client_id is not None and (client_id == OWN_CLIENT or client_id.startswith(f"{OWN_CLIENT}-"))
