"""One pass over a link's topics: make and grow them at the target, and carry configs over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.configs import ConfigEntry, alter_topic_configs, describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.model import Topic
from broker.client.offsets import list_offsets
from broker.client.topics import create_partitions, create_topics, describe_topics, list_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from mirror.link import Link
from mirror.topics.plan import (
    ConfigAction,
    ConfigChange,
    Finding,
    MirroredTopic,
    TopicPlan,
    check_target,
    due_changes,
    pair_topics,
    plan_configs,
    plan_topics,
    select_topics,
)

_OPERATIONS = {ConfigAction.SET: ConfigOperation.SET, ConfigAction.DELETE: ConfigOperation.DELETE}


@dataclass(frozen=True, slots=True)
class TopicSyncReport:
    """A pass: what there is to mirror now, what was made, and the target topics where that failed."""

    mirrored: tuple[MirroredTopic, ...]
    created: tuple[str, ...]
    grown: tuple[str, ...]
    failures: Mapping[str, KafkaError]


@dataclass(frozen=True, slots=True)
class ConfigSyncReport:
    """A pass over configs. `planned` is the drift that was found; give it as `shown_before` to the next pass."""

    planned: tuple[ConfigChange, ...]
    applied: tuple[ConfigChange, ...]
    failures: Mapping[str, KafkaError]


async def sync_topics(link: Link, source: Cluster, target: Cluster) -> TopicSyncReport:
    """Make what the target lacks, with the source's partition counts and configs, before any record flows.

    A topic that fails does not hold up the others. Raises ClientError when a site does not answer.
    """
    at_source = await list_topics(source)
    wanted = {link.target_topic(name) for name in select_topics(link, at_source)}
    at_target = await describe_topics(target, wanted)
    plan, failures = await _plan(link, source, target, at_source, at_target)
    if not plan.is_empty:
        failures |= _without_existing(await create_topics(target, plan.create))
        failures |= await create_partitions(target, plan.grow)
        at_target = await describe_topics(target, wanted)
    return TopicSyncReport(
        pair_topics(link, at_source, at_target),
        tuple(topic.name for topic in plan.create if topic.name not in failures),
        tuple(name for name in plan.grow if name not in failures),
        failures,
    )


async def plan_link_topics(link: Link, source: Cluster, target: Cluster) -> TopicPlan:
    """What `sync_topics` would make and grow."""
    at_source = await list_topics(source)
    wanted = {link.target_topic(name) for name in select_topics(link, at_source)}
    plan, _ = await _plan(link, source, target, at_source, await describe_topics(target, wanted))
    return plan


async def _plan(
    link: Link, source: Cluster, target: Cluster, at_source: Mapping[str, Topic], at_target: Mapping[str, Topic]
) -> tuple[TopicPlan, dict[str, KafkaError]]:
    missing = [name for name in select_topics(link, at_source) if link.target_topic(name) not in at_target]
    configs, failures = _split(await describe_topic_configs(source, missing))
    plan = plan_topics(link, at_source, at_target, configs, len(target.nodes))
    return plan, {link.target_topic(name): error for name, error in failures.items()}


async def plan_config_sync(
    link: Link, source: Cluster, target: Cluster, topics: Iterable[MirroredTopic]
) -> tuple[tuple[ConfigChange, ...], dict[str, KafkaError]]:
    """The drift of these topics, and the target topics whose configs could not be compared."""
    pairs = tuple(topics)
    ours, failures = _split(await describe_topic_configs(source, [pair.source_topic for pair in pairs]))
    failures = {link.target_topic(name): error for name, error in failures.items()}
    theirs, failed_at_target = _split(await describe_topic_configs(target, [pair.target_topic for pair in pairs]))
    changes = [
        change
        for pair in pairs
        if pair.source_topic in ours and pair.target_topic in theirs
        for change in plan_configs(pair.target_topic, ours[pair.source_topic], theirs[pair.target_topic])
    ]
    return tuple(changes), failures | failed_at_target


async def sync_configs(
    link: Link,
    source: Cluster,
    target: Cluster,
    topics: Iterable[MirroredTopic],
    shown_before: frozenset[ConfigChange],
) -> ConfigSyncReport:
    """Find the drift, and apply the part of it that the pass before has already shown.

    Where local producers share the target topics, the link in the other direction would carry each change back: there
    the drift is only shown.
    """
    planned, failures = await plan_config_sync(link, source, target, topics)
    due = [] if link.shared_targets else due_changes(planned, shown_before)
    failures |= await apply_config_changes(target, due)
    applied = tuple(change for change in due if change.topic not in failures)
    return ConfigSyncReport(planned, applied, failures)


async def apply_config_changes(target: Cluster, changes: Iterable[ConfigChange]) -> dict[str, KafkaError]:
    """Apply a plan -> the topics where it failed, and why."""
    by_topic: dict[str, list[tuple[str, ConfigOperation, str | None]]] = {}
    for change in changes:
        value = change.source_value if change.action is ConfigAction.SET else None
        by_topic.setdefault(change.topic, []).append((change.name, _OPERATIONS[change.action], value))
    return await alter_topic_configs(target, by_topic)


async def find_concerns(
    source: Cluster, target: Cluster, topics: Iterable[MirroredTopic], now_ms: int
) -> list[Finding]:
    """What at the target would refuse, lose or slow down these topics' records; to be told at a link's start."""
    pairs = tuple(topics)
    ours, _ = _split(await describe_topic_configs(source, [pair.source_topic for pair in pairs]))
    theirs, _ = _split(await describe_topic_configs(target, [pair.target_topic for pair in pairs]))
    at_target = await describe_topics(target, [pair.target_topic for pair in pairs])
    asked = {TopicPartition(pair.source_topic, p): 0 for pair in pairs for p in range(pair.partitions)}
    oldest = await list_offsets(source, asked)
    found: list[Finding] = []
    for pair in pairs:
        if pair.source_topic not in ours or pair.target_topic not in theirs or pair.target_topic not in at_target:
            continue
        stamps = [oldest[TopicPartition(pair.source_topic, p)].timestamp_ms for p in range(pair.partitions)]
        ages = [now_ms - stamp for stamp in stamps if stamp >= 0]
        partitions = len(at_target[pair.target_topic].partitions)
        configs = (ours[pair.source_topic], theirs[pair.target_topic])
        found += check_target(pair, *configs, max(ages, default=None), partitions)
    return found


def _split(
    described: Mapping[str, dict[str, ConfigEntry] | KafkaError],
) -> tuple[dict[str, dict[str, ConfigEntry]], dict[str, KafkaError]]:
    found = {name: configs for name, configs in described.items() if not isinstance(configs, KafkaError)}
    failures = {name: error for name, error in described.items() if isinstance(error, KafkaError)}
    return found, failures


def _without_existing(failures: dict[str, KafkaError]) -> dict[str, KafkaError]:
    """Somebody made the topic between the look and the making: it is there, which is all that was wanted."""
    return {name: e for name, e in failures.items() if e.code is not ErrorCode.TOPIC_ALREADY_EXISTS}
