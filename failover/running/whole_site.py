"""A move of the role of a whole site: no link's topics can be left out of that.

So until the fence all its links go, or none. Behind the fence of one the others are brought to their end, as those of
any move; what stays is closed at the source with the rest, is not opened at the target, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from broker.base.errors import FarshoreError
from broker.client.fanout import side_by_side
from failover.errors import GateRefused, OperationUnderWay
from failover.freezing.choice import Freezing, joined, target_topics_of, together
from failover.planning.intent import Intent
from failover.running.link_run import NOTHING_CHANGED, LinkRun
from mirror.api import Link


class WholeSiteCut(GateRefused):
    """One link does not go (`because`), so none does; nothing was changed."""

    def __init__(self, link: Link, because: FarshoreError) -> None:
        self.link, self.because = link.name, because
        super().__init__(
            f"{link.name}: {because}; with --whole-site {link.source.name} is closed to all its topics, so that all "
            "links go, or none: all were given up",
            hint="; ".join(filter(None, (because.hint, "or without --whole-site: then the other links go alone"))),
        )
        self.retriable = because.retriable


def is_whole_site(intent: Intent) -> bool:
    """Whether several links may go by it: one that was named goes alone, and says what it does not carry."""
    return intent.whole_site and intent.is_site


NONE_GOES: Final = (*NOTHING_CHANGED, WholeSiteCut)
"""What no link is moved by, whatever the step."""


def refuse_cut(links: Sequence[LinkRun], failed: Iterable[tuple[LinkRun, FarshoreError]]) -> None:
    """Raises WholeSiteCut where one of the links failed, and none is fenced yet."""
    for link, error in failed:
        if link.is_given_up and not any(one.is_fenced for one in links):
            raise WholeSiteCut(link.sites.link, error) from error


async def refuse_cut_at_fence(links: Sequence[LinkRun]) -> None:
    """As `refuse_cut`, of what each link is asked right before its own fence, when that of another may be done."""
    if any(link.is_fenced for link in links):
        return
    for link, error in zip(links, await side_by_side(map(_whoever_else, links)), strict=True):
        if error is not None:
            raise WholeSiteCut(link.sites.link, error) from error


async def _whoever_else(link: LinkRun) -> OperationUnderWay | None:
    try:
        await link.refuse_others()
    except OperationUnderWay as error:
        return error
    return None


def tell_closed(links: Iterable[LinkRun], freezing: Freezing) -> None:
    """That of which nothing was changed is closed at its source all the same."""
    for link in links:
        if link.failure is not None and link.failure.is_given_up:
            told = closed_too(link.sites.link, freezing)
            link.failure = replace(link.failure, error=f"{link.failure.error}{told}")


def closed_too(link: Link, freezing: Freezing) -> str:
    """What is to be said behind why a link stays; "" where its source refuses nobody."""
    closed = f"; its mirror runs on, and {link.source.name}, closed as a whole, takes no writes to its topics either"
    return closed if freezing.is_enforced else ""


def going(links: Sequence[LinkRun], left: Iterable[Link], untold: Sequence[Link] = ()) -> Freezing:
    """The source's topics stay closed of each link that may be moved; the target's are opened of those that are, and
    not of those that are given up, or were `left` before, as far as they are closed: their mirrors run. Of
    those that are `untold` nobody knows whether they are moved: both stay closed, as far as they are or are to be.
    """
    may_be_moved = joined([link.plan.freezing for link in links if not link.is_given_up])
    moved = joined([link.plan.freezing for link in links if link.failure is None])
    stay = [*left, *untold, *(link.sites.link for link in links if link.is_given_up)]
    kept = {*moved.target_kept, *(topic for link in stay for topic in target_topics_of(link))}
    topics = together([may_be_moved.topics, *(() if ".*" in link.topics else link.topics for link in untold)])
    return replace(may_be_moved, topics=topics, target_topics=moved.target_topics, target_kept=tuple(sorted(kept)))
