"""One pass over a link's topics: make and grow them at the target, and carry configs over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from broker.client.cluster import Cluster
from broker.client.configs import ConfigEntry, alter_topic_configs, describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.fanout import split_failures
from broker.client.offsets import list_each_offset
from broker.client.topics import Described, create_partitions, create_topics, describe_each_topic
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
from mirror.topics.seen import TOPIC_NAME_CHARS_MAX, TopicsSeen, has_legal_name, makeable_topics

_OPERATIONS = {ConfigAction.SET: ConfigOperation.SET, ConfigAction.DELETE: ConfigOperation.DELETE}


@dataclass(frozen=True, slots=True)
class TopicSyncReport:
    """A pass: what there is to mirror now, what was made, and the target topics where that failed.

    `seen` is what both sites showed after it.
    """

    seen: TopicsSeen
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


async def look_at_topics(
    link: Link, source: Cluster, target: Cluster, described: Described | None = None
) -> TopicsSeen:
    """One look at both sites; `described`: what has just been seen of the source. Of what the link names and the source
    does not list it asks by name, as the source lists nothing that it hides. Raises ClientError when one does not
    answer.
    """
    topics, failures = described or await describe_each_topic(source)
    named = {name for name in link.named_topics if len(name) <= TOPIC_NAME_CHARS_MAX}
    if unlisted := named - topics.keys() - failures.keys():
        late, hidden = await describe_each_topic(source, unlisted)
        topics, failures = {**topics, **late}, {**failures, **hidden}
    ours = {name: topics[name] for name in select_topics(link, topics)}
    failed = {name: failures[name] for name in select_topics(link, failures)}
    return await _look_at_target(link, target, TopicsSeen(ours, failed, {}, {}))


async def _look_at_target(link: Link, target: Cluster, seen: TopicsSeen) -> TopicsSeen:
    # A name that is not allowed is not asked for: some brokers refuse the request for it.
    names = [link.target_topic(name) for name in seen.source if has_legal_name(link, name)]
    theirs, failed = await describe_each_topic(target, names)
    return replace(seen, target=theirs, target_failures=failed)


async def sync_topics(
    link: Link,
    source: Cluster,
    target: Cluster,
    is_due: Callable[[str], bool] = lambda _topic: True,
    described: Described | None = None,
) -> TopicSyncReport:
    """Make what the target lacks, with the source's partition counts and configs, before any record flows.

    Only the target topics for which `is_due` says so are tried. A topic that fails does not hold up the others.
    `described` as in `look_at_topics`. Raises ClientError when a site does not answer.
    """
    seen = await look_at_topics(link, source, target, described)
    plan, failures = await _plan(link, source, target, seen, is_due)
    if not plan.is_empty:
        failures |= _without_existing(await create_topics(target, plan.create))
        ungrown = await create_partitions(target, plan.grow)
        seen = await _look_at_target(link, target, seen)
        failures |= {name: error for name, error in ungrown.items() if not _has_grown(seen, name, plan.grow[name])}
    return TopicSyncReport(
        seen,
        pair_topics(link, seen.source, seen.target),
        tuple(topic.name for topic in plan.create if topic.name not in failures),
        tuple(name for name in plan.grow if name not in failures),
        failures,
    )


async def report_of(link: Link, source: Cluster, target: Cluster, seen: TopicsSeen) -> TopicSyncReport | None:
    """What `sync_topics` tells of what was seen where nothing is to be made; None where something is."""
    plan, failures = await _plan(link, source, target, seen, lambda _topic: True)
    if not plan.is_empty:
        return None
    return TopicSyncReport(seen, pair_topics(link, seen.source, seen.target), (), (), failures)


async def plan_link_topics(link: Link, source: Cluster, target: Cluster, seen: TopicsSeen) -> TopicPlan:
    """What `sync_topics` would make and grow."""
    plan, _ = await _plan(link, source, target, seen, lambda _topic: True)
    return plan


async def _plan(
    link: Link, source: Cluster, target: Cluster, seen: TopicsSeen, is_due: Callable[[str], bool]
) -> tuple[TopicPlan, dict[str, KafkaError]]:
    due = {name: topic for name, topic in makeable_topics(link, seen).items() if is_due(link.target_topic(name))}
    missing = [name for name in due if link.target_topic(name) not in seen.target]
    configs, failures = _split(await describe_topic_configs(source, missing))
    plan = plan_topics(link, due, seen.target, configs, len(target.nodes))
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
    at_target, _ = await describe_each_topic(target, [pair.target_topic for pair in pairs])
    asked = {TopicPartition(pair.source_topic, p): 0 for pair in pairs for p in range(pair.partitions)}
    oldest, _ = split_failures(await list_each_offset(source, asked))
    found: list[Finding] = []
    for pair in pairs:
        if pair.source_topic not in ours or pair.target_topic not in theirs or pair.target_topic not in at_target:
            continue
        places = [TopicPartition(pair.source_topic, p) for p in range(pair.partitions)]
        ages = [now_ms - oldest[at].timestamp_ms for at in places if at in oldest and oldest[at].timestamp_ms >= 0]
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


def _has_grown(seen: TopicsSeen, name: str, partitions: int) -> bool:
    """Another unit's worker grew it at the same moment."""
    return name in seen.target and len(seen.target[name].partitions) >= partitions


def _without_existing(failures: dict[str, KafkaError]) -> dict[str, KafkaError]:
    """Somebody made the topic between the look and the making: it is there, which is all that was wanted."""
    return {name: e for name, e in failures.items() if e.code is not ErrorCode.TOPIC_ALREADY_EXISTS}
