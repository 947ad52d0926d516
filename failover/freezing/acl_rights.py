"""Who may write to topics of a site as its ACLs have it, and whether farshore may change that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from broker.client.acls import WriteDenial, cluster_operations, known_denials, writable_topics
from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.security.settings import Mechanism
from broker.client.site import Site
from broker.client.topics import list_each_topic
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import CLUSTER_OPERATIONS, EVERYBODY, AclOperation
from failover.errors import FreezeNotAllowed, LockedOut
from failover.freezing.denials import Denials, SiteDenials, is_named, read_denials
from mirror.api import named_literally

BY_HOOK: Final = "in a move a freeze_hook can do it otherwise (docs/configuration.md)"


async def denials_to_make(cluster: Cluster, topics: Sequence[str], known: Collection[str] = ()) -> SiteDenials | None:
    """How a site stands that is to be closed to these topics (regular expressions; none: to all); None: not by ACLs.
    `known`: those of them that there were, whether the site shows them or not.

    Raises FreezeNotAllowed, also where it is known before that farshore would lock itself out; ClientError.
    """
    if not cluster.site.freeze_principals:
        return None
    await cluster.find_answering()
    found = await look(cluster)
    operations = await may_make_acls(cluster)
    names, hidden = await _named(cluster, topics, known)
    writable = await writable_topics(cluster, names)
    principals = cluster.site.freeze_principals
    denials = SiteDenials(principals, found.marked, any(writable.values()), found.topics, tuple(sorted(hidden)))
    if denials.is_writable and EVERYBODY in denials.principals and not operations >= CLUSTER_OPERATIONS:
        raise locked_out(cluster.site)
    return denials


async def denials_to_end(cluster: Cluster, topics: Sequence[str]) -> SiteDenials | None:
    """As `denials_to_make`, of a site that is to be opened."""
    if not cluster.site.freeze_principals:
        return None
    await cluster.find_answering()
    found = await look(cluster)
    denials = SiteDenials(cluster.site.freeze_principals, found.marked, closed=found.topics)
    if denials.marks(topics):
        await may_make_acls(cluster)
    return denials


async def may_make_acls(cluster: Cluster) -> frozenset[AclOperation]:
    """What farshore may do to the cluster. Raises FreezeNotAllowed where that is not to make ACLs, ClientError."""
    operations = await cluster_operations(cluster)
    if AclOperation.ALTER not in operations:
        raise _not_allowed(cluster.site, "may not make ACLs", "Alter on the cluster")
    return operations


async def look(cluster: Cluster, behind: Collection[WriteDenial] = ()) -> Denials:
    """`behind`: as those brokers say that go by these, and so by all that was made before. Raises FreezeNotAllowed,
    ClientError.
    """
    try:
        return read_denials(await known_denials(cluster, behind))
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            raise FreezeNotAllowed(
                f"{cluster.site.name} has no authorizer, so that no ACL keeps anybody from writing there",
                hint=f"take freeze_principals out of [sites.{cluster.site.name}]; {BY_HOOK}",
            ) from error
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise _not_allowed(cluster.site, "may not see ACLs", "Describe and Alter on the cluster") from error
        raise


def _not_allowed(site: Site, what: str, right: str) -> FreezeNotAllowed:
    return FreezeNotAllowed(
        f"{principal_of(site)} {what} at {site.name}",
        hint=f"give it {right} (`kafka-acls --add --cluster`); or take freeze_principals out of [sites.{site.name}]: "
        f"{BY_HOOK}",
    )


def principal_of(site: Site) -> str:
    """As whom farshore comes, in words: how a cluster names it is the cluster's to say."""
    security = site.security
    if security.sasl is not None:
        of_ticket = security.sasl.mechanism is Mechanism.GSSAPI
        return f"farshore's user {security.sasl.username or ('of its ticket' if of_ticket else 'of its token')}"
    if security.tls is not None and security.tls.certificate_file is not None:
        return f"the user of {security.tls.certificate_file}"
    return "farshore, as which nobody logs in (User:ANONYMOUS)"


async def named_topics(cluster: Cluster, topics: Sequence[str], known: Collection[str] = ()) -> list[str]:
    """Those that the expressions name and that are there now, or hidden: a cluster says of a topic that one may not
    describe, asked for it by name, no more than that. It is asked for the `known`, and for what an expression names
    alone; of others that it hides nobody can tell.
    """
    shown, hidden = await _named(cluster, topics, known)
    return sorted(shown | hidden)


async def _named(
    cluster: Cluster, topics: Sequence[str], known: Collection[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """-> those that are shown, and those that are hidden."""
    asked = {name for name in {*known, *named_literally(topics)} if is_named(name, topics)}
    shown, hidden = await shown_and_hidden(cluster, asked)
    return frozenset(name for name in shown if is_named(name, topics)), frozenset(hidden)


async def shown_and_hidden(cluster: Cluster, asked: Collection[str]) -> tuple[frozenset[str], dict[str, KafkaError]]:
    """All topics that a site shows, and those of the `asked` that it hides, and how it says so. Raises ClientError."""
    found, failures = await list_each_topic(cluster, asked)
    hides = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return frozenset(found), {name: error for name, error in failures.items() if error.code is hides}


def locked_out(site: Site) -> LockedOut:
    return LockedOut(
        f"what {', '.join(site.freeze_principals)} is denied at {site.name} is denied to {principal_of(site)}, too: "
        "nothing could be mirrored back",
        hint=f"make it one of the cluster's super.users; or name those who write, in place of {EVERYBODY}, in "
        f"freeze_principals of [sites.{site.name}]",
    )
