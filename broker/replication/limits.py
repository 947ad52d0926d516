"""Limits of replication, with their units; where Kafka has a name for one, its default."""

from broker.limits import MIB

# replica.fetch.wait.max.ms, replica.fetch.response.max.bytes, replica.fetch.max.bytes.
FOLLOWER_MAX_WAIT_MS = 500
FOLLOWER_MAX_BYTES = 10 * MIB
FOLLOWER_PARTITION_MAX_BYTES = 1 * MIB
# replica.socket.timeout.ms.
FOLLOWER_REQUEST_TIMEOUT_MS = 30_000
# replica.fetch.backoff.ms: the longest pause of a partition or a leader that cannot be followed; the first is shorter.
FOLLOWER_BACKOFF_MS = 50
FOLLOWER_BACKOFF_MAX_MS = 1_000
# A leader that cannot be followed has mostly stopped, and another one follows it; what lasts so long is told. More than
# the session of a broker with ZooKeeper takes to end (zookeeper.session.timeout.ms).
FOLLOWER_PATIENCE_MS = 20_000
# A change of the ISR of which it is not known what became of it: how often that is asked.
ISR_READ_BACK_MS = 200
# replica.high.watermark.checkpoint.interval.ms.
HIGH_WATERMARK_CHECKPOINT_MS = 5_000

assert FOLLOWER_MAX_WAIT_MS < FOLLOWER_REQUEST_TIMEOUT_MS
assert FOLLOWER_BACKOFF_MS <= FOLLOWER_BACKOFF_MAX_MS
assert FOLLOWER_PARTITION_MAX_BYTES <= FOLLOWER_MAX_BYTES
