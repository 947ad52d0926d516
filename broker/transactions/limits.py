"""Limits of transaction coordination, with their units."""

# A transactional id without a change for this long is forgotten (Kafka: transactional.id.expiration.ms, 7 days).
TRANSACTIONAL_ID_EXPIRATION_MS = 7 * 24 * 60 * 60 * 1000
TRANSACTIONAL_ID_CHECK_MS = 60 * 60 * 1000
# Markers that could not be written (a full disk) are tried again after this, and then after twice as long each time.
MARKER_RETRY_MS = 500
MARKER_RETRY_MAX_MS = 10 * 1000
# So long a producer that ends its transaction waits for the markers; then it is told to ask again if it needs them.
MARKER_PATIENCE_MS = 1_000
# So long another broker may take for a request with markers, each of which waits for its replicas.
MARKER_REQUEST_TIMEOUT_MS = 30_000
# So long a producer is kept waiting for what another broker says of its transaction.
VERIFICATION_TIMEOUT_MS = 10_000
# The epoch is an int16; one below its end the producer gets a new id, so that a fence can still raise the epoch.
PRODUCER_EPOCH_MAX = 2**15 - 1

assert MARKER_RETRY_MS < MARKER_RETRY_MAX_MS < TRANSACTIONAL_ID_CHECK_MS < TRANSACTIONAL_ID_EXPIRATION_MS
