"""Named limits of the client, with their units in their names. Relations are asserted at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024

RECEIVE_HEAD_BYTES: Final = 64 * 1024
"""Small responses are read through one buffer of this size per connection; larger ones get their own."""

REPLICA_ID_CONSUMER: Final = -1
CONFIGS_PER_REQUEST: Final = 200
"""Topics whose configs are asked for in one DescribeConfigs request."""
GROUPS_PER_REQUEST: Final = 100
"""Groups asked for in one request to their coordinator."""
NAMED_OFFSETS_PER_REQUEST: Final = 50_000
"""Offsets asked for by group and partition in one request: what a few tens of milliseconds encode."""
COMMITTED_AT_ONCE: Final = 100
"""Groups whose offsets are being committed at the same time: each is a request, which its coordinator has to write."""
PARTITIONS_PER_REQUEST: Final = 1_000
"""Partitions asked for in one request to their leader: it answers one while the answer before is read."""
LAGGARD_MS: Final = 1_000
"""Where each broker is asked for itself: how long the first answer waits for the others."""
SCAN_MAX_BYTES: Final = 32 * MIB
"""One fetch while a log is scanned."""
SCAN_PARTITION_MAX_BYTES: Final = 4 * MIB
SCAN_MAX_WAIT_MS: Final = 500
VISITED_AT_ONCE_BYTES: Final = 512 * 1024
"""Of a scanned log: 10 ms, where each record of it is opened."""
EMPTY_ANSWERS_MAX: Final = 2
"""So often a leader may have nothing to give before its log's end, until that counts as: there is nothing."""
UNSHOWN_WAIT_S: Final = 2.0
"""How long what a leader has, and nobody is shown, has time to be shown: followers that keep up need milliseconds."""
UNSHOWN_POLL_S: Final = 0.05

assert SCAN_PARTITION_MAX_BYTES <= SCAN_MAX_BYTES
assert GROUPS_PER_REQUEST <= NAMED_OFFSETS_PER_REQUEST


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of one client of one cluster."""

    connect_timeout_ms: int = 5_000
    bootstrap_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 30_000
    """A retriable error is tried again until this much time has passed."""
    unknown_topic_timeout_ms: int = 3_000
    """An unknown topic, or one without a leader, may only be young: tried again this long."""
    partition_patience_ms: int = 1_000
    """Where each partition has its own result: how long one partition's retriable error holds up the others."""
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    max_frame_bytes: int = 100 * MIB
    write_high_water_bytes: int = 4 * MIB
    """Unsent bytes on a connection above which senders wait."""
    fetch_max_bytes: int = 16 * MIB
    fetch_partition_max_bytes: int = 4 * MIB
    fetch_max_wait_ms: int = 500
    delivery_timeout_ms: int = 30_000
    """`timeout_ms` of produce and of topic changes: how long the broker itself may take."""

    def __post_init__(self) -> None:
        assert self.retry_backoff_ms <= self.retry_backoff_max_ms <= self.retry_timeout_ms
        assert self.retry_backoff_ms < self.partition_patience_ms <= self.retry_timeout_ms
        assert self.fetch_partition_max_bytes <= self.fetch_max_bytes < self.max_frame_bytes
        assert self.fetch_max_wait_ms < self.request_timeout_ms
        assert self.delivery_timeout_ms <= self.request_timeout_ms
