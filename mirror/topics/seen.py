"""What a look at both sites showed of a link's topics: what is in the way of mirroring, and what has changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from broker.client.errors import ClientError, KafkaError
from broker.client.model import Partition, Topic
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER, TopicPartition
from mirror.link import Link
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.topic_entries import TopicPause

TOPIC_NAME_CHARS_MAX: Final = 249

HoldKey = tuple[str, int | None]
"""(source topic, partition; None for all of the topic)"""


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """The selected topics by their source names, those at the target by theirs, and why others cannot be described."""

    source: Mapping[str, Topic]
    source_failures: Mapping[str, KafkaError]
    target: Mapping[str, Topic]
    target_failures: Mapping[str, KafkaError]

    def with_pairs(self, later: TopicsSeen, pairs: Mapping[str, str]) -> TopicsSeen:
        """As here, but of these topics (source -> target name, both seen later) as there."""
        ours = {name: later.source[name] for name in pairs}
        theirs = {name: later.target[name] for name in pairs.values()}
        return replace(self, source={**self.source, **ours}, target={**self.target, **theirs})

    def without_pairs(self, pairs: Mapping[str, str]) -> TopicsSeen:
        """As here, but without these topics (source -> target name)."""
        ours = {name: topic for name, topic in self.source.items() if name not in pairs}
        targets = set(pairs.values())
        theirs = {name: topic for name, topic in self.target.items() if name not in targets}
        return replace(self, source=ours, target=theirs)


def has_legal_name(link: Link, topic: str) -> bool:
    """Whether the target can have the source's topic at all."""
    return len(link.target_topic(topic)) <= TOPIC_NAME_CHARS_MAX


def makeable_topics(link: Link, seen: TopicsSeen) -> dict[str, Topic]:
    """The source topics that may be made or grown: not with a name too long, nor where the target does not tell."""
    return {
        name: topic
        for name, topic in seen.source.items()
        if has_legal_name(link, name) and link.target_topic(name) not in seen.target_failures
    }


def lacking_topics(link: Link, seen: TopicsSeen) -> set[str]:
    """The target topics that are to be made or grown."""
    partitions = {name: len(topic.partitions) for name, topic in seen.target.items()}
    wanted = {link.target_topic(name): len(topic.partitions) for name, topic in makeable_topics(link, seen).items()}
    return {name for name, count in wanted.items() if count > partitions.get(name, 0)}


def paused_hold(topic: str, partition: int, pause: TopicPause) -> Hold:
    """The hold of a partition whose topic an operator paused."""
    return Hold(topic, partition, HoldReason.PAUSED, f"by operation {pause.operation_id}", pause.at_ms)


def find_holds(link: Link, seen: TopicsSeen, failures: Mapping[str, KafkaError], now_ms: int) -> list[Hold]:
    """What is in the way of the unit, as far as a look at topics shows. `failures`: why target topics were not made or
    grown.
    """
    found = [
        Hold(name, None, HoldReason.ERROR_AT_SOURCE, str(error), now_ms)
        for name, error in sorted(seen.source_failures.items())
    ]
    for name in sorted(seen.source):
        there = link.target_topic(name)
        failure = failures.get(there)
        if not has_legal_name(link, name):
            text = f"{there} has {len(there)} characters, Kafka allows {TOPIC_NAME_CHARS_MAX}"
            found.append(Hold(name, None, HoldReason.NAME_TOO_LONG, text, now_ms))
        elif there in seen.target_failures:
            text = str(seen.target_failures[there])
            found.append(Hold(name, None, HoldReason.ERROR_AT_TARGET, text, now_ms))
        elif there not in seen.target:
            text = str(failure) if failure is not None else f"{link.target.name} has no topic {there}"
            found.append(Hold(name, None, HoldReason.TOPIC_NOT_CREATED, text, now_ms))
        else:
            found += _of_partitions(link, seen.source[name], seen.target[there], failure, now_ms)
    return found


def _of_partitions(link: Link, ours: Topic, theirs: Topic, failure: KafkaError | None, now_ms: int) -> Iterator[Hold]:
    leaders = {partition.partition: partition.leader_id for partition in theirs.partitions}
    for partition in ours.partitions:
        number = partition.partition
        if not link.carries(ours.name, number):
            continue
        if number not in leaders:
            text = f"{theirs.name} has {len(leaders)} partitions at {link.target.name}"
            text = f"{text}: {failure}" if failure is not None else text
            yield Hold(ours.name, number, HoldReason.TOPIC_NOT_GROWN, text, now_ms)
        elif partition.leader_id == NO_LEADER:
            yield Hold(ours.name, number, HoldReason.NO_LEADER_AT_SOURCE, "", now_ms)
        elif leaders[number] == NO_LEADER:
            yield Hold(ours.name, number, HoldReason.NO_LEADER_AT_TARGET, "", now_ms)


def hold_for_error(topic: str, partition: int, error: ClientError, now_ms: int, *, at_source: bool) -> Hold:
    """The hold of a partition for which one of the sites answered with this error."""
    unled = isinstance(error, KafkaError) and error.code is ErrorCode.LEADER_NOT_AVAILABLE
    if at_source:
        reason = HoldReason.NO_LEADER_AT_SOURCE if unled else HoldReason.ERROR_AT_SOURCE
    else:
        reason = HoldReason.NO_LEADER_AT_TARGET if unled else HoldReason.ERROR_AT_TARGET
    return Hold(topic, partition, reason, "" if unled else str(error), now_ms)


def who_serves(link: Link, seen: TopicsSeen, key: HoldKey) -> tuple[object, ...]:
    """Of a partition, or of all of a topic: the topic's id, and who leads and is in sync, at both sites."""
    name, number = key
    topics = (seen.source.get(name), seen.target.get(link.target_topic(name)))
    return tuple(
        (topic.topic_id, topic.partitions if number is None else _partition(topic, number))
        if topic is not None
        else None
        for topic in topics
    )


def _partition(topic: Topic, number: int) -> Partition | None:
    """Where its number says, as a rule: of a topic that is held whole each is asked about."""
    if number < len(topic.partitions) and topic.partitions[number].partition == number:
        return topic.partitions[number]
    return next((partition for partition in topic.partitions if partition.partition == number), None)


class TopicChange(NamedTuple):
    """Why a topic is not the one that a session took in. `at_target`: what is on its way to it is in doubt."""

    reason: str
    at_target: bool


def find_changes(link: Link, before: TopicsSeen, now: TopicsSeen) -> dict[str, TopicChange]:
    """The source topics of `before` that are gone, or others, at one of the sites.

    What there is more than before is none, nor other leaders, nor a topic that cannot be described for now.
    """
    found = {}
    for name, ours in sorted(before.source.items()):
        if name in now.source_failures:
            continue
        there = link.target_topic(name)
        asked = name in now.source and there not in now.target_failures  # of what the source has no more nobody asks
        theirs = _topic_change(before.target.get(there), now.target.get(there)) if asked else None
        if (change := _topic_change(ours, now.source.get(name))) is not None:
            found[name] = TopicChange(f"{name} at {link.source.name} {change}", at_target=theirs is not None)
        elif theirs is not None:
            found[name] = TopicChange(f"{there} at {link.target.name} {theirs}", at_target=True)
    return found


def leaders_of(topics: Mapping[str, Topic]) -> dict[TopicPartition, int]:
    """The nodes that lead these topics' partitions, of those that have a leader."""
    return {
        TopicPartition(topic.name, part.partition): part.leader_id
        for topic in topics.values()
        for part in topic.partitions
        if part.leader_id != NO_LEADER
    }


def replaced_topics(link: Link, before: TopicsSeen, now: TopicsSeen) -> set[str]:
    """The source topics of `before` that one of the sites has as another topic now, or does not tell to have."""
    found = set()
    for name, ours in before.source.items():
        there = link.target_topic(name)
        pairs = [(ours, now.source.get(name)), (before.target.get(there), now.target.get(there))]
        if any(old is not None and (new is None or new.topic_id != old.topic_id) for old, new in pairs):
            found.add(name)
    return found


def _topic_change(before: Topic | None, now: Topic | None) -> str | None:
    if before is None:
        return None
    if now is None:
        return "is gone"
    if before.topic_id != now.topic_id:
        return "was deleted and recreated"
    if len(before.partitions) > len(now.partitions):
        return f"had {len(before.partitions)} partitions and has {len(now.partitions)}"
    return None
