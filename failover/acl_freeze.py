"""Closing topics of a site to clients, and opening them, by its ACLs: Apache Kafka knows no roles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from broker.client.errors import KafkaError
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import CLUSTER_OPERATIONS, AclOperation
from failover.denials import EVERYBODY, Denials, SiteDenials, denials_of, is_named, mark_of, read_denials
from failover.errors import FreezeNotAllowed, LockedOut


async def denials_to_make(cluster: Cluster, topics: Sequence[str]) -> SiteDenials | None:
    """How a site stands that is to be closed to these topics (regular expressions; none: to all); None: not by ACLs.
    Raises FreezeNotAllowed, also where it is known before that farshore would lock itself out; ClientError.
    """
    if not cluster.site.freeze_principals:
        return None
    found = await look(cluster)
    operations = await _operations(cluster)
    writable = await writable_topics(cluster, await named_topics(cluster, topics))
    denials = SiteDenials(cluster.site.freeze_principals, found.topics, bool(writable))
    if denials.is_writable and EVERYBODY in denials.principals and not operations >= CLUSTER_OPERATIONS:
        raise _locked_out(cluster.site)
    return denials


async def denials_to_end(cluster: Cluster, topics: Sequence[str]) -> SiteDenials | None:
    """As `denials_to_make`, of a site that is to be opened."""
    if not cluster.site.freeze_principals:
        return None
    denials = SiteDenials(cluster.site.freeze_principals, (await look(cluster)).topics)
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

    Raises LockedOut, FreezeNotAllowed, ClientError: then all or some of it may be made.
    """
    names = await named_topics(cluster, topics)
    found = await look(cluster)
    missing = found.missing(names, denials.principals)
    held = missing | found.made(names, denials.principals)
    await create_denials(cluster, {mark_of(one, operation_id) for one in held - found.of(operation_id)})
    await create_denials(cluster, missing)
    await await_denials(cluster, denials_of(names, denials.principals))
    if denials.is_writable and names and not await writable_topics(cluster, names):
        raise _locked_out(cluster.site)


def _locked_out(site: Site) -> LockedOut:
    return LockedOut(
        f"what {', '.join(site.freeze_principals)} is denied at {site.name} is denied to {principal_of(site)}, too: "
        "nothing could be mirrored back",
        hint=f"make it one of the cluster's super.users; or name those who write, in place of {EVERYBODY}, in "
        f"freeze_principals of [sites.{site.name}]",
    )


async def undo(cluster: Cluster, operation_id: str, keep: Sequence[str] | None = None) -> None:
    """Take back what this operation has made, but for the topics to `keep` (regular expressions; None: keeps none).
    What another one made, too, stays denied.
    """
    found = await look(cluster)
    ours = {one for one in found.of(operation_id) if keep is None or not is_named(one.topic, keep)}
    only_ours = {one for one in ours if found.marks[one] == {operation_id}}
    await _take_back(cluster, only_ours, {mark_of(one, operation_id) for one in ours})


async def open_again(cluster: Cluster, topics: Sequence[str]) -> None:
    """Take back what any freeze has made of these topics (regular expressions; none: of all)."""
    found = await look(cluster)
    chosen = {one for one in found.marks if is_named(one.topic, topics)}
    await _take_back(cluster, chosen, {mark_of(one, by) for one in chosen for by in found.marks[one]})


async def _take_back(cluster: Cluster, denials: Iterable[WriteDenial], marks: Iterable[WriteDenial]) -> None:
    """The marks go last: who is cut short in between finds by them what is left."""
    denials, marks = set(denials), set(marks)
    for each in (denials, marks):
        await delete_denials(cluster, each)
        await await_denials(cluster, (), each)
