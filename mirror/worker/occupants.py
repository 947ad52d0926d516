"""Who wrote into a target partition before the link ever did, or in its place, as far as its state knows.

A link whose state was deleted, or that was renamed, would mirror everything a second time; one that is pointed at the
wrong topic would mix its records with others'. One whose state is old, because another link from the same source took
its place for a while (it was renamed there and back), would mirror once more what that one brought. The batches in the
log say who wrote them, and the registry of producer ids says which of those were links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.offsets import log_spans
from broker.client.scan import OffsetSpan, scan_each
from broker.wire.batch import BatchHeader
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Checkpoint
from mirror.offsets.recovery import TailBatch
from mirror.offsets.tail import Tail
from mirror.origins import Registration, writer_of

WINDOW_OFFSETS: Final = 1_000
"""Looked at before it is asked whether that was enough: a fence's marker is one, and an idle partition has many."""
WINDOW_GROWTH: Final = 4


async def find_occupants(
    link: Link,
    target: Cluster,
    partitions: Iterable[TopicPartition],
    writers: Mapping[int, Registration],
    *,
    state_is_new: bool,
    patience_ms: int | None = None,
) -> dict[TopicPartition, str | ClientError]:
    """Per target partition that must not simply be mirrored into: who wrote there, in words; or why that is not known.

    Into an exclusive target nobody may have written. A shared one has writers of its own; there only what came from the
    link's source counts, and is looked for only where it can be: the link's state is new, though a link from that
    source was registered before (`writers`). One of which that is not known after `patience_ms` (None: no limit) has
    ReadUnfinished. Raises ClientError when the target does not answer at all.
    """
    earlier = {producer_id for producer_id, writer in writers.items() if link.source.name in writer.origins}
    if link.shared_targets and not (state_is_new and earlier):
        return {}
    spans, failures = split_failures(await log_spans(target, partitions))
    found: dict[TopicPartition, str | ClientError] = dict(failures)
    left = {where: OffsetSpan(span.start, span.end) for where, span in spans.items() if span.start < span.end}

    def visit(where: TopicPartition, header: BatchHeader, _batch: memoryview) -> None:
        counts = header.producer_id in earlier if link.shared_targets else not header.is_control
        if counts and not header.is_control and header.record_count and where not in found:
            found[where] = _words(link, header, writers)

    began_s, left_ms, size = target.clock.monotonic(), patience_ms, WINDOW_OFFSETS
    while left:
        windows = {where: OffsetSpan(span.start, min(span.end, span.start + size)) for where, span in left.items()}
        size *= WINDOW_GROWTH
        if patience_ms is not None:
            left_ms = max(0, patience_ms - round(1000 * (target.clock.monotonic() - began_s)))
        found = {**await scan_each(target, windows, visit, left_ms), **found}
        left = {
            where: OffsetSpan(windows[where].end, span.end)
            for where, span in left.items()
            if where not in found and windows[where].end < span.end
        }
    return found


def who_came_since(
    link: Link, checkpoint: Checkpoint, tail: Iterable[TailBatch], writers: Mapping[int, Registration]
) -> str:
    """Which link from the same source wrote behind the checkpoint, in words; "" for none.

    Also this link itself, where its state lost the later checkpoints. A link's own batches of the session that wrote
    the checkpoint are none of these, nor are markers.
    """
    found = [
        batch
        for batch in tail
        if not batch.is_control
        and (batch.producer_id, batch.producer_epoch) != checkpoint.writer
        and batch.producer_id in writers
        and writers[batch.producer_id].source.name == link.source.name
    ]
    if not found:
        return ""
    names = sorted({writers[batch.producer_id].link for batch in found} - {link.name})
    who = f"link {', '.join(names)}" if names else "this link"
    span = f"{found[0].base_offset} to {found[-1].last_offset}"
    return f"{who} wrote target offsets {span}, from {link.source.name}, and the link's state knows of none of them"


def who_may_have_come(link: Link, there: TopicPartition, tail: Tail, writers: Mapping[int, Registration]) -> str:
    """Which other links from the same source may have written what the target deleted behind the checkpoint, in words.

    "" where nothing is gone that counts, or where no other link from there ever wrote such a topic.
    """
    gone = tail.gone
    if gone is None:
        return ""
    names = {
        writer.link
        for writer in writers.values()
        if writer.source.name == link.source.name and writer.link != link.name
        if writer.topics is None or writer_of(writer, link.target).source_topic(there.topic) is not None
    }
    if not names:
        return ""
    who = f"link {', '.join(sorted(names))} may have written them, from {link.source.name}"
    return f"target offsets {gone.first} to {gone.last} are gone, and {who}"


def _words(link: Link, header: BatchHeader, writers: Mapping[int, Registration]) -> str:
    at = f"the target has records at offset {header.base_offset} on, and the link's state knows of none"
    writer = writers.get(header.producer_id)
    if writer is None:
        return f"{at}: written by a local producer"
    who = "this link wrote them earlier" if writer.link == link.name else f"link {writer.link} wrote them"
    return f"{at}: {who}, from {writer.source.name}"
