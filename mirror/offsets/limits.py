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
EXAMINED_PARTITION_MAX_BYTES: Final = 4 * 1024
"""Fetched of a target's partition to see whether a marker or a record lies at an offset; a marker has 78 bytes."""
EXAMINED_MAX_BYTES: Final = 4 * 1024 * 1024
EXAMINED_ROUNDS: Final = 64
"""Such fetches in one pass, each of which passes the markers before the next unknown offset of every partition."""
READ_RUNS_MAX: Final = 10_000
"""Looked at to tell which records behind a group's place it has read at the source: some tens of ms."""
BLOCK_INTERVALS_MAX: Final = 2_000
"""In one entry that is written ahead of batches: some tens of kB of JSON."""
PACKED_BLOCKS_MIN: Final = 8
"""So many proved blocks of a partition are packed into a page: who reads the state opens fewer than that."""
PACKED_INTERVALS_MIN: Final = 1_024
"""Or blocks with so many intervals."""
PAGE_INTERVALS_MAX: Final = 16_384
"""Pages grow up to this: 20 kB where steps are irregular, and some ms to open or to make."""
PAGES_AT_ONCE: Final = 4
"""Made of a partition behind one checkpoint: a busy one has one each second, and an old map none at all yet."""
PAGES_OPEN_MAX: Final = 32
"""Opened pages that a process keeps, of all links: 256 kB each."""
CLOSED_GAPS_MAX: Final = 1_000
"""Lines of a link's gap ledger that are kept after they were decided and passed: the newest."""
OPENED_TOGETHER: Final = 1_000
"""Entries whose JSON is read in one: each alone takes twice as long."""
STATE_READ_ON_MAX_MS: Final = 3_600_000
"""Then a reader that reads on reads the whole again: Kafka keeps tombstones for a day (delete.retention.ms)."""
