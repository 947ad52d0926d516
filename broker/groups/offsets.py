"""Committed offsets of the groups of one coordinator: in memory, and in its partition of `__consumer_offsets`.

An offset counts once its batch is in the log. Offsets committed inside a transaction wait as `pending` until the marker
of their transaction stands in the same partition of the log (KIP-98, KIP-447).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from broker.coordination.internal_log import LoadedBatch, Producer, StateLog
from broker.errors import BrokerError
from broker.groups.formats import Committed, OffsetKey, offset_entry, read_offset
from broker.groups.limits import OFFSET_METADATA_BYTES_MAX, OFFSETS_RETENTION_MS
from broker.wire.errors import ErrorCode
from broker.wire.records import ControlKind
from broker.wire.vocabulary import NO_TIMESTAMP, TopicPartition


@dataclass(slots=True)
class GroupOffsets:
    """The offsets of one group; `pending` by producer id."""

    committed: dict[TopicPartition, Committed] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, Committed]] = field(default_factory=dict)

    def is_pending(self, where: TopicPartition) -> bool:
        return any(where in offsets for offsets in self.pending.values())

    def partitions(self) -> set[TopicPartition]:
        return self.committed.keys() | {where for offsets in self.pending.values() for where in offsets}

    def forget(self, where: TopicPartition) -> None:
        """Also what is pending: a tombstone ends everything that stands before it in the log."""
        self.committed.pop(where, None)
        for producer_id, offsets in list(self.pending.items()):
            offsets.pop(where, None)
            if not offsets:
                del self.pending[producer_id]

    def settle(self, producer_id: int, *, commit: bool) -> None:
        for where, offset in self.pending.pop(producer_id, {}).items():
            now = self.committed.get(where)
            if commit and (now is None or now.log_offset < offset.log_offset):
                self.committed[where] = offset


def expired(offsets: GroupOffsets, *, empty_since_ms: int, now_ms: int) -> list[TopicPartition]:
    """Which offsets of an empty group have had their time (KIP-211).

    `empty_since_ms` is when the last member left, -1 for a group that never had any: then each offset counts from its
    own commit. One that a transaction is about to replace stays until that ends.
    """
    gone = []
    for where, offset in offsets.committed.items():
        if offsets.is_pending(where):
            continue
        if offset.expire_timestamp_ms != NO_TIMESTAMP:
            until_ms = offset.expire_timestamp_ms
        else:
            until_ms = max(offset.commit_timestamp_ms, empty_since_ms) + OFFSETS_RETENTION_MS
        if until_ms <= now_ms:
            gone.append(where)
    return gone


class OffsetStore:
    """All committed offsets. One writer: the group coordinator."""

    def __init__(self, log: StateLog) -> None:
        self.log = log
        self._groups: dict[str, GroupOffsets] = {}
        self._transactions: dict[int, set[str]] = {}
        """By producer id the groups that have offsets pending."""
        self._owed: dict[str, set[TopicPartition]] = {}
        """Forgotten offsets whose tombstones are not in the log yet, by group."""

    def of(self, group_id: str) -> GroupOffsets:
        """The group's offsets; empty for one that has none."""
        return self._groups.get(group_id) or GroupOffsets()

    def group_ids(self) -> Iterable[str]:
        return self._groups.keys()

    def has_any(self, group_id: str) -> bool:
        offsets = self._groups.get(group_id)
        return offsets is not None and bool(offsets.committed or offsets.pending)

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Committed],
        *,
        is_known: Callable[[TopicPartition], bool],
        producer: Producer | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Write and then count the offsets: an error code for each. What cannot be taken does not hold up the rest."""
        results: dict[TopicPartition, ErrorCode] = {}
        for where, offset in offsets.items():
            if not is_known(where):
                results[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(offset.metadata.encode()) > OFFSET_METADATA_BYTES_MAX:
                results[where] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        taken = {where: offset for where, offset in offsets.items() if where not in results}
        if not taken:
            return results
        try:
            # First, or a tombstone that comes later would take the new offset along.
            self.write_owed(group_id)
            base = self.log.append(
                group_id, [offset_entry(group_id, where, offset) for where, offset in taken.items()], producer=producer
            )
        except BrokerError as error:
            return results | dict.fromkeys(taken, error.error_code)
        for delta, (where, offset) in enumerate(taken.items()):
            self._note(group_id, where, offset._replace(log_offset=base + delta), producer)
        return results | dict.fromkeys(taken, ErrorCode.NONE)

    def _note(self, group_id: str, where: TopicPartition, offset: Committed, producer: Producer | None) -> None:
        group = self._groups.setdefault(group_id, GroupOffsets())
        if producer is None:
            group.committed[where] = offset
        else:
            group.pending.setdefault(producer.producer_id, {})[where] = offset
            self._transactions.setdefault(producer.producer_id, set()).add(group_id)

    def end_transaction(self, producer_id: int, *, commit: bool, end_offset: int) -> None:
        """A marker was written right before `end_offset`: what was pending counts, or is forgotten."""
        for group_id in self._transactions.pop(producer_id, set()):
            group = self._groups.get(group_id)
            if group is not None:
                self.log.changed(group_id, end_offset)
                group.settle(producer_id, commit=commit)
                self._drop_if_empty(group_id)

    def remove(self, group_id: str, which: Iterable[TopicPartition]) -> None:
        """Forget offsets, the pending ones too, with tombstones. Raises BrokerError, with nothing forgotten."""
        group = self._groups.get(group_id)
        if group is None:
            return
        known = group.partitions()
        gone = [where for where in which if where in known]
        if not gone:
            return
        self.log.append(group_id, [offset_entry(group_id, where, None) for where in gone])
        for where in gone:
            group.forget(where)
        self._drop_if_empty(group_id)

    def forget(self, group_id: str, which: Iterable[TopicPartition]) -> None:
        """As `remove`, at once and whatever the disk says; the tombstones are owed until `write_owed` succeeds."""
        group = self._groups.get(group_id)
        if group is None:
            return
        for where in which:
            group.forget(where)
            self._owed.setdefault(group_id, set()).add(where)
        self._drop_if_empty(group_id)

    def write_owed(self, group_id: str) -> None:
        """Write the tombstones that `forget` owes. Raises BrokerError, with all of them still owed."""
        owed = self._owed.get(group_id)
        if owed:
            self.log.append(group_id, [offset_entry(group_id, where, None) for where in sorted(owed)])
            del self._owed[group_id]

    def _drop_if_empty(self, group_id: str) -> None:
        if not self.has_any(group_id):
            self._groups.pop(group_id, None)

    # -- loading ---------------------------------------------------------------------------------------------

    def replay_offset(self, batch: LoadedBatch, key: OffsetKey, value: bytes | None, log_offset: int) -> None:
        """Take over one offset record of the log."""
        header = batch.header
        if value is None:
            group = self._groups.get(key.group_id)
            if group is not None:
                group.forget(key.where)
                self._drop_if_empty(key.group_id)
            return
        producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
        self._note(key.group_id, key.where, read_offset(value, log_offset), producer)

    def replay_marker(self, batch: LoadedBatch) -> None:
        """Take over the end of a transaction from the log."""
        if batch.control is not None and batch.control.kind in (ControlKind.COMMIT, ControlKind.ABORT):
            commit = batch.control.kind is ControlKind.COMMIT
            self.end_transaction(batch.header.producer_id, commit=commit, end_offset=batch.header.last_offset + 1)
