"""The rights that each command needs on each site of a link: one table, and the ACLs that it amounts to. Pure.

Reading, writing, deleting and altering let one describe, too, and altering configs describe them: what is so implied
does not stand here.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.client.site import Site
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, AclPattern, AclResource
from failover.failback.replay import REPLAYS, REPLAYS_PREFIX
from failover.journal.log import transactional_id
from failover.journal.topic import OPERATIONS_TOPIC
from mirror.link import PRODUCERS_TOPIC, Link

OFFSETS_TOPIC: Final = "__consumer_offsets"
_LITERAL, _PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, DESCRIBE, ALTER = AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.ALTER
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


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
    PRODUCERS = "the producers of mirrors"
    OFFSETS = "the cluster's topic of group offsets"
    OPERATIONS = "the journals of moves"
    FENCES = "the transactional ids of its workers"
    FENCE_OF_GROUPS = "the transactional id of what commits its groups' offsets"
    FENCE_OF_MOVES = "the transactional id of moves along it"
    STATES_BACK = "the offset maps of links back"
    REPLAYS = "how far stranded records were replayed"
    FENCE_OF_REPLAYS = "the transactional ids of replays"
    CLUSTER = "the cluster"
    ACLS = "the record of the ACLs that it made"
    ACLS_OF_BACKS = "those of the links back"


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


@dataclass(frozen=True, slots=True)
class NeededRight:
    """What `needed_by`, a command of farshore's, needs on one resource of a site; `command`: what gives it."""

    needed_by: str
    site: str
    resource: str
    name: str
    pattern: str
    operations: tuple[str, ...]
    command: str


def _source(thing: Thing, *operations: AclOperation) -> Need:
    return Need(At.SOURCE, thing, operations)


def _target(thing: Thing, *operations: AclOperation) -> Need:
    return Need(At.TARGET, thing, operations)


_MOVE_AT_TARGET: Final = (
    _target(Thing.TOPICS, READ, WRITE),
    _target(Thing.CANARY, READ, WRITE),
    _target(Thing.GROUPS, READ),
    _target(Thing.STATE, READ, WRITE),
    _target(Thing.PRODUCERS, READ),
    _target(Thing.OFFSETS, DESCRIBE),
    _target(Thing.OPERATIONS, CREATE, READ, WRITE),
    _target(Thing.FENCES, WRITE),
    _target(Thing.FENCE_OF_GROUPS, WRITE),
    _target(Thing.FENCE_OF_MOVES, WRITE),
    _target(Thing.CLUSTER, DESCRIBE_CONFIGS),
)

_AUDIT: Final = (
    _source(Thing.TOPICS, READ, DESCRIBE_CONFIGS),
    _source(Thing.PRODUCERS, READ),
    _target(Thing.TOPICS, READ, DESCRIBE_CONFIGS),
    _target(Thing.CANARY, DESCRIBE),
    _target(Thing.STATE, READ),
    _target(Thing.PRODUCERS, READ),
)

_STATUS_OF_PROMOTED: Final = (
    _source(Thing.PRODUCERS, READ, DESCRIBE_CONFIGS),
    _source(Thing.STATES_BACK, READ),
    _source(Thing.CLUSTER, DESCRIBE_CONFIGS),
    _target(Thing.PRODUCERS, READ, DESCRIBE_CONFIGS),
    _target(Thing.ENDS, READ),
    _target(Thing.CLUSTER, DESCRIBE_CONFIGS),
)
"""Who wrote since, and which of the sites takes writes."""

_LINK_STATE: Final = (_target(Thing.STATE, READ, WRITE), _target(Thing.PRODUCERS, READ), _target(Thing.FENCES, WRITE))
"""What fences a link by its state needs."""

_STRANDED: Final = (
    _source(Thing.TOPICS, READ),
    _source(Thing.PRODUCERS, READ, DESCRIBE_CONFIGS),
    _source(Thing.STATES_BACK, READ),
    _target(Thing.TOPICS, READ),
    _target(Thing.STATE, READ),
    _target(Thing.PRODUCERS, READ),
)
"""What the source alone has."""

_BY_COMMAND: Final[Mapping[str, tuple[Need, ...]]] = {
    "mirror run": (
        _source(Thing.TOPICS, READ, DESCRIBE_CONFIGS),
        _source(Thing.CANARY, READ, DESCRIBE_CONFIGS),
        _source(Thing.GROUPS, DESCRIBE),
        _source(Thing.PRODUCERS, READ),
        _target(Thing.TOPICS, CREATE, READ, WRITE, ALTER, ALTER_CONFIGS),
        _target(Thing.CANARY, CREATE, READ, WRITE, DESCRIBE_CONFIGS),
        _target(Thing.GROUPS, READ),
        _target(Thing.STATE, CREATE, READ, WRITE, DESCRIBE_CONFIGS),
        _target(Thing.ENDS, CREATE, WRITE),
        _target(Thing.PRODUCERS, CREATE, READ, WRITE, DESCRIBE_CONFIGS),
        _target(Thing.OFFSETS, DESCRIBE),
        _target(Thing.FENCES, WRITE),
        _target(Thing.FENCE_OF_GROUPS, WRITE),
    ),
    "status": (
        _source(Thing.TOPICS, READ),  # what came since a promotion, and what an exact lag counts
        _target(Thing.TOPICS, READ),
        _target(Thing.STATE, READ),
        *_STATUS_OF_PROMOTED,
    ),
    "link describe": (
        _source(Thing.TOPICS, DESCRIBE, DESCRIBE_CONFIGS),
        _target(Thing.TOPICS, DESCRIBE, DESCRIBE_CONFIGS),
        _target(Thing.STATE, READ),
    ),
    "offsets translate": (_target(Thing.TOPICS, READ), _target(Thing.STATE, READ)),
    "switchover": (
        _source(Thing.TOPICS, READ),
        _source(Thing.GROUPS, DESCRIBE),
        _source(Thing.PRODUCERS, READ),
        _source(Thing.OPERATIONS, READ),
        _source(Thing.CLUSTER, ALTER_CONFIGS),
        *_MOVE_AT_TARGET,
    ),
    "failover": (*_MOVE_AT_TARGET, _target(Thing.ENDS, READ)),
    "drill": (
        _source(Thing.TOPICS, READ),
        _source(Thing.GROUPS, DESCRIBE),
        _source(Thing.PRODUCERS, READ),
        _source(Thing.CLUSTER, DESCRIBE_CONFIGS),
        _target(Thing.TOPICS, READ),
        _target(Thing.GROUPS, DESCRIBE),
        _target(Thing.STATE, READ),
        _target(Thing.ENDS, READ),
        _target(Thing.PRODUCERS, READ),
        _target(Thing.OPERATIONS, READ),
        _target(Thing.CLUSTER, DESCRIBE_CONFIGS),
    ),
    "canary run": (
        _source(Thing.CANARY, CREATE, WRITE),
        _target(Thing.CANARY, READ),
        _target(Thing.STATE, READ),
    ),
    "audit run": _AUDIT,
    "audit freeze": _AUDIT,
    "audit repair": (
        _source(Thing.TOPICS, READ, DESCRIBE_CONFIGS),
        _source(Thing.PRODUCERS, READ),
        _source(Thing.GROUPS, DESCRIBE),
        _target(Thing.TOPICS, READ, DELETE, DESCRIBE_CONFIGS),
        _target(Thing.CANARY, DESCRIBE),
        _target(Thing.GROUPS, DESCRIBE),
        _target(Thing.STATE, READ, WRITE),
        _target(Thing.PRODUCERS, READ),
    ),
    "audit digest": (_source(Thing.TOPICS, READ), _target(Thing.TOPICS, READ)),
    "audit compare": (_source(Thing.TOPICS, READ), _target(Thing.TOPICS, READ)),
    "link pause": (*_LINK_STATE,),
    "link resume": (
        _source(Thing.TOPICS, READ),  # whether it still has what was mirrored, and what it alone has
        _source(Thing.PRODUCERS, READ),
        _source(Thing.OPERATIONS, READ),
        _target(Thing.TOPICS, READ),
        *_LINK_STATE,
        _target(Thing.OPERATIONS, READ),
    ),
    "link restart": (*_LINK_STATE,),
    "topic pause": (_target(Thing.STATE, READ, WRITE), _target(Thing.PRODUCERS, READ)),
    "topic resume": (_target(Thing.STATE, READ, WRITE), _target(Thing.PRODUCERS, READ)),
    "stranded list": (*_STRANDED,),
    "stranded export": (*_STRANDED,),
    "stranded replay": (
        _target(Thing.TOPICS, WRITE),
        _target(Thing.STATE, READ),
        _target(Thing.REPLAYS, CREATE, READ, WRITE, DESCRIBE_CONFIGS),
        _target(Thing.FENCE_OF_REPLAYS, WRITE),
    ),
    "operation list": (_target(Thing.OPERATIONS, READ),),
    "topic create": (_source(Thing.TOPICS, CREATE, DESCRIBE), _target(Thing.TOPICS, CREATE, DESCRIBE)),
    "topic list": (_source(Thing.TOPICS, DESCRIBE), _target(Thing.TOPICS, DESCRIBE)),
    "topic describe": (
        _source(Thing.TOPICS, DESCRIBE, DESCRIBE_CONFIGS),
        _target(Thing.TOPICS, DESCRIBE, DESCRIBE_CONFIGS),
    ),
    "group list": tuple(
        Need(at, thing, (DESCRIBE,)) for at in (At.SOURCE, At.TARGET) for thing in (Thing.GROUPS, Thing.TOPICS)
    ),
    "group describe": tuple(
        Need(at, thing, (DESCRIBE,)) for at in (At.SOURCE, At.TARGET) for thing in (Thing.GROUPS, Thing.TOPICS)
    ),
    "site role": tuple(Need(at, Thing.CLUSTER, (DESCRIBE_CONFIGS,)) for at in (At.SOURCE, At.TARGET)),
    "site freeze": (_source(Thing.CLUSTER, ALTER_CONFIGS),),
    "site thaw": (_source(Thing.CLUSTER, ALTER_CONFIGS),),
}


def together(*commands: str) -> tuple[Need, ...]:
    """What those need who do what all of these do."""
    operations: dict[tuple[At, Thing], dict[AclOperation, None]] = {}
    for at, thing, needed in (need for command in commands for need in _BY_COMMAND[command]):
        operations.setdefault((at, thing), {}).update(dict.fromkeys(needed))
    return tuple(Need(at, thing, tuple(needed)) for (at, thing), needed in operations.items())


RIGHTS: Final[Mapping[str, tuple[Need, ...]]] = {
    **_BY_COMMAND,
    "monitor run": together("status", "drill", "canary run"),
    "apply": together("switchover", "failover"),
}
"""By the words of the command, in the order in which one comes to need them. `monitor run` looks as `status` and
`drill` do, and flies canaries; `apply` carries out a planned switchover or failover.
"""


ACL_RIGHTS: Final[Mapping[str, tuple[Need, ...]]] = {
    "mirror run": (
        _source(Thing.CLUSTER, DESCRIBE),
        _source(Thing.ACLS_OF_BACKS, READ),
        _target(Thing.CLUSTER, ALTER),
        _target(Thing.ACLS, CREATE, READ, WRITE),
    ),
    "status": (_target(Thing.ACLS, READ),),
}
"""What comes to these where the link carries ACLs."""


def needs_of(link: Link, command: str) -> tuple[Need, ...]:
    """Of this command, with this link."""
    return (*RIGHTS[command], *(ACL_RIGHTS.get(command, ()) if link.sync_acls else ()))


def rights_of(link: Link, commands: Collection[str], principals: Mapping[str, str]) -> list[NeededRight]:
    """What these commands need, a line for each resource. `principals`: as whom farshore comes, by site."""
    found = []
    for command in commands:
        for need in needs_of(link, command):
            site = link.source if need.at is At.SOURCE else link.target
            for pattern in patterns_of(link, need.at, need.thing):
                found.append(
                    NeededRight(
                        command,
                        site.name,
                        pattern.resource.name.lower(),
                        pattern.name,
                        pattern.pattern.name.lower(),
                        tuple(_word(operation) for operation in need.operations),
                        kafka_acls(site, principals[site.name], pattern, need.operations),
                    )
                )
    return found


def kafka_acls(site: Site, principal: str, pattern: Pattern, operations: Collection[AclOperation]) -> str:
    """The line of Kafka's tool that gives these rights."""
    words = ["kafka-acls", "--bootstrap-server", site.bootstrap_servers, "--add", "--allow-principal", principal]
    for operation in operations:
        words += ["--operation", _word(operation)]
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
        case Thing.PRODUCERS:
            return exactly(topic, PRODUCERS_TOPIC)
        case Thing.OFFSETS:
            return exactly(topic, OFFSETS_TOPIC)
        case Thing.OPERATIONS:
            return exactly(topic, OPERATIONS_TOPIC)
        case Thing.FENCES:
            return exactly(transactional, *(unit.transactional_id for unit in link.each_unit()))
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
        case Thing.REPLAYS:
            return exactly(topic, REPLAYS.topic)
        case Thing.FENCE_OF_REPLAYS:
            return [Pattern(transactional, REPLAYS_PREFIX, _PREFIXED)]  # then the source's cluster id
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


def _word(operation: AclOperation) -> str:
    """As kafka-acls has it: DescribeConfigs."""
    return "".join(part.capitalize() for part in operation.name.split("_"))
