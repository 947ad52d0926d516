"""Configs of topics and brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import KafkaError
from broker.client.fanout import ask_any_broker
from broker.client.limits import CONFIGS_PER_REQUEST
from broker.client.topics import ask_controller
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from broker.wire.vocabulary import TOPIC_RESOURCE, ConfigOperation, ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config; `value` is None when it is sensitive or unset."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool = False
    is_read_only: bool = False

    @property
    def is_topic_own(self) -> bool:
        """Set on the topic itself, not inherited."""
        return self.source is ConfigSource.TOPIC


async def describe_topic_configs(
    cluster: Cluster, topics: Iterable[str]
) -> dict[str, dict[str, ConfigEntry] | KafkaError]:
    """All configs per topic, by name, or why a topic cannot be described."""
    names = list(topics)
    found: dict[str, dict[str, ConfigEntry] | KafkaError] = {}
    for start in range(0, len(names), CONFIGS_PER_REQUEST):
        resources = [
            DescribeConfigsResource(TOPIC_RESOURCE, n, None) for n in names[start : start + CONFIGS_PER_REQUEST]
        ]
        found |= await _describe(cluster, resources)
    return found


async def alter_topic_configs(
    cluster: Cluster, changes: Mapping[str, Sequence[tuple[str, ConfigOperation, str | None]]]
) -> dict[str, KafkaError]:
    """Apply (name, operation, value) per topic -> the topics where it failed, and why; a topic is all or nothing."""
    if not changes:
        return {}
    resources = [
        AlterConfigsResource(TOPIC_RESOURCE, topic, [AlterableConfig(n, int(op), value) for n, op, value in configs])
        for topic, configs in changes.items()
    ]

    async def ask(connection: Connection) -> dict[str, KafkaError]:
        response = await connection.request(IncrementalAlterConfigsRequest(resources))
        return {
            r.resource_name: KafkaError(r.error_code, _whose(cluster, r.resource_name), r.error_message)
            for r in response.responses
            if r.error_code
        }

    return await ask_controller(cluster, ask)


async def _describe(
    cluster: Cluster, resources: list[DescribeConfigsResource]
) -> dict[str, dict[str, ConfigEntry] | KafkaError]:
    async def ask(connection: Connection) -> dict[str, dict[str, ConfigEntry] | KafkaError]:
        return _entries(cluster, await connection.request(DescribeConfigsRequest(resources)))

    return await ask_any_broker(cluster, ask)


def _entries(cluster: Cluster, response: DescribeConfigsResponse) -> dict[str, dict[str, ConfigEntry] | KafkaError]:
    found: dict[str, dict[str, ConfigEntry] | KafkaError] = {}
    for result in response.results:
        name = result.resource_name
        if result.error_code:
            found[name] = KafkaError(ErrorCode.of(result.error_code), _whose(cluster, name), result.error_message)
            continue
        found[name] = {
            c.name: ConfigEntry(c.name, c.value, _source(c.config_source), c.is_sensitive, c.read_only)
            for c in result.configs
        }
    return found


def _whose(cluster: Cluster, topic: str) -> str:
    return f"configs of topic {topic} at {cluster.site.name}"


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if 0 <= number <= ConfigSource.DEFAULT else ConfigSource.UNKNOWN
