"""A Kafka-protocol broker."""
