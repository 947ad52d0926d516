"""What came to the source after the fence, so that it is only there: exactly, by reading it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.limits import UNSHOWN_WAIT_S
from broker.client.model import Topic
from broker.client.offsets import log_end_offsets
from broker.client.topics import list_topics
from broker.client.unshown import LogEnd, log_ends
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from failover.losses.counting import count_in_turn, counted_until_s, half_way
from failover.observing.snapshot import Snapshot
from mirror.api import CarriedCounter, GapStatus, Link, MirrorError, read_entries


class CountedNone:
    """Up to where a source's logs were read, and none stood there alone: for who looks again. Of a topic that was made
    anew, and of a log that another leader has, which may have been cut before, nothing that was read holds.
    """

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, tuple[uuid.UUID | None, int]] = {}
        self._read: dict[TopicPartition, tuple[int, int]] = {}

    def stand_on(self, topics: Mapping[str, Topic]) -> None:
        """What the source lists now, asked for before its logs are read."""
        before, self._logs = (
            self._logs,
            {
                TopicPartition(name, one.partition): (topic.topic_id, one.leader_epoch)
                for name, topic in topics.items()
                for one in topic.partitions
            },
        )
        self._read = {at: read for at, read in self._read.items() if before[at] == self._logs.get(at)}

    def behind(self, where: TopicPartition, begins: int) -> int:
        """The first offset from `begins` on that was not read."""
        read_from, read_to = self._read.get(where, (begins, begins))
        return max(begins, read_to) if read_from <= begins else begins

    def note(self, where: TopicPartition, begins: int, offset: int) -> None:
        """There is none in [begins, offset)."""
        read_from, read_to = self._read.get(where, (begins, begins))
        self._read[where] = (read_from if read_from <= begins <= read_to else begins, offset)


@dataclass(frozen=True, slots=True)
class StrandedRange:
    """Offsets [first_offset, end_offset) of the source, and the committed records in them, counted by reading.

    None: they could not be counted, or a transaction is open there, or nobody can say where some of them came from.
    `open_from_offset`: where such a transaction begins, which may still be committed; None: there is none. Not
    `is_shown`: the leader has them, and not all replicas in sync, or fewer than min.insync.replicas: what they are
    nobody is shown, though who wrote them with acks=1 was told that they are kept. `may_be_brought`: of such, they may
    all be what a link back is writing, which the target has; then nobody can say that anything is stranded. Of more
    than it has still to bring there some are not. Not `is_end_told`: the leader does not say now how far its log goes
    behind what everybody is shown: whether there is anything is not known, and the range is empty.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    records: int | None
    open_from_offset: int | None = None
    is_shown: bool = True
    may_be_brought: bool = False
    is_end_told: bool = True


def unshown_of(ranges: Iterable[StrandedRange]) -> dict[TopicPartition, int]:
    """By partition from which offset on nobody is shown what is there."""
    hidden = (one for one in ranges if not one.is_shown and one.is_end_told)
    return {TopicPartition(one.topic, one.partition): one.first_offset for one in hidden}


def uncounted_of(ranges: Iterable[StrandedRange]) -> list[str]:
    """Of which it is not known whether any record there is the source's alone, though everybody is shown them."""
    uncounted = (one for one in ranges if one.is_shown and one.records is None)
    return [f"{one.topic}-{one.partition} [{one.first_offset}, {one.end_offset})" for one in uncounted]


def untold_of(ranges: Iterable[StrandedRange]) -> list[TopicPartition]:
    """Of which it is not known how far their logs go."""
    return [TopicPartition(one.topic, one.partition) for one in ranges if not one.is_end_told]


async def stranded_ranges(
    link: Link,
    source: Cluster,
    target: Cluster,
    fenced: Snapshot,
    is_closed: Callable[[str], bool] = lambda _topic: False,
    until_s: float | None = None,
    none_in: CountedNone | None = None,
) -> tuple[StrandedRange, ...]:
    """What the source has beyond what was mirrored at the fence, in partitions that were born since, too; all of a
    topic that was made anew.

    Records that came from the target, by a link back say, do not count: it has them. Nor do those of which somebody
    said that they stay there. What nobody is shown, though it has had the time for it, is a range of its own, and so is
    what a leader does not tell; but for a topic that `is_closed` to every client since before the fence, as only a link
    back writes there. Who has time until `until_s`, by the clock of the running loop, is not told how many records they
    are where counting takes half of it; who looks again goes on behind what was read, with the same `none_in`. Raises
    ClientError.
    """
    mirrored = {
        TopicPartition(view.topic, view.partition): view.mirrored_source_next or 0 for view in fenced.partitions
    }
    entries = await read_entries(link, target)
    topics = await list_topics(source, entries.mirrored_topics())
    others = {TopicPartition(*at): 0 for at in entries.of_other_topics(topics)}
    mirrored |= others
    for gap in sorted(entries.left_at_source(), key=lambda gap: gap.source_from):
        where = TopicPartition(gap.topic, gap.partition)
        is_of_former = where in others and gap.status is not GapStatus.ACCEPTED  # the link went on behind it there
        if not is_of_former and gap.source_from <= mirrored.get(where, 0):
            mirrored[where] = max(mirrored.get(where, 0), gap.source_to)
    wanted = _selected(link, topics)
    none_in = none_in or CountedNone()
    none_in.stand_on(topics)
    ends = await log_ends(source, wanted, UNSHOWN_WAIT_S)
    unshown_there = {at: end for at, end in ends.items() if isinstance(end, LogEnd) and end.has_unshown}
    counter, brought = None, None
    if unshown_there and (counter := await carried_counter(link, source, target)) is not None:
        brought = await counter.on_their_way(unshown_there.keys())
        ends |= await _still_unshown(source, unshown_there)
    stable = await log_end_offsets(source, wanted, IsolationLevel.READ_COMMITTED)
    grown, unshown = [], []
    for where, end in sorted(ends.items()):
        if isinstance(end, ClientError):
            raise end
        begins = none_in.behind(where, mirrored.get(where, 0))
        if end.shown > begins:
            grown.append(StrandedRange(*where, begins, end.shown, None))
        behind = max(begins, end.shown)
        if not is_closed(where.topic) and (end.appended is None or end.appended > behind):
            is_told = end.appended is not None
            one = StrandedRange(*where, behind, end.appended or behind, None, is_shown=False, is_end_told=is_told)
            may_be = brought is None or brought.may_be(where, one.end_offset - behind)
            unshown.append(replace(one, may_be_brought=is_told and may_be))
    if grown and counter is None:
        counter = await carried_counter(link, source, target)
    counted = await _counted(counter, grown, stable, none_in, half_way(until_s)) if grown else []
    found = [stranded for stranded in counted if stranded.records != 0]
    return tuple(sorted([*found, *unshown], key=lambda one: (one.topic, one.partition, one.first_offset)))


async def _still_unshown(
    source: Cluster, before: Mapping[TopicPartition, LogEnd]
) -> dict[TopicPartition, LogEnd | ClientError]:
    """What of it is not shown yet: of what has come meanwhile nothing was asked."""
    found = await log_ends(source, before)
    for where, end in found.items():
        if isinstance(end, LogEnd):
            told = [at for at in (before[where].appended, end.appended) if at is not None]
            found[where] = LogEnd(end.shown, max(end.shown, min(told)))
    return found


async def source_partitions(link: Link, source: Cluster, known: Iterable[str] = ()) -> list[TopicPartition]:
    """All that the link selects, as the source lists them now. Raises ClientError, also where it hides one of the
    `known` topics.
    """
    return _selected(link, await list_topics(source, known))


def _selected(link: Link, topics: Mapping[str, Topic]) -> list[TopicPartition]:
    return [
        TopicPartition(name, partition.partition)
        for name, topic in topics.items()
        if link.selects_topic(name) and name != link.canary_topic
        for partition in topic.partitions
    ]


async def carried_counter(link: Link, source: Cluster, target: Cluster) -> CarriedCounter | None:
    """None where a registry is lost: then nobody can say whose records they are. Raises ClientError."""
    try:
        return await CarriedCounter.look(link, source, target)
    except MirrorError:
        return None


async def _counted(
    counter: CarriedCounter | None,
    grown: Sequence[StrandedRange],
    stable: Mapping[TopicPartition, int],
    none_in: CountedNone,
    until_s: float | None,
) -> list[StrandedRange]:
    """In COUNT_MS, all together, and until `until_s`. Markers are no records; what is in an open transaction may be."""
    counts = {}
    for stranded in grown:
        where = TopicPartition(stranded.topic, stranded.partition)
        if counter is not None and stable.get(where, 0) >= stranded.end_offset:
            span = stranded.first_offset, stranded.end_offset
            counts[where] = partial(counter.count, where, *span, partial(none_in.note, where, span[0]))
    records = await count_in_turn(counts, counted_until_s(until_s))
    counted = []
    for stranded in grown:
        where = TopicPartition(stranded.topic, stranded.partition)
        if records.get(where) == 0:
            none_in.note(where, stranded.first_offset, stranded.end_offset)
        begins = stable.get(where, stranded.end_offset)
        open_from = max(begins, stranded.first_offset) if begins < stranded.end_offset else None
        counted.append(replace(stranded, records=records.get(where), open_from_offset=open_from))
    return counted
