"""The Kafka wire protocol: message tables, their codec, record batches, error codes. No I/O."""
