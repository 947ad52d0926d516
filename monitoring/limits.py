"""Every limit of this folder, with its unit. Relations between them are asserted at the end."""

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS

# -- audit -------------------------------------------------------------------------------------------------------
# A range of source offsets has one digest at each site, and is what is opened where they differ. Its row takes some 60
# bytes: a thousandth of what is audited where records have 30 bytes or more.
AUDIT_RANGE_OFFSETS = 2_048
# Records named one by one in the result. How many differ is always counted exactly.
AUDIT_DIFFERENCES_LISTED_RECORDS = 1_000
AUDIT_RANGES_LISTED = 1_000
AUDIT_PREVIEW_BYTES = 120
# A record finds its interval of the offset map in its block of offsets. No more blocks than these are sent to each
# task: they are wider where logs are long.
AUDIT_BLOCK_MIN_OFFSETS = 1_024
AUDIT_BLOCKS_SENT = 32_768
# So many spans of a partition are opened apart; more than that are joined where the least lies between them.
AUDIT_SPANS_OPENED = 16
# Of a sample so many spans of a partition are read apart, and what lies between nearer ones is read with them: Spark
# takes some time for each, and only so many fit into one of its plans.
AUDIT_SPANS_SAMPLED = 1_024
AUDIT_READINGS_AT_ONCE = 16
# A partition's proof has a part for each run; beyond this many the oldest become one.
AUDIT_PROOF_PARTS = 100
# Larger partitions are read by several tasks.
AUDIT_TASK_OFFSETS = 1_000_000
# Spark's consumer asks for both log ends again after each poll; few large polls keep that off the wide-area link.
AUDIT_POLL_RECORDS = 20_000
AUDIT_FETCH_BYTES = 16 * 1024 * 1024
# Batches stay closed where there is so much to be read at both sites: for less Python takes longer to begin.
AUDIT_UNOPENED_MIN_OFFSETS = 1_000_000
# And where a first look at a partition (of so many ranges, and so small a share) shows batches of this size or records.
AUDIT_LOOK_RANGES = 8
AUDIT_LOOK_SHARE = 32
AUDIT_UNOPENED_BATCH_RECORDS = 4
AUDIT_UNOPENED_BATCH_BYTES = 16 * 1024
# A batch that reaches further behind its task's share leaves its partition to who opens records.
AUDIT_BATCH_OFFSETS = 1_000_000
# What differs in a compacted topic has to be so in each of so many readings.
AUDIT_COMPACTED_READINGS = 3
# So often a partition is read whose records are deleted meanwhile; then it is left out.
AUDIT_READ_ATTEMPTS = 4
# Spark's timestamps are microseconds in 64 bits.
AUDIT_TIMESTAMP_MAX_MS = (2**63 - 1) // 1000
AUDIT_KAFKA_TIMEOUT_MS = 30 * SECOND_MS
# A plot has at most this many bars; windows are summed up to fit.
AUDIT_PLOT_BARS = 120
# The records that groups read next: one batch each, so many at once of a site.
AUDIT_NEXT_AT_ONCE = 32
AUDIT_NEXT_FETCH_BYTES = 16 * 1024
# A whole pass of a link over its groups lies in here where its worker lives: it begins one every five seconds.
AUDIT_GROUP_PASS_MS = 20 * SECOND_MS
AUDIT_GROUP_LOOK_MS = 500
# A link that has not looked at its groups for so long is not waited for.
AUDIT_GROUPS_RESTING_MS = 60 * SECOND_MS
AUDIT_GROUPS_LISTED = 1_000
AUDIT_MASTER_CONNECT_MS = 5 * SECOND_MS
REPAIR_LOOK_INTERVAL_MS = 500
# Spark removes its temporary folders when it is asked to end; after this long it is made to.
AUDIT_SPARK_STOP_MS = 5 * SECOND_MS
# The child's longest line is the result: frozen partitions, and the windows and records that are listed.
AUDIT_EVENT_MAX_BYTES = 256 * 1024 * 1024
# A watch: the least between two audits, what it keeps of them, and for how many one Spark lives (eight hours of 30 s).
AUDIT_WATCH_EVERY_MIN_MS = SECOND_MS
AUDIT_WATCH_RUNS_KEPT = 20
AUDIT_WATCH_TOLD_RUNS_KEPT = 20
AUDIT_WATCH_SPARK_RUNS = 1_000
AUDIT_WATCH_LOG_BYTES = 16 * 1024 * 1024
# Topics with a time series of their own; the others are one sum.
AUDIT_WATCH_TOPICS = 100

# -- drills ------------------------------------------------------------------------------------------------------
# Each reads the link's state and asks both sites about all groups.
DRILL_INTERVAL_MS = MINUTE_MS

# -- canary ------------------------------------------------------------------------------------------------------
CANARY_INTERVAL_MS = SECOND_MS
# A record that has not arrived after this long is late.
CANARY_DEADLINE_MS = 30 * SECOND_MS
# A late record that still has not arrived after this long is lost, also when the link's map cannot prove it.
CANARY_LOST_AFTER_MS = 10 * MINUTE_MS
# How often the link's state is asked whether its target was promoted, and whether the mirror has passed late records.
CANARY_LOOK_INTERVAL_MS = 2 * SECOND_MS
CANARY_TOPIC_WAIT_MS = 60 * SECOND_MS
CANARY_RETRY_MIN_MS = 250
CANARY_RETRY_MAX_MS = 10 * SECOND_MS
# What closing a client may take: a service that is told to stop ends within a second, and there are two in a row.
CANARY_CLOSE_MS = 150
CANARY_LATENCIES_KEPT = 10_000
# Lost records are remembered for so long to tell a late arrival from a duplicate.
CANARY_LOST_KEPT = 10_000

# -- metrics -----------------------------------------------------------------------------------------------------
MONITOR_REFRESH_MS = 5 * SECOND_MS
MONITOR_LINK_TIMEOUT_MS = 10 * SECOND_MS
MONITOR_RETRY_MAX_MS = 30 * SECOND_MS
CANARY_LATENCY_BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

assert AUDIT_BLOCK_MIN_OFFSETS.bit_count() == 1
assert CANARY_INTERVAL_MS < CANARY_DEADLINE_MS < CANARY_LOST_AFTER_MS
assert CANARY_LOOK_INTERVAL_MS < CANARY_DEADLINE_MS
assert CANARY_RETRY_MIN_MS < CANARY_RETRY_MAX_MS <= CANARY_DEADLINE_MS
assert CANARY_LATENCY_BUCKETS_SECONDS[-1] * SECOND_MS >= CANARY_DEADLINE_MS
