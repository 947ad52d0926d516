"""Limits of the log that coordinators keep their state in, with their units."""

# What one read takes of a coordinator's partition while it is loaded, and after how many records others get their turn.
COORDINATOR_LOAD_BYTES = 1024 * 1024
COORDINATOR_LOAD_RECORDS_PER_TURN = 200
# A load that could not be done (the disk or the metadata store failed) is tried again after this.
COORDINATOR_LOAD_RETRY_MS = 1000
# Segments of the coordinators' topics are small so that compaction soon has something to work on (Kafka: 100 MiB).
COORDINATOR_SEGMENT_BYTES = 100 * 1024 * 1024
# Assignments of a large group, and a commit of very many partitions, are one batch each: more than other topics take.
COORDINATOR_BATCH_BYTES_MAX = 16 * 1024 * 1024
# So long an answer waits for the replicas of what it says (Kafka: offsets.commit.timeout.ms).
REPLICATION_TIMEOUT_MS = 5_000
# Partitions of a coordinator's topic: they spread the load over the brokers of a cluster (Kafka's 50); a broker that is
# alone has nothing to spread.
COORDINATOR_PARTITIONS_OF_CLUSTER = 50
COORDINATOR_PARTITIONS_ALONE = 1

assert COORDINATOR_BATCH_BYTES_MAX < COORDINATOR_SEGMENT_BYTES
