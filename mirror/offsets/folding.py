"""Reading a link's state: the records of its topic, folded into what they say together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from broker.wire.records import Record
from mirror.errors import StateDamaged
from mirror.link import Link
from mirror.offsets.acceptance import GapKey, gap_key, with_accepted
from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    Gap,
    GapKind,
    LinkRun,
    Owner,
    decode_entry,
    decode_key,
    read_entry,
)
from mirror.offsets.fenced_logs import logs_of
from mirror.offsets.group_entries import GroupSync, GroupSyncs, GroupSyncTimes
from mirror.offsets.hold_entries import Hold
from mirror.offsets.keys import NO_PARTITION, check_key, load_all, part_of, partition_part
from mirror.offsets.limits import OPENED_TOGETHER
from mirror.offsets.offset_map import Where
from mirror.offsets.origin_entries import OriginRuns
from mirror.offsets.pages import Page
from mirror.offsets.promotion_entries import BackPromotion, FencedLogs
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.topic_entries import TopicIdentity, TopicPause
from mirror.offsets.unit_entries import LinkDeal, LinkUnits

A = TypeVar("A")


@dataclass(slots=True)
class Folding:
    """Entries while they are read; records must come in their order.

    A record is opened when the entries are asked for, so what was written over by then costs nothing.
    """

    link: Link
    unopened: defaultdict[bytes, dict[bytes | None, Record]] = field(default_factory=lambda: defaultdict(dict))
    """By the part of their keys that names a partition, and by key, in the order of their (last) writing."""
    blocks: dict[Where, dict[int, Block]] = field(default_factory=dict)
    pages: dict[Where, dict[int, Page]] = field(default_factory=dict)
    origins: dict[Where, dict[tuple[int, int, int], OriginRuns]] = field(default_factory=dict)
    checkpoints: dict[Where, Checkpoint] = field(default_factory=dict)
    gaps: dict[GapKey, Gap] = field(default_factory=dict)
    acceptances: dict[GapKey, Acceptance] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    paused: dict[str, TopicPause] = field(default_factory=dict)
    group_times: GroupSyncTimes = field(default_factory=GroupSyncTimes)
    groups: dict[str, GroupSync] = field(default_factory=dict)
    holds: dict[tuple[str, int | None], Hold] = field(default_factory=dict)
    run: LinkRun | None = None
    backs: dict[str, BackPromotion] = field(default_factory=dict)
    fenced: dict[int, FencedLogs] = field(default_factory=dict)
    owner: Owner | None = None
    units: LinkUnits | None = None
    deal: LinkDeal | None = None
    written_at: dict[Where, int] = field(default_factory=dict)
    """Offsets of checkpoints."""
    deleted_at: dict[GapKey, int] = field(default_factory=dict)
    """Offsets of gaps that tell a deletion."""

    def apply(self, record: Record) -> None:
        """Fold in one record of the state topic."""
        known = self.unopened[part_of(record.key or b"")]
        known.pop(record.key, None)  # the newest writing stands last: it wins where two blocks overlap
        known[record.key] = record

    def opening(self, only: Collection[Where] | None = None) -> Iterator[None]:
        """Open what `entries` is to tell, a piece at each step: many at once hold up all else. Raises StateDamaged.

        To be taken to its end; nothing may be folded in before that.
        """
        parts = list(self.unopened) if only is None else [NO_PARTITION, *(partition_part(*where) for where in only)]
        records = [record for part in parts for record in self.unopened.pop(part, {}).values()]
        for first in range(0, len(records), OPENED_TOGETHER):
            self._open_together(records[first : first + OPENED_TOGETHER])
            yield

    def _open_together(self, records: Sequence[Record]) -> None:
        """Raises StateDamaged."""
        keys = load_all([record.key or b"" for record in records])
        values = load_all([b"null" if record.value is None else record.value for record in records])
        for record, key, fields in zip(records, keys, values, strict=True):
            self._open(record, key, fields)

    def _open(self, record: Record, key: Any, fields: Any) -> None:
        """`key` and `fields` are what its key and its value say as JSON, None where that is yet to be found out."""
        try:
            key = decode_key(record.key or b"") if key is None else check_key(key)
            if record.value is None:
                self._forget(key)
                return
            entry = decode_entry(key, record.value) if fields is None else read_entry(key, fields)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            text = f"{self.link.state_topic} offset {record.offset} at {self.link.target.name}: {error}"
            raise StateDamaged(text) from error
        match entry:
            case Block():
                blocks = self.blocks.setdefault((entry.topic, entry.partition), {})
                blocks.pop(entry.key_source, None)
                blocks[entry.key_source] = entry
            case Page():
                self.pages.setdefault((entry.topic, entry.partition), {})[entry.key_source] = entry
            case OriginRuns():
                known = self.origins.setdefault((entry.topic, entry.partition), {})
                known[*entry.writer, entry.runs[0].first] = entry
            case Checkpoint():
                self.checkpoints[entry.topic, entry.partition] = entry
                self.written_at[entry.topic, entry.partition] = record.offset
            case Gap():
                self.gaps.pop(gap_key(entry), None)  # in the order of their last writing, as compaction leaves them
                self.gaps[gap_key(entry)] = entry
                if entry.kind is GapKind.DELETED:
                    self.deleted_at[gap_key(entry)] = record.offset
            case Acceptance():
                self.acceptances[gap_key(entry)] = entry
            case TopicIdentity():
                self.topic_ids[entry.topic] = entry.topic_id
            case TopicPause():
                self.paused[entry.topic] = entry
            case GroupSyncTimes():
                self.group_times = entry
            case GroupSync():
                self.groups[entry.group] = entry
            case Hold():
                self.holds[entry.topic, entry.partition] = entry
            case LinkRun():
                self.run = entry
            case BackPromotion():
                self.backs[entry.link] = entry
            case FencedLogs():
                self.fenced[entry.share] = entry
            case Owner():
                self.owner = entry
            case LinkUnits():
                self.units = entry
            case LinkDeal():
                self.deal = entry

    def _forget(self, key: list[object]) -> None:
        match key:
            case ["interval", str(topic), int(partition), int(source)]:
                self.blocks.get((topic, partition), {}).pop(source, None)
            case ["page", str(topic), int(partition), int(source)]:
                self.pages.get((topic, partition), {}).pop(source, None)
            case ["origins", str(topic), int(partition), int(producer_id), int(epoch), int(first)]:
                self.origins.get((topic, partition), {}).pop((producer_id, epoch, first), None)
            case ["group", str(group)]:
                self.groups.pop(group, None)
            case ["held", str(topic), (int() | None) as partition]:
                self.holds.pop((topic, partition), None)
            case ["position", str(topic), int(partition)]:
                self.checkpoints.pop((topic, partition), None)
            case ["identity", str(topic)]:
                self.topic_ids.pop(topic, None)
            case ["paused", str(topic)]:
                self.paused.pop(topic, None)
            case ["gap", str(topic), int(partition), int(source), str(kind)]:
                self.gaps.pop((topic, partition, source, kind), None)
            case ["accepted", str(topic), int(partition), int(source), str(kind)]:
                self.acceptances.pop((topic, partition, source, kind), None)

    def entries(self, only: Collection[Where] | None = None) -> StateEntries:
        """What was folded in so far; it does not change when more is. `only`: of no other partitions. Raises
        StateDamaged.
        """
        for _ in self.opening(only):
            pass
        cut = self.deal or self.units
        return StateEntries(
            self.link,
            exists=True,
            blocks={where: dict(blocks) for where, blocks in _of(self.blocks, only).items() if blocks},
            pages={where: dict(pages) for where, pages in _of(self.pages, only).items() if pages},
            origins={where: tuple(known.values()) for where, known in _of(self.origins, only).items() if known},
            checkpoints=dict(_of(self.checkpoints, only)),
            gaps=with_accepted(self.gaps, self.acceptances.values()),
            outlived=frozenset(key for key, at in self.deleted_at.items() if self.written_at.get(key[:2], -1) > at),
            acceptances=dict(self.acceptances),
            topic_ids=dict(self.topic_ids),
            paused=dict(self.paused),
            groups=GroupSyncs(dict(self.groups), self.group_times),
            holds=dict(self.holds),
            run=self.run,
            backs=dict(self.backs),
            fenced_logs=logs_of(self.fenced.values()),
            owner=self.owner,
            units=cut.units if cut is not None else None,
            pins=cut.pins if cut is not None else (),
            deal=self.deal,
        )


def _of(found: Mapping[Where, A], only: Collection[Where] | None) -> Mapping[Where, A]:
    return found if only is None else {where: found[where] for where in only if where in found}
