"""What clients of one cluster sent and saw: the values that `chaos.cluster.checker` judges.

Values are unique in a run. Times are seconds of one monotonic clock, taken so that real time order is sure: a send is
done no later than its `done_s`, and a question is asked no earlier than its `asked_s`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from broker.wire.vocabulary import TopicPartition
from chaos.history import Outcome

Log = dict[int, int]
"""Values by offset."""


class Ending(StrEnum):
    """What a writer knows of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """No commit was ever asked for, and the abort was answered."""
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """One record, by one writer, which sends its records of one partition in the order of the history.

    `origin`: the value of the record that this one was made from, in the same transaction as that one's offset.
    """

    value: int
    where: TopicPartition
    writer: str
    transaction: int | None = None
    origin: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    """Where it is, as it was acknowledged."""
    done_s: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One record that a reader was given. Within a `run` (a member of a group has one for each time that a partition
    became its own) a reader goes forward only.
    """

    reader: str
    run: int
    where: TopicPartition
    offset: int
    value: int


@dataclass(frozen=True, slots=True)
class EndTold:
    """The end of the whole log, as a client was told that asked for it at `asked_s`."""

    where: TopicPartition
    asked_s: float
    end_offset: int


@dataclass(slots=True)
class ClusterHistory:
    """`committed` and `whole`: the end state, read from the start, without and with what is not committed.

    `readers`: those that read committed records alone, by name; `groups`: each one's members, which
    read on where the others left off.
    """

    sends: list[Send] = field(default_factory=list)
    transactions: dict[int, Ending] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    ends: list[EndTold] = field(default_factory=list)
    committed: dict[TopicPartition, Log] = field(default_factory=dict)
    whole: dict[TopicPartition, Log] = field(default_factory=dict)
    committed_readers: set[str] = field(default_factory=set)
    groups: dict[str, set[str]] = field(default_factory=dict)
    made_from: set[TopicPartition] = field(default_factory=set)
    """Of each committed record there another one was to be made, in the order of the partition."""
