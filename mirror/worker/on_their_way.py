"""Whose is what a leader has and nobody is shown: a link back may be writing it, and the records cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.offsets import LogSpan, log_spans
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.errors import MirrorError
from mirror.link import Link
from mirror.offsets.promotions import promotion_of
from mirror.offsets.state import load_link_state, read_entries
from mirror.worker.origins import Passage


async def may_be_brought(
    passage: Passage, source: Cluster, target: Cluster, unshown: Collection[TopicPartition]
) -> frozenset[TopicPartition]:
    """Those of these partitions of the source into which a link may be writing what comes from the target.

    One does that has written at the source, was not promoted, and has not brought all yet that the target has there:
    what it has brought is acknowledged, and so it is shown. Asked behind the look that found the leaders' ends; what is
    shown is asked once more behind this. Of a link that comes by a third site nobody here knows what it has still to
    bring. Nor does anybody where it cannot be asked: then it may be.
    """
    written = {one.link for one in passage.at_source.registered()}
    found: set[TopicPartition] = set()
    for back in passage.link.reverse_links:
        if back.name in written:
            found |= await _behind(back, source, target, unshown)
    for by_third in passage.link.round_links:
        if by_third.name in written and not await _is_promoted(by_third, source):
            found |= {where for where in unshown if by_third.source_topic(where.topic) is not None}
    return frozenset(found)


async def _behind(
    back: Link, source: Cluster, target: Cluster, unshown: Iterable[TopicPartition]
) -> set[TopicPartition]:
    names = {where: back.source_topic(where.topic) for where in unshown}
    there = {where: TopicPartition(name, where.partition) for where, name in names.items() if name is not None}
    if not there:
        return set()
    try:  # first what there is to bring, then what was brought
        spans = await log_spans(target, there.values(), IsolationLevel.READ_COMMITTED)
        state = await load_link_state(back, source)
    except (ClientError, MirrorError):
        return set(there)
    if promotion_of(state.entries) is not None:
        return set()
    behind = set()
    for where, at in there.items():
        span, end = spans[at], state.map.mirrored_end(*at)
        if not isinstance(span, LogSpan):
            is_there = not (isinstance(span, KafkaError) and span.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            behind |= {where} if is_there else set()
            continue
        position = span.start if end is None else max(end.source_next, span.start)
        if at in state.unread or position < span.end:
            behind.add(where)
    return behind


async def _is_promoted(link: Link, source: Cluster) -> bool:
    try:
        return promotion_of(await read_entries(link, source, only=())) is not None
    except (ClientError, MirrorError):
        return False
