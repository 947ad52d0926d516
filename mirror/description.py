"""A link as values for people: as it is declared, and what it would do at its target."""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.client.cluster import Cluster
from broker.client.topics import NewTopic
from mirror.findings import stopped_partitions
from mirror.heartbeat import judge_heartbeat, weakest
from mirror.link import Link
from mirror.link_finding import LinkFinding
from mirror.looking import merge_holds
from mirror.offsets.entries import Gap
from mirror.offsets.hold_entries import Hold
from mirror.offsets.state import read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.status import LinkCondition, condition_now
from mirror.topics.plan import ConfigChange, Finding, MirroredTopic, pair_topics
from mirror.topics.sync import find_concerns, look_at_topics, plan_config_sync, plan_link_topics


@dataclass(frozen=True, slots=True)
class LinkDeclaration:
    """A link as declared; `source` and `target` are names of sites. `acl_principals`: as the target calls those of the
    source, where `sync_acls` brings what they may do.
    """

    link: str
    source: str
    target: str
    topics: tuple[str, ...]
    topic_names: str
    groups: tuple[str, ...]
    shared_targets: bool
    sync_acls: bool
    acl_principals: dict[str, str]


@dataclass(frozen=True, slots=True)
class LinkDescription:
    """A link, what it mirrors now, and what its next passes would change at the target.

    While the source does not answer, only what the target knows is there: the lists of topics, configs, findings and
    holds (partitions and whole topics that should be mirrored and are not, beside those at gaps) are None.
    """

    link: str
    source: str
    target: str
    source_answers: bool
    topic_names: str
    shared_targets: bool
    condition: LinkCondition
    operation_id: str
    mirrored: tuple[MirroredTopic, ...] | None
    topics_to_create: tuple[NewTopic, ...] | None
    topics_to_grow: tuple[tuple[str, int], ...] | None
    config_drift: tuple[ConfigChange, ...] | None
    configs_unread: tuple[str, ...] | None
    """Why those of some topics could not be compared."""
    findings: tuple[Finding, ...] | None
    holds: tuple[Hold, ...] | None
    topics_paused: tuple[str, ...]
    """By a person."""
    gaps: tuple[Gap, ...]
    stopped: tuple[LinkFinding, ...]
    """The partitions that stand still, each with the command that lets it go on."""


def declare_link(link: Link) -> LinkDeclaration:
    """The link as its declaration says it, with what follows from the other links."""
    return LinkDeclaration(
        link.name,
        link.source.name,
        link.target.name,
        link.topics,
        link.topic_names,
        link.groups,
        link.shared_targets,
        link.sync_acls,
        dict(link.acl_principals),
    )


async def describe_link(link: Link, source: Cluster | None, target: Cluster) -> LinkDescription:
    """What the link mirrors and would change; `source` None: it does not answer. Raises ClientError, StateDamaged."""
    entries = await read_entries(link, target)
    at_target = _describe_target(link, entries, target.clock.now_ms())
    return at_target if source is None else await _with_source(at_target, link, (source, target), entries)


def _describe_target(link: Link, entries: StateEntries, now_ms: int) -> LinkDescription:
    heartbeat = weakest({unit: judge_heartbeat(owner, now_ms) for unit, owner in entries.owners().items()})
    return LinkDescription(
        link=link.name,
        source=link.source.name,
        target=link.target.name,
        source_answers=False,
        topic_names=link.topic_names,
        shared_targets=link.shared_targets,
        condition=condition_now(entries, heartbeat),
        operation_id=entries.run.operation_id if entries.run is not None else "",
        mirrored=None,
        topics_to_create=None,
        topics_to_grow=None,
        config_drift=None,
        configs_unread=None,
        findings=None,
        holds=None,
        topics_paused=entries.paused_topics(),
        gaps=tuple(entries.gaps.values()),
        stopped=tuple(stopped_partitions(link, entries)),
    )


async def _with_source(
    at_target: LinkDescription, link: Link, clusters: tuple[Cluster, Cluster], entries: StateEntries
) -> LinkDescription:
    source, target = clusters
    seen = await look_at_topics(link, source, target)
    pairs = pair_topics(link, seen.source, seen.target)
    plan = await plan_link_topics(link, source, target, seen)
    drift, unread = await plan_config_sync(link, source, target, pairs)
    return replace(
        at_target,
        source_answers=True,
        mirrored=pairs,
        topics_to_create=plan.create,
        topics_to_grow=tuple(plan.grow.items()),
        config_drift=drift,
        configs_unread=tuple(str(unread[topic]) for topic in sorted(unread)),
        holds=merge_holds(link, seen, entries, target.clock.now_ms()),
        findings=tuple(await find_concerns(source, target, pairs, source.clock.now_ms())),
    )
