"""Limits of group coordination, with their units."""

# A member that joined for the first time and whose client went away while it waited is dropped
# after this (Kafka: 5 minutes).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
# Members of one group; Kafka leaves it open, but each member costs memory in every rebalance answer.
GROUP_MEMBERS_MAX = 10_000
# Topics and owned partitions in the metadata that a member brings; one that brings more cannot be read.
SUBSCRIPTION_ITEMS_MAX = 100_000
# What a client may attach to one committed offset (Kafka: offset.metadata.max.bytes).
OFFSET_METADATA_BYTES_MAX = 4096
# How long the offsets of an empty group are kept (Kafka: offsets.retention.minutes, 7 days), and how often that is
# looked at.
OFFSETS_RETENTION_MS = 7 * 24 * 60 * 60 * 1000
OFFSETS_RETENTION_CHECK_MS = 10 * 60 * 1000
# Tombstones of a deleted topic's offsets that did not fit on the disk are tried again after this.
OFFSET_TOMBSTONE_RETRY_MS = 10 * 1000
# Consumer groups of KIP-848: how often members are to be heard of, and when one is given up (Kafka:
# group.consumer.heartbeat.interval.ms and group.consumer.session.timeout.ms).
CONSUMER_HEARTBEAT_INTERVAL_MS = 5_000
CONSUMER_SESSION_TIMEOUT_MS = 45_000
# How often a group's topics are looked at while no member changes: how soon a new partition is read.
CONSUMER_TOPICS_LOOK_MS = 5_000

assert CONSUMER_HEARTBEAT_INTERVAL_MS < CONSUMER_SESSION_TIMEOUT_MS
assert OFFSETS_RETENTION_CHECK_MS < OFFSETS_RETENTION_MS
