"""What can be wrong with a request about a topic, beside the tree in `broker.errors`."""

from __future__ import annotations

from broker.errors import BrokerError
from broker.wire.errors import ErrorCode


class TopicError(BrokerError):
    """Root of the refusals that concern one topic."""


class UnknownTopic(TopicError):
    error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    retriable = True
    hint = "list the topics; create it first if it should exist"


class TopicUnreadable(TopicError):
    """There is such a topic: clients are to wait, and not to take it for gone. Of what Kafka says about topics this
    alone is temporary to all of them.
    """

    error_code = ErrorCode.LEADER_NOT_AVAILABLE
    retriable = True
    hint = "put right, by hand, what the controller's log says cannot be read of it"


class TopicExists(TopicError):
    error_code = ErrorCode.TOPIC_ALREADY_EXISTS
    hint = "choose another name, or use the topic as it is"


class InvalidTopicName(TopicError):
    error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    hint = "use 1 to 249 of the characters a-z A-Z 0-9 . _ -"


class InvalidPartitions(TopicError):
    error_code = ErrorCode.INVALID_PARTITIONS
    hint = "a topic's partitions can only become more"


class InvalidReplicationFactor(TopicError):
    error_code = ErrorCode.INVALID_REPLICATION_FACTOR
    hint = "use a replication factor of 1, or -1 for the broker's default: this cluster has one broker"


class InvalidReplicaAssignment(TopicError):
    error_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    hint = "assign partitions 0, 1, 2... each to brokers that exist"


class InvalidTopicConfig(TopicError):
    error_code = ErrorCode.INVALID_CONFIG
    hint = "see the topic configs of Apache Kafka for names and values"


class InvalidTopicRequest(TopicError):
    error_code = ErrorCode.INVALID_REQUEST
    hint = "correct the request"


class PartitionOffline(TopicError):
    """The partition's files could not be opened; the others are served. `may_pass`: as of a full disk."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    retriable = True
    hint = "see the broker's log for the file; restore it, or delete and mirror the topic again, and restart the broker"
    may_pass = False


class LeaderEpochMismatch(TopicError):
    """The client's view of the leader is older (FENCED_LEADER_EPOCH) or newer (UNKNOWN_LEADER_EPOCH) than the
    broker's.
    """

    error_code = ErrorCode.FENCED_LEADER_EPOCH
    retriable = True
    hint = "refresh the metadata and ask again"


class MetadataBehind(TopicError):
    """The log is of a later leader epoch than the metadata: these are of an earlier day."""

    error_code = ErrorCode.FENCED_LEADER_EPOCH
    hint = "nobody leads before all replicas have told what they have; the controller's log says who is waited for"


class RequestTimedOut(TopicError):
    """The replicas did not take in time what was written; they may still."""

    error_code = ErrorCode.REQUEST_TIMED_OUT
    retriable = True
    hint = "ask again; see which replicas of the partition lag behind"


class NotLeading(TopicError):
    """Another broker is the leader, or may be by now: this one's session with ZooKeeper may be over."""

    error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    retriable = True
    hint = "refresh the metadata and ask the leader; a broker goes on when it is registered with ZooKeeper again"


class NotEnoughReplicas(TopicError):
    """Fewer replicas are in sync than `min.insync.replicas`: nothing was appended."""

    error_code = ErrorCode.NOT_ENOUGH_REPLICAS
    retriable = True
    hint = "bring the missing replicas back, or lower min.insync.replicas of the topic"


class NotEnoughReplicasAfterAppend(TopicError):
    """The records are in the log, but at fewer replicas than `min.insync.replicas`."""

    error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    retriable = True
    hint = "send them again with idempotence on, once the missing replicas are back"


class OffsetNotAvailable(TopicError):
    """A new leader does not know yet how far the one before it had acknowledged."""

    error_code = ErrorCode.OFFSET_NOT_AVAILABLE
    retriable = True
    hint = "ask again: the leader knows as soon as the replicas in sync have fetched from it"
