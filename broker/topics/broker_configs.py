"""A BrokerConfig under Kafka's names, as DescribeConfigs shows it, which is set at the start; and the few configs of a
broker that are set while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from types import MappingProxyType
from typing import Final

from broker.base.address import Address
from broker.config import BrokerConfig
from broker.topics.catalogue import CATALOGUE, INT_MAX, LONG_MAX, ConfigType, TopicConfig
from broker.topics.errors import InvalidTopicRequest
from broker.wire.site_role import (
    REASON_CHARACTERS_MAX,
    SITE_EPOCH,
    SITE_REASON,
    SITE_ROLE,
    SITE_STANDBY,
    SITE_TOPICS,
    SiteRole,
)
from broker.wire.vocabulary import ConfigSource

# Kafka's names of those that are not simply the field's name with dots.
_RENAMED = {
    "node_id": "node.id",
    "rack": "broker.rack",
    "data_dir": "log.dirs",
    "queued_max_request_bytes": "queued.max.request.bytes",
    "zookeeper": "zookeeper.connect",
    "zookeeper_session_timeout_ms": "zookeeper.session.timeout.ms",
    "zookeeper_connection_timeout_ms": "zookeeper.connection.timeout.ms",
}
# Shown as one address, or elsewhere in the protocol.
_LEFT_OUT = {
    "listeners",
    "advertised_listeners",
    "listener_security_protocol_map",
    "sasl_enabled_mechanisms",
    "sasl_users_file",
    "ssl_certificate_file",
    "ssl_key_file",
    "ssl_client_ca_file",
    "listen_host",
    "listen_port",
    "advertised_host",
    "advertised_port",
    "inter_broker_listen_host",
    "inter_broker_listen_port",
    "address_map",
    "authorizer_enable",
    "super_users",
    "allow_everyone_if_no_acl_found",
    "cluster_id",
    "zookeeper_access",
}
# Where Kafka's type is LONG; its other numbers are INT.
_LONGS = {
    "connections_max_reauth_ms",
    "log_retention_check_interval_ms",
    "log_cleaner_backoff_ms",
    "replica_lag_time_max_ms",
    "leader_imbalance_check_interval_seconds",
    "queued_max_request_bytes",
    "connections_max_idle_ms",
}
_SHORTS = {"offsets_topic_replication_factor", "transaction_state_log_replication_factor"}


_DEFAULTS: Final = {field.name: field.default for field in fields(BrokerConfig)}


def _of_start(field: str, type_: ConfigType, documentation: str, low: int) -> TopicConfig:
    """What a broker is started with, and may be told otherwise while it runs."""
    high = LONG_MAX if type_ is ConfigType.LONG else INT_MAX
    return TopicConfig(field.replace("_", "."), type_, str(_DEFAULTS[field]), documentation, low, high)


def _rate(name: str, documentation: str) -> TopicConfig:
    return TopicConfig(name, ConfigType.LONG, str(LONG_MAX), documentation)


LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
CLEANER_BACKOFF: Final = "log.cleaner.backoff.ms"
MAX_CONNECTIONS: Final = "max.connections"
MAX_CONNECTIONS_PER_IP: Final = "max.connections.per.ip"
TOPIC_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "log.cleanup.policy",
        "compression.type": "compression.type",
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "index.interval.bytes": "log.index.interval.bytes",
        "max.message.bytes": "message.max.bytes",
        "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
        "message.timestamp.type": "log.message.timestamp.type",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
        "min.insync.replicas": "min.insync.replicas",
        "retention.bytes": "log.retention.bytes",
        "retention.ms": "log.retention.ms",
        "segment.bytes": "log.segment.bytes",
        "segment.ms": "log.roll.ms",
        "unclean.leader.election.enable": "unclean.leader.election.enable",
    }
)
"""Topics' configs, and what a broker's is called that holds where none is set on the topic."""
DYNAMIC: Mapping[str, TopicConfig] = MappingProxyType(
    {
        config.name: config
        for config in (
            *(replace(CATALOGUE[name], name=synonym, field=None) for name, synonym in TOPIC_DEFAULTS.items()),
            _rate(LEADER_RATE, "Bytes per second that are copied from throttled leaders to replicas out of sync."),
            _rate(FOLLOWER_RATE, "Bytes per second that throttled replicas copy while they are out of sync."),
            _rate("replica.alter.log.dirs.io.max.bytes.per.second", "Kept for tools: there is one log directory."),
            _of_start("log_cleaner_backoff_ms", ConfigType.LONG, "How long compaction pauses between two rounds.", 0),
            # With 0 nobody could ever connect to set it back.
            _of_start("max_connections", ConfigType.INT, "Above it clients wait; those of brokers count, and stay.", 1),
            _of_start("max_connections_per_ip", ConfigType.INT, "Of clients at one address; more are closed.", 1),
            TopicConfig(
                SITE_ROLE,
                ConfigType.STRING,
                SiteRole.ACTIVE.value,
                "Whether clients may write here: only while it is active. Set it with `farshore site`.",
                choices=tuple(role.value for role in SiteRole),
            ),
            TopicConfig(SITE_EPOCH, ConfigType.LONG, "0", "Counts the changes of the site's role."),
            TopicConfig(
                SITE_REASON,
                ConfigType.STRING,
                "",
                "Who or what changed the site's role last.",
                pattern=rf"[^\x00-\x1f\x7f]{{0,{REASON_CHARACTERS_MAX}}}",
            ),
            TopicConfig(
                SITE_TOPICS,
                ConfigType.STRING,
                "",
                "A JSON list of regular expressions: the topics that the site's role is of. Empty: all.",
            ),
            TopicConfig(
                SITE_STANDBY,
                ConfigType.STRING,
                "",
                "A JSON list of regular expressions: what of a frozen site is standby, and stays closed after it.",
            ),
        )
    }
)
"""What can be set while brokers run, on one of them and on all; the site's role on all alone. The rates are what
`kafka-reassign-partitions` sets, and takes back in any case when a move has ended.
"""


def topic_defaults(*configs: Mapping[str, str]) -> dict[str, str]:
    """What these configs of brokers, the strongest first, say for topics that do not say it: by the topics' names."""
    found: dict[str, str] = {}
    for name, synonym in TOPIC_DEFAULTS.items():
        values = [each[synonym] for each in configs if synonym in each]
        if values:
            found[name] = values[0]
    return found


def dynamic_config(name: str) -> TopicConfig:
    """Raises InvalidTopicRequest for what is set at the start, or not at all."""
    if name not in DYNAMIC:
        raise InvalidTopicRequest(
            f"Cannot update these configs dynamically: {name}. While the broker runs these can be set: "
            f"{', '.join(DYNAMIC)}."
        )
    return DYNAMIC[name]


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    name: str
    value: str
    type: ConfigType
    source: ConfigSource
    documentation: str


def broker_settings(config: BrokerConfig, advertised_at: Callable[[str], Address]) -> list[BrokerSetting]:
    """Every setting, with the replication settings that follow from there being one broker."""
    listeners = config.client_listeners()
    told = ",".join(f"{each.name}://{advertised_at(each.name)}" for each in listeners)
    protocols = ",".join(f"{each.name}:{each.protocol}" for each in listeners)
    settings = [
        _text("broker.id", str(config.node_id), ConfigType.INT),
        _text("listeners", ",".join(map(str, listeners)), ConfigType.STRING),
        _text("advertised.listeners", told, ConfigType.STRING),
        _text("listener.security.protocol.map", protocols, ConfigType.STRING),
        _text("default.replication.factor", "1", ConfigType.INT),
        _text("delete.topic.enable", "true", ConfigType.BOOLEAN),
    ]
    if config.allow_everyone_if_no_acl_found:  # Kafka's show it where it is set
        settings.append(_text("allow.everyone.if.no.acl.found", "true", ConfigType.BOOLEAN))
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in _LEFT_OUT or value is None:
            continue
        is_default = field.default is not MISSING and value == field.default
        settings.append(
            BrokerSetting(
                _RENAMED.get(field.name, field.name.replace("_", ".")),
                _text_of(value),
                _type_of(field.name, value),
                ConfigSource.DEFAULT if is_default else ConfigSource.STATIC_BROKER,
                "Set when the broker is started.",
            )
        )
    return settings


def _text(name: str, value: str, type_: ConfigType) -> BrokerSetting:
    return BrokerSetting(name, value, type_, ConfigSource.STATIC_BROKER, "Follows from how the broker was started.")


def _text_of(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type_of(name: str, value: object) -> ConfigType:
    if isinstance(value, tuple):
        return ConfigType.LIST
    if isinstance(value, bool):
        return ConfigType.BOOLEAN
    if isinstance(value, int):
        if name in _SHORTS:
            return ConfigType.SHORT
        return ConfigType.LONG if name in _LONGS else ConfigType.INT
    return ConfigType.STRING
