"""The topic configs of Apache Kafka: name, type, default, what is allowed, what it does.

All names that Kafka lists are here, because mirrors and tools copy every config that a source shows. `field` names
the LogConfig field that a config drives; one without it is kept, checked and shown, and its effect (or why there is
none on a cluster of one broker with local storage) stands in its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from broker.topics.errors import InvalidTopicConfig

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
LONG_MIN: Final = -(2**63)
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
_REPLICAS: Final = r"\*|\d+:\d+"
"""All replicas, or PARTITION:BROKER."""
CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class ConfigType(IntEnum):
    """DescribeConfigs' numbers for types."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One config. `low` and `high` bound numbers; `choices` and `pattern` bound the text, of a list each item's."""

    name: str
    type: ConfigType
    default: str
    documentation: str
    low: float = 0
    high: float = LONG_MAX
    choices: tuple[str, ...] = ()
    field: str | None = None
    pattern: str | None = None

    def check(self, value: str) -> str:
        """The value in the form in which it is kept. Raises InvalidTopicConfig."""
        text = value.strip()
        problem = _CHECKS[self.type](self, text)
        if problem:
            raise InvalidTopicConfig(f"Invalid value {value} for configuration {self.name}: {problem}")
        return text.lower() if self.type is ConfigType.BOOLEAN else text


def items(value: str) -> list[str]:
    """The items of a LIST value."""
    return [item.strip() for item in value.split(",") if item.strip()]


def _check_number(config: TopicConfig, text: str) -> str:
    if "_" in text:
        return "digits only"  # Python would take 1_000 for a number
    try:
        number = float(text) if config.type is ConfigType.DOUBLE else int(text)
    except ValueError:
        return f"not a {config.type.name}"
    if not config.low <= number <= config.high:
        return f"must be from {config.low} to {config.high}"
    return _check_choice(config, text)


def _check_choice(config: TopicConfig, text: str) -> str:
    if config.choices and text not in config.choices:
        return f"must be one of {', '.join(config.choices)}"
    if config.pattern is not None and not re.fullmatch(config.pattern, text):
        return f"must be like {config.pattern}"
    return ""


def _check_list(config: TopicConfig, text: str) -> str:
    return next((problem for item in items(text) if (problem := _check_choice(config, item))), "")


def _check_boolean(config: TopicConfig, text: str) -> str:
    return _check_choice(config, text.lower()) if text.lower() in ("true", "false") else "must be true or false"


_CHECKS: Final[Mapping[ConfigType, Callable[[TopicConfig, str], str]]] = {
    ConfigType.BOOLEAN: _check_boolean,
    ConfigType.STRING: _check_choice,
    ConfigType.INT: _check_number,
    ConfigType.LONG: _check_number,
    ConfigType.DOUBLE: _check_number,
    ConfigType.LIST: _check_list,
}


def _boolean(name: str, default: bool, documentation: str) -> TopicConfig:
    return TopicConfig(name, ConfigType.BOOLEAN, str(default).lower(), documentation)


def _int(name: str, default: int, documentation: str, low: int = 0, field: str | None = None) -> TopicConfig:
    return TopicConfig(name, ConfigType.INT, str(default), documentation, low, INT_MAX, field=field)


def _long(name: str, default: int, documentation: str, low: int = 0, field: str | None = None) -> TopicConfig:
    return TopicConfig(name, ConfigType.LONG, str(default), documentation, low, LONG_MAX, field=field)


def _choice(
    name: str, default: str, documentation: str, choices: tuple[str, ...] = (), field: str | None = None
) -> TopicConfig:
    return TopicConfig(name, ConfigType.STRING, default, documentation, choices=choices, field=field)


def _list(
    name: str, default: str, documentation: str, choices: tuple[str, ...] = (), field: str | None = None
) -> TopicConfig:
    return TopicConfig(name, ConfigType.LIST, default, documentation, choices=choices, field=field)


_TABLE: Final = (
    _list("cleanup.policy", "delete", "What becomes of old segments: deleted, compacted by key, or both.",
          ("delete", "compact"), "cleanup_policy"),
    TopicConfig("compression.gzip.level", ConfigType.INT, "-1",
                "Level where the broker compresses with gzip; -1 is gzip's default.", -1, 9, pattern=r"-1|\+?0*[1-9]"),
    TopicConfig("compression.lz4.level", ConfigType.INT, "9", "Level where the broker compresses with lz4.", 1, 17),
    _choice("compression.type", "producer", "Codec in which batches are kept; producer keeps them as they come.",
            CODECS, "compression_type"),
    TopicConfig("compression.zstd.level", ConfigType.INT, "3", "Level where the broker compresses with zstd.",
                -131072, 22),
    _long("delete.retention.ms", DAY_MS, "How long compaction keeps tombstones.", field="delete_retention_ms"),
    _long("file.delete.delay.ms", 60_000, "Kept for tools: segments are removed at once."),
    _long("flush.messages", LONG_MAX, "Kept for tools: the page cache is flushed when a segment is full.", 1),
    _long("flush.ms", LONG_MAX, "Kept for tools: the page cache is flushed when a segment is full."),
    TopicConfig("follower.replication.throttled.replicas", ConfigType.LIST, "",
                "Replicas that copy no faster than their broker's follower.replication.throttled.rate.",
                field="follower_replication_throttled_replicas", pattern=_REPLICAS),
    _int("index.interval.bytes", 4096, "Bytes of log between two entries of the offset index.",
         field="index_interval_bytes"),
    TopicConfig("leader.replication.throttled.replicas", ConfigType.LIST, "",
                "Leaders that are copied no faster than their broker's leader.replication.throttled.rate.",
                field="leader_replication_throttled_replicas", pattern=_REPLICAS),
    _long("local.retention.bytes", -2, "Kept for tools: there is no remote storage.", -2),
    _long("local.retention.ms", -2, "Kept for tools: there is no remote storage.", -2),
    _long("max.compaction.lag.ms", LONG_MAX, "Kept for tools: compaction starts by the dirty ratio alone.", 1),
    _int("max.message.bytes", 1_048_588, "Largest record batch, as it comes over the wire.",
         field="max_message_bytes"),
    _boolean("message.downconversion.enable", True, "Kept for tools: formats before v2 are not served."),
    TopicConfig("message.format.version", ConfigType.STRING, "3.0-IV1", "Kept for tools: the format is always v2.",
                pattern=r"\d+\.\d+(\.\d+)*(-IV\d+)?"),
    _long("message.timestamp.after.max.ms", HOUR_MS, "How far a record's timestamp may lie in the future.",
          field="message_timestamp_after_max_ms"),
    _long("message.timestamp.before.max.ms", LONG_MAX, "How far a record's timestamp may lie in the past.",
          field="message_timestamp_before_max_ms"),
    _long("message.timestamp.difference.max.ms", LONG_MAX,
          "Kept for tools: superseded by message.timestamp.before.max.ms and after.max.ms."),
    _choice("message.timestamp.type", "CreateTime", "Whose time a record has: the producer's or the broker's.",
            ("CreateTime", "LogAppendTime"), "message_timestamp_type"),
    TopicConfig("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5",
                "Share of the log that is new since the last compaction, from which on it is compacted.",
                0, 1, field="min_cleanable_dirty_ratio"),
    _long("min.compaction.lag.ms", 0, "How long a record stays uncompacted.", field="min_compaction_lag_ms"),
    _int("min.insync.replicas", 1, "Replicas that must have a batch before a producer with acks=all is answered.", 1,
         "min_insync_replicas"),
    _boolean("preallocate", False, "Kept for tools: segments grow as they are written."),
    _boolean("remote.log.copy.disable", False, "Kept for tools: there is no remote storage."),
    _boolean("remote.log.delete.on.disable", False, "Kept for tools: there is no remote storage."),
    TopicConfig("remote.storage.enable", ConfigType.BOOLEAN, "false", "There is no remote storage to enable.",
                choices=("false",)),
    _long("retention.bytes", -1, "Size of a partition above which its oldest segments go; below 0 is no limit.",
          LONG_MIN, "retention_bytes"),
    _long("retention.ms", 7 * DAY_MS, "Age of its newest record at which a segment goes; -1 is no limit.", -1,
          "retention_ms"),
    _int("segment.bytes", 1_073_741_824, "Size at which a new segment is begun.", 14, "segment_bytes"),
    _int("segment.index.bytes", 10_485_760, "Kept for tools: an index grows with its segment.", 4),
    _long("segment.jitter.ms", 0, "Kept for tools: segments are begun at segment.ms sharp."),
    _long("segment.ms", 7 * DAY_MS, "Age at which a new segment is begun.", 1, "segment_ms"),
    _boolean("unclean.leader.election.enable", False, "A replica that is not in sync may lead when no other is there."),
)  # fmt: skip

CATALOGUE: Final[Mapping[str, TopicConfig]] = MappingProxyType({config.name: config for config in _TABLE})
