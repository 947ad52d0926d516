"""Named limits of the mirror, with their units in their names. Relations are asserted at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024

RECEIVE_SCRATCH_BYTES: Final = 64 * 1024
"""Small responses are read through one buffer of this size per connection; larger ones get their own."""

REPLICA_ID_CONSUMER: Final = -1
CONFIGS_PER_REQUEST: Final = 200
"""Topics whose configs are asked for in one DescribeConfigs request."""
GROUPS_IN_FLIGHT: Final = 16
"""Groups whose offsets are fetched or committed at the same time."""
GROUP_SYNC_TIMEOUT_MS: Final = 4_000
"""What one group's commit may take within a pass, so that one bad group does not hold up the others."""
LAG_SCAN_MAX_BYTES: Final = MIB
"""The unmirrored tail of a partition is read up to this size for an exact lag; beyond it the lag is estimated."""
STATUS_REFRESH_INTERVAL_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of one client of one cluster."""

    connect_timeout_ms: int = 5_000
    bootstrap_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 30_000
    """A retriable error is tried again until this much time has passed."""
    unknown_topic_timeout_ms: int = 3_000
    """An unknown topic may only be young: tried again this long."""
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
        assert self.fetch_partition_max_bytes <= self.fetch_max_bytes < self.max_frame_bytes
        assert self.fetch_max_wait_ms < self.request_timeout_ms
        assert self.delivery_timeout_ms <= self.request_timeout_ms
