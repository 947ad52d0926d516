"""Every limit of the broker, with its unit. Relations between them are asserted at the end."""

KIB = 1024
MIB = 1024 * KIB

# -- log ---------------------------------------------------------------------------------------------------------
# Positions and relative offsets in the index files are 32-bit, as in Kafka.
SEGMENT_BYTES_MAX = 2**31 - 1
SEGMENT_OFFSETS_MAX = 2**31 - 1
# A topic may not space its index wider: each read passes what lies between two entries, in the event loop.
INDEX_INTERVAL_BYTES_MAX = 64 * KIB
# What a scan of batch headers reads at a time: one read covers some 250 small batches and wastes little on large ones.
LOG_WALK_BYTES = 16 * KIB
# Recovery and compaction read whole batches; a batch larger than this is read by itself.
LOG_SCAN_BYTES = 4 * MIB
# What recovery may read to tell a torn end from a wrong length, beyond one pass over it; then the end is kept.
LOG_SEARCH_CRC_BYTES_MAX = 256 * MIB
# Kafka remembers five batches per producer id, the most a client may have in flight.
PRODUCER_BATCHES_REMEMBERED = 5
PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000
PRODUCER_SNAPSHOTS_KEPT = 2
# By how much a batch's leader epoch may be above the newest in the checkpoint of epochs. Each start adds one, and a
# power cut may take the newest lines of that file; what is further ahead is a flipped bit.
LEADER_EPOCHS_AHEAD_MAX = 100
# Keys that one compaction pass holds in memory (about 150 bytes each); a pass that meets more stops there, the next
# goes on.
COMPACTION_KEYS_MAX = 1_000_000
# What is looked at of one batch where it has to be opened: bytes before compression, and records, each header counted
# as one more. Kafka has no such limits: 800 bytes hold a million records, and cost it what they hold.
OPENED_BATCH_BYTES_MAX = 128 * MIB
OPENED_BATCH_RECORDS_MAX = 250_000
# As much of it in the event loop, which it keeps for a few milliseconds; what is more goes to a thread.
OPENED_AT_ONCE_BYTES_MAX = 1 * MIB
OPENED_AT_ONCE_RECORDS_MAX = 1000
# Headers of batches that a lookup by time passes in the event loop; one that has to pass more goes to a thread.
PASSED_AT_ONCE_BATCHES_MAX = 10_000
# Batches that one lookup by time opens, in the event loop and in a thread. An honest log takes two: more of them claim
# a time that none of their records has. And the segments that are opened once more for the thread.
OPENED_AT_ONCE_FOR_LOOKUP_MAX = 4
OPENED_FOR_LOOKUP_MAX = 64
LOOKUP_SEGMENTS_MAX = 16
# Records at fault that the answer to a refused batch names one by one.
RECORD_ERRORS_MAX = 100

# -- network -----------------------------------------------------------------------------------------------------
# Kafka's socket.request.max.bytes: a frame that announces more is not a request.
SOCKET_REQUEST_BYTES_MAX = 100 * MIB
# All frames that are being received or handled, over all connections; one connection at a time may go beyond it, so
# that frames which wait for each other's memory cannot stand still. Kafka's queued.max.request.bytes.
QUEUED_REQUEST_BYTES_MAX = 256 * MIB
# Where a connection reads sizes and small requests. Larger frames get a buffer of their own: at most this is copied.
RECEIVE_HEAD_BYTES = 8 * KIB
# A frame's buffer starts with this and doubles as bytes come in: announcing a large frame costs its sender more
# than us.
FRAME_FIRST_BYTES = 256 * KIB
# Requests of one connection that wait behind the one being handled; then reading stops. Java sends 5 at once.
CONNECTION_REQUESTS_QUEUED_MAX = 8
# Bytes of answers not yet taken by the peer at which its connection handles no further request.
WRITE_HIGH_WATER_BYTES = 1 * MIB
# Elements of arrays and tagged fields in one request: two bytes of it can be an object of 200. Kafka has no such limit;
# a fetch of all partitions that sessions may hold is within it. And as many as are read in the event loop.
REQUEST_ITEMS_MAX = 200_000
REQUEST_ITEMS_AT_ONCE_MAX = 5_000
# Between brokers: the controller's order to a broker may be about as many partitions as fit into a frame.
ORDER_ITEMS_MAX = 20_000_000
# Elements of a request that are handled before others get the event loop: a partition's produced batch, a topic.
ITEMS_PER_TURN = 16
# A produced batch that is larger ends its turn: the lengths of its records were read.
BYTES_PER_TURN = 64 * KIB
# Bytes of answers, over all connections, that clients have not taken yet. At so many a fetch is given one batch and no
# more: who asks for much and reads nothing costs us a batch a connection, not 55 MiB.
UNSENT_ANSWERS_BYTES_MAX = 256 * MIB
# A frame that was begun, and of which nothing more came for so long, closes its connection.
FRAME_STALL_MS = 30 * 1000
# Connections beyond max.connections that wait until another one goes; more are closed. As many as the kernel's queue of
# connections that nobody has accepted would hold.
CONNECTIONS_WAITING_MAX = 100
# Connections of which it is not known yet who they are, as hands of TLS are not shaken or a login is not done: how many
# there may be, and how long the handshake may take.
STRANGERS_MAX = 1000
TLS_HANDSHAKE_MS = 30 * 1000
# What one may send in a request before its login, of which one at a time is kept beside the one that is handled, and
# how long the login may take. The largest token has half as much; Kafka allows 512 KiB (sasl.server.max.receive.size),
# for tickets of Kerberos, which are not taken here.
LOGIN_REQUEST_BYTES_MAX = 64 * KIB
# What all of them may hold of requests that are larger than a read: as much as each may send, so that nobody waits for
# those who begin one and send no more. Who has logged in waits for none of it.
STRANGERS_BYTES_MAX = STRANGERS_MAX * LOGIN_REQUEST_BYTES_MAX
LOGIN_MS = 30 * 1000
# How often one may ask ApiVersions before its login, which no quota counts; clients do once or twice.
LOGIN_API_VERSIONS_MAX = 10
# A signed token that tells of many groups has a few KiB.
TOKEN_BYTES_MAX = 32 * KIB
# Kafka's connection.failed.authentication.delay.ms; and how long its answer may take to be taken.
LOGIN_REFUSED_MS = 100
CLOSE_MS = 1000
# How often it is said, at most, that clients are refused or wait.
CLIENTS_REFUSED_WARN_MS = 60 * 1000
# How often it is said of one principal that he was denied something, and of how many that is remembered.
DENIALS_TOLD_MS = 60 * 1000
DENIALS_REMEMBERED_MAX = 10_000
# How often it is said, at most, that quotas hold clients back, and of how many who share one its use is remembered.
THROTTLED_TOLD_MS = 60 * 1000
QUOTA_RATES_MAX = 10_000
# How often idle and stalled connections are looked for.
CONNECTION_CHECK_MS = 1000


# -- topics ------------------------------------------------------------------------------------------------------
# Kafka's limit: directory names have 255 characters, and an index and a suffix are added.
TOPIC_NAME_CHARS_MAX = 249
# One request may not make more partitions than this: each is a directory with open files.
PARTITIONS_PER_TOPIC_MAX = 10_000
# Partitions in one answer of DescribeTopicPartitions (Kafka: max.request.partition.size.limit); more take more pages.
DESCRIBED_PARTITIONS_MAX = 2000
# Fetch sessions (Kafka: max.incremental.fetch.session.cache.slots and min.incremental.fetch.session.eviction.ms), and
# the partitions that all of them may hold together, at about 700 bytes each.
FETCH_SESSIONS_MAX = 1000
FETCH_SESSION_PARTITIONS_MAX = 100_000
FETCH_SESSION_EVICTION_MS = 120 * 1000
# File descriptors that neither clients nor new partitions get.
DESCRIPTORS_KEPT = 100
# Of these, how many new segments do not get either: files that are replaced, connections to ZooKeeper and of brokers.
DESCRIPTORS_KEPT_FROM_SEGMENTS = 50
# Up to so many new partitions' files are made durable one by one; for more, one sync of the whole disk is faster.
FILES_SYNCED_EACH_MAX = 16
# For topics that are made because somebody needs them: a coordinator, or a client that names one.
INTERNAL_TOPIC_TIMEOUT_MS = 30 * 1000
AUTO_CREATE_TIMEOUT_MS = 30 * 1000
# How long a broker that stops waits for others to lead what it leads.
CONTROLLED_SHUTDOWN_MS = 10 * 1000
# Producer ids are taken from the metadata store in blocks, as in Kafka, so that not each costs a durable write.
PRODUCER_ID_BLOCK = 1000

assert RECEIVE_HEAD_BYTES < FRAME_FIRST_BYTES < SOCKET_REQUEST_BYTES_MAX <= QUEUED_REQUEST_BYTES_MAX
assert 2 * FETCH_SESSION_PARTITIONS_MAX <= REQUEST_ITEMS_MAX, "each may be of a topic of its own"
assert SOCKET_REQUEST_BYTES_MAX <= OPENED_BATCH_BYTES_MAX, "whatever comes uncompressed may be looked at"
assert RECEIVE_HEAD_BYTES < 2 * TOKEN_BYTES_MAX <= LOGIN_REQUEST_BYTES_MAX
assert LOG_WALK_BYTES < LOG_SCAN_BYTES < SEGMENT_BYTES_MAX
