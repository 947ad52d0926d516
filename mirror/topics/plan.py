"""What a link would do to topics at its target: decisions as functions of what both sites say. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.client.configs import ConfigEntry
from broker.client.model import Topic
from broker.client.topics import NewTopic
from mirror.link import Link

TIMESTAMP_TYPE: Final = "message.timestamp.type"
CREATE_TIME: Final = "CreateTime"

EXCLUDED_CONFIGS: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "remote.storage.enable",
        "confluent.placement.constraints",
        TIMESTAMP_TYPE,
    }
)
"""Configs about the source's own brokers. The timestamp type is excluded because records keep the source's timestamps,
which a target topic with LogAppendTime would overwrite: the target always has CreateTime."""

Configs = Mapping[str, ConfigEntry]


class ConfigAction(StrEnum):
    """What happens to a config of the target topic."""

    SET = "set"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One difference between a source topic's own configs and its mirror's. Values are effective ones."""

    topic: str
    name: str
    action: ConfigAction
    source_value: str | None
    target_value: str | None


class FindingKind(StrEnum):
    """What at the target would refuse or lose mirrored records, or make them dear."""

    OLD_TIMESTAMPS_REFUSED = "old_timestamps_refused"
    RETENTION_IS_SHORTER = "retention_is_shorter"
    MESSAGES_MAY_BE_TOO_LARGE = "messages_may_be_too_large"
    BATCHES_ARE_RECOMPRESSED = "batches_are_recompressed"
    TIMESTAMPS_ARE_OVERWRITTEN = "timestamps_are_overwritten"
    MORE_PARTITIONS_AT_TARGET = "more_partitions_at_target"


@dataclass(frozen=True, slots=True)
class Finding:
    """One concern about a target topic; `config` is the config that causes it, "" for none."""

    topic: str
    kind: FindingKind
    config: str
    source_value: str
    target_value: str


@dataclass(frozen=True, slots=True)
class MirroredTopic:
    """A pair of topics. `partitions` is how many can be mirrored now: those that both have."""

    source_topic: str
    target_topic: str
    source_topic_id: uuid.UUID | None
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Topics to be made and to be grown (target name -> partition count) at the target."""

    create: tuple[NewTopic, ...]
    grow: Mapping[str, int]

    @property
    def is_empty(self) -> bool:
        return not self.create and not self.grow


def select_topics(link: Link, source_topics: Iterable[str]) -> tuple[str, ...]:
    """The source topics that the link mirrors, sorted."""
    return tuple(sorted(name for name in source_topics if link.selects_topic(name)))


def plan_topics(
    link: Link,
    source: Mapping[str, Topic],
    target: Mapping[str, Topic],
    source_configs: Mapping[str, Configs],
    target_broker_count: int,
) -> TopicPlan:
    """Compare the selected topics. `source_configs` needs only the topics that the target does not have.

    A topic without configs in `source_configs` is not made: it would live with the wrong retention until the next pass.
    """
    create = []
    grow = {}
    for name in select_topics(link, source):
        wanted = len(source[name].partitions)
        at_target = link.target_topic(name)
        if at_target in target:
            if len(target[at_target].partitions) < wanted:
                grow[at_target] = wanted
        elif name in source_configs and wanted:
            replicas = max(1, min(source[name].replication_factor, target_broker_count))
            create.append(NewTopic(at_target, wanted, replicas, creation_configs(source_configs[name])))
    return TopicPlan(tuple(create), grow)


def pair_topics(link: Link, source: Mapping[str, Topic], target: Mapping[str, Topic]) -> tuple[MirroredTopic, ...]:
    """The selected topics that exist on both sides."""
    pairs = []
    for name in select_topics(link, source):
        at_target = link.target_topic(name)
        if at_target in target:
            partitions = min(len(source[name].partitions), len(target[at_target].partitions))
            pairs.append(MirroredTopic(name, at_target, source[name].topic_id, partitions))
    return tuple(pairs)


def creation_configs(source: Configs) -> dict[str, str]:
    """What a target topic is made with: the source topic's own configs, and CreateTime."""
    carried = {entry.name: entry.value for entry in source.values() if _is_carried(entry) and entry.value is not None}
    return carried | {TIMESTAMP_TYPE: CREATE_TIME}


def plan_configs(target_topic: str, source: Configs, target: Configs) -> list[ConfigChange]:
    """The differences, by config name. Nothing that the target does not know, nor what is excluded.

    A config that the source topic set itself must have the same effective value at the target. One that only the target
    topic has of its own is deleted there.
    """
    changes = []
    for name in sorted(target):
        if name in EXCLUDED_CONFIGS:
            continue
        ours, theirs = source.get(name), target[name]
        if ours is not None and _is_carried(ours):
            if ours.value is not None and ours.value != theirs.value:
                changes.append(ConfigChange(target_topic, name, ConfigAction.SET, ours.value, theirs.value))
        elif ours is not None and theirs.is_topic_own and not theirs.is_read_only:
            changes.append(ConfigChange(target_topic, name, ConfigAction.DELETE, ours.value, theirs.value))
    kind = target.get(TIMESTAMP_TYPE)
    if kind is not None and kind.value != CREATE_TIME:
        changes.append(ConfigChange(target_topic, TIMESTAMP_TYPE, ConfigAction.SET, CREATE_TIME, kind.value))
    return changes


def due_changes(planned: Iterable[ConfigChange], shown_before: frozenset[ConfigChange]) -> list[ConfigChange]:
    """The changes that were already shown as a plan in the pass before."""
    return [change for change in planned if change in shown_before]


def check_target(
    topic: MirroredTopic, source: Configs, target: Configs, oldest_age_ms: int | None, target_partitions: int
) -> list[Finding]:
    """What would refuse, lose or slow down records, by effective configs.

    `oldest_age_ms` is the age of the source's oldest record (None: empty or unknown).
    """
    name = topic.target_topic
    found = []
    before_ms = _number(target, "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms")
    if oldest_age_ms is not None and before_ms is not None and oldest_age_ms > before_ms:
        config = "message.timestamp.before.max.ms"
        found.append(Finding(name, FindingKind.OLD_TIMESTAMPS_REFUSED, config, str(oldest_age_ms), str(before_ms)))
    for config in ("retention.ms", "retention.bytes"):
        ours, theirs = _unlimited(source, config), _unlimited(target, config)
        if theirs < ours and "delete" in _value(target, "cleanup.policy", "delete"):
            values = (_value(source, config, "?"), _value(target, config, "?"))
            found.append(Finding(name, FindingKind.RETENTION_IS_SHORTER, config, *values))
    ours_bytes, theirs_bytes = _number(source, "max.message.bytes"), _number(target, "max.message.bytes")
    if ours_bytes is not None and theirs_bytes is not None and theirs_bytes < ours_bytes:
        values = (str(ours_bytes), str(theirs_bytes))
        found.append(Finding(name, FindingKind.MESSAGES_MAY_BE_TOO_LARGE, "max.message.bytes", *values))
    codec = _value(target, "compression.type", "producer")
    if codec not in ("producer", _value(source, "compression.type", "producer")):
        values = (_value(source, "compression.type", "producer"), codec)
        found.append(Finding(name, FindingKind.BATCHES_ARE_RECOMPRESSED, "compression.type", *values))
    kind = _value(target, TIMESTAMP_TYPE, CREATE_TIME)
    if kind != CREATE_TIME:
        values = (_value(source, TIMESTAMP_TYPE, CREATE_TIME), kind)
        found.append(Finding(name, FindingKind.TIMESTAMPS_ARE_OVERWRITTEN, TIMESTAMP_TYPE, *values))
    if target_partitions > topic.partitions:
        values = (str(topic.partitions), str(target_partitions))
        found.append(Finding(name, FindingKind.MORE_PARTITIONS_AT_TARGET, "", *values))
    return found


def _is_carried(entry: ConfigEntry) -> bool:
    own = entry.is_topic_own and not entry.is_sensitive and not entry.is_read_only
    return own and entry.name not in EXCLUDED_CONFIGS


def _value(configs: Configs, name: str, default: str) -> str:
    entry = configs.get(name)
    return default if entry is None or entry.value is None else entry.value


def _number(configs: Configs, *names: str) -> int | None:
    """The first of these configs that is a number."""
    for name in names:
        text = _value(configs, name, "")
        if text.lstrip("-").isdigit():
            return int(text)
    return None


def _unlimited(configs: Configs, name: str) -> float:
    """A retention as a number, -1 (keep for ever) as infinity; unknown counts as infinity, too."""
    number = _number(configs, name)
    return float("inf") if number is None or number < 0 else number
