"""Limits of transaction coordination, with their units."""

# What a producer may ask for as its transaction timeout (Kafka: transaction.max.timeout.ms).
TRANSACTION_TIMEOUT_MAX_MS = 15 * 60 * 1000
# A transactional id without a change for this long is forgotten (Kafka: transactional.id.expiration.ms, 7 days).
TRANSACTIONAL_ID_EXPIRATION_MS = 7 * 24 * 60 * 60 * 1000
TRANSACTIONAL_ID_CHECK_MS = 60 * 60 * 1000
# Markers that could not be written (a full disk) are tried again after this.
MARKER_RETRY_MS = 500
# The epoch is an int16; one below its end the producer gets a new id, so that a fence can still raise the epoch.
PRODUCER_EPOCH_MAX = 2**15 - 1
# Kafka makes 50. One broker coordinates all, so more partitions would spread nothing and cost a folder with open files
# each; the count cannot be changed later, and these are enough for a handful of brokers to share.
TRANSACTIONS_TOPIC_PARTITIONS = 4

assert MARKER_RETRY_MS < TRANSACTION_TIMEOUT_MAX_MS < TRANSACTIONAL_ID_EXPIRATION_MS
