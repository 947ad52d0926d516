"""Every limit of the broker, with its unit. Relations between them are asserted at the end."""

KIB = 1024
MIB = 1024 * KIB

# -- log ---------------------------------------------------------------------------------------------------------
# Positions and relative offsets in the index files are 32-bit, as in Kafka.
SEGMENT_BYTES_MAX = 2**31 - 1
SEGMENT_OFFSETS_MAX = 2**31 - 1
# What a scan of batch headers reads at a time: one read covers some 250 small batches and wastes little on large ones.
LOG_WALK_BYTES = 16 * KIB
# Recovery and compaction read whole batches; a batch larger than this is read by itself.
LOG_SCAN_BYTES = 4 * MIB
# Kafka remembers five batches per producer id, the most a client may have in flight.
PRODUCER_BATCHES_REMEMBERED = 5
PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000
PRODUCER_SNAPSHOTS_KEPT = 2
# Keys that one compaction pass holds in memory (about 150 bytes each); a pass that meets more stops there, the next
# goes on.
COMPACTION_KEYS_MAX = 1_000_000

assert LOG_WALK_BYTES < LOG_SCAN_BYTES < SEGMENT_BYTES_MAX
