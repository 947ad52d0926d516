"""From what both sites and the link's state said to frozen partitions: a pure function of what was seen.

Every partition that any of the three knows of becomes one, so that none is left out without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from broker.client.model import Topic
from broker.wire.vocabulary import TopicPartition
from mirror.api import GapStatus, Link, OffsetMap, RunState, StateEntries
from monitoring.audit.model import FrozenPartition, Span, Step
from monitoring.audit.reasons import Reason

TIMESTAMP_TYPE = "message.timestamp.type"
CLEANUP_POLICY = "cleanup.policy"
LOG_APPEND_TIME = "LogAppendTime"
NOTHING = Span(0, 0)


@dataclass(frozen=True, slots=True)
class SiteSeen:
    """One site: its topics by name, the spans of their logs, their configs. What could not be told is not there.

    `stable` spans end at the last stable offset, and were asked after `logs`, whole logs.
    `unclear` are topics that exist, or may, and could not be described. `beyond_spark`: a timestamp there is.
    """

    topics: Mapping[str, Topic]
    logs: Mapping[TopicPartition, Span]
    stable: Mapping[TopicPartition, Span]
    configs: Mapping[str, Mapping[str, str]]
    unclear: Collection[str] = ()
    beyond_spark: Collection[TopicPartition] = ()

    def has(self, where: TopicPartition) -> bool:
        topic = self.topics.get(where.topic)
        return topic is not None and any(item.partition == where.partition for item in topic.partitions)

    def is_readable(self, where: TopicPartition) -> bool:
        """False where there is a partition, or may be one, of which nobody could say where it stands."""
        if where.topic in self.unclear:
            return False
        return not self.has(where) or (where in self.logs and where in self.stable and where.topic in self.configs)

    def opened(self, where: TopicPartition) -> Span | None:
        """What lies behind the beginning of an open transaction, if there is one."""
        log, stable = self.logs.get(where), self.stable.get(where)
        return Span(stable.end, log.end) if log is not None and stable is not None and stable.end < log.end else None


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was asked. `entries` was read before everything else; `offset_map` has no partition of `unread`."""

    link: Link
    entries: StateEntries
    offset_map: OffsetMap
    unread: Collection[tuple[str, int]]
    source: SiteSeen
    target: SiteSeen


def frozen_partitions(seen: Seen) -> list[FrozenPartition]:
    """Every partition that the source has, the link's state knows, or the target has of a mirrored topic; sorted."""
    link = seen.link
    found = {where for where in _partitions(seen.source.topics) if is_mirrored(link, where.topic)}
    sources = {link.target_topic(name): name for name in seen.source.topics if is_mirrored(link, name)}
    found |= {
        TopicPartition(sources[there.topic], there.partition)
        for there in _partitions(seen.target.topics)
        if there.topic in sources
    }
    found |= {TopicPartition(*where) for where in seen.entries.checkpoints if is_mirrored(link, where[0])}
    known = {where.topic for where in found}
    found |= {TopicPartition(name, 0) for name in seen.source.unclear if is_mirrored(link, name) and name not in known}
    return [partition for where in sorted(found) if (partition := _partition(seen, where)) is not None]


def is_mirrored(link: Link, topic: str) -> bool:
    """Whether the link mirrors it; but not its canary, which has its own verdict and is written all the time."""
    return link.selects_topic(topic) and topic != link.canary_topic


def _partitions(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    return [TopicPartition(name, item.partition) for name, topic in topics.items() for item in topic.partitions]


def _partition(seen: Seen, where: TopicPartition) -> FrozenPartition | None:
    """None where neither site has it any more."""
    link, entries = seen.link, seen.entries
    there = TopicPartition(link.target_topic(where.topic), where.partition)
    left_out = _left_out(seen, where, there)
    if left_out is Reason.SOURCE_DELETED and not seen.target.has(there):
        return None
    target = seen.target.logs.get(there)
    configs = (seen.source.configs.get(where.topic, {}), seen.target.configs.get(there.topic, {}))
    gaps = [
        Span(gap.source_from, gap.source_to)
        for gap in entries.gaps.values()
        if (gap.topic, gap.partition) == where and gap.status in (GapStatus.ACCEPTED, GapStatus.PASSED)
    ]
    return FrozenPartition(
        where.topic,
        where.partition,
        there.topic,
        seen.source.stable.get(where, NOTHING),
        target,
        tuple(Step(*interval) for interval in seen.offset_map.intervals(where.topic, where.partition)),
        _mirrored_end(seen, where, target),
        timestamps_comparable=all(config.get(TIMESTAMP_TYPE) != LOG_APPEND_TIME for config in configs),
        recreated=_is_recreated(seen, where.topic),
        compacted=any("compact" in config.get(CLEANUP_POLICY, "") for config in configs),
        shared_target=link.shared_targets,
        local_tail=link.shared_targets or (entries.run is not None and entries.run.state is RunState.PROMOTED),
        gaps=tuple(sorted(gaps)),
        left_out=left_out,
        open_at_source=seen.source.opened(where),
        open_at_target=seen.target.opened(there),
    )


def _left_out(seen: Seen, where: TopicPartition, there: TopicPartition) -> Reason | None:
    if where in seen.unread or not seen.source.is_readable(where) or not seen.target.is_readable(there):
        return Reason.NOT_READABLE
    if not seen.source.has(where) and where in seen.entries.checkpoints:
        return Reason.SOURCE_DELETED
    if where in seen.source.beyond_spark or there in seen.target.beyond_spark:
        return Reason.TIMESTAMP_NOT_READABLE
    return Reason.NOT_REACHED_YET if _is_in_flight(seen, where) else None


def _is_in_flight(seen: Seen, where: TopicPartition) -> bool:
    """The map knows nothing of records that the source has, a worker has run, and nothing holds these up."""
    entries = seen.entries
    span = seen.source.stable.get(where)
    has_run = bool(entries.checkpoints) or (entries.owner is not None and entries.owner.is_worker)
    if (
        span is None
        or not span.offsets
        or where in entries.checkpoints
        or not has_run
        or _is_recreated(seen, where.topic)
    ):
        return False
    stopped = entries.run is not None and entries.run.state is not RunState.RUNNING
    is_held = not entries.holds.keys().isdisjoint({(where.topic, None), tuple(where)})
    return not (stopped or is_held or where.topic in entries.paused)


def _is_recreated(seen: Seen, name: str) -> bool:
    """Whether the source topic is not the one that was mirrored."""
    topic, known_id = seen.source.topics.get(name), seen.entries.topic_ids.get(name)
    return topic is not None and None not in (known_id, topic.topic_id) and known_id != str(topic.topic_id)


def _mirrored_end(seen: Seen, where: TopicPartition, target: Span | None) -> tuple[int, int] | None:
    mapped = seen.offset_map.mirrored_end(*where)
    if mapped is None:
        return None
    end = (mapped.source_next, mapped.target_next)
    if target is None:
        return end
    checkpoint = seen.entries.checkpoints.get(where)
    proved = None if checkpoint is None else (checkpoint.end.source_next, checkpoint.end.target_next)
    return mirrored_up_to(end, proved, target.end, seen.offset_map.to_source(*where, target.end))


def mirrored_up_to(
    mapped: tuple[int, int], proved: tuple[int, int] | None, target_end: int, source_at_target_end: int | None
) -> tuple[int, int]:
    """The mirrored end (source, target) at the moment when the target's log ended at `target_end`.

    `mapped` was read later and may be further; then it is cut back. `proved` (the last checkpoint) was read before:
    when even that lies beyond the log's end, the target has lost records, and the end stays where it was.
    """
    if proved is not None and proved[1] > target_end:
        return proved
    if mapped[1] > target_end and source_at_target_end is not None:
        return source_at_target_end, target_end
    return mapped
