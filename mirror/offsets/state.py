"""A link's state: the entries that its topic on the target holds, and the map that follows from them and the logs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import both, split_failures
from broker.client.model import OffsetAndTimestamp, Topic
from broker.client.offsets import list_each_offset, log_end_offsets
from broker.client.scan import OffsetSpan, scan_records
from broker.client.topics import describe_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import LATEST, TopicPartition
from mirror.link import Link
from mirror.offsets.folding import Folding
from mirror.offsets.limits import STATE_READ_ON_MAX_MS
from mirror.offsets.offset_map import OffsetMap, PartitionMap, Where
from mirror.offsets.recovery import recover
from mirror.offsets.state_entries import StateEntries, join_units
from mirror.offsets.tail import read_tails, writable_partitions
from mirror.offsets.unit_entries import LinkDeal


@dataclass(frozen=True, slots=True)
class LinkState:
    """What was read, and what follows from it: `map` is exact up to every record that had landed when reading began.

    `unread` are the partitions whose log at the target could not be read, and why; the map does not have them.
    """

    entries: StateEntries
    map: OffsetMap
    unread: Mapping[Where, ClientError] = field(default_factory=dict)


class _PartReader:
    """Reads one unit's part of a link's state, each time on from where it stopped."""

    def __init__(self, link: Link, unit: int) -> None:
        self._link = link
        self._where = TopicPartition(link.state_topic, unit)
        self._topic_id: object = None
        self._folding = Folding(link)
        self.read_to = 0
        self._whole_s = 0.0

    async def read(self, target: Cluster, topic_id: object, end: int, only: Collection[Where] | None) -> StateEntries:
        """The entries up to `end`. Raises ClientError, StateDamaged."""
        now_s = target.clock.monotonic()
        is_other = topic_id != self._topic_id or end < self.read_to
        if is_other or now_s - self._whole_s > STATE_READ_ON_MAX_MS / 1000:
            self._topic_id, self._whole_s = topic_id, now_s
            self._begin()
        with ExitStack() as unread:  # what was read by halves must not be read on from
            unread.callback(self._begin)
            await scan_records(target, self._where, OffsetSpan(self.read_to, end), self._folding.apply)
            for _ in self._folding.opening(only):
                await asyncio.sleep(0)
            entries = self._folding.entries(only)
            unread.pop_all()
        self.read_to = end
        return entries

    def _begin(self) -> None:
        self._folding, self.read_to = Folding(self._link), 0


class StateReader:
    """Reads a link's state again and again, each time on from where it stopped: one unit's part, or that of all."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._topic: Topic | None = None
        self._parts: dict[int, _PartReader] = {}
        self._seen_logs: list[TopicPartition] = []
        self._deal: LinkDeal | None = None
        """That of unit 0's part, as it was read before."""
        self._turn = asyncio.Lock()
        """Of two that read at the same time one could read again what the other has read."""

    @property
    def read_to(self) -> int:
        """The offset behind all that was read of the (only) unit's part."""
        return self._part(self._link.state_partition).read_to

    async def log_ends(
        self, target: Cluster, link: Link, only: Collection[Where] | None
    ) -> tuple[Mapping[TopicPartition, OffsetAndTimestamp], Mapping[TopicPartition, ClientError]]:
        """Where the target's logs end that the link may write to, and why one does not say it. Raises ClientError.

        Those that were there before are asked beside what is there now: over a distance a round trip less.
        """
        ask = partial(list_each_offset, target)
        there, told = await both(
            writable_partitions(target, link, only), ask(dict.fromkeys(self._seen_logs if only is None else (), LATEST))
        )
        told |= await ask(dict.fromkeys((where for where in there if where not in told), LATEST))
        if only is None:
            self._seen_logs = there
        return split_failures({where: told[where] for where in there})

    async def read(self, target: Cluster, only: Collection[Where] | None = None) -> StateEntries:
        """The entries as of the ends that the topic had when the reading began. Raises ClientError, StateDamaged.

        `only`: of the maps and positions those of no other partitions, which are not opened either.
        """
        async with self._turn:
            return await self._read(target, only)

    async def _read(self, target: Cluster, only: Collection[Where] | None) -> StateEntries:
        unit = self._link.unit
        told: Mapping[TopicPartition, OffsetAndTimestamp | ClientError] = {}
        if self._topic is None:
            topic = await self._describe(target)
        else:  # over a distance a round trip less
            known = dict.fromkeys(self._wheres(self._topic), LATEST)
            topic, told = await both(self._describe(target), list_each_offset(target, known))
        self._topic = topic
        if topic is None or (unit is not None and unit >= len(topic.partitions)):
            return StateEntries(self._link)
        ends = {where: at.offset for where, at in told.items() if not isinstance(at, ClientError)}
        if unit is not None:
            return (await self._parts_of(target, topic, [unit], only, ends))[unit].counting(unit)
        return await self._read_all(target, topic, only, ends)

    async def _read_all(
        self, target: Cluster, topic: Topic, only: Collection[Where] | None, ends: Mapping[TopicPartition, int]
    ) -> StateEntries:
        """What all parts say by one deal: that stood in unit 0's part before they were asked where they end, and stands
        there still when they have been read. Else what was carried from part to part would be in none of them.
        """
        retry = target.retry()
        while True:
            deal, units = self._deal, [unit for _, unit in self._wheres(topic)]
            parts = await self._parts_of(target, topic, units, only, ends)
            if len(units) > 1 and parts[0].deal == deal:
                parts |= await self._parts_of(target, topic, [0], only, {})
            self._deal, ends = parts[0].deal, {}
            if self._deal == deal:
                joined = join_units(self._link, parts)
                if deal is None or joined.link.unit_count <= len(parts):
                    return joined
                text = f"not all parts of {topic.name} at {target.site.name}"
                await retry.pause(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))  # the broker hears of it yet
            topic = await self._describe(target) or topic

    async def _parts_of(
        self,
        target: Cluster,
        topic: Topic,
        units: Sequence[int],
        only: Collection[Where] | None,
        ends: Mapping[TopicPartition, int],
    ) -> dict[int, StateEntries]:
        """These units' parts up to `ends`, or to where they end now."""
        wheres = {unit: TopicPartition(topic.name, unit) for unit in units}
        if ends.keys() != set(wheres.values()):
            ends = await log_end_offsets(target, wheres.values())
        return {
            unit: await self._part(unit).read(target, topic.topic_id, ends[where], only)
            for unit, where in wheres.items()
        }

    async def _describe(self, target: Cluster) -> Topic | None:
        name = self._link.state_topic
        return (await describe_topics(target, [name])).get(name)

    def _wheres(self, topic: Topic) -> list[TopicPartition]:
        unit = self._link.unit
        units = [unit] if unit is not None else sorted(partition.partition for partition in topic.partitions)
        return [TopicPartition(topic.name, each) for each in units]

    def _part(self, unit: int) -> _PartReader:
        if unit not in self._parts:
            self._parts[unit] = _PartReader(self._link, unit)
        return self._parts[unit]


class StateReaders:
    """A reader for each link that is looked at again and again."""

    def __init__(self) -> None:
        self._readers: dict[tuple[str, str], StateReader] = {}
        """By the names of the link (or its unit) and of the target."""

    def of(self, link: Link) -> StateReader:
        """The link's; always the same one."""
        return self._readers.setdefault((link.unit_name, link.target.name), StateReader(link))


async def read_entries(link: Link, target: Cluster, only: Collection[Where] | None = None) -> StateEntries:
    """Read the state topic once, to the end that it had then; `only` as in `StateReader.read`.

    Raises ClientError, StateDamaged.
    """
    return await StateReader(link).read(target, only)


async def load_link_state(link: Link, target: Cluster, reader: StateReader | None = None) -> LinkState:
    """The link's entries, and the map as it was when the call began, of all partitions; `reader`: of who asks again.

    Works whether or not a worker runs. Raises ClientError, also for one partition that cannot be read, StateDamaged.
    """
    retry = target.retry()
    while (state := await load_partial_state(link, target, reader)).unread:
        await retry.pause(next(iter(state.unread.values())))
    return state


async def load_partial_state(
    link: Link, target: Cluster, reader: StateReader | None = None, only: Collection[Where] | None = None
) -> LinkState:
    """As `load_link_state`; one partition that cannot be read hides no other. Raises ClientError, StateDamaged.

    `reader`: of who asks again and again. With `only`, map and entries have no more than these partitions.
    """
    reader = reader or StateReader(link)
    ends, failed = await reader.log_ends(target, link, only)
    entries = await reader.read(target, only)
    entries = replace(entries, link=entries.cut(link))
    wanted = entries.checkpoints
    unread: dict[Where, ClientError] = {
        where: failed[there]
        for where in wanted
        if (there := TopicPartition(link.target_topic(where[0]), where[1])) in failed
    }
    known = {where: checkpoint for where, checkpoint in wanted.items() if where not in unread}
    log_ends = {where: end.offset for where, end in ends.items()}
    tails, failures = split_failures(await read_tails(target, link, known, log_ends, fenced=entries.fenced_logs))
    unread |= failures
    partitions: dict[Where, PartitionMap] = {}
    for where, checkpoint in wanted.items():
        if where in unread:
            continue
        tail = tails.get(where)
        found = recover(entries.intervals(*where), entries.blocks_of(*where), checkpoint, tail.batches if tail else [])
        looked_to = tail.log_end if tail and found.lost_at is None else 0
        partitions[where] = PartitionMap(found.intervals, found.end, found.position, looked_to)
    return LinkState(entries, OffsetMap(partitions), unread)
