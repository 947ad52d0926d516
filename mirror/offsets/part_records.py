"""One unit's part of a link's state as it was written: what of it goes to other parts where the link is cut anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker.client.cluster import Cluster
from broker.client.scan import scan_log
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.errors import StateDamaged
from mirror.link import Link
from mirror.offsets.entries import (
    Checkpoint,
    Entry,
    LinkRun,
    TopicIds,
    decode_entry,
    decode_key,
    encode_value,
)
from mirror.offsets.keys import dump_json
from mirror.offsets.offset_map import Where
from mirror.offsets.state_writer import Carried
from mirror.offsets.topic_entries import TopicIdentity

_CARRIED: Final = frozenset({"position", "interval", "page", "origins", "gap", "accepted"})
_LEFT: Final = frozenset({"held"})
"""Of a partition, too, and found out anew by who has it next."""


@dataclass(slots=True)
class PartRecords:
    """By key, in the order of their last writing: who has them in this order knows which deletions a partition has
    outlived, and which of two blocks counts.
    """

    unit: int
    values: dict[bytes, bytes] = field(default_factory=dict)

    def apply(self, key: bytes, value: bytes | None) -> None:
        self.values.pop(key, None)
        if value is not None:
            self.values[key] = value

    def run(self) -> LinkRun | None:
        """What the part says that its unit may do. Raises StateDamaged."""
        found = self.entry(dump_json(["link"]))
        return found if isinstance(found, LinkRun) else None

    def entry(self, key: bytes) -> Entry | None:
        """Raises StateDamaged."""
        value = self.values.get(key)
        return None if value is None else _entry(key, value)

    def partitions(self) -> Iterator[tuple[bytes, str, Where]]:
        """The keys that are of a partition each, with their kind. Raises StateDamaged."""
        for key in self.values:
            kind, *rest = _decoded(key)
            if kind in _CARRIED | _LEFT and rest[1] is not None:
                yield key, kind, (rest[0], rest[1])

    def paused(self) -> dict[bytes, bytes]:
        """The topics that are paused. Raises StateDamaged."""
        return {key: value for key, value in self.values.items() if _decoded(key)[0] == "paused"}


async def read_part(target: Cluster, unit: Link) -> PartRecords:
    """Of a link's unit, to its present end. Raises ClientError."""
    found, where = PartRecords(unit.state_partition), TopicPartition(unit.state_topic, unit.state_partition)

    def take(record: Record) -> None:
        found.apply(record.key or b"", record.value)

    await scan_log(target, where, take)
    return found


def strangers(cut: Link, part: PartRecords) -> list[Carried]:
    """Takes back what stands in a part of partitions that are not its unit's. Pure."""
    return [Carried(key, None) for key, _kind, where in part.partitions() if cut.unit_of(*where) != part.unit]


def carried(old: Link, new: Link, parts: Mapping[int, PartRecords]) -> dict[int, list[Carried]]:
    """By the unit to whose part it goes: what is said of the partitions that another unit gets. Pure."""
    found: dict[int, list[Carried]] = {}
    for unit in range(old.unit_count):
        part = parts[unit]
        for key, kind, where in part.partitions():
            to = new.unit_of(*where)
            if kind in _CARRIED and to != unit and old.unit_of(*where) == unit:
                value = _with_topic_id(part, where[0], key) if kind == "position" else part.values[key]
                found.setdefault(to, []).append(Carried(key, value))
    return found


def pauses(old: Link, new: Link, parts: Mapping[int, PartRecords]) -> dict[int, list[Carried]]:
    """What makes the same topics paused in each of the new units' parts as in any of the old ones'. Pure."""
    wanted = {key: value for unit in range(old.unit_count) for key, value in parts[unit].paused().items()}
    return {unit: _paused(parts[unit], wanted) for unit in range(new.unit_count)}


def pauses_of_lead(cut: Link, parts: Mapping[int, PartRecords]) -> dict[int, list[Carried]]:
    """What makes the same topics paused in each unit's part as in unit 0's. Pure."""
    wanted = parts[0].paused()
    return {unit: _paused(parts[unit], wanted) for unit in range(1, cut.unit_count)}


def _paused(part: PartRecords, wanted: Mapping[bytes, bytes]) -> list[Carried]:
    known = part.paused()
    lacking = [Carried(key, value) for key, value in wanted.items() if key not in known]
    return [*lacking, *(Carried(key, None) for key in known if key not in wanted)]


def positions(part: PartRecords) -> list[Where]:
    """The partitions of which a position stands there. Raises StateDamaged."""
    return [where for _key, kind, where in part.partitions() if kind == "position"]


def take_over(parts: Mapping[int, PartRecords], changes: Mapping[int, Sequence[Carried]]) -> None:
    """The parts, as they are when these are written."""
    for unit, some in changes.items():
        for change in some:
            parts[unit].apply(*change)


def _with_topic_id(part: PartRecords, topic: str, key: bytes) -> bytes:
    """A position with the id of its source topic: an older version left that to the topic's own entry in its part."""
    value = part.values[key]
    position, identity = _entry(key, value), part.entry(dump_json(["identity", topic]))
    if not isinstance(position, Checkpoint) or position.topic_ids.source or not isinstance(identity, TopicIdentity):
        return value
    ids = TopicIds(identity.topic_id, position.topic_ids.target)
    return encode_value(replace(position, topic_ids=ids))


def _decoded(key: bytes) -> list[Any]:
    try:
        return decode_key(key)
    except ValueError as error:
        raise StateDamaged(f"a key of a link's state cannot be read: {error}") from error


def _entry(key: bytes, value: bytes) -> Entry:
    try:
        return decode_entry(decode_key(key), value)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise StateDamaged(f"an entry of a link's state cannot be read: {error}") from error
