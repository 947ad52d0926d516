"""Asking both clusters for all that decides where each partition goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from broker.base.turns import in_turns
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, ReadUnfinished
from broker.client.fanout import both, split_failures
from broker.client.offsets import LogSpan, list_each_offset, log_spans
from broker.client.topics import Described, describe_each_topic
from broker.wire.vocabulary import LATEST, TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Checkpoint
from mirror.offsets.fenced_logs import LogsFenced
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.tail import PartsOfTails, Tail, read_tails
from mirror.origins import Registration
from mirror.topics.plan import MirroredTopic
from mirror.worker.comparing import compare_logs
from mirror.worker.holds import Holds
from mirror.worker.limits import PARTITIONS_AT_ONCE
from mirror.worker.logs import ClusterLogs
from mirror.worker.occupants import find_occupants, who_came_since, who_may_have_come
from mirror.worker.origins import Passage
from mirror.worker.resume import Evidence, SourceLog

A = TypeVar("A")
B = TypeVar("B")


def partition_pairs(link: Link, mirrored: Iterable[MirroredTopic]) -> dict[TopicPartition, TopicPartition]:
    """Source partition -> target partition, of the unit's own."""
    return {
        TopicPartition(topic.source_topic, number): TopicPartition(topic.target_topic, number)
        for topic in mirrored
        for number in range(topic.partitions)
        if link.carries(topic.source_topic, number)
    }


async def gather_evidence(
    link: Link,
    clusters: tuple[Cluster, Cluster],
    entries: StateEntries,
    mirrored: Iterable[MirroredTopic],
    pairs: Mapping[TopicPartition, TopicPartition],
    passage: Passage,
    holds: Holds,
    *,
    fenced: bool = True,
    patience_ms: int | None = None,
    fenced_logs: LogsFenced | None = None,
    parts: PartsOfTails | None = None,
) -> dict[TopicPartition, Evidence]:
    """Per source partition of `pairs`; those for which a site does not answer are held, and left out.

    So are those (`holds.late`) of which not all is known after `patience_ms`: of the tails, and of the comparison; None
    sets no limit. Final only after the fence, `fenced`. `fenced_logs`: of who does not ask what others
    wrote at the target, and `parts`, as in `read_tails`. Raises ClientError when a site does not answer at all.
    """
    source, target = clusters
    known = {where: checkpoint for where, checkpoint in entries.checkpoints.items() if where in pairs}
    at_target = _target_logs(link, target, pairs.values(), known, patience_ms, fenced_logs, parts)
    at_source = partial(_source_logs, source, pairs)
    (spans, now_ids), ((target_topics, _), read) = await _in_order(at_source, at_target, fenced=fenced)
    (logs, unasked), (tails, unread) = split_failures(spans), split_failures(read)
    fresh = [there for where, there in pairs.items() if where not in tails and where not in unread]
    ends, unended = split_failures(await list_each_offset(target, dict.fromkeys(fresh, LATEST)))
    for where, there in pairs.items():
        if where in unasked:
            holds.add_error(where, unasked[where], at_source=True)
        elif where in unread or there in unended:
            hold_unread(holds, where, unread.get(where) or unended[there])
    source_ids = {topic.source_topic: str(topic.source_topic_id or "") for topic in mirrored} | now_ids
    target_ids = {name: str(topic.topic_id or "") for name, topic in target_topics.items()}
    undecided = entries.undecided_gaps()
    evidence: dict[TopicPartition, Evidence] = {}
    async for where, there in in_turns(pairs.items(), PARTITIONS_AT_ONCE):
        if where in holds.current:
            continue
        checkpoint = known.get(where)
        known_id = (checkpoint.topic_ids.source if checkpoint else "") or entries.topic_ids.get(where.topic, "")
        evidence[where] = Evidence(
            where=where,
            shared=link.shared_targets,
            source=SourceLog(*logs[where], source_ids[where.topic], known_id),
            tail=tails.get(where) or Tail(0, ends[there].offset),
            recorded=entries.intervals(*where),
            blocks=tuple(entries.blocks_of(*where)),
            pages=tuple(entries.pages_of(*where)),
            checkpoint=checkpoint,
            now_ms=target.clock.now_ms(),
            gaps=undecided.get(where, ()),
            target_topic_id=target_ids.get(there.topic, ""),
            fenced=fenced,
            left_behind=passage.left_behind(checkpoint) if checkpoint else (),
        )
    return await _compared(clusters, evidence, pairs, passage, holds, patience_ms)


async def _in_order(
    at_source: Callable[[], Coroutine[Any, Any, A]], at_target: Coroutine[Any, Any, B], *, fenced: bool
) -> tuple[A, B]:
    """A mirror that goes on brings to the target what an earlier look at the source's ends did not have: it would seem
    to be lost there.
    """
    if fenced:
        return await both(at_source(), at_target)
    there = await at_target
    return await at_source(), there


async def _target_logs(
    link: Link,
    target: Cluster,
    partitions: Iterable[TopicPartition],
    known: Mapping[tuple[str, int], Checkpoint],
    patience_ms: int | None,
    fenced_logs: LogsFenced | None,
    parts: PartsOfTails | None,
) -> tuple[Described, dict[tuple[str, int], Tail | ClientError]]:
    """The topics, and the tails behind these checkpoints."""
    described = await describe_each_topic(target, {where.topic for where in partitions})
    tails = await read_tails(target, link, known, None, patience_ms, described, fenced_logs, parts)
    return described, tails


async def _source_logs(
    source: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, LogSpan | ClientError], dict[str, str]]:
    """The logs, and whose they are: a topic that was made anew since the start looked at it is another one.

    The ids are asked for behind the ends: those of an earlier moment may be of the topic before.
    """
    wanted = list(partitions)
    spans = await log_spans(source, wanted)
    return spans, await _ids_of(source, {where.topic for where in wanted})


async def _ids_of(source: Cluster, names: Collection[str]) -> dict[str, str]:
    topics, _ = await describe_each_topic(source, names)
    return {name: str(topic.topic_id or "") for name, topic in topics.items()}


async def _compared(
    clusters: tuple[Cluster, Cluster],
    evidence: Mapping[TopicPartition, Evidence],
    pairs: Mapping[TopicPartition, TopicPartition],
    passage: Passage,
    holds: Holds,
    patience_ms: int | None,
) -> dict[TopicPartition, Evidence]:
    """With what comparing both logs found; without those that are held by then."""
    source, target = clusters
    logs = (ClusterLogs(source), ClusterLogs(target))
    compared = await compare_logs(logs, evidence, pairs, passage, holds, patience_ms)
    found = {
        where: replace(known, comparison=compared[where]) if where in compared else known
        for where, known in evidence.items()
        if where not in holds.current
    }
    doubted = {where.topic for where, known in found.items() if known.comparison.is_doubted}
    now_ids = await _ids_of(source, doubted) if doubted else {}
    for where in [where for where in found if where.topic in now_ids]:  # what was compared may be of another topic
        found[where] = replace(found[where], source=found[where].source._replace(topic_id=now_ids[where.topic]))
    return found


def hold_unread(holds: Holds, where: TopicPartition, error: ClientError) -> None:
    """The target's log could not be read, or not in time."""
    if isinstance(error, ReadUnfinished):
        holds.add_late(where, error)
    else:
        holds.add_error(where, error, at_source=False)


async def with_occupants(
    link: Link,
    target: Cluster,
    evidence: Mapping[TopicPartition, Evidence],
    pairs: Mapping[TopicPartition, TopicPartition],
    writers: Mapping[int, Registration],
    holds: Holds,
    *,
    state_is_new: bool,
    patience_ms: int | None = None,
) -> dict[TopicPartition, Evidence]:
    """With who wrote where the link never did, or in its place; what cannot be said in time is held, and left out."""
    fresh = {pairs[where]: where for where, found in evidence.items() if found.checkpoint is None}
    found = dict(evidence)
    for there, occupant in (
        await find_occupants(link, target, fresh, writers, state_is_new=state_is_new, patience_ms=patience_ms)
    ).items():
        where = fresh[there]
        if isinstance(occupant, ClientError):
            hold_unread(holds, where, occupant)
            del found[where]
        else:
            found[where] = replace(found[where], occupant=occupant)
    for where, known in found.items():
        if known.checkpoint is not None:
            occupant = who_came_since(link, known.checkpoint, known.tail.batches, writers)
            if not occupant and (occupant := who_may_have_come(link, pairs[where], known.tail, writers)):
                known = replace(known, tail=known.tail.without_guess())
            if occupant:
                found[where] = replace(known, occupant=occupant)
    return found
