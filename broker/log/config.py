"""What the topic's configs mean to its logs. Names are Kafka's with `_` for `.`; times in ms, sizes in bytes."""

from dataclasses import dataclass

from broker.limits import SEGMENT_BYTES_MAX

FOREVER = 2**63 - 1
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Defaults are those of Apache Kafka 4."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    retention_bytes: int = UNLIMITED
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    max_message_bytes: int = 1024 * 1024 + 12
    index_interval_bytes: int = 4096
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    compression_type: str = "producer"
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    leader_replication_throttled_replicas: frozenset[str] = frozenset()
    follower_replication_throttled_replicas: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Raises ValueError: values no log can be kept with. The topic catalogue refuses them earlier, by name."""
        if not 0 < self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(f"segment.bytes {self.segment_bytes} is outside 1..{SEGMENT_BYTES_MAX}")
        if self.message_timestamp_type not in ("CreateTime", "LogAppendTime"):
            raise ValueError(f"message.timestamp.type {self.message_timestamp_type!r} is unknown")
        if not self.cleanup_policy <= {"delete", "compact"}:
            raise ValueError(f"cleanup.policy {sorted(self.cleanup_policy)} is unknown")

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deleted_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
