"""A link's state: the entries that its topic on the target holds, and the map that follows from them and the logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.model import Topic
from broker.client.offsets import list_each_offset, log_end_offsets
from broker.client.scan import OffsetSpan, scan_records
from broker.client.topics import describe_topics
from broker.wire.records import Record
from broker.wire.vocabulary import LATEST, TopicPartition
from mirror.errors import StateDamaged
from mirror.link import Link
from mirror.offsets.acceptance import GapKey, gap_key, with_accepted
from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.doubt import in_words, is_in_doubt
from mirror.offsets.entries import (
    UNDECIDED,
    Block,
    Checkpoint,
    Gap,
    GapKind,
    GapStatus,
    LinkRun,
    Owner,
    TopicIdentity,
    decode_entry,
    decode_key,
    read_entry,
)
from mirror.offsets.group_entries import GroupSync, GroupSyncs, GroupSyncTimes
from mirror.offsets.hold_entries import Hold
from mirror.offsets.intervals import Interval
from mirror.offsets.keys import PARTITION_KEYS, check_key, load_all, partition_prefixes
from mirror.offsets.limits import CLOSED_GAPS_MAX, OPENED_TOGETHER, STATE_READ_ON_MAX_MS
from mirror.offsets.offset_map import OffsetMap, PartitionMap, Where
from mirror.offsets.origin_entries import OriginRuns
from mirror.offsets.paged import Intervals
from mirror.offsets.pages import Page, standing_pages
from mirror.offsets.recovery import recover
from mirror.offsets.tail import read_tails, writable_partitions

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class StateEntries:
    """What was read: all entries of one link. `exists` is False when the link never ran (its topic is not there)."""

    link: Link
    exists: bool = False
    blocks: Mapping[Where, Mapping[int, Block]] = field(default_factory=dict)
    """Per partition by `Block.key_source`, in the order of their last writing."""
    pages: Mapping[Where, Mapping[int, Page]] = field(default_factory=dict)
    """Per partition by `Page.key_source`; also those that another one has taken in."""
    origins: Mapping[Where, tuple[OriginRuns, ...]] = field(default_factory=dict)
    """Per partition, in the order of their writing."""
    checkpoints: Mapping[Where, Checkpoint] = field(default_factory=dict)
    gaps: Mapping[GapKey, Gap] = field(default_factory=dict)
    """As if the link had seen already what was accepted."""
    acceptances: Mapping[GapKey, Acceptance] = field(default_factory=dict)
    """What the link has not seen, or need not see any more."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    groups: GroupSyncs = field(default_factory=GroupSyncs)
    holds: Mapping[tuple[str, int | None], Hold] = field(default_factory=dict)
    """By (topic, partition; None for all of the topic): what the last worker could not mirror."""
    run: LinkRun | None = None
    owner: Owner | None = None

    def producer_ids(self) -> set[int]:
        """All that the link is known to have written with."""
        writers = {checkpoint.writer[0] for checkpoint in self.checkpoints.values()}
        writers |= {block.writer[0] for blocks in self.blocks.values() for block in blocks.values()}
        writers |= {
            written for pages in self.pages.values() for page in pages.values() for written in page.producer_ids
        }
        return writers | {entry.writer[0] for known in self.origins.values() for entry in known}

    def left_to(self) -> frozenset[str]:
        """The sites whose records this link left to their direct links."""
        return frozenset(one.site for checkpoint in self.checkpoints.values() for one in checkpoint.left_out)

    def blocks_of(self, topic: str, partition: int) -> list[Block]:
        """In the order of their (last) writing."""
        return list(self.blocks.get((topic, partition), {}).values())

    def pages_of(self, topic: str, partition: int) -> list[Page]:
        """In order, also those that another one has taken in."""
        found = self.pages.get((topic, partition), {})
        return [found[key] for key in sorted(found)]

    def intervals(self, topic: str, partition: int) -> Intervals:
        """All recorded intervals of a partition, sorted; where two begin at one source offset, the newest."""
        pages = standing_pages(self.pages_of(topic, partition))
        starts: dict[int, int] = {}
        for block in self.blocks.get((topic, partition), {}).values():
            starts.update(block.intervals)
        packed_to = pages[-1].to if pages else 0
        return Intervals((Interval(at, starts[at]) for at in sorted(starts) if at >= packed_to), pages)

    def open_gaps(self) -> dict[Where, Gap]:
        """Per partition the gap at which it stands still."""
        return {(g.topic, g.partition): g for g in self.gaps.values() if g.status is GapStatus.STOPPED}

    def left_at_source(self) -> list[Gap]:
        """Stranded records that stay at the source alone, whether the link has gone on behind them yet or not."""
        return [g for g in self.gaps.values() if g.kind is GapKind.STRANDED and g.status is not GapStatus.GONE]

    def in_doubt(self, *, asks_source: bool) -> dict[Where, Gap | Hold]:
        """The partitions where an offset may mean another record than the mirrored one, and why (`doubt.py`).

        `asks_source`: the source's offsets are those of now, so a partition that was held for an error there counts.
        """
        held = {}
        for topic, number in self.checkpoints if asks_source else ():
            hold = self.holds.get((topic, number)) or self.holds.get((topic, None))
            if hold is not None and is_in_doubt(hold):
                held[topic, number] = hold
        return held | {(gap.topic, gap.partition): gap for gap in self.gaps.values() if is_in_doubt(gap)}

    def surplus_gaps(self) -> list[Gap]:
        """The oldest closed lines of the ledger beyond `CLOSED_GAPS_MAX`, but those that a partition's state needs."""
        closed = [
            gap
            for gap in self.gaps.values()
            if gap.status in (GapStatus.PASSED, GapStatus.GONE)
            and (gap.kind is not GapKind.DELETED or (gap.topic, gap.partition) not in self.checkpoints)
        ]
        return sorted(closed, key=lambda gap: gap.at_ms)[: max(0, len(closed) - CLOSED_GAPS_MAX)]

    def doubts(self, source_topics: Mapping[str, Topic]) -> dict[Where, str]:
        """As `in_doubt`, in words, beside the source's topics as they are now: a gap is told only by a session."""
        found = {where: in_words(entry) for where, entry in self.in_doubt(asks_source=True).items()}
        for where, checkpoint in self.checkpoints.items():
            known = checkpoint.topic_ids.source or self.topic_ids.get(where[0], "")
            topic = source_topics.get(where[0])
            if topic is not None and topic.topic_id and known and str(topic.topic_id) != known:
                found.setdefault(where, f"the source topic's id was {known} and is {topic.topic_id}")
        return found

    def undecided_gaps(self) -> dict[Where, tuple[Gap, ...]]:
        """Per partition where it stands still, and what an operator accepted of it and the link has not yet passed."""
        found: dict[Where, tuple[Gap, ...]] = {}
        for gap in self.gaps.values():
            if gap.status in UNDECIDED:
                where = (gap.topic, gap.partition)
                found[where] = (*found.get(where, ()), gap)
        return found


@dataclass(frozen=True, slots=True)
class LinkState:
    """What was read, and what follows from it: `map` is exact up to every record that had landed when reading began.

    `unread` are the partitions whose log at the target could not be read, and why; the map does not have them.
    """

    entries: StateEntries
    map: OffsetMap
    unread: Mapping[Where, ClientError] = field(default_factory=dict)


@dataclass(slots=True)
class _Folding:
    """Entries while they are read; records must come in their order.

    A record is opened when the entries are asked for, so what was written over by then costs nothing.
    """

    link: Link
    unopened: dict[bytes | None, Record] = field(default_factory=dict)
    """By key, in the order of their (last) writing."""
    blocks: dict[Where, dict[int, Block]] = field(default_factory=dict)
    pages: dict[Where, dict[int, Page]] = field(default_factory=dict)
    origins: dict[Where, dict[tuple[int, int, int], OriginRuns]] = field(default_factory=dict)
    checkpoints: dict[Where, Checkpoint] = field(default_factory=dict)
    gaps: dict[GapKey, Gap] = field(default_factory=dict)
    acceptances: dict[GapKey, Acceptance] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    group_times: GroupSyncTimes = field(default_factory=GroupSyncTimes)
    groups: dict[str, GroupSync] = field(default_factory=dict)
    holds: dict[tuple[str, int | None], Hold] = field(default_factory=dict)
    run: LinkRun | None = None
    owner: Owner | None = None

    def apply(self, record: Record) -> None:
        """Fold in one record of the state topic."""
        self.unopened.pop(record.key, None)  # the newest writing stands last: it wins where two blocks overlap
        self.unopened[record.key] = record

    def _open_all(self, records: Sequence[Record]) -> None:
        """Raises StateDamaged."""
        for first in range(0, len(records), OPENED_TOGETHER):
            some = records[first : first + OPENED_TOGETHER]
            keys = load_all([record.key or b"" for record in some])
            values = load_all([b"null" if record.value is None else record.value for record in some])
            for record, key, fields in zip(some, keys, values, strict=True):
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
            case Gap():
                self.gaps[gap_key(entry)] = entry
            case Acceptance():
                self.acceptances[gap_key(entry)] = entry
            case TopicIdentity():
                self.topic_ids[entry.topic] = entry.topic_id
            case GroupSyncTimes():
                self.group_times = entry
            case GroupSync():
                self.groups[entry.group] = entry
            case Hold():
                self.holds[entry.topic, entry.partition] = entry
            case LinkRun():
                self.run = entry
            case Owner():
                self.owner = entry

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
            case ["gap", str(topic), int(partition), int(source), str(kind)]:
                self.gaps.pop((topic, partition, source, kind), None)
            case ["accepted", str(topic), int(partition), int(source), str(kind)]:
                self.acceptances.pop((topic, partition, source, kind), None)

    def entries(self, only: Collection[Where] | None = None) -> StateEntries:
        """What was folded in so far; it does not change when more is. `only`: of no other partitions. Raises
        StateDamaged.
        """
        unopened, self.unopened = self.unopened, {}
        if only is not None:
            prefixes = tuple(prefix for where in only for prefix in partition_prefixes(*where))
            for key, record in unopened.items():
                if key and key.startswith(PARTITION_KEYS) and not key.startswith(prefixes):
                    self.unopened[key] = record
            unopened = {key: record for key, record in unopened.items() if key not in self.unopened}
        self._open_all(list(unopened.values()))
        return StateEntries(
            self.link,
            exists=True,
            blocks={where: dict(blocks) for where, blocks in _of(self.blocks, only).items() if blocks},
            pages={where: dict(pages) for where, pages in _of(self.pages, only).items() if pages},
            origins={where: tuple(known.values()) for where, known in _of(self.origins, only).items() if known},
            checkpoints=dict(_of(self.checkpoints, only)),
            gaps=with_accepted(self.gaps, self.acceptances.values()),
            acceptances=dict(self.acceptances),
            topic_ids=dict(self.topic_ids),
            groups=GroupSyncs(dict(self.groups), self.group_times),
            holds=dict(self.holds),
            run=self.run,
            owner=self.owner,
        )


def _of(found: Mapping[Where, A], only: Collection[Where] | None) -> Mapping[Where, A]:
    return found if only is None else {where: found[where] for where in only if where in found}


class StateReader:
    """Reads a link's state topic again and again, each time on from where it stopped."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._topic_id: object = None
        self._folding = _Folding(link)
        self._read_to = 0
        self._whole_s = 0.0

    @property
    def read_to(self) -> int:
        """The offset behind all that was read."""
        return self._read_to

    async def read(self, target: Cluster, only: Collection[Where] | None = None) -> StateEntries:
        """The entries as of the end that the topic had when the reading began. Raises ClientError, StateDamaged.

        `only`: of the maps and positions those of no other partitions, which are not opened either.
        """
        where = TopicPartition(self._link.state_topic, 0)
        topic = (await describe_topics(target, [where.topic])).get(where.topic)
        if topic is None:
            return StateEntries(self._link)
        end = (await log_end_offsets(target, [where]))[where]
        now_s = target.clock.monotonic()
        is_other = topic.topic_id != self._topic_id or end < self._read_to
        if is_other or now_s - self._whole_s > STATE_READ_ON_MAX_MS / 1000:
            self._topic_id, self._whole_s = topic.topic_id, now_s
            self._begin()
        try:
            await scan_records(target, where, OffsetSpan(self._read_to, end), self._folding.apply)
            entries = self._folding.entries(only)
        except BaseException:  # also when it is cancelled: what was read by halves must not be read on from
            self._begin()
            raise
        self._read_to = end
        return entries

    def _begin(self) -> None:
        self._folding, self._read_to = _Folding(self._link), 0


class StateReaders:
    """A reader for each link that is looked at again and again."""

    def __init__(self) -> None:
        self._readers: dict[tuple[str, str], StateReader] = {}

    def of(self, link: Link) -> StateReader:
        """The link's; always the same one."""
        return self._readers.setdefault((link.name, link.target.name), StateReader(link))


async def read_entries(link: Link, target: Cluster, only: Collection[Where] | None = None) -> StateEntries:
    """Read the state topic once, to the end that it had then; `only` as in `StateReader.read`.

    Raises ClientError, StateDamaged.
    """
    return await StateReader(link).read(target, only)


async def load_link_state(link: Link, target: Cluster) -> LinkState:
    """The link's entries, and the map as it was when the call began, of all partitions.

    Works whether or not a worker runs. Raises ClientError, also for one partition that cannot be read, StateDamaged.
    """
    retry = target.retry()
    while (state := await load_partial_state(link, target)).unread:
        await retry.pause(next(iter(state.unread.values())))
    return state


async def load_partial_state(
    link: Link, target: Cluster, reader: StateReader | None = None, only: Collection[Where] | None = None
) -> LinkState:
    """As `load_link_state`; one partition that cannot be read hides no other. Raises ClientError, StateDamaged.

    `reader`: of who asks again and again. With `only`, map and entries have no more than these partitions.
    """
    writable = dict.fromkeys(await writable_partitions(target, link, only), LATEST)
    ends, failed = split_failures(await list_each_offset(target, writable))
    entries = await (reader or StateReader(link)).read(target, only)
    wanted = entries.checkpoints
    unread: dict[Where, ClientError] = {
        where: failed[there]
        for where in wanted
        if (there := TopicPartition(link.target_topic(where[0]), where[1])) in failed
    }
    known = {where: checkpoint for where, checkpoint in wanted.items() if where not in unread}
    log_ends = {where: end.offset for where, end in ends.items()}
    tails, failures = split_failures(await read_tails(target, link, known, log_ends))
    unread |= failures
    partitions: dict[Where, PartitionMap] = {}
    for where, checkpoint in wanted.items():
        if where not in unread:
            batches = tails[where].batches if where in tails else []
            found = recover(entries.intervals(*where), entries.blocks_of(*where), checkpoint, batches)
            partitions[where] = PartitionMap(found.intervals, found.end, found.position)
    return LinkState(entries, OffsetMap(partitions), unread)
