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
from broker.client.without_acls import ALLOW_EVERYONE, OpenTopics, open_without_acls
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import CLUSTER_OPERATIONS, EVERYBODY, AclOperation
from failover.errors import FreezeNotAllowed, LockedOut
from failover.freezing.denials import Denials, SiteDenials, is_named, read_denials
from mirror.api import named_literally

BY_HOOK: Final = "in a move a freeze_hook can do it otherwise (docs/configuration.md)"
TOPICS_SHOWN: Final = 10


class NoAuthorizer(FreezeNotAllowed):
    """No ACL does anything at a site, and none of a freeze is there."""


class FirstAcl(FreezeNotAllowed):
    """No ACL is about topics that everybody may use by that: the freeze's would take every right on them from all."""


async def denials_to_make(
    cluster: Cluster, topics: Sequence[str], known: Collection[str] = (), *, leaves_open: bool = False
) -> SiteDenials | None:
    """How a site stands that is to be closed to these topics (regular expressions; none: to all); None: not by ACLs.
    `known`: those of them that there were, whether the site shows them or not. `leaves_open`: of which the ACLs would
    be the first, and take more than writing from more than are named.

    Raises FreezeNotAllowed, also where it is known before that farshore would lock itself out, or (FirstAcl) everybody
    else; ClientError.
    """
    if not cluster.site.freeze_principals:
        return None
    await cluster.find_answering()
    found = await look(cluster)
    operations = await may_make_acls(cluster)
    names, hidden = await _named(cluster, topics, known)
    writable = await writable_topics(cluster, names)
    principals = cluster.site.freeze_principals
    open_ones = await open_without_acls(cluster, names | hidden)
    if open_ones.names and not leaves_open:
        raise first_acl(cluster.site, open_ones)
    hidden_ones, is_writable = tuple(sorted(hidden)), any(writable.values())
    denials = SiteDenials(principals, found.marked, is_writable, found.topics, hidden_ones, open_ones.names)
    if denials.is_writable and EVERYBODY in denials.principals and not operations >= CLUSTER_OPERATIONS:
        raise locked_out(cluster.site)
    return denials


async def refuse_first_acls(cluster: Cluster, topics: Sequence[str], known: Collection[str] = ()) -> None:
    """Of a site that a freeze closes by ACLs, asked for by one who need not be allowed to make them. `topics`, `known`
    as in `denials_to_make`. Raises FirstAcl, FreezeNotAllowed where they are not shown, ClientError.
    """
    if not cluster.site.freeze_principals:
        return
    await look(cluster)
    found = await open_without_acls(cluster, await named_topics(cluster, topics, known))
    if found.names:
        raise first_acl(cluster.site, found)


def first_acl(site: Site, found: OpenTopics) -> FirstAcl:
    """Of topics that were found open at it. Pure."""
    topics, is_known = found
    told = ", ".join(topics[:TOPICS_SHOWN]) + (f" and {n} more" if (n := len(topics) - TOPICS_SHOWN) > 0 else "")
    because = "is true" if is_known else "is set, and whether to true is not shown"
    or_else = "" if is_known else f" (if {ALLOW_EVERYONE} is false there: a super user, as nobody else may now)"
    return FirstAcl(
        f"no ACL at {site.name} is about {told}, and everybody may use what none is about there ({ALLOW_EVERYONE} "
        f"{because}): what denies {', '.join(site.freeze_principals)} to write would be the first, and take reading "
        "and writing from all but super users",
        hint=f"have an ACL say who may, as `kafka-acls --add --allow-principal '{EVERYBODY}' --operation All "
        f"--topic {topics[0]}` says that everybody does{or_else}, or with `--resource-pattern-type prefixed` of many; "
        f"or take freeze_principals out of [sites.{site.name}]: {BY_HOOK}",
    )


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
    """`behind`: as those brokers say that go by these, and so by all that was made before. Raises FreezeNotAllowed
    (NoAuthorizer where there are no ACLs), ClientError.
    """
    try:
        return read_denials(await known_denials(cluster, behind))
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            raise NoAuthorizer(
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
    remedy = "leave its own principal out of"
    if EVERYBODY in site.freeze_principals:
        remedy = f"name those who write, in place of {EVERYBODY}, in"
    return LockedOut(
        f"what {', '.join(site.freeze_principals)} is denied at {site.name} is denied to {principal_of(site)}, too: "
        "nothing could be mirrored back",
        hint=f"make it one of the cluster's super.users; or {remedy} freeze_principals of [sites.{site.name}]",
    )
