"""The values that go into and come out of the group state machine. No asyncio, no clock, no disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_GENERATION

NO_LEADER = ""
NO_MEMBER_ID = ""


class GroupProtocol(NamedTuple):
    """One assignment strategy that a member supports, with the metadata it shows to the leader."""

    name: str
    metadata: bytes


@dataclass(slots=True)
class Member:
    """One member. `session_deadline_ms` is on the monotonic scale of the times passed to the group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]
    session_deadline_ms: int
    assignment: bytes = b""
    is_new: bool = False
    awaits_join: bool = False
    awaits_sync: bool = False
    synced: bool = True

    def metadata(self, protocol_name: str | None) -> bytes:
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")


@dataclass(frozen=True, slots=True)
class JoinAsk:
    """A JoinGroup request. `new_member_id` is the id to give if the member has none yet (randomness is passed in)."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    new_member_id: str
    requires_known_member_id: bool = False
    supports_skipping_assignment: bool = False


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to JoinGroup; `members` is filled for the leader only."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAsk:
    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SyncResult:
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Leaver(NamedTuple):
    member_id: str
    instance_id: str | None


@dataclass(slots=True)
class Effects:
    """What the shell must do after a step: first write the group if `store`, then give the answers, by member id.

    An answer may belong to any member that waits, the one whose request caused the step included.
    """

    joins: dict[str, JoinResult] = field(default_factory=dict)
    syncs: dict[str, SyncResult] = field(default_factory=dict)
    store: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """When a rebalance closes.

    `initial`: the group was empty, so more members are waited for while they keep coming, for at most `remaining_ms`
    beyond the deadline.
    """

    deadline_ms: int
    initial: bool = False
    remaining_ms: int = 0


class MigrationPolicy(StrEnum):
    """Which way a group with members may change its protocol (Kafka: group.consumer.migration.policy)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The broker's settings for every group."""

    initial_rebalance_delay_ms: int
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    members_max: int
    new_member_join_timeout_ms: int
