"""The rights that each command needs on each site of a link: one table, and the ACLs that it amounts to. Pure.

Reading, writing, deleting and altering let one describe, too, and altering configs describe them: what is so implied
does not stand here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from broker.client.site import Site
from broker.wire.vocabulary import AclOperation
from deploy.rights_names import At, Need, Pattern, Thing, kafka_acls, patterns_of, without_implied
from mirror.link import Link

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
DESCRIBE, ALTER = AclOperation.DESCRIBE, AclOperation.ALTER
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


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
    _target(Thing.ENDS, READ, WRITE),  # without it nobody knows later what came to the source behind the fence
    _target(Thing.OPERATIONS, CREATE, READ, WRITE),
    _target(Thing.FENCES, WRITE),
    _target(Thing.FENCE_OF_GROUPS, WRITE),
    _target(Thing.FENCE_OF_MOVES, WRITE),
    _target(Thing.CLUSTER, DESCRIBE_CONFIGS),
)

_LEFT_BEFORE: Final = (
    _source(Thing.PRODUCERS_BACK, DESCRIBE_CONFIGS),  # what the target lacks of its own, where a link back has run
    _target(Thing.PRODUCERS_BACK, DESCRIBE_CONFIGS),
    _target(Thing.REPLAYS, READ),  # what was replayed of what was left at the source
)
"""What a link that was moved before says besides."""

_AUDIT: Final = (
    _source(Thing.TOPICS, READ, DESCRIBE_CONFIGS),
    _source(Thing.GROUPS, DESCRIBE),
    _source(Thing.PRODUCERS, READ, DESCRIBE_CONFIGS),
    _source(Thing.STATES_BACK, READ),
    _target(Thing.TOPICS, READ, DESCRIBE_CONFIGS),
    _target(Thing.CANARY, READ),
    _target(Thing.GROUPS, DESCRIBE),
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

_LINK_STATE: Final = (
    _target(Thing.STATE, READ, WRITE),
    _target(Thing.PRODUCERS, DESCRIBE),
    _target(Thing.FENCES, WRITE),
)
"""What fences a link by its state needs."""

_STRANDED: Final = (
    _source(Thing.TOPICS, READ),
    _source(Thing.PRODUCERS, READ, DESCRIBE_CONFIGS),
    _source(Thing.STATES_BACK, READ),
    _target(Thing.TOPICS, READ),
    _target(Thing.CANARY, READ),
    _target(Thing.STATE, READ),
    _target(Thing.PRODUCERS, READ),
)
"""What the source alone has."""

_LACKED: Final = (*_STRANDED, _target(Thing.PRODUCERS_BACK, DESCRIBE_CONFIGS))
"""And what the target lacks of its own, where a link back has run."""

_JOURNAL: Final = _target(Thing.OPERATIONS, READ)
_AMID_NO_FAILBACK: Final = (_source(Thing.OPERATIONS, READ), _JOURNAL)

_BROKERS: Final = (_source(Thing.TOPICS, DESCRIBE), _target(Thing.TOPICS, DESCRIBE))
"""How the partitions of a site stand: of topics that may not be described nothing is said."""

_ACLS_SEEN: Final = (
    _source(Thing.TOPICS, DESCRIBE),
    _source(Thing.CLUSTER, DESCRIBE),
    _source(Thing.ACLS_OF_BACKS, READ),
    _target(Thing.TOPICS, DESCRIBE),
    _target(Thing.STATE, READ),
    _target(Thing.CLUSTER, DESCRIBE),
    _target(Thing.ACLS, READ),
)

_BY_COMMAND: Final[Mapping[str, tuple[Need, ...]]] = {
    "mirror run": (
        _source(Thing.TOPICS, READ, DESCRIBE_CONFIGS),
        _source(Thing.CANARY, READ, DESCRIBE_CONFIGS),
        _source(Thing.GROUPS, DESCRIBE),
        _source(Thing.PRODUCERS, READ, DESCRIBE_CONFIGS),
        _source(Thing.STATES_BACK, READ),
        _target(Thing.TOPICS, CREATE, READ, WRITE, ALTER, ALTER_CONFIGS),
        _target(Thing.CANARY, CREATE, READ, WRITE, DESCRIBE_CONFIGS),
        _target(Thing.GROUPS, READ),
        _target(Thing.STATE, CREATE, READ, WRITE, DESCRIBE_CONFIGS),
        _target(Thing.ENDS, CREATE, WRITE),
        _target(Thing.ENDS_TO_COME_BACK, READ),  # what it kept before of what other links may have brought back
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
        _source(Thing.OFFSETS, DESCRIBE),
        _source(Thing.PRODUCERS, READ),
        _source(Thing.STATES_BACK, READ),
        _source(Thing.ENDS_BACK, READ),  # what the target alone has since it was lost
        _source(Thing.OPERATIONS, READ),
        _source(Thing.CLUSTER, ALTER_CONFIGS),
        *_MOVE_AT_TARGET,
        *_LEFT_BEFORE,
    ),
    "failover": _MOVE_AT_TARGET,
    "drill": (
        _source(Thing.TOPICS, READ),
        _source(Thing.GROUPS, DESCRIBE),
        _source(Thing.OFFSETS, DESCRIBE),
        _source(Thing.PRODUCERS, READ),
        _source(Thing.STATES_BACK, READ),
        _source(Thing.CLUSTER, DESCRIBE_CONFIGS),
        _target(Thing.TOPICS, READ),
        _target(Thing.GROUPS, DESCRIBE),
        _target(Thing.STATE, READ),
        _target(Thing.ENDS, READ),
        _target(Thing.PRODUCERS, READ),
        _JOURNAL,
        _target(Thing.CLUSTER, DESCRIBE_CONFIGS),
        *_LEFT_BEFORE,
    ),
    "canary run": (
        _source(Thing.CANARY, CREATE, WRITE),
        _target(Thing.CANARY, READ),
        _target(Thing.STATE, READ),
    ),
    "audit run": _AUDIT,
    "audit freeze": _AUDIT,
    "audit repair": (*_AUDIT, _target(Thing.TOPICS, DELETE), _target(Thing.STATE, WRITE)),
    "audit digest": (_source(Thing.TOPICS, READ), _target(Thing.TOPICS, READ)),
    "audit compare": (_source(Thing.TOPICS, READ), _target(Thing.TOPICS, READ)),
    "link pause": (*_LINK_STATE,),
    "link resume": (
        _source(Thing.TOPICS, READ),  # whether it still has what was mirrored, and what it alone has
        _source(Thing.PRODUCERS, READ),
        _source(Thing.PRODUCERS_BACK, DESCRIBE_CONFIGS),
        _source(Thing.OPERATIONS, READ),
        _source(Thing.STATES_BACK, READ),
        _source(Thing.ENDS_BACK, READ),  # what the target alone has since it was lost
        _source(Thing.REPLAYS, READ),  # what it brings to the target a second time
        _target(Thing.TOPICS, READ),
        _target(Thing.CANARY, READ),
        *_LINK_STATE,
        _target(Thing.PRODUCERS, READ),
        _target(Thing.PRODUCERS_BACK, DESCRIBE_CONFIGS),
        _JOURNAL,
    ),
    "link restart": (*_LINK_STATE,),
    "link retry": (*_LINK_STATE, _JOURNAL),
    "link cut": (
        _target(Thing.TOPICS, WRITE),
        _target(Thing.CANARY, WRITE),
        _target(Thing.STATE, READ, WRITE, ALTER),
        _target(Thing.PRODUCERS, DESCRIBE),
        _target(Thing.FENCES, WRITE),
        _target(Thing.FENCES_ONCE_CUT, WRITE),
    ),
    "topic pause": (_target(Thing.STATE, READ, WRITE), _target(Thing.PRODUCERS, DESCRIBE)),
    "topic resume": (_target(Thing.STATE, READ, WRITE), _target(Thing.PRODUCERS, DESCRIBE)),
    "stranded list": _LACKED,
    "stranded export": _STRANDED,
    "stranded replay": (
        _target(Thing.TOPICS, WRITE),
        _target(Thing.STATE, READ),
        _target(Thing.REPLAYS, CREATE, READ, WRITE, DESCRIBE_CONFIGS),
        _target(Thing.FENCE_OF_REPLAYS, WRITE),
        _JOURNAL,
    ),
    "stranded leave": (*_LACKED, _target(Thing.STATE, WRITE), _target(Thing.FENCES, WRITE), _JOURNAL),
    "operation list": (_JOURNAL,),
    "operation show": (_JOURNAL,),
    "operation wait": (_JOURNAL,),
    "operation abort": (
        _source(Thing.TOPICS, DESCRIBE),
        _source(Thing.CLUSTER, ALTER_CONFIGS),
        *_LINK_STATE,
        _target(Thing.OPERATIONS, READ, WRITE),
        _target(Thing.FENCE_OF_MOVES, WRITE),
        _target(Thing.CLUSTER, ALTER_CONFIGS),
    ),
    "topic create": (_source(Thing.TOPICS, CREATE, DESCRIBE), _target(Thing.TOPICS, CREATE, DESCRIBE)),
    "topic delete": (_source(Thing.TOPICS, DELETE), _target(Thing.TOPICS, DELETE)),
    "topic list": (_source(Thing.TOPICS, DESCRIBE), _target(Thing.TOPICS, DESCRIBE)),
    "topic describe": (
        _source(Thing.TOPICS, DESCRIBE, DESCRIBE_CONFIGS),
        _target(Thing.TOPICS, DESCRIBE, DESCRIBE_CONFIGS),
    ),
    "group list": tuple(
        Need(at, thing, (DESCRIBE,)) for at in (At.SOURCE, At.TARGET) for thing in (Thing.GROUPS, Thing.TOPICS)
    ),
    "group describe": (
        *(Need(at, thing, (DESCRIBE,)) for at in (At.SOURCE, At.TARGET) for thing in (Thing.GROUPS, Thing.TOPICS)),
        _target(Thing.STATE, READ),
    ),
    "site role": tuple(Need(at, Thing.CLUSTER, (DESCRIBE_CONFIGS,)) for at in (At.SOURCE, At.TARGET)),
    "cluster describe": _BROKERS,
    "cluster brokers": _BROKERS,
    "cluster controller": _BROKERS,
    "cluster verify": tuple(
        need
        for at in (At.SOURCE, At.TARGET)
        for need in (Need(at, Thing.TOPICS, (DESCRIBE, DESCRIBE_CONFIGS)), Need(at, Thing.CLUSTER, (DESCRIBE,)))
    ),
    "acls plan": _ACLS_SEEN,
    "acls apply": (*_ACLS_SEEN, _target(Thing.CLUSTER, ALTER), _target(Thing.ACLS, CREATE, READ, WRITE)),
    "acls users": (_source(Thing.CLUSTER, DESCRIBE), _target(Thing.CLUSTER, DESCRIBE)),
    "chaos clean": (
        _source(Thing.RUNS, DELETE),
        _target(Thing.RUNS, DELETE),
        _target(Thing.STATES_OF_RUNS, DELETE),
    ),
    "site standby": tuple(Need(at, Thing.CLUSTER, (ALTER_CONFIGS,)) for at in (At.SOURCE, At.TARGET)),
    "site freeze": (_source(Thing.CLUSTER, ALTER_CONFIGS),),
    "site thaw": (
        _source(Thing.CLUSTER, ALTER_CONFIGS),
        _target(Thing.STATE, READ),
        _target(Thing.CLUSTER, DESCRIBE_CONFIGS),  # whether it takes writes, before a standby site does
    ),
}


def together(*commands: str) -> tuple[Need, ...]:
    """What those need who do what all of these do."""
    return _united(need for command in commands for need in _BY_COMMAND[command])


def _united(needs: Iterable[Need]) -> tuple[Need, ...]:
    operations: dict[tuple[At, Thing], dict[AclOperation, None]] = {}
    for at, thing, needed in needs:
        operations.setdefault((at, thing), {}).update(dict.fromkeys(needed))
    return tuple(Need(at, thing, tuple(needed)) for (at, thing), needed in operations.items())


_OF_RUN: Final = {
    Thing.TOPICS: Thing.RUNS,
    Thing.STATE: Thing.STATES_OF_RUNS,
    Thing.ENDS: Thing.STATES_OF_RUNS,
    Thing.FENCES: Thing.FENCES_OF_RUNS,
    Thing.PRODUCERS: Thing.PRODUCERS,
    Thing.OFFSETS: Thing.OFFSETS,
}
"""What the mirror of a chaos run has in place of a link's: it carries no groups, and has no canary."""


def _chaos_run() -> tuple[Need, ...]:
    mirror = [each._replace(thing=_OF_RUN[each.thing]) for each in _BY_COMMAND["mirror run"] if each.thing in _OF_RUN]
    own = (_source(Thing.RUNS, CREATE, WRITE), _target(Thing.RUNS, READ))
    return _united((*own, *mirror, *_BY_COMMAND["chaos clean"]))


_BACK: Final = (
    *_LACKED,
    _target(Thing.REPLAYS, READ),  # what is twice at the source then
    _source(Thing.GROUPS, READ),
    _source(Thing.STATES_BACK, READ),
    _source(Thing.OPERATIONS, READ),
    *_LINK_STATE,
    _target(Thing.GROUPS, DESCRIBE),
    _target(Thing.OPERATIONS, CREATE, READ, WRITE),
    _target(Thing.FENCE_OF_MOVES, WRITE),
)

RIGHTS: Final[Mapping[str, tuple[Need, ...]]] = {
    **_BY_COMMAND,
    "monitor run": together("status", "drill", "canary run"),
    "apply": together("switchover", "failover"),
    "failback": _united(_BACK),
    "operation resume": _united((*together("switchover", "failover"), *_BACK)),
    "audit watch": _BY_COMMAND["audit run"],
    "chaos run latency": _chaos_run(),
}
"""By the words of the command, in the order in which one comes to need them. `monitor run` looks as `status` and
`drill` do, and flies canaries; `apply` carries out a planned switchover or failover.
"""

ALONG_BACKS: Final[Mapping[str, str]] = {
    "failback": "switchover",
    "operation list": "operation list",
    "operation show": "operation list",
    "operation wait": "operation list",
    "operation resume": "switchover",
    "operation abort": "operation list",
}
"""What these do along the links back, too."""


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
        needed: dict[tuple[str, Pattern], dict[AclOperation, None]] = {}
        sites = {site.name: site for site in (link.source, link.target)}
        for site, pattern, operations in _patterns(link, command):
            needed.setdefault((site.name, pattern), {}).update(dict.fromkeys(operations))
        for (name, pattern), all_needed in needed.items():
            together_needed = without_implied(all_needed)
            found.append(
                NeededRight(
                    command,
                    name,
                    pattern.resource.name.lower(),
                    pattern.name,
                    pattern.pattern.name.lower(),
                    tuple(operation.word for operation in together_needed),
                    kafka_acls(sites[name], principals[name], pattern, together_needed),
                )
            )
    return found


def _patterns(link: Link, command: str) -> Iterator[tuple[Site, Pattern, tuple[AclOperation, ...]]]:
    """By site what the command needs there, a resource more than once where it does so as more than one thing."""
    along = [(link, command)]
    if command in ALONG_BACKS:
        along += [(back, ALONG_BACKS[command]) for back in link.reverse_links]
    for one, what in along:
        for need in needs_of(one, what):
            for pattern in patterns_of(one, need.at, need.thing):
                yield (one.source if need.at is At.SOURCE else one.target), pattern, need.operations
