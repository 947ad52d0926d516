"""Whose is what a leader has and nobody is shown: a link back may be writing it, and the records cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class OnTheirWay:
    """By partition of the source how many offsets links may be writing there at the most; None: nobody knows that."""

    offsets_at_most: Mapping[TopicPartition, int | None]

    def may_be(self, where: TopicPartition, unshown_offsets: int) -> bool:
        """Whether so many may all be what is brought: of more than that some are somebody else's."""
        if where not in self.offsets_at_most:
            return False
        most = self.offsets_at_most[where]
        return most is None or unshown_offsets <= most


async def on_their_way(
    passage: Passage, source: Cluster, target: Cluster, unshown: Collection[TopicPartition]
) -> OnTheirWay:
    """Into which of these partitions of the source a link may be writing what comes from the target, and how much.

    One does that has written at the source, was not promoted, and has not brought all yet that the target has there:
    what it has brought is acknowledged, and so it is shown. Asked behind the look that found the leaders' ends; what is
    shown is asked once more behind this. Of a link that comes by a third site nobody here knows what it has still to
    bring. Nor does anybody where it cannot be asked: then it may be. The marker of a worker that starts while nothing
    is shown takes an offset, too, and counts as somebody else's.
    """
    written = {one.link for one in passage.at_source.registered()}
    found: dict[TopicPartition, int | None] = {}
    for back in passage.link.reverse_links:
        if back.name in written:
            for where, offsets in (await _behind(back, source, target, unshown)).items():
                before = found.get(where, 0)
                found[where] = None if offsets is None or before is None else before + offsets
    for by_third in passage.link.round_links:
        if by_third.name in written and not await _is_promoted(by_third, source):
            found |= dict.fromkeys(where for where in unshown if by_third.source_topic(where.topic) is not None)
    return OnTheirWay(found)


async def _behind(
    back: Link, source: Cluster, target: Cluster, unshown: Iterable[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """How many offsets it has still to bring, by partitions for which it has any."""
    names = {where: back.source_topic(where.topic) for where in unshown}
    there = {where: TopicPartition(name, where.partition) for where, name in names.items() if name is not None}
    if not there:
        return {}
    try:  # first what there is to bring, then what was brought
        spans = await log_spans(target, there.values(), IsolationLevel.READ_COMMITTED)
        state = await load_link_state(back, source)
    except (ClientError, MirrorError):
        return dict.fromkeys(there)
    if promotion_of(state.entries) is not None:
        return {}
    behind: dict[TopicPartition, int | None] = {}
    for where, at in there.items():
        span, end = spans[at], state.map.mirrored_end(*at)
        if not isinstance(span, LogSpan):
            is_there = not (isinstance(span, KafkaError) and span.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            behind |= {where: None} if is_there else {}
            continue
        position = span.start if end is None else max(end.source_next, span.start)
        if at in state.unread:
            behind[where] = None
        elif position < span.end:
            behind[where] = span.end - position
    return behind


async def _is_promoted(link: Link, source: Cluster) -> bool:
    try:
        return promotion_of(await read_entries(link, source, only=())) is not None
    except (ClientError, MirrorError):
        return False
