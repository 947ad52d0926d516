"""Of what a leader has and nobody is shown, in words: where it is, and what has it shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from broker.wire.vocabulary import TopicPartition
from failover.observing.transaction_ends import told_starts

FEWER_IN_SYNC: Final = (
    "Do they not come back, and was it written with acks=1: `kafka-configs.sh --alter --entity-type topics "
    "--entity-name TOPIC --add-config min.insync.replicas=N`, with as many as are left, and one more record there, "
    "have all of it shown and mirrored; so few brokers keep it until then"
)
"""Seen with Apache Kafka 3.9 and 4.3: not before the next record is what was written below the minimum shown."""
TO_BE_SHOWN: Final = "bring back the brokers that have replicas of it, or see why they lag; then try again"

TO_BE_TOLD: Final = (
    "bring back the leaders of these, or have farshore reach them itself, where a proxy in between ends the connection "
    "at that question (ListOffsets of a debugging consumer, replica id -2); then try again"
)


def told_untold(source: str, partitions: Iterable[TopicPartition]) -> str:
    """Whose leaders do not answer that now; a cluster that refuses to tell it to anybody is not among these."""
    names = ", ".join(map(str, sorted(partitions)))
    return (
        f"{source} does not say how far its logs of {names} go behind what everybody is shown: whether there is more "
        "is not known"
    )


def told_in_doubt(starts: Mapping[TopicPartition, int]) -> str:
    """As `told_unshown`, where a link back may be writing it."""
    return (
        f"nobody is shown {told_starts(starts)}, which not all replicas in sync have, or fewer than "
        "min.insync.replicas: it may be what a link back is bringing, and whose it is is not known before it is shown"
    )


def told_unshown(starts: Mapping[TopicPartition, int]) -> str:
    """By partition from which offset on."""
    return (
        f"nobody is shown {told_starts(starts)}, which not all replicas in sync have, or fewer than "
        "min.insync.replicas: what that is is not known"
    )
