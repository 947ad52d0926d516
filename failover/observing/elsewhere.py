"""Whether another site took the topics of a move over before: then a move from their old site would open a second one.

A link that was moved says so in its state, at its target. Such links are followed, from both ends of the move on, to
whoever takes writes now: by its role, by its ACLs, or, where it has neither, since nothing was moved on from there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.fanout import both, side_by_side
from broker.client.site import Site
from broker.client.site_role import site_standing
from failover.freezing.acl_rights import look, shown_and_hidden
from failover.journal.standing import under_way
from failover.limits import BACK_S, ELSEWHERE_S
from failover.observing.contact import CLIENT_ID
from failover.observing.readers import Readers
from failover.planning.plan import Elsewhere
from mirror.api import STATUS_LIMITS, Link, RunState, StateEntries, is_later, promotion_of, read_entries


@dataclass(frozen=True, slots=True)
class Hop:
    """What one link's target says of itself. `is_moved`: clients went there, and have not come back along a link that
    was moved later. `takes_writes` None: nobody is refused there, or that is not told. Not `is_sure`: somebody who
    could say that they have come back, or are refused, does not tell.
    """

    link: Link
    topics: frozenset[str]
    is_told: bool = True
    is_moved: bool = False
    takes_writes: bool | None = None
    operation_id: str = ""
    is_sure: bool = True

    def is_active(self, moved_on: Container[str], maybe_on: Container[str]) -> bool | None:
        """None: nobody knows. `moved_on`: sites from which clients went on, `maybe_on`: from which they may have."""
        site = self.link.target.name
        if not self.is_moved or self.takes_writes is not None:
            return self.is_moved and self.takes_writes
        if site in moved_on:
            return False
        return None if site in maybe_on or not self.is_sure else True


async def look_elsewhere(
    link: Link,
    links: Iterable[Link],
    topics: Iterable[str],
    unasked: Iterable[str] = (),
    *,
    even_giving_up: bool = True,
    readers: Readers | None = None,
) -> tuple[Elsewhere, ...]:
    """Who else has the move's topics (the source's names), or is about to, or may have them, as the other links say.
    `unasked`: sites that are passed over. `even_giving_up`: of operations, as `under_way` has it. `readers`: of
    who asks of several links.

    Who does not tell is in the answer, too.
    """
    readers = readers if readers is not None else Readers()
    ends = {link.source.name, link.target.name}
    others = [one for one in links if one.name != link.name]
    here = frozenset(topics)
    level = {link.source.name: here, link.target.name: frozenset(map(link.target_topic, here))}
    seen, hops, passed = set(ends), list[Hop](), frozenset(unasked)
    while level:
        ways = _ways(others, level, but=passed | ends if level.keys() <= ends else passed)
        looked = await side_by_side(
            look_along(one, its, others, readers, link.source.name, link.target.name, even_giving_up=even_giving_up)
            for one, its in ways
        )
        hops += looked
        level = {}
        for hop in looked:
            if hop.is_moved and hop.link.target.name not in seen:
                level[hop.link.target.name] = frozenset(map(hop.link.target_topic, hop.topics))
        seen |= level.keys()
    return tuple(judge(hops, ends))


def _ways(
    links: Iterable[Link], level: dict[str, frozenset[str]], but: Container[str]
) -> list[tuple[Link, frozenset[str]]]:
    """The links from these sites on that carry some of these topics, with those; not to the sites `but`."""
    found = []
    for one in links:
        carried = frozenset(filter(one.selects_topic, level.get(one.source.name, ())))
        if carried and one.target.name not in but:
            found.append((one, carried))
    return found


def judge(hops: Sequence[Hop], ends: Iterable[str]) -> Iterable[Elsewhere]:
    """Of what was looked at; one that does not say whether it takes writes does so where nothing was moved on."""
    moved_on = {hop.link.source.name for hop in hops if hop.is_moved and hop.is_sure}
    maybe_on = {hop.link.source.name for hop in hops if not (hop.is_told and hop.is_sure)}
    untold = set[str]()
    for hop in hops:
        name, site = hop.link.name, hop.link.target.name
        if site in ends:
            continue
        if not hop.is_told:
            if site not in untold:
                yield Elsewhere(name, site, None)
            untold.add(site)
        elif hop.operation_id:
            yield Elsewhere(name, site, is_active=False, operation_id=hop.operation_id)
        elif (is_active := hop.is_active(moved_on, maybe_on)) is not False:
            yield Elsewhere(name, site, is_active)


async def look_along(
    link: Link,
    topics: frozenset[str],
    others: Sequence[Link],
    readers: Readers,
    move_source: str,
    move_target: str = "",
    *,
    even_giving_up: bool = True,
) -> Hop:
    """`topics`: of those that it carries, as its source calls them. `move_source`, `move_target`: the sites of the
    move, from neither of which another one is to take them on meanwhile. A failback of a link from the target brings
    them there.
    """
    try:
        async with timeout(ELSEWHERE_S), _called(link.target) as target:
            entries = await read_entries(link, target, only=())
            operation_id = ""
            if link.source.name in (move_source, move_target):
                operation_id = under_way(
                    link,
                    await readers.operations_at(target),
                    target.clock.now_ms(),
                    even_failbacks=link.source.name != move_target,
                    even_giving_up=even_giving_up,
                )
            run = entries.run
            if run is None or run.state is not RunState.PROMOTED:
                return Hop(link, topics, operation_id=operation_id)
            is_back, writes = await both(
                _is_back(link, topics, others, entries),
                takes_writes(target, frozenset(map(link.target_topic, topics))),
            )
            if is_back:
                return Hop(link, topics, operation_id=operation_id)
            is_sure = is_back is False and not isinstance(writes, FarshoreError)
            told = None if isinstance(writes, FarshoreError) else writes
            return Hop(link, topics, is_moved=True, takes_writes=told, operation_id=operation_id, is_sure=is_sure)
    except (FarshoreError, TimeoutError):  # what is unknown is said to be
        return Hop(link, topics, is_told=False)


async def moved_by(link: Link, topics: frozenset[str], others: Sequence[Link]) -> str:
    """The operation that took the link's clients to its target, from where they have not come back, or may not have;
    "": none did. `topics`: as in `look_along`. Raises FarshoreError, TimeoutError where its target does not say.
    """
    async with timeout(ELSEWHERE_S), _called(link.target) as target:
        entries = await read_entries(link, target, only=())
        run = promotion_of(entries)
        if run is None or await _is_back(link, topics, others, entries):
            return ""
        return run.operation_id


def _called(site: Site) -> Cluster:
    return Cluster(site, client_id=CLIENT_ID, limits=STATUS_LIMITS)


async def _is_back(link: Link, topics: frozenset[str], others: Sequence[Link], entries: StateEntries) -> bool | None:
    """Whether a link back was moved after this one; None where its site does not say."""
    there = frozenset(map(link.target_topic, topics))
    backs = [
        one
        for one in others
        if (one.source.name, one.target.name) == (link.target.name, link.source.name)
        and any(map(one.selects_topic, there))
    ]
    if not backs:
        return False
    with suppress(FarshoreError, TimeoutError):
        async with timeout(BACK_S), _called(link.source) as source:
            return any([is_later(await read_entries(back, source, only=()), entries) for back in backs])
    return None


async def takes_writes(cluster: Cluster, topics: frozenset[str]) -> bool | FarshoreError | None:
    """To one of these topics at least; an error where that cannot be asked, or one that is not closed is hidden."""
    try:
        if cluster.site.freeze_principals:
            found, principals = await look(cluster), cluster.site.freeze_principals
            shown, hidden = await shown_and_hidden(cluster, topics)
            told = found.takes_writes(topics & shown, principals)
            if told is not False:
                return told
            return next(
                (why for name, why in hidden.items() if found.takes_writes({name}, principals) is not False), told
            )
        standing = await site_standing(cluster)
        return None if standing is None else not all(map(standing.refuses, topics))
    except FarshoreError as error:
        return error
