"""Named limits of the offset map's storage, with their units."""

from __future__ import annotations

from typing import Final

STATE_BATCH_MAX_ENTRIES: Final = 2_000
"""Entries in one batch to the state topic; with the byte limit below it stays under Kafka's default batch limit."""
STATE_BATCH_MAX_BYTES: Final = 512 * 1024
STATE_TOPIC_CONFIGS: Final = {
    "segment.bytes": str(8 * 1024 * 1024),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Every reader reads the state topic whole, and Kafka compacts no segment that is written to: with its defaults of
1 GiB and 7 days 1,000 moving partitions would leave minutes of decoding."""
STATE_TOPIC_REPLICATION_FACTOR: Final = 3
"""Of farshore's own topics, where the cluster has as many brokers."""
EXAMINED_PARTITION_MAX_BYTES: Final = 4 * 1024
"""Fetched of a target's partition to see whether a marker or a record lies at an offset; a marker has 78 bytes."""
EXAMINED_MAX_BYTES: Final = 4 * 1024 * 1024
EXAMINED_ROUNDS: Final = 64
"""Such fetches in one pass, each of which passes the markers before the next unknown offset of every partition."""
CLOSED_GAPS_MAX: Final = 1_000
"""Lines of a link's gap ledger that are kept after they were decided and passed: the newest."""
STATE_READ_ON_MAX_MS: Final = 3_600_000
"""Then a reader that reads on reads the whole again: Kafka keeps tombstones for a day (delete.retention.ms)."""
