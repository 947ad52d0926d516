"""Asking both clusters for all that decides where each partition goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.client.topics import describe_topics
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.state import StateEntries
from mirror.offsets.tail import Tail, read_tails
from mirror.topics.plan import MirroredTopic
from mirror.worker.comparing import compare_logs
from mirror.worker.origins import OriginRegistry
from mirror.worker.resume import Evidence, SourceLog


def partition_pairs(mirrored: Iterable[MirroredTopic]) -> dict[TopicPartition, TopicPartition]:
    """Source partition -> target partition."""
    return {
        TopicPartition(topic.source_topic, number): TopicPartition(topic.target_topic, number)
        for topic in mirrored
        for number in range(topic.partitions)
    }


async def gather_evidence(
    link: Link,
    clusters: tuple[Cluster, Cluster],
    entries: StateEntries,
    mirrored: Iterable[MirroredTopic],
    pairs: Mapping[TopicPartition, TopicPartition],
    registry: OriginRegistry | None,
) -> dict[TopicPartition, Evidence]:
    """Per source partition of `pairs`. Final only after the fence. Raises ClientError."""
    source, target = clusters
    starts = await log_start_offsets(source, pairs)
    ends = await log_end_offsets(source, pairs)
    known = {where: checkpoint for where, checkpoint in entries.checkpoints.items() if where in pairs}
    tails = await read_tails(target, link, known)
    fresh = await log_end_offsets(target, [there for where, there in pairs.items() if where not in tails])
    source_ids = {topic.source_topic: str(topic.source_topic_id or "") for topic in mirrored}
    target_topics = await describe_topics(target, {there.topic for there in pairs.values()})
    target_ids = {name: str(topic.topic_id or "") for name, topic in target_topics.items()}
    evidence: dict[TopicPartition, Evidence] = {}
    for where, there in pairs.items():
        checkpoint = known.get(where)
        known_id = checkpoint.topic_ids.source if checkpoint else ""
        known_id = known_id or entries.topic_ids.get(where.topic, "")
        evidence[where] = Evidence(
            where=where,
            shared=link.shared_targets,
            source=SourceLog(starts[where], ends[where], source_ids[where.topic], known_id),
            tail=tails.get(where) or Tail(0, fresh[there]),
            recorded=tuple(entries.intervals(*where)),
            blocks=tuple(entries.blocks_of(*where)),
            checkpoint=checkpoint,
            now_ms=target.clock.now_ms(),
            gaps=entries.undecided_gaps(*where),
            target_topic_id=target_ids.get(there.topic, ""),
        )
    compared = await compare_logs(clusters, evidence, pairs, registry)
    return {
        where: replace(found, comparison=compared[where]) if where in compared else found
        for where, found in evidence.items()
    }
