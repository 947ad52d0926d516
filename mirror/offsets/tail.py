"""The headers in the target's log behind the checkpoints: what landed after the last proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.client.scan import OffsetSpan, scan_batches
from broker.client.topics import describe_topics
from broker.wire.batch import BatchHeader
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Checkpoint
from mirror.offsets.recovery import TailBatch


@dataclass(slots=True)
class Tail:
    """Batches from a checkpoint to the log end, in order."""

    log_start: int
    log_end: int
    batches: list[TailBatch] = field(default_factory=list)


async def read_tails(
    target: Cluster,
    link: Link,
    checkpoints: Mapping[tuple[str, int], Checkpoint],
    log_ends: Mapping[TopicPartition, int] | None = None,
) -> dict[tuple[str, int], Tail]:
    """Per (source topic, partition) the tail; a partition that the target no longer has is left out.

    `log_ends` (per target partition; None: as they are now) bound it. While a worker runs they must be older than the
    checkpoints and the blocks: then the blocks of every batch before them are known.

    Where retention at an exclusive target has already deleted what lies behind the checkpoint, a batch of the
    writer stands in for it: nobody else could have written there. Raises ClientError.
    """
    topics = await describe_topics(target, {link.target_topic(topic) for topic, _ in checkpoints})
    found: dict[TopicPartition, tuple[str, int]] = {}
    for topic, partition in checkpoints:
        name = link.target_topic(topic)
        if name in topics and partition < len(topics[name].partitions):
            found[TopicPartition(name, partition)] = (topic, partition)
    ends = log_ends if log_ends is not None else await log_end_offsets(target, found)
    found = {where: source for where, source in found.items() if where in ends}
    starts = await log_start_offsets(target, found)
    tails: dict[tuple[str, int], Tail] = {}
    spans: dict[TopicPartition, OffsetSpan] = {}
    for where, source in found.items():
        tail = tails[source] = Tail(starts[where], ends[where])
        checkpoint = checkpoints[source]
        first = checkpoint.end.target_next
        if tail.log_start > first and not link.shared_targets:
            gone = TailBatch(first, tail.log_start - 1, *checkpoint.writer, checkpoint.sequence, is_control=False)
            tail.batches.append(gone)
        spans[where] = OffsetSpan(max(first, tail.log_start), tail.log_end)

    def visit(where: TopicPartition, header: BatchHeader, _batch: memoryview) -> None:
        tails[found[where]].batches.append(
            TailBatch(
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.is_control,
            )
        )

    await scan_batches(target, spans, visit)
    return tails
