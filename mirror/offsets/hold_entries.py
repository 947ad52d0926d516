"""What a link's state keeps of partitions that should be mirrored and are not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HoldReason(StrEnum):
    """Why a partition that should be mirrored is not."""

    NAME_TOO_LONG = "name_too_long"
    """The target's name of the topic has more characters than Kafka allows."""
    TOPIC_NOT_CREATED = "topic_not_created"
    TOPIC_NOT_GROWN = "topic_not_grown"
    """The target's topic has fewer partitions."""
    NO_LEADER_AT_SOURCE = "no_leader_at_source"
    NO_LEADER_AT_TARGET = "no_leader_at_target"
    ERROR_AT_SOURCE = "error_at_source"
    """The source answers with an error for this partition or topic."""
    ERROR_AT_TARGET = "error_at_target"
    LOGS_NOT_COMPARED = "logs_not_compared"
    """A log could not be read where it must be compared with its copy before anything goes on."""
    PAUSED = "paused"
    """An operator paused the topic."""
    NOT_TAKEN_IN = "not_taken_in"
    """Nothing is known to be in the way, and no worker has begun with it. Only a look from outside says so."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A partition (None: all of the topic) that is not mirrored although it should be, and why. It is tried again.

    Unlike a gap it needs no decision: it ends when the reason does. `at_ms`: since when. It is tried again at
    `next_try_at_ms` (-1: not known, or it is under way), earlier where the topic or its leader changes at one of the
    sites; from then on at every look, until nothing is in the way.
    """

    topic: str
    partition: int | None
    reason: HoldReason
    detail: str
    at_ms: int
    next_try_at_ms: int = -1


@dataclass(frozen=True, slots=True)
class VoidHold:
    """Takes a hold back."""

    topic: str
    partition: int | None
