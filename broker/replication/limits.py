"""Limits of replication, with their units; where Kafka has a name for one, its default."""

from broker.limits import MIB

# replica.fetch.wait.max.ms, replica.fetch.response.max.bytes, replica.fetch.max.bytes.
FOLLOWER_MAX_WAIT_MS = 500
FOLLOWER_MAX_BYTES = 10 * MIB
FOLLOWER_PARTITION_MAX_BYTES = 1 * MIB
# replica.high.watermark.checkpoint.interval.ms.
HIGH_WATERMARK_CHECKPOINT_MS = 5_000

assert FOLLOWER_PARTITION_MAX_BYTES <= FOLLOWER_MAX_BYTES
