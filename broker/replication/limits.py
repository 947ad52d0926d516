"""Limits of replication, with their units; where Kafka has a name for one, its default."""

from broker.limits import MIB

# replica.fetch.wait.max.ms, replica.fetch.response.max.bytes, replica.fetch.max.bytes.
FOLLOWER_MAX_WAIT_MS = 500
FOLLOWER_MAX_BYTES = 10 * MIB
FOLLOWER_PARTITION_MAX_BYTES = 1 * MIB
# replica.lag.time.max.ms: who has not caught up for so long leaves the ISR.
REPLICA_LAG_TIME_MAX_MS = 30_000

assert FOLLOWER_MAX_WAIT_MS < REPLICA_LAG_TIME_MAX_MS
assert FOLLOWER_PARTITION_MAX_BYTES <= FOLLOWER_MAX_BYTES
