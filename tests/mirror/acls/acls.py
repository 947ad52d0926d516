"""ACLs in short."""

from __future__ import annotations

from collections.abc import Mapping

from broker.client.acl_bindings import Acl
from broker.client.site import Site
from broker.wire.vocabulary import AclOperation, AclPattern, AclPermission, AclResource
from mirror.acls.carrying import AclScope
from mirror.link import Link, TopicNames

EAST, WEST = Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2")
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
DESCRIBE, DESCRIBE_CONFIGS, DELETE = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.DELETE
ALTER_CONFIGS = AclOperation.ALTER_CONFIGS


def allow(
    principal: str,
    operation: AclOperation,
    name: str,
    *,
    kind: AclResource = AclResource.TOPIC,
    pattern: AclPattern = AclPattern.LITERAL,
    host: str = "*",
) -> Acl:
    return Acl(kind, name, pattern, f"User:{principal}", host, operation, AclPermission.ALLOW)


def deny(
    principal: str,
    operation: AclOperation,
    name: str,
    *,
    kind: AclResource = AclResource.TOPIC,
    pattern: AclPattern = AclPattern.LITERAL,
    host: str = "*",
) -> Acl:
    return Acl(kind, name, pattern, f"User:{principal}", host, operation, AclPermission.DENY)


def prefixed(acl: Acl) -> Acl:
    return acl._replace(pattern_type=AclPattern.PREFIXED)


def of_group(acl: Acl) -> Acl:
    return acl._replace(resource_type=AclResource.GROUP)


def link_of(*topics: str, topic_names: TopicNames = "same", principals: Mapping[str, str] | None = None) -> Link:
    pairs = tuple(sorted((principals or {}).items()))
    sites = frozenset({"east", "west"})
    return Link("east-west", EAST, WEST, topics, topic_names, ("g-.*",), known_sites=sites, acl_principals=pairs)


def scope_of(link: Link, *topics: str, others: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> AclScope:
    """These topics are mirrored; the target has those `others`, too."""
    names = {name: link.target_topic(name) for name in topics}
    return AclScope(link, names, {*names.values(), *others}, groups, "User:farshore")
