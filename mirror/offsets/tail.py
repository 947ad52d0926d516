"""The headers in the target's logs behind the checkpoints: what landed after the last proof."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError, ReadUnfinished
from broker.client.fanout import both, split_failures
from broker.client.model import Topic
from broker.client.offsets import LogSpan, log_spans
from broker.client.scan import OffsetSpan, scan_each
from broker.client.topics import Described, describe_each_topic
from broker.wire.batch import BatchHeader
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Writer
from mirror.offsets.fenced_logs import NOT_FENCED, FencedLog, LogsFenced, is_fence
from mirror.offsets.intervals import End
from mirror.offsets.recovery import SEQUENCE_MASK, OffsetRange, Recovered, TailBatch

EPOCHS_TO_NEXT_MARKER: Final = 2
"""A start takes one for its claim, and the next for its markers. What took place before that took more."""


@dataclass(slots=True)
class Tail:
    """Batches from a checkpoint to the log end, in order; or to where nothing of the link can follow.

    `unclear`: of what is gone before the first of them it is not known what it was, in words; "" where that is known.
    `gone` is that, where nothing that is left tells what it was: no other link may have written there.
    """

    log_start: int
    log_end: int
    batches: list[TailBatch] = field(default_factory=list)
    unclear: str = ""
    gone: OffsetRange | None = None

    @property
    def guess(self) -> TailBatch | None:
        """What stands in for deleted batches: the one batch that ends before the log's start."""
        return self.batches[0] if self.batches and self.batches[0].last_offset < self.log_start else None

    def without_guess(self) -> Tail:
        return replace(self, batches=self.batches[self.guess is not None :], gone=None)


@dataclass(frozen=True, slots=True)
class PartOfTail:
    """What was read of a tail in the time that there was, in the topic of this id. The batch that was `last` is held
    against the log before it is gone on behind it: that may have lost its end since, and have grown.
    """

    behind: tuple[End, Writer, int]
    topic_id: str
    batches: list[TailBatch]
    last: TailBatch

    def is_of(self, checkpoint: Checkpoint, topic_id: str, tail: Tail) -> bool:
        """Whether it may be of the tail behind this checkpoint, as its log is now."""
        is_there = tail.log_start <= checkpoint.end.target_next and self.last.last_offset < tail.log_end
        return is_there and self.behind == _behind(checkpoint) and topic_id == self.topic_id != ""


PartsOfTails: TypeAlias = dict[tuple[str, int], PartOfTail]


@dataclass(slots=True)
class _Reading:
    """Of one `tail`, in the topic of this id. `before`: what was read of it then, until that is found in the log again;
    `last`: the last batch.
    """

    tail: Tail
    checkpoint: Checkpoint
    topic_id: str
    before: PartOfTail | None = None
    last: TailBatch | None = None
    is_another: bool = False

    def go_on(self, span: OffsetSpan, before: PartOfTail | None) -> OffsetSpan:
        """What is to be read of the span."""
        if before is None or not before.is_of(self.checkpoint, self.topic_id, self.tail):
            return span
        self.before, self.tail.batches = before, before.batches
        return OffsetSpan(before.last.base_offset, span.end)

    def take(self, batch: TailBatch) -> None:
        """The first one is held against what was read before."""
        self.last = batch
        if self.before is None:
            self.tail.batches.append(batch)
        else:
            self.is_another, self.before = self.before.last != batch, None

    def is_of_another(self, is_unread: bool) -> bool:
        """Whether the log is another one than was read before: it has not that batch, in its place or at all."""
        self.is_another |= self.before is not None and not is_unread
        return self.is_another

    def kept(self) -> PartOfTail | None:
        """For the next reading; None: that begins anew."""
        if self.is_another or self.last is None:
            return None if self.is_another else self.before
        return PartOfTail(_behind(self.checkpoint), self.topic_id, self.tail.batches, self.last)


def _another(where: TopicPartition, target: Cluster) -> ReadUnfinished:
    return ReadUnfinished(f"{where} at {target.site.name} is another log than was read before, and is read anew")


def _behind(checkpoint: Checkpoint) -> tuple[End, Writer, int]:
    return checkpoint.end, checkpoint.writer, checkpoint.sequence


async def read_tails(
    target: Cluster,
    link: Link,
    checkpoints: Mapping[tuple[str, int], Checkpoint],
    log_ends: Mapping[TopicPartition, int] | None = None,
    patience_ms: int | None = None,
    described: Described | None = None,
    fenced: LogsFenced | None = None,
    parts: PartsOfTails | None = None,
) -> dict[tuple[str, int], Tail | ClientError]:
    """Per (source topic, partition) the tail, or why it cannot be read; one that the target does not have is left out.

    `log_ends` (per target partition; None: as they are now) bound it. While a worker runs they must be older than the
    checkpoints and the blocks: then the blocks of every batch before them are known. `described`: the target's topics
    as they were just seen. `fenced`: of who asks for what the checkpoints' writers wrote, and not what others did: then
    nothing is read behind what these say of the logs, or behind the marker of a later fence.

    Where retention at an exclusive target has already deleted what lies behind the checkpoint, a batch of the
    writer stands in for it: nobody else could have written there. Where it may have held markers it is `unclear`. A
    tail that is not read in `patience_ms` (None: no limit) has ReadUnfinished. `parts`: of who reads such a one again:
    what was read of it stands there, and is gone on behind. Raises ClientError.
    """
    told = [TopicPartition(link.target_topic(topic), partition) for topic, partition in checkpoints]
    topics, unclear, spans_told = await _look(target, told, log_ends, described)
    failures: dict[tuple[str, int], ClientError] = {
        where: unclear[link.target_topic(where[0])] for where in checkpoints if link.target_topic(where[0]) in unclear
    }
    found = _at_target(link, checkpoints, topics)
    logs, failed = split_failures({where: spans_told[where] for where in found if where in spans_told})
    failures |= {found[where]: error for where, error in failed.items()}
    ends = log_ends if log_ends is not None else {where: span.end for where, span in logs.items()}
    found = {where: source for where, source in found.items() if where in logs}
    tails: dict[tuple[str, int], Tail] = {}
    spans: dict[TopicPartition, OffsetSpan] = {}
    readings: dict[TopicPartition, _Reading] = {}
    parts = {} if parts is None else parts
    for where, source in found.items():
        tail = tails[source] = Tail(logs[where].start, ends[where])
        topic_id = str(topics[where.topic].topic_id or "")
        reading = readings[where] = _Reading(tail, checkpoints[source], topic_id)
        span = _unread(tail, checkpoints[source], (fenced or NOT_FENCED).get(source), topic_id)
        spans[where] = reading.go_on(span, parts.pop(source, None))

    def visit(where: TopicPartition, header: BatchHeader, _batch: memoryview) -> None:
        at, writer = (header.base_offset, header.last_offset), (header.producer_id, header.producer_epoch)
        readings[where].take(batch := TailBatch(*at, *writer, header.base_sequence, header.is_control))
        if fenced is not None and is_fence(batch, checkpoints[found[where]]):
            spans[where] = OffsetSpan(spans[where].start, header.next_offset)

    unread = await scan_each(target, spans, visit, patience_ms)
    unread |= {where: _another(where, target) for where, one in readings.items() if one.is_of_another(where in unread)}
    late = [where for where, error in unread.items() if isinstance(error, ReadUnfinished)]
    parts |= {found[where]: kept for where in late if (kept := readings[where].kept()) is not None}
    if not link.shared_targets:
        tails = {source: stand_in(checkpoints[source], tail) for source, tail in tails.items()}
    return {**tails, **failures, **{found[where]: error for where, error in unread.items()}}


def _at_target(
    link: Link, sources: Iterable[tuple[str, int]], topics: Mapping[str, Topic]
) -> dict[TopicPartition, tuple[str, int]]:
    """Of each that is there the source's."""
    found = {TopicPartition(link.target_topic(topic), partition): (topic, partition) for topic, partition in sources}
    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    return {at: source for at, source in found.items() if at.partition < counts.get(at.topic, 0)}


def _unread(tail: Tail, checkpoint: Checkpoint, fenced: FencedLog | None, topic_id: str) -> OffsetSpan:
    """Where batches may stand that tell something, of a target topic with this id."""
    read_to = fenced.read_to(checkpoint, topic_id) if fenced is not None else None
    end = tail.log_end if read_to is None else min(read_to, tail.log_end)
    return OffsetSpan(max(checkpoint.end.target_next, tail.log_start), end)


async def _look(
    target: Cluster,
    told: Collection[TopicPartition],
    log_ends: Mapping[TopicPartition, int] | None,
    described: Described | None,
) -> tuple[Mapping[str, Topic], Mapping[str, KafkaError], dict[TopicPartition, LogSpan | ClientError]]:
    """The topics of these partitions, why others cannot be described, and the logs of those that are there."""
    if described is None and log_ends is not None:  # those are there: over a distance a round trip less
        describing = describe_each_topic(target, {where.topic for where in told})
        seen, spans = await both(describing, log_spans(target, [at for at in told if at in log_ends]))
        return *seen, spans
    topics, unclear = described or await describe_each_topic(target, {where.topic for where in told})
    there = [where for where in told if where.topic in topics and where.partition < len(topics[where.topic].partitions)]
    return topics, unclear, await log_spans(target, there)


def stand_in(checkpoint: Checkpoint, tail: Tail) -> Tail:
    """With a batch of the writer for what retention deleted behind the checkpoint; `unclear` if it may hold a marker.

    A log may begin inside of a batch, whose header still says all of it: nothing stands in for that.
    A marker that is taken for a record is a source record that is lost, the other way round one that is repeated.
    """
    first = checkpoint.end.target_next
    begins = min([tail.log_start, *(batch.base_offset for batch in tail.batches[:1])])
    if begins <= first:
        return tail
    if checkpoint.records_behind >= 0 and not any(_is_ours(checkpoint, batch) for batch in tail.batches):
        count = checkpoint.records_behind
        known = TailBatch(first, first + count - 1, *checkpoint.writer, checkpoint.sequence, is_control=False)
        batches = [known, *tail.batches] if count else tail.batches
        return replace(tail, batches=batches, gone=OffsetRange(first, begins - 1))
    records = _records_before(begins, checkpoint, tail.batches)
    if records is None:
        unclear = f"target offsets {first} to {begins - 1} are gone, and nothing says how many of them were records"
        return replace(tail, unclear=unclear)
    if records != begins - first:
        return tail  # the sequence of what is left says all that recovery needs
    guess = TailBatch(first, begins - 1, *checkpoint.writer, checkpoint.sequence, is_control=False)
    return replace(tail, batches=[guess, *tail.batches], gone=OffsetRange(first, begins - 1))


def settle(checkpoint: Checkpoint, tail: Tail, found: Recovered) -> Checkpoint | None:
    """The checkpoint that says how much of its writer stands behind it; None where it says so, or nobody can.

    `tail` must be final, and `found` what was recovered from it: then retention may take all of it, and whatever
    markers come behind it, and a start still knows where to go on.
    """
    first, count = checkpoint.end.target_next, found.sequences
    is_told = checkpoint.records_behind >= 0
    if is_told or tail.unclear or found.foreign or found.lost_at is not None or tail.log_end < first:
        return None
    if found.end.target_next != first + count:
        return None
    return replace(checkpoint, records_behind=count, marker_may_follow=False)


def _records_before(begins: int, checkpoint: Checkpoint, left: Iterable[TailBatch]) -> int | None:
    """How many records of the writer stood between the checkpoint and `begins`, where the rest begins; None: unknown.

    The first batch of the writer that is left tells by its sequence. Where a marker comes sooner, all was records only
    if that is of the very next start, and the state does not say that another one was to come before.
    """
    producer_id, epoch = checkpoint.writer
    others = 0
    for batch in left:
        if batch.is_control:
            is_next = batch.producer_id == producer_id and 0 < batch.producer_epoch - epoch <= EPOCHS_TO_NEXT_MARKER
            return begins - checkpoint.end.target_next if is_next and not checkpoint.marker_may_follow else None
        if _is_ours(checkpoint, batch):
            between = batch.base_offset - begins - others  # compaction has taken them since
            return ((batch.base_sequence - checkpoint.sequence) & SEQUENCE_MASK) - between
        others += batch.last_offset - batch.base_offset + 1
    return None


def _is_ours(checkpoint: Checkpoint, batch: TailBatch) -> bool:
    return (batch.producer_id, batch.producer_epoch) == checkpoint.writer and not batch.is_control


async def writable_partitions(
    target: Cluster, link: Link, only: Collection[tuple[str, int]] | None = None
) -> list[TopicPartition]:
    """The target's partitions whose topic is called as the link would call one of its topics; `only`: one of these."""
    names = None if only is None else {link.target_topic(topic) for topic, _ in only}
    topics, _unclear = await describe_each_topic(target, names)
    return writable_of(link, topics, only)


def writable_of(
    link: Link, topics: Mapping[str, Topic], only: Collection[tuple[str, int]] | None = None
) -> list[TopicPartition]:
    """As `writable_partitions`, of topics that were just described."""
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in topics.values()
        if (source_topic := link.source_topic(topic.name)) is not None
        for partition in topic.partitions
        if link.carries(source_topic, partition.partition)
        if only is None or (source_topic, partition.partition) in only
    ]
