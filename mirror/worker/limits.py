"""Named limits of a link's worker, with their units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mirror.limits import HEARTBEAT_INTERVAL_MS

MIB: Final = 1024 * 1024
PARTITIONS_AT_ONCE: Final = 250
"""What is decided of each, or written, takes a good tenth of a millisecond, and nothing else runs meanwhile."""
FETCH_REVIEW_INTERVAL_MS: Final = 200
"""How often all partitions of a leader are gone through for what to fetch, where each fetch brings little."""
AHEAD_MAX_AGE_MS: Final = 5_000
"""What a start asks beside something else, before it is needed, is asked again where that took longer than this."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of one link in one worker."""

    in_flight_max_bytes: int = 64 * MIB
    """Fetched and not yet acknowledged by the target. One oversized batch may exceed it, or nothing would move."""
    fetch_start_bytes: int = 1 * MIB
    """What a fetch asks for nearby; it grows to `fetch_max_bytes` where full answers take `fetch_slow_ms`."""
    fetch_max_bytes: int = 16 * MIB
    fetch_slow_ms: int = 25
    fetch_fast_ms: int = 10
    fetch_room_min_bytes: int = 1 * MIB
    """A fetch waits until this much of `in_flight_max_bytes` is free."""
    fetch_partition_max_bytes: int = 4 * MIB
    partition_buffer_max_bytes: int = 8 * MIB
    """A partition with this much unacknowledged is left out of fetches."""
    fetch_max_wait_ms: int = 500
    fetch_crowded_wait_ms: int = 20
    """The longest wait of a fetch that leaves partitions out, so that the quiet ones do not hold back the busy."""
    produce_max_bytes: int = 8 * MIB
    produce_in_flight_requests: int = 5
    """Per target leader; Kafka remembers the last five batches of a producer."""
    produce_timeout_ms: int = 30_000
    checkpoint_interval_ms: int = 1_000
    checkpoint_max_bytes: int = 32 * MIB
    """A checkpoint comes earlier when this much was acknowledged since the last: a takeover reads what is behind."""
    topic_refresh_interval_ms: int = 5_000
    config_sync_interval_ms: int = 300_000
    """How often all configs of all topics are asked for, at both sites."""
    config_apply_after_ms: int = 30_000
    """What was shown as drift is carried over so much later, if it is there still."""
    acl_sync_interval_ms: int = 60_000
    """How often the ACLs of both sites are compared, where the link carries them."""
    group_sync_interval_ms: int = 5_000
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    restart_backoff_ms: int = 200
    restart_backoff_max_ms: int = 10_000
    paused_poll_ms: int = 2_000
    """How often a link whose target was promoted looks whether an operator resumed it."""
    observe_interval_ms: int = 250
    """How often the source is asked where its logs end, beside the records (`observing.py`); 0: never."""
    returns_interval_ms: int = 1_000
    """How often the state of a link back is read on, where ends are looked at: how far that link has come."""
    fence_reason_wait_ms: int = 5_000
    """How long a fenced worker waits for its successor to say in the link's state who it is. Twice as long each time
    that nobody did, so that two workers at a slow target do not fence each other for ever."""
    fence_reason_wait_max_ms: int = 60_000
    fence_reason_poll_ms: int = 100
    compare_patience_ms: int = 1_000
    """So long a start waits for each kind of reading that compares logs; who takes longer joins the session later."""
    healthy_after_ms: int = 30_000
    """A session that lived this long from when it was opened starts the backoff anew."""
    fence_renewal_ms: int = 6 * 3_600_000
    """Kafka forgets an idle producer id after a day (producer.id.expiration.ms), and the fence with it."""

    hold_pause_ms: int = 1_000
    """A partition that failed is tried again in a new session after this, then after ever longer pauses."""
    hold_refused_pause_ms: int = 60_000
    """The first pause where the error is none that goes away by itself."""
    hold_pause_max_ms: int = 300_000
    hold_gather_ms: int = 200
    """After a partition is held, others that fail for the same reason are waited for before the next look."""

    def __post_init__(self) -> None:
        assert self.fetch_start_bytes <= self.fetch_max_bytes
        assert self.fetch_fast_ms < self.fetch_slow_ms < self.fetch_max_wait_ms
        assert self.fetch_room_min_bytes <= self.fetch_max_bytes <= self.in_flight_max_bytes
        assert self.fetch_partition_max_bytes <= self.partition_buffer_max_bytes <= self.in_flight_max_bytes
        assert self.fetch_crowded_wait_ms <= self.fetch_max_wait_ms
        assert self.produce_in_flight_requests <= 5
        assert self.hold_gather_ms <= self.hold_pause_ms <= self.hold_refused_pause_ms <= self.hold_pause_max_ms
        assert self.fence_reason_poll_ms <= self.fence_reason_wait_ms <= self.fence_reason_wait_max_ms
        assert self.restart_backoff_ms <= self.restart_backoff_max_ms
