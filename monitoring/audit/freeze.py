"""Asking both sites, once, where everything stands; the answers are fixed for the rest of the audit.

The order matters while the mirror runs on: the link's state, then the target's log ends, then the map's proved end,
then the source's ends. Each later answer can only be further than what the earlier ones need, so records that arrive
in between never look like losses or extras. The source's partitions are counted after the target's, too: a new one is
never taken for one that only the target has. Last stable offsets are asked after log ends: what lies between them is
then behind a transaction that is open, and not what arrived in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from broker.client.acls import topic_operations
from broker.client.cluster import Cluster
from broker.client.configs import ConfigEntry, describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.fanout import split_failures
from broker.client.model import Topic
from broker.client.offsets import list_each_offset, log_spans
from broker.client.site import Site
from broker.client.topics import describe_each_topic
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import MAX_TIMESTAMP, AclOperation, AclResource, IsolationLevel, TopicPartition
from mirror.api import Link, LinkState, complete_link, load_partial_state, read_entries
from monitoring import limits
from monitoring.audit.frozen import Seen, SiteSeen, frozen_partitions, is_mirrored
from monitoring.audit.history import Scope, with_history
from monitoring.audit.missing_rights import MissingRight, may_not_read, refused
from monitoring.audit.model import FrozenLink, FrozenSite, Side, Span
from monitoring.audit.proof import LinkProof


async def freeze_link(
    link: Link, source: Cluster, target: Cluster, clock_ms: Callable[[], int], scope: Scope | None = None
) -> FrozenLink:
    """Everything an audit of the link needs to know; without a scope it is audited as a whole.

    A partition that cannot be asked about is frozen with that as its reason to be left out. Raises AuditError for a
    topic that the link does not mirror, and what the clusters raise (ClientError, StateDamaged).
    """
    link = await complete_link(link, source, target)
    entries = await read_entries(link, target)
    names = {name for name in await _names(source) if is_mirrored(link, name)}
    mirrored = names | {topic for topic, _ in entries.checkpoints if is_mirrored(link, topic)}
    there, unclear_there = await describe_each_topic(target, [link.target_topic(name) for name in sorted(mirrored)])
    target_spans = await _spans(target, there, IsolationLevel.READ_UNCOMMITTED)
    target_stable = await _spans(target, there, IsolationLevel.READ_COMMITTED)
    state = await load_partial_state(link, target)
    here, unclear = await describe_each_topic(source, sorted(mirrored))
    frozen_at_ms = clock_ms()
    source_logs = await _spans(source, here, IsolationLevel.READ_UNCOMMITTED)
    source_spans = await _spans(source, here, IsolationLevel.READ_COMMITTED)
    asked_source, asked_target = _Asked(source, here, unclear), _Asked(target, there, unclear_there)
    of_source = await asked_source.seen(source_logs, source_spans)
    of_target = await asked_target.seen(target_spans, target_stable)
    seen = Seen(link, entries, state.map, state.unread.keys(), of_source, of_target)
    partitions, lost = await with_history(
        link,
        frozen_partitions(seen),
        scope or Scope(LinkProof(link.name, ())),
        {Side.SOURCE: (source, seen.source), Side.TARGET: (target, seen.target)},
    )
    return FrozenLink(
        link.name,
        _frozen_site(link.source, source.cluster_id),
        _frozen_site(link.target, target.cluster_id),
        frozen_at_ms,
        partitions,
        lost,
        refused=(*asked_source.refused, *asked_target.refused, *_refused_to_look(link, state, asked_target.refused)),
    )


@dataclass
class _Asked:
    """A site's topics, and why others cannot be described. `refused`: what of them farshore has no right to see."""

    cluster: Cluster
    topics: Mapping[str, Topic]
    unclear: Mapping[str, KafkaError]
    refused: list[MissingRight] = field(default_factory=list)

    async def seen(self, logs: Mapping[TopicPartition, Span], stable: Mapping[TopicPartition, Span]) -> SiteSeen:
        """What nobody may read counts as unclear: Spark would fail of it, with the partitions that it may read."""
        site, names = self.cluster.site.name, sorted(self.topics)
        told = await describe_topic_configs(self.cluster, names)
        unread = may_not_read(names, await topic_operations(self.cluster, names)) if names else set()
        hidden: dict[str, KafkaError] = dict(self.unclear)
        hidden |= {name: KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {name} at {site}") for name in unread}
        self.refused += refused(site, AclOperation.READ, AclResource.TOPIC, hidden)
        self.refused += refused(site, AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, told)
        beyond = await _beyond_spark(self.cluster, logs)
        return SiteSeen(self.topics, logs, stable, _values(told), hidden.keys(), beyond)


def _refused_to_look(link: Link, state: LinkState, known: Iterable[MissingRight]) -> Iterator[MissingRight]:
    """Of the target's topics that the link's state names, and that are not `known` to be refused: its canary."""
    told = {right.name for right in known}
    unread = {link.target_topic(topic): error for (topic, _), error in state.unread.items()}
    answers = {name: error for name, error in unread.items() if name not in told}
    return refused(link.target.name, AclOperation.READ, AclResource.TOPIC, answers)


def _frozen_site(site: Site, cluster_id: str | None) -> FrozenSite:
    return FrozenSite(site.name, site.bootstrap_servers, cluster_id, dict(site.address_map), site.security)


async def _names(source: Cluster) -> Iterable[str]:
    """Of all topics, also of those that cannot be described now."""
    topics, unclear = await describe_each_topic(source)
    return [*topics, *unclear]


async def _spans(
    cluster: Cluster, topics: Mapping[str, Topic], isolation: IsolationLevel
) -> dict[TopicPartition, Span]:
    """Without those that could not be asked."""
    wanted = [TopicPartition(name, item.partition) for name, topic in topics.items() for item in topic.partitions]
    found, _ = split_failures(await log_spans(cluster, wanted, isolation))
    return {where: Span(span.start, max(span.start, span.end)) for where, span in found.items()}


async def _beyond_spark(cluster: Cluster, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Those with a record whose timestamp Spark cannot hold. A cluster without KIP-734 does not say; Spark will."""
    found, _ = split_failures(await list_each_offset(cluster, dict.fromkeys(partitions, MAX_TIMESTAMP)))
    return {where for where, latest in found.items() if latest.timestamp_ms > limits.AUDIT_TIMESTAMP_MAX_MS}


def _values(told: Mapping[str, Mapping[str, ConfigEntry] | KafkaError]) -> dict[str, dict[str, str]]:
    """Configs by topic and name, without the topics that could not be described."""
    return {
        topic: {name: entry.value for name, entry in entries.items() if entry.value is not None}
        for topic, entries in told.items()
        if not isinstance(entries, KafkaError)
    }
