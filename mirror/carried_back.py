"""The link back: of the links from a link's target to its source those that bring back what this one mirrors. Pure.

Other pairs of links between the two sites are none of it: a link back is told by what it carries, not by its ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mirror.link import Link
from mirror.origins import may_share_a_topic


@dataclass(frozen=True, slots=True)
class CarriedBack:
    """`links`: those that carry some of it; `not_carried`: the mirrored topics that none of them carries."""

    links: tuple[Link, ...] = ()
    not_carried: tuple[str, ...] = ()

    @property
    def link(self) -> Link | None:
        """The one that carries all of it; None: there is none."""
        return self.links[0] if len(self.links) == 1 and not self.not_carried else None


def carried_back(link: Link, links: Iterable[Link], mirrored: Iterable[str] = ()) -> CarriedBack:
    """`links`: all of the file. `mirrored`: the topics of the link's target that it has mirrored, as far as known.

    With prefixed names nothing comes back under the name that it has at the source. Where nothing is mirrored yet, or
    none carries any of that, those count whose patterns have a name in common with the link's.
    """
    ends = (link.target.name, link.source.name)
    backs = tuple(
        other
        for other in links
        if (other.source.name, other.target.name) == ends
        and link.topic_names == other.topic_names == "same"
        and may_share_a_topic(link, other)
    )
    topics = sorted(topic for topic in mirrored if topic != link.canary_topic)
    carrying = tuple(back for back in backs if any(map(back.selects_topic, topics)))
    if not backs:
        return CarriedBack()
    left_out = tuple(topic for topic in topics if not any(back.selects_topic(topic) for back in backs))
    return CarriedBack(carrying or backs, left_out)
