"""Which rights are missing where a site has refused to be read: it says neither whose nor for what, so it is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from broker.client.acls import topic_operations
from broker.client.cluster import Cluster
from broker.client.configs import describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.topics import describe_each_topic
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import AclOperation, AclResource
from mirror.api import PRODUCERS_TOPIC, Link
from monitoring.audit.look import reached
from monitoring.audit.missing_rights import MissingRight, hint_to_give, in_a_line, in_words, may_not_read, refused
from monitoring.audit.model import FrozenLink, Side
from monitoring.errors import AuditError, ReadRefused


@asynccontextmanager
async def own_topics_named(link: Link, source: Cluster, target: Cluster, command: str) -> AsyncIterator[None]:
    """What the link and its way back keep for themselves is read here for `command`: where a right on that is missing
    it is named. Raises AuditError for that.
    """
    try:
        yield
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        backs = [back.state_topic for back in link.reverse_links]
        missing = await unread(source, [PRODUCERS_TOPIC, *backs], configs_of=[PRODUCERS_TOPIC])
        missing += await unread(target, [link.state_topic, PRODUCERS_TOPIC])
        if not missing:
            raise
        comes_as = {cluster.site.name: cluster.site.security.comes_as for cluster in (source, target)}
        raise AuditError(in_a_line(in_words(missing, comes_as)), hint_to_give(command)) from error


async def unread(cluster: Cluster, topics: Iterable[str], configs_of: Sequence[str] = ()) -> list[MissingRight]:
    """Those of the topics that farshore may not read now, and those of which it may not see the configs. Raises
    ClientError.
    """
    site, names = cluster.site.name, sorted(set(topics))
    there, hidden = await describe_each_topic(cluster, names)
    forbidden = may_not_read(there, await topic_operations(cluster, there)) if there else set()
    answers: dict[str, object] = dict(hidden)
    answers |= {name: KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {name} at {site}") for name in forbidden}
    found = list(refused(site, AclOperation.READ, AclResource.TOPIC, answers))
    told = await describe_topic_configs(cluster, [name for name in configs_of if name in there])
    return [*found, *refused(site, AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, told)]


async def named_refusal(frozen: FrozenLink, sides: Iterable[Side], error: ReadRefused) -> AuditError:
    """The refusal that Java told, with who lacks what at which of the sites that are read. Raises SiteLost."""
    missing: list[MissingRight] = []
    for side in sides:
        is_source = side is Side.SOURCE
        names = {item.topic if is_source else item.target_topic for item in frozen.partitions if item.left_out is None}
        async with reached(frozen, side) as cluster:
            missing += await unread(cluster, names)
    if not missing:
        return error
    lacked = in_a_line(in_words(missing, frozen.principals))
    text = f"{lacked}: farshore had it when both sites were asked, and Spark was refused when it read"
    return AuditError(text, f"{hint_to_give('audit run')}; then run the audit again")
