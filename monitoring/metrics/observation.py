"""One look at a link, as a value; collectors turn it into samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mirror.api import LinkFindingKind


@dataclass(frozen=True, slots=True)
class LagSample:
    """Lag of one partition; None where it cannot be known now."""

    topic: str
    partition: int
    lag_records: int | None
    lag_seconds: float | None
    lag_bytes: int | None
    held_by_transaction_offsets: int | None = None


@dataclass(frozen=True, slots=True)
class HoldSample:
    """A partition (None: all of the topic) that should be mirrored and is not."""

    topic: str
    partition: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class GroupSample:
    """One group: the partitions where it would not go on at the target as at the source, by reason, and whether it
    failed as a whole.
    """

    waiting: Mapping[str, int]
    failed: bool


@dataclass(frozen=True, slots=True)
class SplitSample:
    """Since a link was promoted: whether both sites take writes, by their roles, and the records of their own that came
    to each, at least, where some came to both (`is_split`). `two_active` None: the brokers of one have no roles.
    `both_promoted`: a link back was promoted, too, and not before this one, as far as anybody knows.
    """

    two_active: bool | None = False
    is_split: bool | None = False
    """None: what came to one of them could not be read."""
    source_records: int = 0
    target_records: int = 0
    both_promoted: bool = False


@dataclass(frozen=True, slots=True)
class AclSample:
    """What the worker's last comparison of ACLs found, in numbers of them by what becomes of them; `failed`: why there
    are none. `at_ms` is by the worker's clock.
    """

    at_ms: int
    by_step: Mapping[str, int]
    failed: bool


@dataclass(frozen=True, slots=True)
class LinkObservation:
    """What one pass saw. `answered`: both sites did; where not, `error` is the class of the trouble.

    `up`: they did, and a worker of the link lives. `condition` is the link's word as `farshore status` says it
    (`LinkCondition`), None where it could not be read. Times are milliseconds since 1970.
    """

    link: str
    observed_at_ms: int
    answered: bool
    up: bool
    error: str | None = None
    condition: str | None = None
    lags: tuple[LagSample, ...] = ()
    groups_synced_at_ms: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, GroupSample] = field(default_factory=dict)
    groups_looked_at_ms: int | None = None
    gaps_open: int = 0
    holds: tuple[HoldSample, ...] = ()
    topics_paused: tuple[str, ...] = ()
    """By a person."""
    heartbeat_at_ms: int | None = None
    partitions_offline: Mapping[str, int] = field(default_factory=dict)
    """By site: partitions of any topic that nobody leads."""
    split: SplitSample | None = None
    """None: not known."""
    findings: Mapping[LinkFindingKind, int] = field(default_factory=dict)
    """How many of each kind `farshore status` would say."""
    sees_all: bool = False
    """Whether what is not among the findings is not there: nothing was left unseen."""
    acls: AclSample | None = None
    """None: the link carries none, or nothing was seen of them."""


class Board:
    """The newest observation of each link. Written by the monitor's loop, read by collectors in the server's thread:
    each entry is replaced as a whole and never changed."""

    def __init__(self) -> None:
        self._observations: dict[str, LinkObservation] = {}
        self._errors: dict[str, int] = {}

    def post(self, observation: LinkObservation) -> None:
        self._observations = {**self._observations, observation.link: observation}
        failed = self._errors.get(observation.link, 0) + (observation.error is not None)
        self._errors = {**self._errors, observation.link: failed}

    def observations(self) -> tuple[LinkObservation, ...]:
        """By link."""
        found = self._observations
        return tuple(found[link] for link in sorted(found))

    def errors(self, link: str) -> int:
        """Passes that failed since the start."""
        return self._errors.get(link, 0)
