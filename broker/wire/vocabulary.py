"""Kafka's own words and special values, which both sides of the protocol use: each stands here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

INTERNAL_PREFIX: Final = "__"
"""Of topics that are nobody's data: Kafka's own, and farshore's."""
NO_LEADER: Final = -1
"""In place of a broker's id where a partition has no leader."""
NO_LEADER_EPOCH: Final = -1
DEBUGGING_CONSUMER: Final = -2
"""In place of a replica's id: in Fetch a consumer that may be answered by followers, too; in ListOffsets who asks for
the end of a leader's log as it is.
"""
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_GENERATION: Final = -1
"""The generation of a commit from outside the group; allowed while it has no members."""
LATEST: Final = -1
"""Timestamp in ListOffsets: the high watermark, or the last stable offset when reading committed."""
EARLIEST: Final = -2
"""Timestamp in ListOffsets: the log start offset."""
MAX_TIMESTAMP: Final = -3
"""Timestamp in ListOffsets: the record with the highest timestamp (KIP-734)."""
EARLIEST_LOCAL: Final = -4
"""Timestamp in ListOffsets: the earliest offset on the broker's own disk (KIP-405)."""
LATEST_TIERED: Final = -5
"""Timestamp in ListOffsets: the latest offset in remote storage (KIP-1005)."""
MAX_TIMESTAMP_SINCE_VERSION: Final = 7
"""The version of ListOffsets that has MAX_TIMESTAMP."""
ALL_REPLICAS: Final = -1
"""Acks in Produce: answer once all replicas in sync have the records."""
BROKER_DEFAULT: Final = -1
"""In CreateTopics: as many partitions or replicas as the broker is set to give."""
GROUP_COORDINATOR: Final = 0
"""The type of key in FindCoordinator: the coordinator of a group."""
TRANSACTION_COORDINATOR: Final = 1
TOPIC_RESOURCE: Final = 2
"""The type of what DescribeConfigs and IncrementalAlterConfigs name."""
BROKER_RESOURCE: Final = 4
ANY_HOST: Final = "*"
EVERY_RESOURCE: Final = "*"
"""The name of a literal pattern that stands for all names."""
EVERYBODY: Final = "User:*"
SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""By the number that requests name them by."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name that the cluster has in ACLs."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(wheres: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """As requests name partitions: topics in the order in which they come first, each with its indexes."""
    found: dict[str, list[int]] = {}
    for where in wheres:
        found.setdefault(where.topic, []).append(where.partition)
    return found


class ElectionType(IntEnum):
    """Of ElectLeaders: by the first replica, or by whoever is there."""

    PREFERRED = 0
    UNCLEAN = 1


class IsolationLevel(IntEnum):
    """How far a consumer reads: up to the high watermark, or up to the last stable offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class GroupState(StrEnum):
    """Kafka's words for a group's state; UNKNOWN where an old cluster does not tell."""

    EMPTY = "Empty"
    STABLE = "Stable"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    DEAD = "Dead"
    NOT_READY = "NotReady"
    UNKNOWN = "Unknown"

    @property
    def has_no_members(self) -> bool:
        return self in (GroupState.EMPTY, GroupState.DEAD)


class ConfigSource(IntEnum):
    """Where a config's value comes from (DescribeConfigs)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to a config (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AclResource(IntEnum):
    """What kind of thing an ACL is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    """How an ACL names its resource; ANY and MATCH are of questions alone: MATCH is all that holds for a name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What an ACL is about; in authorized operations the bit of that number says that it is allowed."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12

    @property
    def word(self) -> str:
        """As kafka-acls has it: DescribeConfigs."""
        return "".join(part.capitalize() for part in self.name.split("_"))


RESOURCE_OPERATIONS: Final = {
    AclResource.TOPIC: frozenset(
        {
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    AclResource.GROUP: frozenset({AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE}),
    AclResource.CLUSTER: frozenset(
        {
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        }
    ),
    AclResource.TRANSACTIONAL_ID: frozenset({AclOperation.WRITE, AclOperation.DESCRIBE}),
}
"""All that can be done to resources of each kind."""
CLUSTER_OPERATIONS: Final = RESOURCE_OPERATIONS[AclResource.CLUSTER]
"""All that there are of the cluster itself. Who lacks one of them is no super user."""


class AclPermission(IntEnum):
    """What an ACL says of an operation; DENY goes before ALLOW, and only a super user passes by it."""

    ANY = 1
    DENY = 2
    ALLOW = 3
