"""Closing topics of a site to clients, and opening them, by its ACLs: Apache Kafka knows no roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker.client.acls import (
    WriteDenial,
    await_denials,
    cluster_operations,
    create_denials,
    delete_denials,
    writable_topics,
    write_denials,
)
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import CLUSTER_OPERATIONS, AclOperation
from failover.denials import (
    EVERYBODY,
    Denials,
    SiteDenials,
    denials_of,
    is_named,
    leaving_mark_of,
    mark_of,
    read_denials,
)
from failover.errors import FreezeNotAllowed, LockedOut


class ThawUnderWay(ClientError):
    """Another freeze of the same topics is being taken back, and is not done with that: what it would take back with it
    is not known.
    """

    retriable = True


async def denials_to_make(cluster: Cluster, topics: Sequence[str]) -> SiteDenials | None:
    """How a site stands that is to be closed to these topics (regular expressions; none: to all); None: not by ACLs.
    Raises FreezeNotAllowed, also where it is known before that farshore would lock itself out; ClientError.
    """
    if not cluster.site.freeze_principals:
        return None
    found = await look(cluster)
    operations = await _operations(cluster)
    writable = await writable_topics(cluster, await named_topics(cluster, topics))
    denials = SiteDenials(cluster.site.freeze_principals, found.marked, bool(writable), found.topics)
    if denials.is_writable and EVERYBODY in denials.principals and not operations >= CLUSTER_OPERATIONS:
        raise _locked_out(cluster.site)
    return denials


async def denials_to_end(cluster: Cluster, topics: Sequence[str]) -> SiteDenials | None:
    """As `denials_to_make`, of a site that is to be opened."""
    if not cluster.site.freeze_principals:
        return None
    found = await look(cluster)
    denials = SiteDenials(cluster.site.freeze_principals, found.marked, closed=found.topics)
    if denials.marks(topics):
        await _operations(cluster)
    return denials


async def _operations(cluster: Cluster) -> frozenset[AclOperation]:
    operations = await cluster_operations(cluster)
    if AclOperation.ALTER not in operations:
        raise _not_allowed(cluster.site, "may not make ACLs", "Alter on the cluster")
    return operations


async def look(cluster: Cluster) -> Denials:
    """Raises FreezeNotAllowed, ClientError."""
    try:
        return read_denials(await write_denials(cluster))
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            raise FreezeNotAllowed(
                f"{cluster.site.name} has no authorizer, so that no ACL keeps anybody from writing there",
                hint=f"take freeze_principals out of [sites.{cluster.site.name}]; a freeze_hook can do it otherwise",
            ) from error
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise _not_allowed(cluster.site, "may not see ACLs", "Describe and Alter on the cluster") from error
        raise


def _not_allowed(site: Site, what: str, right: str) -> FreezeNotAllowed:
    return FreezeNotAllowed(
        f"{principal_of(site)} {what} at {site.name}",
        hint=f"give it {right} (`kafka-acls --add --cluster`); or take freeze_principals out of [sites.{site.name}]: "
        "a freeze_hook can do it otherwise",
    )


def principal_of(site: Site) -> str:
    """As whom farshore comes, in words: how a cluster names it is the cluster's to say."""
    security = site.security
    if security.sasl is not None:
        return f"farshore's user {security.sasl.username or 'of its token'}"
    if security.tls is not None and security.tls.certificate_file is not None:
        return f"the user of {security.tls.certificate_file}"
    return "farshore, as which nobody logs in (User:ANONYMOUS)"


async def named_topics(cluster: Cluster, topics: Sequence[str]) -> list[str]:
    """Those that the expressions name and that are there now."""
    return sorted(name for name in await list_topics(cluster) if is_named(name, topics))


async def close(cluster: Cluster, denials: SiteDenials, topics: Sequence[str], operation_id: str) -> None:
    """Returns when every broker refuses the principals' writes to these topics; what it makes may be there already.
    What another operation has made both hold from then on: it goes when the last of them takes back its own.

    Raises LockedOut, FreezeNotAllowed, ClientError (ThawUnderWay): then all or some of it may be made.
    """
    names = await named_topics(cluster, topics)
    found = await look(cluster)
    held = found.missing(names, denials.principals) | found.made(names, denials.principals)
    marks = {mark_of(one, operation_id) for one in held}
    await create_denials(cluster, marks)
    await create_denials(cluster, held - found.there)  # who is cut short in what comes has denied it all the same
    await await_denials(cluster, marks)
    found = await _when_nobody_leaves(cluster, held, operation_id)
    await create_denials(cluster, held - found.there)  # those who left had not all seen the marks
    await await_denials(cluster, denials_of(names, denials.principals))
    if denials.is_writable and names and not await writable_topics(cluster, names):
        raise _locked_out(cluster.site)


async def _when_nobody_leaves(cluster: Cluster, held: Iterable[WriteDenial], operation_id: str) -> Denials:
    """What stands there when all have gone who may not have seen the marks of this one, and may take the denials with
    them. Who says behind the marks that he goes sees them. Raises ThawUnderWay, ClientError.
    """
    held, retry = set(held), cluster.retry()
    while True:
        found = await look(cluster)
        left_by = found.left_by(held)
        own = {leaving_mark_of(one, operation_id) for one, by in left_by.items() if operation_id in by}
        if own:  # it was given up before, and is taken up again
            await delete_denials(cluster, own)
            await await_denials(cluster, (), own)
            continue  # until now others could count on it
        others = {one.topic: by - {operation_id} for one, by in left_by.items() if by - {operation_id}}
        if not others:
            return found
        await retry.pause(_thaw_under_way(cluster.site, others))


def _thaw_under_way(site: Site, others: Mapping[str, frozenset[str]]) -> ThawUnderWay:
    who = sorted(frozenset[str]().union(*others.values()))
    text = f"{', '.join(who)} takes back the freeze of {', '.join(sorted(others))} at {site.name}, or died doing so"
    thaw = f"`farshore site thaw --site {site.name}`"
    return ThawUnderWay(text, hint=f"`farshore operation list` says whether somebody carries it on; if not: {thaw}")


def _locked_out(site: Site) -> LockedOut:
    return LockedOut(
        f"what {', '.join(site.freeze_principals)} is denied at {site.name} is denied to {principal_of(site)}, too: "
        "nothing could be mirrored back",
        hint=f"make it one of the cluster's super.users; or name those who write, in place of {EVERYBODY}, in "
        f"freeze_principals of [sites.{site.name}]",
    )


async def undo(cluster: Cluster, operation_id: str, keep: Sequence[str] | None = None) -> None:
    """Take back what this operation has made, but for the topics to `keep` (regular expressions; None: keeps none).
    What another one holds, too, stays denied, until the last of them goes. Of several that go at once each sees that
    the others do, but for one that looked before the others said so: and that one is gone for those, or goes.
    """
    found = await look(cluster)
    ours = {one for one in found.of(operation_id) if keep is None or not is_named(one.topic, keep)}
    if not ours:
        return
    leaving = {leaving_mark_of(one, operation_id) for one in ours}
    await create_denials(cluster, leaving)
    await await_denials(cluster, leaving)
    found = await look(cluster)
    held_by_none = {one for one in ours if not found.is_held(one)}
    await _take_back(cluster, held_by_none, {mark_of(one, operation_id) for one in ours}, leaving)


async def open_again(cluster: Cluster, topics: Sequence[str]) -> None:
    """Take back what any freeze has made of these topics (regular expressions; none: of all)."""
    found = await look(cluster)
    chosen = {one for one in {*found.marks, *found.leaving} if is_named(one.topic, topics)}
    marks = {mark_of(one, by) for one in chosen for by in found.marks.get(one, ())}
    leaving = {leaving_mark_of(one, by) for one in chosen for by in found.leaving.get(one, ())}
    await _take_back(cluster, chosen, marks, leaving)


async def _take_back(cluster: Cluster, *in_turn: Iterable[WriteDenial]) -> None:
    """Denials, their marks, and the word that those go: each until no broker goes by it, before the next. So who is cut
    short finds by the later ones what is left, and nobody sees a mark without the word that it goes.
    """
    for each in map(set, in_turn):
        if each:
            await delete_denials(cluster, each)
            await await_denials(cluster, (), each)
