"""Why an answer of ours differs from Apache Kafka's: every difference that is allowed, and no other.

A pattern is matched against "CASE: QUESTION/FIELD/..." with `*` for anything. A reason that no difference needs any
more fails the test too.
"""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    # -- where Kafka's answer says nothing that a client could use ------------------------------------------------
    "metadata_by_id: id in v11/*": "Kafka leaves its brokers out of the answer to a request that it cannot serve",
    "metadata_by_id: neither/*": "Kafka fails on a topic with neither name nor id; ours is an invalid name",
    "incremental_alter_configs: unknown operation/*": "a request that makes no sense is no UNKNOWN_SERVER_ERROR",
    "describe_topic_partitions: empty name/*": "a name that is invalid is no UNKNOWN_SERVER_ERROR",
    "fetch: isolation *": "as above; and a partition that fails does not fail the others",
    "fetch: negative bytes/*": "as above",
    "fetch: negative request/*": "as above",
    "list_offsets: isolation 2/*": "as above",
    "produce: null records": "Kafka leaves the client waiting for an answer that never comes",
    "alter_configs: a topic twice": "as above",
    "offset_fetch: no group, *": "Kafka leaves the client waiting for an answer that never comes",
    "offset_for_leader_epoch: epoch -2*": "Kafka answers epoch -2, which nobody has led, with offset 0",
    "broken_frames: a count of -5": "Kafka takes every negative count for null; ours only -1, and closes",
    # -- what Kafka regroups by partition loses topics without any -------------------------------------------------
    "delete_records: no partition/topics": "Kafka leaves out a topic that was asked about without a partition",
    "produce: no partition/responses": "as above",
    "committed_offsets: commit, no partition/topics": "as above",
    "a_groups_life: described twice/groups": "what is named many times in a request is described once",
    # -- data ------------------------------------------------------------------------------------------------------
    "produce: a partition twice/*": "Kafka keeps one of the two batches and drops the other without a word; ours both",
    "produce_bodies: a codec that it is not*": "what the producer did wrong is no UNKNOWN_SERVER_ERROR",
    "produce_bodies: a header without a key/*": "seen with record_validation = full alone (docs/performance.md)",
    "produce_formats: bytes behind/*": "Kafka drops what follows a batch without a word; ours refuses it",
    "idempotence: repeat/*/log_append_time_ms": "Kafka names the batch's own time, though the topic is of CreateTime",
    "transactions: produce again/*/log_append_time_ms": "as above",
    "transactions: producers while open/*/last_timestamp": (
        "ours is when the producer last wrote by the broker's clock: a mirror's old records do not expire its state"
    ),
    "transactional_offsets: commit, newer epoch/*": (
        "Kafka takes offsets of an epoch that nobody has; no marker would ever end them"
    ),
    "fetch_by_id: deleted while in a session/*": "Kafka still knows the name of the id that is gone; ours does not",
    # -- users -----------------------------------------------------------------------------------------------------
    "scram_credentials: no salt/*": "Kafka keeps a credential by which nobody can log in",
    "scram_credentials: no password/*": "what is wrong with a request is no UNKNOWN_SERVER_ERROR",
    "wrong_client_quotas: bytes: tiny/*": "Kafka makes 0 bytes a second of it, after which nothing is ever answered",
    # -- configs ---------------------------------------------------------------------------------------------------
    "*/configs/message.timestamp.after.max.ms/value": "our default is that of Kafka 4: an hour (KIP-1030)",
    "create_topics_configs: min.cleanable.dirty.ratio='0*": "Java's own ways to write a number: 0.25f, 0x1p-1",
    "incremental_alter_values: min.cleanable.dirty.ratio='0*": "as above",
    "create_topics_configs: cleanup.policy=' compact , delete '/*": "values are kept without the blanks around them",
    "create_topics_configs: retention.ms=' 5 '/*": "as above",
    "create_topics_configs: preallocate='*'/*": "as above, and truth values in small letters",
    "dynamic_configs: set on */synonyms*": "Kafka's default of log.roll.ms stands in log.roll.hours; ours has none",
    "dynamic_configs: an unknown one of */error_code": "Kafka keeps what it does not know, for plug-ins; ours has none",
    "dynamic_configs: a bad value of */error_code": "a value that is wrong is INVALID_CONFIG, of brokers as of topics",
    "dynamic_configs: too low, of */error_code": "as above",
    "dynamic_configs: max.connections=0 of */error_code": "as above",
    "dynamic_configs: max.connections.per.ip=0 of */error_code": "as above",
    "dynamic_configs: log.cleaner.backoff.ms=-1 of */error_code": "as above",
    "dynamic_limits: max.connections is shown/*/value": "ours has a limit by default: see BrokerConfig",
    "describe_configs: a topic twice/results": "what is named many times in a request is described once",
    "describe_configs: synonyms/*/synonyms*": "synonyms of a topic's config in Kafka are its broker's; ours has none",
    "describe_configs: broker, what we have/*/inter.broker.plaintext.beside.logins": "only our broker has this one",
    "describe_configs: broker, what we have/*/record.validation": "a setting that only our broker has",
    "describe_configs: broker, what we have/*/sasl.oauthbearer.required.scope": "a setting that only our broker has",
    "describe_configs: broker, what we have/*/site.start.frozen": "a setting that only our broker has",
    "describe_configs: broker, what we have/*/group.consumer.migration.policy": "Kafka 3.9 does not show its own",
    "describe_configs: broker, what we have/*/value": "another broker with other defaults: see BrokerConfig",
    "describe_configs: broker, what we have/*/config_source": "as above",
    "describe_configs: broker, what we have/*/read_only": "our broker's settings are those of its start",
}

REASONS_OF_KAFKA_43: Final = {
    "a_groups_life: described with operations/*/authorized_operations": (
        "a group has configs in Kafka 4, with operations of their own; ours has none"
    ),
    "consumer_group_of_one: described with operations/*/authorized_operations": "as above",
    "a_group_goes_over: commit, old generation/*": (
        "Kafka 4.3 keeps since when a member has each partition (KIP-1251); ours wants its epoch, and it commits again"
    ),
    "consumer_group_of_one: described, v*/groups": "what is named many times in a request is described once",
    "fetch_by_id: a follower/node_endpoints": "ours says where the leader is, as 3.9 does; 4 does not",
    "list_offsets: a partition twice/*": "one answer for each, as 3.9 gives; 4 names the partition once",
    "list_offsets: no partition/topics": "4 leaves out a topic without a partition; 3.9 does not",
}
"""Where 4.3 answers otherwise than 3.9, or what 3.9 has not. What is allowed of 3.9 is allowed of 4.3."""
