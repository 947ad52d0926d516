"""What of a site is what a link has, and how ACLs name it. Pure."""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from broker.client.site import Site
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, AclPattern, AclResource
from chaos.names import LINK_PREFIX, OWN_PREFIXES
from failover.failback.replay import REPLAYS_PREFIX
from failover.journal.log import transactional_id
from failover.journal.topic import OPERATIONS_TOPIC
from failover.losses.replayed import REPLAYS
from mirror.api import CHAOS_PREFIX
from mirror.link import PRODUCERS_TOPIC, Link

OFFSETS_TOPIC: Final = "__consumer_offsets"
_LITERAL, _PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED


_IMPLY_DESCRIBE: Final = {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
"""Of the same resource, as Kafka's authorizer has it."""


class At(enum.Enum):
    """A side of a link."""

    SOURCE = "source"
    TARGET = "target"


class Thing(enum.Enum):
    """What a right is on, as a link has it: its name depends on the side."""

    TOPICS = "the topics that the link carries"
    CANARY = "the topic of its canary"
    GROUPS = "the groups that it carries"
    STATE = "its offset map and gaps"
    ENDS = "where the source's logs were seen to end"
    ENDS_TO_COME_BACK = "what is kept there of records that may come back"
    PRODUCERS = "the producers of mirrors"
    PRODUCERS_BACK = "the same, where a link goes back"
    OFFSETS = "the cluster's topic of group offsets"
    OPERATIONS = "the journals of moves"
    FENCES = "the transactional ids of its workers"
    FENCES_ONCE_CUT = "those of as many workers as it may be cut into"
    FENCE_OF_GROUPS = "the transactional id of what commits its groups' offsets"
    FENCE_OF_MOVES = "the transactional id of moves along it"
    STATES_BACK = "the offset maps of links back"
    ENDS_BACK = "the ends that links back saw of their sources"
    REPLAYS = "how far stranded records were replayed"
    FENCE_OF_REPLAYS = "the transactional ids of replays"
    CLUSTER = "the cluster"
    ACLS = "the record of the ACLs that it made"
    ACLS_OF_BACKS = "those of the links back"
    RUNS = "the topics of chaos runs"
    STATES_OF_RUNS = "the offset maps of chaos runs, and where their sources ended"
    FENCES_OF_RUNS = "the transactional ids of the workers of chaos runs"


class Need(NamedTuple):
    """Operations on a thing, at one side."""

    at: At
    thing: Thing
    operations: tuple[AclOperation, ...]


class Pattern(NamedTuple):
    """How an ACL names what it is about."""

    resource: AclResource
    name: str
    pattern: AclPattern


def kafka_acls(site: Site, principal: str, pattern: Pattern, operations: Collection[AclOperation]) -> str:
    """The line of Kafka's tool that gives these rights."""
    words = ["kafka-acls", "--bootstrap-server", site.bootstrap_servers, "--add", "--allow-principal", principal]
    for operation in operations:
        words += ["--operation", operation.word]
    option = f"--{pattern.resource.name.lower().replace('_', '-')}"
    words += [option] if pattern.resource is AclResource.CLUSTER else [option, pattern.name]
    if pattern.pattern is _PREFIXED:
        words += ["--resource-pattern-type", "prefixed"]
    return shlex.join(words)


def patterns_of(link: Link, at: At, thing: Thing) -> list[Pattern]:
    """What of a site the thing is."""
    topic, group, transactional = AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID

    def exactly(resource: AclResource, *names: str) -> list[Pattern]:
        return [Pattern(resource, name, _LITERAL) for name in names]

    match thing:
        case Thing.TOPICS:
            prefix = f"{link.source.name}." if at is At.TARGET and link.topic_names == "prefixed" else ""
            return list(_named(topic, link.topics, prefix))
        case Thing.CANARY:
            return exactly(topic, link.canary_topic if at is At.SOURCE else link.target_topic(link.canary_topic))
        case Thing.GROUPS:
            return list(_named(group, link.groups))
        case Thing.STATE:
            return exactly(topic, link.state_topic)
        case Thing.ENDS:
            return exactly(topic, link.ends_topic)
        case Thing.ENDS_TO_COME_BACK:
            return exactly(topic, link.ends_topic) if link.shared_targets else []
        case Thing.PRODUCERS:
            return exactly(topic, PRODUCERS_TOPIC)
        case Thing.PRODUCERS_BACK:
            return exactly(topic, PRODUCERS_TOPIC) if link.reverse_links else []
        case Thing.OFFSETS:
            return exactly(topic, OFFSETS_TOPIC)
        case Thing.OPERATIONS:
            return exactly(topic, OPERATIONS_TOPIC)
        case Thing.FENCES:
            return exactly(transactional, *(unit.transactional_id for unit in link.each_unit()))
        case Thing.FENCES_ONCE_CUT:
            return [Pattern(transactional, f"{link.of_unit(0).transactional_id}.", _PREFIXED)]
        case Thing.FENCE_OF_GROUPS:
            return exactly(transactional, link.groups_transactional_id) if link.groups else []
        case Thing.FENCE_OF_MOVES:
            return exactly(transactional, transactional_id(link.source.name, link.target.name))
        case Thing.ACLS:
            return exactly(topic, link.acls_topic)
        case Thing.ACLS_OF_BACKS:
            return exactly(topic, *(back.acls_topic for back in link.reverse_links))
        case Thing.STATES_BACK:
            return exactly(topic, *(back.state_topic for back in link.reverse_links))
        case Thing.ENDS_BACK:
            return exactly(topic, *(back.ends_topic for back in link.reverse_links))
        case Thing.REPLAYS:
            return exactly(topic, REPLAYS.topic)
        case Thing.FENCE_OF_REPLAYS:
            return [Pattern(transactional, REPLAYS_PREFIX, _PREFIXED)]  # then the source's cluster id
        case Thing.RUNS:
            run = CHAOS_PREFIX if at is At.SOURCE else link.target_topic(CHAOS_PREFIX)
            return [Pattern(topic, run, _PREFIXED)]
        case Thing.STATES_OF_RUNS:
            return [Pattern(topic, f"{prefix}{LINK_PREFIX}", _PREFIXED) for prefix in OWN_PREFIXES]
        case Thing.FENCES_OF_RUNS:
            of_runs = replace(link, name=LINK_PREFIX).of_unit(0)
            return [Pattern(transactional, of_runs.transactional_id, _PREFIXED)]
        case Thing.CLUSTER:
            return exactly(AclResource.CLUSTER, CLUSTER_NAME)


_PLAIN: Final = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-])*")


def _named(resource: AclResource, expressions: Collection[str], prefix: str = "") -> Iterator[Pattern]:
    """ACLs know names and prefixes alone: of another expression the prefix that all it selects has in common."""
    seen: set[Pattern] = set()
    for expression in expressions:
        parts = [expression] if re.search(r"[()\[\]]", expression) else expression.split("|")
        for part in parts:
            if (found := _of_part(resource, part, prefix)) not in seen:
                seen.add(found)
                yield found


def _of_part(resource: AclResource, expression: str, prefix: str) -> Pattern:
    plain = _PLAIN.match(expression)
    assert plain is not None, "it may be empty"
    rest = expression[plain.end() :]
    common = plain.group()
    if rest[:1] in ("*", "?", "{"):  # the last letter may be missing
        common = common[:-2] if common[-2:-1] == "\\" else common[:-1]
    if "|" in expression:  # within brackets: it is not known how far it reaches
        common = ""
    name = prefix + common.replace("\\", "")
    if not rest:
        return Pattern(resource, name, _LITERAL)
    return Pattern(resource, name, _PREFIXED) if name else Pattern(resource, "*", _LITERAL)


def without_implied(operations: Collection[AclOperation]) -> tuple[AclOperation, ...]:
    """Of those on one resource, in their order, without Describe where another one holds it. Pure."""
    is_implied = not _IMPLY_DESCRIBE.isdisjoint(operations)
    return tuple(each for each in operations if each is not AclOperation.DESCRIBE or not is_implied)
