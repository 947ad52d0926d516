"""What an operation goes on without: links, with how many groups stay with each, and what else stays. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class StayKind(StrEnum):
    """What it is that stays."""

    LINK = "link"
    TOPIC = "topic"
    GROUP = "group"


class StayReason(StrEnum):
    """Why it is not moved."""

    OTHER_SITES = "other_sites"
    """The link goes from or to the source, and not between the two sites."""
    NOT_SELECTED = "not_selected"
    """A filter leaves the link out."""
    ALREADY_MOVED = "already_moved"
    SOURCE_ALONE = "source_alone"
    """The link was moved before, and its source has records since that nobody decided about: no link brings them."""
    REFUSED = "refused"
    NOT_KNOWN = "not_known"
    """It could not be looked at."""
    NOT_CARRIED = "not_carried"
    """No link between the two sites carries the topic, or the group."""
    NOT_NAMED = "not_named"
    """The group was not asked for."""
    NO_OFFSETS = "no_offsets"
    """The group has no committed offset in a topic that is moved."""
    LINK_STAYS = "link_stays"
    """All of the group's topics are those of links that stay."""
    IN_PART = "in_part"
    """The group is moved where links go, and stays where one does not."""
    GROUP_NOT_SELECTED = "group_not_selected"
    """The group has a committed offset in a topic of a link that goes, whose `groups` do not select it."""
    GROUP_NOT_SELECTED_NOW = "group_not_selected_now"
    """The link has carried the group, and its `groups` do not select it any more; where it is the source does not tell.
    """
    OTHER_TOPICS = "other_topics"
    """The group goes, without its offsets in topics that do not."""
    LEFT = "left"
    """It is not known where the group goes on, or it does not answer at the target, and that was consented to."""


@dataclass(frozen=True, slots=True)
class Stay:
    """One thing that stays at the source; `detail` names gates, links, topics, or an error. An empty `subject`: all of
    them.
    """

    kind: StayKind
    subject: str
    reason: StayReason
    detail: str = ""

    @property
    def topics(self) -> tuple[str, ...]:
        """Of OTHER_TOPICS."""
        return tuple(self.detail.split(_BETWEEN))


_BETWEEN: Final = ", "
"""No topic's name has it."""


def topics_detail(topics: Iterable[str]) -> str:
    """A stay's detail that names these topics."""
    return _BETWEEN.join(topics)


def share_groups(names: Iterable[str]) -> Iterable[Stay]:
    """Of these groups, which no link carries over, whether it selects them or not."""
    text = "a share group commits no offsets: where it has read to is not carried over"
    for name in sorted(names):
        yield Stay(StayKind.GROUP, name, StayReason.NOT_KNOWN, text)


@dataclass(frozen=True, slots=True)
class StayingLink:
    """`groups`: so many that were asked for have offsets in its topics, or read them; None: that is not known."""

    link: str
    groups: int | None


@dataclass(frozen=True, slots=True)
class Away:
    """Of a site that comes back link by link, when one of them is back: the `links` that are not yet, and the `groups`
    of that one which read along these, too. Their applications are to wait.
    """

    links: tuple[StayingLink, ...] = ()
    groups: tuple[str, ...] = ()


NONE_AWAY: Final = Away()


def away_of(planned: Mapping[str, Any]) -> Away:
    """As the first entry of a journal has it; none where it has nothing that can be read."""
    with suppress(KeyError, TypeError, AttributeError):
        found = planned["away"]
        links = tuple(StayingLink(str(one["link"]), one["groups"]) for one in found["links"])
        return Away(links, tuple(map(str, found["groups"])))
    return NONE_AWAY


def staying_links(planned: Mapping[str, Any], given_up: Iterable[str]) -> tuple[StayingLink, ...]:
    """Those that were refused by the plan, which the first entry of a journal has (`planned`), those that are still
    away, and those `given_up` since. Of a link of which it says nothing that can be read nothing is known.
    """
    away = away_of(planned).links
    counts: dict[str, int | None] = {one.link: one.groups for one in away}
    with suppress(KeyError, TypeError, AttributeError):
        counts |= {str(one["link"]): one["groups"] for one in planned.get("staying_links", [])}
        counts |= {plan["snapshot"]["link"]: len(plan["snapshot"]["groups"]) for plan in planned.get("plans", [])}
    names = dict.fromkeys([*planned["intent"]["refused_links"], *(one.link for one in away), *given_up])
    return tuple(StayingLink(name, counts.get(name)) for name in names)
