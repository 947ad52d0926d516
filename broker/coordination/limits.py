"""Limits of the log that coordinators keep their state in, with their units."""

# What one read takes of a coordinator's topic while it is loaded.
COORDINATOR_LOAD_BYTES = 4 * 1024 * 1024
# Segments of the coordinators' topics are small so that compaction soon has something to work on (Kafka: 100 MiB).
COORDINATOR_SEGMENT_BYTES = 100 * 1024 * 1024
# Assignments of a large group, and a commit of very many partitions, are one batch each: more than other topics take.
COORDINATOR_BATCH_BYTES_MAX = 16 * 1024 * 1024

assert COORDINATOR_BATCH_BYTES_MAX < COORDINATOR_SEGMENT_BYTES
