"""Asking both sites what an incremental audit goes by: are the logs those of the last run, and where does it begin?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from broker.client.cluster import Cluster
from broker.client.epochs import leader_epoch_ends
from broker.client.fanout import split_failures
from broker.client.model import Topic
from broker.client.offsets import list_each_offset
from broker.client.topics import describe_each_topic
from broker.wire.vocabulary import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from mirror.api import Link
from monitoring.audit.frozen import SiteSeen
from monitoring.audit.model import FrozenPartition, LogMark, LostProof, Marks, ProvedPart, Side, Span
from monitoring.audit.proof import LinkProof, LogNow, why_lost
from monitoring.errors import AuditError


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a link is audited: all without `topics`, from the beginning without `since_ms`, not what is proved."""

    proof: LinkProof
    topics: Collection[str] = ()
    since_ms: int | None = None


async def with_history(
    link: Link, partitions: Collection[FrozenPartition], scope: Scope, sites: Mapping[Side, tuple[Cluster, SiteSeen]]
) -> tuple[tuple[FrozenPartition, ...], tuple[LostProof, ...]]:
    """The partitions with what is proved of them and with what tells their logs from others; and which proofs are lost.

    Raises AuditError for a topic that the link does not mirror.
    """
    if unknown := sorted(set(scope.topics) - {item.topic for item in partitions}):
        raise AuditError(f"link {link.name} mirrors no topic {unknown[0]}", "see which it does: farshore topic list")
    (source, _), (target, _) = sites[Side.SOURCE], sites[Side.TARGET]
    proofs = {(link.target_topic(proof.topic), proof.topic, proof.partition): proof for proof in scope.proof.partitions}
    epochs = {
        Side.SOURCE: {TopicPartition(here, n): p.marks.source.leader_epoch for (_, here, n), p in proofs.items()},
        Side.TARGET: {TopicPartition(there, n): p.marks.target.leader_epoch for (there, _, n), p in proofs.items()},
    }
    logs = {side: await _logs_now(*sites[side], epochs[side]) for side in Side}
    state, _ = await describe_each_topic(target, [link.state_topic])
    state_id = _topic_id(state.get(link.state_topic))
    since = await _since(source, partitions, scope.since_ms)
    found, lost = [], []
    for item in partitions:
        here, there = TopicPartition(item.topic, item.partition), TopicPartition(item.target_topic, item.partition)
        now = {Side.SOURCE: logs[Side.SOURCE].get(here), Side.TARGET: logs[Side.TARGET].get(there)}
        known = {side: log for side, log in now.items() if log is not None}
        proof = proofs.get((item.target_topic, item.topic, item.partition))
        proved: tuple[ProvedPart, ...] = ()
        if proof is not None and len(known) == len(now):
            why = why_lost(proof, item, known, state_id)
            if why is None:
                proved = proof.parts
            else:
                lost.append(LostProof(item.topic, item.partition, why))
        found.append(
            replace(
                item,
                marks=_marks(known, state_id),
                proved=proved,
                since=since.get(here),
                is_asked=not scope.topics or item.topic in scope.topics,
            )
        )
    return tuple(found), tuple(lost)


def _marks(logs: Mapping[Side, LogNow], state_id: str | None) -> Marks | None:
    marks = [log.mark for side in Side if (log := logs.get(side)) is not None]
    source, target = marks if len(marks) == len(Side) else (None, None)
    return None if source is None or target is None or state_id is None else Marks(source, target, state_id)


async def _logs_now(
    cluster: Cluster, seen: SiteSeen, proved: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LogNow]:
    """`proved`: leader epochs that a proof names. Asked behind the logs' ends, so a cut in between shows."""
    current = {where: epoch for where in seen.logs if (epoch := cluster.leader_epoch(where)) != NO_LEADER_EPOCH}
    newest, _ = split_failures(await leader_epoch_ends(cluster, current))
    asked = {where: epoch for where, epoch in proved.items() if where in seen.logs}
    named, _ = split_failures(await leader_epoch_ends(cluster, asked))
    found = {}
    for where, span in seen.logs.items():
        topic_id, last, then = _topic_id(seen.topics.get(where.topic)), newest.get(where), named.get(where)
        mark = None
        if topic_id is not None and last is not None and last.is_known:
            mark = LogMark(topic_id, span.start, last.leader_epoch)
        found[where] = LogNow(mark, span.end, then.end_offset if then is not None and then.is_known else None)
    return found


def _topic_id(topic: Topic | None) -> str | None:
    return None if topic is None or topic.topic_id is None else str(topic.topic_id)


async def _since(
    source: Cluster, partitions: Collection[FrozenPartition], since_ms: int | None
) -> dict[TopicPartition, int]:
    """The first source offset at or after the time, of those that could be asked; where there is none the end."""
    if since_ms is None:
        return {}
    ends = {TopicPartition(item.topic, item.partition): item.source for item in partitions if item.source != Span(0, 0)}
    found, _ = split_failures(await list_each_offset(source, dict.fromkeys(ends, since_ms)))
    return {where: at.offset if at.offset != NO_OFFSET else ends[where].end for where, at in found.items()}
