"""What to do about a coordinator's partition that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import UUID

from broker.coordination.internal_log import TRANSACTIONS_TOPIC
from broker.topics.folders import PARTITION_METADATA
from broker.wire.coordinator_keys import OFFSETS_TOPIC

_LOST: Final = {
    OFFSETS_TOPIC: "the groups kept there have no committed offsets, and begin where their auto.offset.reset says",
    TRANSACTIONS_TOPIC: "the transactional ids kept there are unknown: their old producers are not fenced,"
    " and what is open there hides records from read_committed consumers until kafka-transactions.sh aborts it",
}


def damage_hint(topic: str, topic_id: UUID, folder: Path) -> str:
    """It has no source to mirror it from again: what to do instead, and what going on without it loses."""
    return (
        f"stop the broker, and restore {folder} from a copy; or move it away and make it anew with only the file"
        f" {PARTITION_METADATA} in it, of the lines 'version: 0' and 'topic_id: {topic_id}': then {_LOST[topic]}"
    )
