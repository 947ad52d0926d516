"""What a link's state keeps of a source topic as a whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The id that the source topic had when it was first mirrored; a recreated topic has another."""

    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class TopicPause:
    """An operator wants nothing more of the topic mirrored, whatever its id, until the entry is taken back.

    It stands in each unit's part. Commands alone write it, and take it back; the link's owner only follows.
    """

    topic: str
    operation_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class VoidPause:
    """Takes a pause back."""

    topic: str
