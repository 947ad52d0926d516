"""A site is not let take writes beside another one that does: who else is active is looked at, and named.

Where a link from it was moved, clients may be at its target, also while a move that froze it was cut short behind its
fence: what comes to it then no mirror carries. A move that was cut short before that has moved nothing yet, and what
it froze is let in.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.fanout import side_by_side
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.site_role import EVERY_TOPIC, SiteStanding
from deploy.cli.site_rows import SiteRow, beside, role_in_words, row_of
from failover.errors import GateRefused
from failover.freezing.denials import Denials, is_named, topic_options
from failover.limits import ELSEWHERE_S
from failover.observing.elsewhere import moved_by
from mirror.api import Link, may_select


@dataclass(frozen=True, slots=True)
class Way:
    """A link from the site. `operation_id`: by which its clients went to its target; "": none did, as far as known.
    `unknown`: why its target does not say.
    """

    link: Link
    operation_id: str = ""
    unknown: str = ""


async def refuse_second_written(site: Site, found: Denials, topics: Sequence[str], links: Sequence[Link]) -> None:
    """As `refuse_second_active`, by ACLs: these do not say whether they are for the time of a move."""
    let_in = [topic for topic in found.topics if is_named(topic, topics)]
    for other in _linked(site, links) if let_in else ():
        row = await row_of(other)
        if not _is_closed(row, set(let_in)):
            raise GateRefused(
                f"{site.name} is closed to {', '.join(let_in)}, and {other.name} is {role_in_words(row)}: both "
                f"{beside(row)} take writes",
                hint=f"`farshore switchover` moves back; or `farshore site standby --site {other.name}` first; or add "
                "--even-if-other-active, as after a switchover that was given up",
            )


async def refuse_second_active(
    cluster: Cluster, known: SiteStanding, wanted: SiteStanding, links: Sequence[Link]
) -> None:
    """Raises GateRefused where another site takes writes to what would be let in, or it is not known: of what is closed
    for good each site at the other end of a link counts, of what is only frozen that to which clients went. `links`:
    all of the file; none: somebody consented to whatever they say. Raises ClientError for the site's own topics.
    """
    await _refuse_beside(cluster.site, known, wanted, links)
    ways = [one for one in links if one.source == cluster.site and may_select(one, _closed(known), _closed(wanted))]
    if not ways:
        return
    let_in = frozenset(name for name in await list_topics(cluster) if known.refuses(name) and not wanted.refuses(name))
    for way in await side_by_side(_look(one, let_in, links) for one in ways):
        await _refuse_away(way, known, wanted)


async def _refuse_beside(site: Site, known: SiteStanding, wanted: SiteStanding, links: Sequence[Link]) -> None:
    let_in = set() if wanted.closed_for_good == (EVERY_TOPIC,) else {*known.closed_for_good} - {*wanted.closed_for_good}
    for other in _linked(site, links) if let_in else ():
        row = await row_of(other)
        if _is_closed(row, let_in):
            continue
        only = [topic for topic in known.topics or (EVERY_TOPIC,) if topic not in known.closed_for_good]
        thaw = f"farshore site thaw --site {site.name} {topic_options(only)}"
        frozen = f"; only what is frozen: `{thaw}`" if only else ""
        of = "" if let_in == {EVERY_TOPIC} else f" for {', '.join(sorted(let_in))}"
        raise GateRefused(
            f"{site.name} is a standby site{of}, and {other.name} is {role_in_words(row)}: both "
            f"{beside(row)} take writes",
            hint=f"`farshore switchover` moves back; or `farshore site standby --site {other.name}` first; or add "
            f"--even-if-other-active{frozen}",
        )


async def _look(link: Link, let_in: frozenset[str], links: Sequence[Link]) -> Way:
    others = [one for one in links if one.name != link.name]
    try:
        return Way(link, await moved_by(link, frozenset(filter(link.selects_topic, let_in)), others))
    except FarshoreError as error:
        return Way(link, unknown=str(error))
    except TimeoutError:
        return Way(link, unknown=f"it did not say so within {ELSEWHERE_S:g} s")


async def _refuse_away(way: Way, known: SiteStanding, wanted: SiteStanding) -> None:
    site, other, name = way.link.source, way.link.target, way.link.name
    if way.unknown:
        raise GateRefused(
            f"whether clients of {name} went from {site.name} to {other.name} is not known, so that both might take "
            f"writes: {way.unknown}",
            hint=f"when {other.name} says it, again; is it lost, or do you know that nothing was moved there: add "
            "--even-if-other-active",
        )
    if not way.operation_id:
        return
    row = await row_of(other)
    if _is_closed(row, set(_closed(known)) - set(_closed(wanted))):
        return
    operation_id = way.operation_id
    raise GateRefused(
        f"{name} was moved, or is being moved, from {site.name} to {other.name}, by {operation_id}, and {other.name} "
        f"is {role_in_words(row)}: both {beside(row)} take writes, and no mirror would carry what comes to {site.name}",
        hint=f"`farshore operation list` says whether that has ended: if not, `farshore operation resume "
        f"{operation_id}`; if it has, `farshore failback --link {name}` comes back; to have {site.name} take writes "
        f"alone: `farshore site standby --site {other.name}` first; or add --even-if-other-active",
    )


def _closed(standing: SiteStanding) -> tuple[str, ...]:
    return () if standing.takes_writes else standing.topics or (EVERY_TOPIC,)


def _is_closed(row: SiteRow, let_in: Set[str]) -> bool:
    """Whether the site refuses all of these expressions, as is known of it."""
    return row.takes_writes is False and (not row.topics or let_in <= set(row.topics))


def _linked(site: Site, links: Sequence[Link]) -> list[Site]:
    """The sites at the other ends of its links."""
    ends = [(link.source, link.target) for link in links]
    return list({other.name: other for pair in ends for other in pair if site in pair and other != site}.values())
