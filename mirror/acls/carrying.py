"""What each ACL of a link's source comes to at its target. Pure.

A link speaks of its own topics and groups alone. What an ACL of the source says of others, by `*` or by a prefix, is
written out for those of the link: only a prefix all of whose names are mirrored stays one. While the target stands by,
nobody but the mirror is to write there: an ACL that allows more than to read waits for the promotion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker.client.acl_bindings import Acl
from broker.client.acls import FREEZE_MARK, THAW_MARK
from broker.wire.vocabulary import (
    ANY_HOST,
    EVERY_RESOURCE,
    EVERYBODY,
    INTERNAL_PREFIX,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from mirror.link import CHAOS_PREFIX, Link
from mirror.names import all_of, containing, is_exact, may_have_any, none_of, starting_with

KINDS: Final = (AclResource.TOPIC, AclResource.GROUP)
READING: Final = {
    AclResource.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
    AclResource.GROUP: (AclOperation.READ, AclOperation.DESCRIBE),
}
"""What does not change the thing, by its kind: given while the target stands by. A group's offsets are its reader's."""
_BESIDES: Final[Mapping[int, AclOperation]] = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
"""Who is allowed one may do the other, too."""


@dataclass(frozen=True, slots=True)
class AclScope:
    """Of what a link gives rights. `topics`: the target's names of those that are mirrored, by the source's, without
    farshore's own; `at_target`: all topics there; `groups`: those of the source that the link carries. `own`: as whom
    farshore comes to the target; None: only that cluster knows.
    """

    link: Link
    topics: Mapping[str, str]
    at_target: Collection[str]
    groups: Collection[str]
    own: str | None = None

    def locks_out(self, acl: Acl) -> bool:
        """Whether it may deny the mirror what it needs: whether that is a super user is not known here."""
        concerns = acl.principal in (EVERYBODY, self.own)
        return acl.is_denial and concerns and acl.operation != AclOperation.DELETE

    def is_known_at_source(self, acl: Acl) -> bool:
        """Whether the source has what an ACL of the target is about, so that it speaks of it by its own ACLs: one that
        lost its topics has taken nobody's right away.
        """
        if acl.resource_type != AclResource.TOPIC:
            return bool(self.topics)
        return any(_holds_for(acl, name) for name in self.topics.values())

    def speaks_of(self, acl: Acl) -> bool:
        """Whether an ACL of the target is about a topic or group of the link by its name."""
        if acl.pattern_type != AclPattern.LITERAL:
            return False
        names = self.topics.values() if acl.resource_type == AclResource.TOPIC else self.groups
        return acl.resource_type in KINDS and acl.resource_name in names


@dataclass(frozen=True, slots=True)
class CarriedAcls:
    """As the target is to have them: `standing` always, `held` only when it took over. `written_out`: those of the
    source, under the principals' names at the target, of whose pattern only the link's own topics and groups are left.
    `from_target`: denials that a link back brought from there; they are none of `standing`.
    """

    standing: frozenset[Acl]
    held: frozenset[Acl]
    written_out: tuple[Acl, ...]
    from_target: frozenset[Acl] = frozenset()


def carry(scope: AclScope, source: Iterable[Acl], brought: frozenset[Acl] = frozenset()) -> CarriedAcls:
    """What all ACLs of the source come to, but for those that links back `brought`: these would outlive their own."""
    own = _carry(scope, [acl for acl in source if acl not in brought])
    echoes = _carry(scope, [acl for acl in brought if acl.is_denial]) if brought else own
    return replace(own, from_target=echoes.standing - own.standing)


def _carry(scope: AclScope, source: Iterable[Acl]) -> CarriedAcls:
    names = dict(scope.link.acl_principals)
    found = [
        acl._replace(principal=names.get(acl.principal, acl.principal))
        for acl in sorted(without_freezes(source))
        if acl.resource_type in KINDS
    ]
    denials = {acl: _place(scope, acl) for acl in found if acl.is_denial}
    # A name that is new is denied by the next pass alone where its denial is written out, or is of a topic that is
    # still to come: no wider allowance stands.
    literal = [acl for acl, placed in denials.items() if not placed or _is_written_out(acl, placed)]
    allowed = {
        acl: _place(scope, acl, literally=any(_touch(denial, acl) for denial in literal))
        for acl in found
        if not acl.is_denial
    }
    standing = {one for placed in denials.values() for one in placed}
    held = set()
    for one in (one for placed in allowed.values() for one in placed):
        reading = READING[AclResource(one.resource_type)]
        if one.operation in reading:
            standing.add(one)
            continue
        held.add(one)
        if one.operation == AclOperation.ALL:
            standing |= {one._replace(operation=operation) for operation in reading}
    written_out = [acl for acl, placed in (denials | allowed).items() if placed and _is_written_out(acl, placed)]
    return CarriedAcls(frozenset(standing), frozenset(held), tuple(sorted(written_out)))


def without_freezes(acls: Iterable[Acl]) -> frozenset[Acl]:
    """Those that no freeze of farshore's made: these close one site, and would close the other one with it."""
    found = frozenset(acls)
    marks = [acl for acl in found if acl.principal.startswith((FREEZE_MARK, THAW_MARK))]
    made = {
        Acl(
            AclResource.TOPIC,
            mark.resource_name,
            AclPattern.LITERAL,
            mark.principal.partition("/")[2].partition("/")[2],
            ANY_HOST,
            AclOperation.WRITE,
            AclPermission.DENY,
        )
        for mark in marks
    }
    return found.difference(marks, made)


def is_about(acl: Acl, topic: str) -> bool:
    return acl.resource_type == AclResource.TOPIC and _holds_for(acl, topic)


def may_be_carried(link: Link, acl: Acl) -> bool:
    """Whether an ACL at the target is about a topic or group that the link carries, or would if it were there: by its
    name, or by a prefix all of whose names are the link's.
    """
    name, is_literal = acl.resource_name, acl.pattern_type == AclPattern.LITERAL
    if acl.resource_type == AclResource.GROUP:
        return is_literal and name != EVERY_RESOURCE and link.selects_group(name)
    if acl.resource_type != AclResource.TOPIC:
        return False
    if is_literal:
        source = None if name == EVERY_RESOURCE else link.source_topic(name)
        return source is not None and not source.startswith(INTERNAL_PREFIX)
    before = link.target_topic("")
    is_prefix = acl.pattern_type == AclPattern.PREFIXED and name.startswith(before)
    return is_prefix and _selects_all(link, name.removeprefix(before))


def denied_by(acl: Acl, denials: Sequence[Acl]) -> Acl | None:
    """The first of these denials that takes away some of what the ACL allows; hosts are not looked at."""
    gives = {acl.operation, _BESIDES.get(acl.operation)}
    for denial in denials:
        of_all = AclOperation.ALL in (acl.operation, denial.operation)
        if (of_all or denial.operation in gives) and _touch(denial, acl):
            return denial
    return None


def _place(scope: AclScope, acl: Acl, *, literally: bool = False) -> tuple[Acl, ...]:
    """At the target; `literally`: for each name by itself."""
    is_topic = acl.resource_type == AclResource.TOPIC
    names = dict(scope.topics) if is_topic else {group: group for group in scope.groups}
    name = acl.resource_name
    if acl.pattern_type == AclPattern.PREFIXED:
        if is_topic and not literally and _is_all_mirrored(scope, name):
            return (acl._replace(resource_name=scope.link.target_topic(name)),)
        meant = [one for one in names if one.startswith(name)]
    elif acl.pattern_type != AclPattern.LITERAL:
        meant = []
    else:
        meant = list(names) if name == EVERY_RESOURCE else [name] if name in names else []
    literal = acl._replace(pattern_type=AclPattern.LITERAL)
    return tuple(literal._replace(resource_name=names[one]) for one in sorted(meant))


def _is_all_mirrored(scope: AclScope, prefix: str) -> bool:
    """Whether the link selects every name that begins so, and the target has nothing else that is called so there."""
    if not _selects_all(scope.link, prefix):
        return False
    there, mirrored = scope.link.target_topic(prefix), set(scope.topics.values())
    return all(name in mirrored for name in scope.at_target if name.startswith(there))


def _selects_all(link: Link, prefix: str) -> bool:
    if not all(map(is_exact, link.topics)):
        return False
    others = all_of([starting_with(prefix), none_of(link.selected_names()), none_of(containing(CHAOS_PREFIX))])
    return not may_have_any(others)


def _is_written_out(acl: Acl, placed: Sequence[Acl]) -> bool:
    is_pattern = acl.pattern_type != AclPattern.LITERAL or acl.resource_name == EVERY_RESOURCE
    return is_pattern and all(one.pattern_type == AclPattern.LITERAL for one in placed)


def _touch(denial: Acl, acl: Acl) -> bool:
    """Whether both may be about the same thing and the same one."""
    principals = denial.principal, acl.principal
    is_same_one = EVERYBODY in principals or principals[0] == principals[1]
    return is_same_one and denial.resource_type == acl.resource_type and _meet(denial, acl)


def _meet(first: Acl, second: Acl) -> bool:
    """Whether there may be a name that both are about."""
    return _holds_for(first, second.resource_name) or _holds_for(second, first.resource_name)


def _holds_for(acl: Acl, name: str) -> bool:
    if acl.pattern_type == AclPattern.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (EVERY_RESOURCE, name)
