"""The mirror's door: all that failover, monitoring and chaos may use of it."""

from mirror.client.cluster import Cluster
from mirror.client.configs import (
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    alter_topic_configs,
    describe_broker_configs,
    describe_topic_configs,
)
from mirror.client.groups import (
    DescribedConsumerGroup,
    GroupMember,
    GroupState,
    ListedGroup,
    commit_offsets,
    committed_offsets,
    committed_offsets_of_groups,
    delete_groups,
    describe_groups,
    list_groups,
)
from mirror.client.log import append, read_batches, read_records
from mirror.client.model import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_LEADER,
    NO_OFFSET,
    CommittedOffset,
    Isolation,
    Node,
    OffsetAndTimestamp,
    Partition,
    Topic,
    TopicPartition,
)
from mirror.client.offsets import list_offsets, log_end_offsets, log_start_offsets
from mirror.client.topics import (
    NewTopic,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topics,
    list_topics,
)
from mirror.clock import Clock, SystemClock
from mirror.errors import (
    ClientError,
    ClusterUnreachable,
    ConnectionLost,
    KafkaError,
    LinkFenced,
    LinkPromoted,
    MirrorError,
    RequestTimedOut,
    StateDamaged,
)
from mirror.groups import GroupAction, translate_offset
from mirror.lag import PartitionLag, link_lag
from mirror.limits import ClientLimits
from mirror.link import Link, TopicNames
from mirror.offsets.entries import Checkpoint, Gap, GapKind, GapStatus, LinkRun, RunState
from mirror.offsets.fence import fence_link
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.operations import promote_link, resume_link
from mirror.offsets.shared import GroupMap, load_group_map
from mirror.offsets.state import LinkState, load_link_state
from mirror.site import Site
from mirror.status import LinkCondition, LinkStatus, link_status

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "NO_LEADER",
    "NO_OFFSET",
    "Checkpoint",
    "ClientError",
    "ClientLimits",
    "Clock",
    "Cluster",
    "ClusterUnreachable",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigSource",
    "ConnectionLost",
    "DescribedConsumerGroup",
    "End",
    "Gap",
    "GapKind",
    "GapStatus",
    "GroupAction",
    "GroupMap",
    "GroupMember",
    "GroupState",
    "Interval",
    "Isolation",
    "KafkaError",
    "Link",
    "LinkCondition",
    "LinkFenced",
    "LinkPromoted",
    "LinkRun",
    "LinkState",
    "LinkStatus",
    "ListedGroup",
    "MirrorError",
    "NewTopic",
    "Node",
    "OffsetAndTimestamp",
    "OffsetMap",
    "Partition",
    "PartitionLag",
    "PartitionMap",
    "RequestTimedOut",
    "RunState",
    "Site",
    "StateDamaged",
    "SystemClock",
    "Topic",
    "TopicNames",
    "TopicPartition",
    "alter_topic_configs",
    "append",
    "commit_offsets",
    "committed_offsets",
    "committed_offsets_of_groups",
    "create_partitions",
    "create_topics",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_broker_configs",
    "describe_groups",
    "describe_topic_configs",
    "describe_topics",
    "fence_link",
    "link_lag",
    "link_status",
    "list_groups",
    "list_offsets",
    "list_topics",
    "load_group_map",
    "load_link_state",
    "log_end_offsets",
    "log_start_offsets",
    "promote_link",
    "read_batches",
    "read_records",
    "resume_link",
    "translate_offset",
]
