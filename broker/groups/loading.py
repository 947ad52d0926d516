"""What a partition of `__consumer_offsets` says, taken in batch by batch."""

from __future__ import annotations

from broker.coordination.internal_log import LoadedBatch
from broker.groups.consumer.records import GroupReader
from broker.groups.formats import GroupKey, OffsetKey, read_key
from broker.groups.offsets import OffsetStore


class StoredGroups:
    """Offsets go into `offsets` as they come; `classic` are the newest values of groups, by their ids."""

    def __init__(self, offsets: OffsetStore) -> None:
        self.classic: dict[str, bytes] = {}
        self.consumer = GroupReader()
        self._offsets = offsets

    def take(self, batch: LoadedBatch) -> None:
        """Raises MalformedMessage."""
        self._offsets.replay_marker(batch)
        for record in batch.records:
            if self.consumer.take(record.key or b"", record.value):
                continue
            key = read_key(record.key or b"")
            if isinstance(key, OffsetKey):
                self._offsets.replay_offset(batch, key, record.value, record.offset)
            elif isinstance(key, GroupKey) and record.value is None:
                self.classic.pop(key.group_id, None)
            elif isinstance(key, GroupKey):
                self.classic[key.group_id] = record.value or b""
