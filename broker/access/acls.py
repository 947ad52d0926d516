"""ACLs in Kafka's words, and what they let a principal do. Pure: values in, decisions out.

What decides is found by the resource, never by going over all ACLs: those of its name, of all names, and of each prefix
of its name; in each of these by principal and host. Operations are bits, of the numbers that Kafka gives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from broker.wire.vocabulary import (
    ANY_HOST,
    CLUSTER_NAME,
    EVERY_RESOURCE,
    EVERYBODY,
    RESOURCE_OPERATIONS,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)

_IMPLIED: Final = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
"""Who may do one may do the other, too. A denial of one is not a denial of the other."""

_PERMISSIONS: Final = (AclPermission.ALLOW, AclPermission.DENY)


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about."""

    resource_type: int
    name: str
    pattern_type: int = AclPattern.LITERAL

    @property
    def text(self) -> str:
        """By which changes are told of."""
        return f"{self.resource_type}:{self.pattern_type}:{self.name}"

    @classmethod
    def of_text(cls, text: str) -> ResourcePattern:
        resource_type, pattern_type, name = text.split(":", 2)
        return cls(int(resource_type), name, int(pattern_type))


class AclBinding(NamedTuple):
    """One ACL, in the order of Kafka's messages."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def pattern(self) -> ResourcePattern:
        return ResourcePattern(*self[:3])


class AclInvalid(ValueError):
    """What is no ACL, or none that is supported here."""


def check_binding(binding: AclBinding) -> None:
    """Raises AclInvalid."""
    if binding.resource_type not in RESOURCE_OPERATIONS:
        kinds = ", ".join(kind.name for kind in RESOURCE_OPERATIONS)
        raise AclInvalid(f"Resources of type {_named(AclResource, binding.resource_type)} have no ACLs here: {kinds}.")
    if binding.pattern_type not in (AclPattern.LITERAL, AclPattern.PREFIXED):
        raise AclInvalid(f"Invalid patternType {_named(AclPattern, binding.pattern_type)}")
    if not binding.resource_name:
        raise AclInvalid("Invalid empty resource name")
    if binding.resource_type == AclResource.CLUSTER and binding.resource_name != CLUSTER_NAME:
        raise AclInvalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if binding.operation not in set(AclOperation) - {AclOperation.ANY}:
        raise AclInvalid(f"Invalid operation {_named(AclOperation, binding.operation)}")
    if binding.permission_type not in _PERMISSIONS:
        raise AclInvalid(f"Invalid permissionType {_named(AclPermission, binding.permission_type)}")
    if ":" not in binding.principal:
        raise AclInvalid(f"{binding.principal!r} is no principal: write User:NAME")
    if not binding.host:
        raise AclInvalid(f"A host is missing: an address, or {ANY_HOST} for any")


def _named(kind: type[AclResource | AclPattern | AclOperation | AclPermission], code: int) -> str:
    return kind(code).name if code in set(kind) else str(code)


class AclFilter(NamedTuple):
    """Which ACLs are meant, in the order of Kafka's messages; None, and ANY, are all."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @property
    def pattern(self) -> ResourcePattern | None:
        """The one that it is about; None: there may be more."""
        if self.resource_type == AclResource.ANY or self.resource_name is None:
            return None
        if self.pattern_type in (AclPattern.ANY, AclPattern.MATCH):
            return None
        return ResourcePattern(self.resource_type, self.resource_name, self.pattern_type)

    def takes(self, binding: AclBinding) -> bool:
        return (
            self.takes_pattern(binding.pattern)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission_type in (AclPermission.ANY, binding.permission_type)
        )

    def takes_pattern(self, pattern: ResourcePattern) -> bool:
        name = self.resource_name
        if self.resource_type not in (AclResource.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (AclPattern.ANY, AclPattern.MATCH, pattern.pattern_type):
            return False
        if name is None or name == pattern.name:
            return True
        if self.pattern_type != AclPattern.MATCH:
            return False
        if pattern.pattern_type == AclPattern.PREFIXED:
            return name.startswith(pattern.name)
        return pattern.name == EVERY_RESOURCE


def check_filter(wanted: AclFilter) -> None:
    """Raises AclInvalid for what no ACL could be."""
    for name, kind, code in (
        ("resourceType", AclResource, wanted.resource_type),
        ("patternType", AclPattern, wanted.pattern_type),
        ("operation", AclOperation, wanted.operation),
        ("permissionType", AclPermission, wanted.permission_type),
    ):
        if code not in set(kind):
            raise AclInvalid(f"Invalid {name} {code}")


class _Bits(NamedTuple):
    allowed: int = 0
    denied: int = 0


_Of = Mapping[tuple[str, str], _Bits]
"""What the ACLs of one pattern say, by principal and host."""
NONE: Final = _Bits()
ALL_OPERATIONS: Final = sum(1 << operation for operation in AclOperation)


class Acls:
    """All there are at one moment; a change makes another one. Finding one takes no longer when there are many."""

    def __init__(self, by_pattern: Mapping[ResourcePattern, frozenset[AclBinding]] | None = None) -> None:
        self._by_pattern = {pattern: acls for pattern, acls in (by_pattern or {}).items() if acls}
        self._said: dict[tuple[int, str, int], _Of] = {
            pattern: _said(acls) for pattern, acls in self._by_pattern.items()
        }

    def replaced(self, changed: Mapping[ResourcePattern, frozenset[AclBinding]]) -> Acls:
        """With these in place of all that the same patterns had."""
        other = Acls()
        other._by_pattern, other._said = dict(self._by_pattern), dict(self._said)
        for pattern, acls in changed.items():
            other._by_pattern.pop(pattern, None)
            other._said.pop(pattern, None)
            if acls:
                other._by_pattern[pattern], other._said[pattern] = acls, _said(acls)
        return other

    @classmethod
    def of(cls, bindings: Iterable[AclBinding]) -> Acls:
        found: dict[ResourcePattern, set[AclBinding]] = {}
        for binding in bindings:
            found.setdefault(binding.pattern, set()).add(binding)
        return cls({pattern: frozenset(acls) for pattern, acls in found.items()})

    def __iter__(self) -> Iterator[AclBinding]:
        for acls in self._by_pattern.values():
            yield from acls

    def __len__(self) -> int:
        return sum(map(len, self._by_pattern.values()))

    def at(self, pattern: ResourcePattern) -> frozenset[AclBinding]:
        return self._by_pattern.get(pattern, frozenset())

    def taken_by(self, wanted: AclFilter) -> dict[ResourcePattern, list[AclBinding]]:
        found: dict[ResourcePattern, list[AclBinding]] = {}
        just = wanted.pattern
        patterns = sorted(filter(wanted.takes_pattern, self._by_pattern)) if just is None else [just]
        for pattern in patterns:
            if taken := sorted(filter(wanted.takes, self.at(pattern))):
                found[pattern] = taken
        return found

    @cached_property
    def _prefix_lengths(self) -> dict[int, list[int]]:
        """Of the prefixed patterns of each resource type."""
        found: dict[int, set[int]] = {}
        for pattern in self._by_pattern:
            if pattern.pattern_type == AclPattern.PREFIXED:
                found.setdefault(pattern.resource_type, set()).add(len(pattern.name))
        return {kind: sorted(lengths) for kind, lengths in found.items()}

    def granted(self, principal: str, host: str, kind: int, name: str) -> int | None:
        """The operations that are allowed on the resource, as bits; None: there is no ACL about it, of anybody.

        `host` as `host_of` gives it.
        """
        said = self._said
        allowed, denied, is_any = 0, 0, False
        patterns = [(kind, name, int(AclPattern.LITERAL)), (kind, EVERY_RESOURCE, int(AclPattern.LITERAL))]
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            patterns.append((kind, name[:length], int(AclPattern.PREFIXED)))
        for pattern in patterns:
            of = said.get(pattern)
            if of is not None:
                is_any = True
                for who in ((principal, host), (principal, ANY_HOST), (EVERYBODY, host), (EVERYBODY, ANY_HOST)):
                    bits = of.get(who, NONE)
                    allowed |= bits.allowed
                    denied |= bits.denied
        return allowed & ~denied if is_any else None

    @cached_property
    def _of_principals(self) -> dict[tuple[int, str, str], list[tuple[int, str, _Bits]]]:
        """By resource type, principal and host: the patterns, and what is said of each."""
        found: dict[tuple[int, str, str], list[tuple[int, str, _Bits]]] = {}
        for (kind, name, pattern_type), of in self._said.items():
            for who, bits in of.items():
                found.setdefault((kind, *who), []).append((pattern_type, name, bits))
        return found

    def grants_somewhere(self, principal: str, host: str, operation: AclOperation, kind: AclResource) -> bool:
        """Whether there may be a resource of that kind on which the operation is allowed: an ACL allows it, and no
        wider one denies it.
        """
        bit = 1 << operation
        allowed: list[tuple[int, str]] = []
        denied: set[tuple[int, str]] = set()
        for who in (principal, EVERYBODY):
            for where in (host, ANY_HOST):
                for pattern_type, name, bits in self._of_principals.get((kind, who, where), ()):
                    if bits.denied & bit:
                        denied.add((pattern_type, name))
                    if bits.allowed & bit:
                        allowed.append((pattern_type, name))
        if (AclPattern.LITERAL, EVERY_RESOURCE) in denied:
            return False
        return any(not _is_covered(pattern_type, name, denied) for pattern_type, name in allowed)


def _is_covered(pattern_type: int, name: str, denied: set[tuple[int, str]]) -> bool:
    if pattern_type == AclPattern.LITERAL:
        if name == EVERY_RESOURCE:
            return False
        if (pattern_type, name) in denied:
            return True
    return any((AclPattern.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def _said(acls: Iterable[AclBinding]) -> _Of:
    said: dict[tuple[str, str], _Bits] = {}
    for acl in acls:
        who = acl.principal, host_of(acl.host)
        bits, own = said.get(who, NONE), ALL_OPERATIONS if acl.operation == AclOperation.ALL else 1 << acl.operation
        if acl.permission_type == AclPermission.DENY:
            said[who] = bits._replace(denied=bits.denied | own)
        else:
            implied = _IMPLIED.get(AclOperation(acl.operation))
            own |= 0 if implied is None else 1 << implied
            said[who] = bits._replace(allowed=bits.allowed | own)
    return said


def host_of(text: str) -> str:
    """One way to write an address: ACLs may have Java's (0:0:0:0:0:0:0:1), sockets IPv4 in IPv6. Names stay."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)
