"""How a site stands to its clients, by its role or by its ACLs, as it is shown."""

from __future__ import annotations

from dataclasses import dataclass

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.site import Site
from broker.client.site_role import site_standings
from broker.wire.site_role import SiteRole, SiteStanding
from broker.wire.vocabulary import EVERYBODY
from failover.errors import FreezeNotAllowed
from failover.freezing.acl_rights import look
from failover.freezing.denials import Denials, names_of
from failover.limits import SOURCE_ROLE_S


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A site and its role. `takes_writes` None: its brokers refuse nobody (Apache Kafka), or do not say. `differing`:
    brokers that go by another role than the newest, or do not say. `topics`: those that the role is of, the others
    being active; none: all. `standby`: of a frozen site those that stay closed when it is thawed for others. `in_part`:
    topics that ACLs close for some of those only whom they are to keep out.
    """

    site: str
    role: str
    epoch: int | None
    takes_writes: bool | None
    reason: str
    differing: tuple[int, ...] = ()
    topics: tuple[str, ...] = ()
    standby: tuple[str, ...] = ()
    in_part: tuple[str, ...] = ()


async def row_of(site: Site) -> SiteRow:
    """Of one that does not answer, too."""
    try:
        async with Cluster(site, client_id="farshore-cli") as cluster:
            if site.freeze_principals:
                return row_by_denials(site, await look(cluster))
            standings = await site_standings(cluster, laggard_ms=round(SOURCE_ROLE_S * 1_000))
            told, failures = split_failures(standings)
            known = {node_id: standing for node_id, standing in told.items() if standing is not None}
            if told and not known:
                return await _row_without_key(cluster)
    except FarshoreError as error:
        return SiteRow(site.name, "unknown", None, None, str(error))
    if not told:
        return SiteRow(site.name, "unknown", None, None, str(next(iter(failures.values()))))
    newest = max(known.values(), key=lambda standing: standing.epoch)
    return row_of_role(site, newest, tuple(sorted(node for node in standings if standings[node] != newest)))


async def _row_without_key(cluster: Cluster) -> SiteRow:
    """Of a site without roles and without freeze_principals in the file: these may have been taken out since."""
    name, why = cluster.site.name, "not farshore's own brokers"
    try:
        found = await look(cluster)
    except (ClientError, FreezeNotAllowed) as error:
        return SiteRow(name, "none", None, None, f"{why}: they have no role; {error}")
    if found.marked:
        return row_by_denials(cluster.site, found)
    return SiteRow(name, "none", None, None, f"{why}: they refuse nobody")


def row_by_denials(site: Site, found: Denials, why: str = "") -> SiteRow:
    """A topic that is closed is so until a move back, or a thaw, opens it. `why`: in place of whose ACLs there are."""
    in_part = found.in_part(site.freeze_principals or (EVERYBODY,))
    closed = tuple(topic for topic in found.topics if topic not in in_part)
    by = "no ACL of a freeze"
    if found.topics:
        by = f"ACLs of {', '.join(found.operations(found.closed))}"
    elif found.marked:
        by += f", but marks of {', '.join(found.operations({*found.marks, *found.leaving}))}, which deny nobody"
    told = [why or by]
    told += [f"{topic} is closed in part: {names_of(still)} can still write" for topic, still in in_part.items()]
    if leaving := sorted(frozenset[str]().union(*found.leaving.values())):
        told.append(
            f"{', '.join(leaving)} began to take the freeze back: if nobody goes on with that, `site thaw` does"
        )
    return SiteRow(
        site.name,
        (SiteRole.STANDBY if closed else SiteRole.ACTIVE).value if closed or not in_part else "closed in part",
        None,
        takes_writes=None if found.differing else False if closed else None if in_part else True,
        reason="; ".join(told),
        differing=found.differing,
        topics=closed,
        in_part=tuple(in_part),
    )


def row_of_role(site: Site, standing: SiteStanding, differing: tuple[int, ...] = ()) -> SiteRow:
    takes_writes = standing.takes_writes if not differing else None
    return SiteRow(
        site.name,
        standing.role.value,
        standing.epoch,
        takes_writes,
        standing.reason,
        differing,
        standing.topics,
        standing.standby,
    )


def role_in_words(row: SiteRow) -> str:
    if row.role == "unknown":
        return f"unknown ({row.reason})"
    return f"{row.role} for {', '.join(row.topics)} only" if row.topics else row.role


def beside(row: SiteRow) -> str:
    """Whether a site that is opened beside it is a second active one."""
    return "might" if row.takes_writes is None else "would"
