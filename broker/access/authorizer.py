"""Who may do what: the rights of one who came by a listener, asked by every handler.

Where there is no authorizer, and for super users, nothing is looked up, and nothing is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

from broker.access.acls import ALL_OPERATIONS, Acls, host_of
from broker.base.clock import Clock
from broker.errors import BrokerError
from broker.limits import DENIALS_REMEMBERED_MAX, DENIALS_TOLD_MS
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import CLUSTER_NAME, RESOURCE_OPERATIONS, AclOperation, AclResource

log = logging.getLogger(__name__)

_CODES: Final = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class NotAuthorized(BrokerError):
    hint = "have an ACL made for this principal: kafka-acls --add"


class Rights(Protocol):
    """What one who asks may do."""

    @property
    def is_limited(self) -> bool:
        """False: all, and nobody need ask."""

    def may(
        self, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME, *, quietly: bool = False
    ) -> bool:
        """`quietly`: that he may not is nothing to tell of, as he did not ask for just that."""

    def may_somewhere(self, operation: AclOperation, kind: AclResource) -> bool:
        """On at least one resource that there may be."""

    def operations(self, kind: AclResource, name: str = CLUSTER_NAME) -> int:
        """All that he may do to it, as the bits of Kafka's authorized operations."""

    def require(self, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME) -> None:
        """Raises NotAuthorized, with the code that Kafka has for resources of this kind."""


@cache
def _supported(kind: AclResource) -> int:
    return sum(1 << operation for operation in RESOURCE_OPERATIONS[kind])


class _Everything:
    is_limited = False

    def may(
        self, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME, *, quietly: bool = False
    ) -> bool:
        return True

    def may_somewhere(self, operation: AclOperation, kind: AclResource) -> bool:
        return True

    def operations(self, kind: AclResource, name: str = CLUSTER_NAME) -> int:
        return _supported(kind)

    def require(self, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME) -> None:
        return


EVERYTHING: Final[Rights] = _Everything()


class Authorizer:
    """Kafka's StandardAuthorizer in our broker. `acls` are those that it goes by."""

    def __init__(self, super_users: Collection[str], *, allows_without_acls: bool, clock: Clock) -> None:
        """`allows_without_acls`: Kafka's allow.everyone.if.no.acl.found."""
        self.acls = Acls()
        self.denials = Denials(clock)
        self.super_users = frozenset(super_users)
        self._without_acls = ALL_OPERATIONS if allows_without_acls else 0

    def rights(self, principal: str, host: str) -> Rights:
        return EVERYTHING if principal in self.super_users else _Limited(self, principal, host_of(host))

    def granted(self, principal: str, host: str, kind: AclResource, name: str) -> int:
        found = self.acls.granted(principal, host, kind, name)
        return self._without_acls if found is None else found


@dataclass(frozen=True, slots=True)
class _Limited:
    authorizer: Authorizer
    principal: str
    host: str
    is_limited: bool = True

    def may(
        self, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME, *, quietly: bool = False
    ) -> bool:
        if self.authorizer.granted(self.principal, self.host, kind, name) >> operation & 1:
            return True
        if not quietly:
            self.authorizer.denials.note(self.principal, self.host, operation, kind, name)
        return False

    def may_somewhere(self, operation: AclOperation, kind: AclResource) -> bool:
        # A name that nothing was said of: by it Kafka finds out whether all is allowed without ACLs.
        if self.may(operation, kind, "hardcode", quietly=True):
            return True
        if self.authorizer.acls.grants_somewhere(self.principal, self.host, operation, kind):
            return True
        self.authorizer.denials.note(self.principal, self.host, operation, kind)
        return False

    def operations(self, kind: AclResource, name: str = CLUSTER_NAME) -> int:
        return self.authorizer.granted(self.principal, self.host, kind, name) & _supported(kind)

    def require(self, operation: AclOperation, kind: AclResource, name: str = CLUSTER_NAME) -> None:
        if not self.may(operation, kind, name):
            raise NotAuthorized(_CODES[kind].description, error_code=_CODES[kind])


class _Told:
    """Of one principal: when, and how many since."""

    __slots__ = ("at_ms", "since")

    def __init__(self, at_ms: float) -> None:
        self.at_ms, self.since = at_ms, 0


class Denials:
    """How many there were, and a line in the log for each principal, once a minute at most."""

    def __init__(self, clock: Clock) -> None:
        self.counts: dict[tuple[str, str], int] = {}
        """By operation and kind of resource, in Kafka's words: not by principals, of whom there may be any number."""
        self._clock = clock
        self._told: dict[str, _Told] = {}

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def note(
        self, principal: str, host: str, operation: AclOperation, kind: AclResource, name: str | None = None
    ) -> None:
        """`name` None: any of that kind."""
        key = (operation.name, kind.name)
        self.counts[key] = self.counts.get(key, 0) + 1
        now_ms = self._clock.monotonic() * 1000
        told = self._told.get(principal)
        if told is not None and now_ms - told.at_ms < DENIALS_TOLD_MS:
            told.since += 1
            return
        what = f"any {kind.name}" if name is None else f"{kind.name} {name!r}"
        more = f", and {told.since} times more since it was last said" if told is not None and told.since else ""
        log.warning("%s at %s may not %s %s%s", principal, host, operation.name, what, more)
        self._told.pop(principal, None)
        self._told[principal] = _Told(now_ms)
        if len(self._told) > DENIALS_REMEMBERED_MAX:
            # In the order in which they were told: the first is the oldest.
            del self._told[next(iter(self._told))]
