"""Who is in a group, as its coordinator told. Pure."""

from __future__ import annotations

from broker.client.described_groups import SHARE_TYPE, DescribedConsumerGroup
from broker.client.errors import KafkaError
from broker.client.groups import GroupOfOtherType
from mirror.api import Link


def is_share(group: DescribedConsumerGroup | KafkaError | None) -> bool:
    if isinstance(group, GroupOfOtherType):
        return group.group_type == SHARE_TYPE
    return isinstance(group, DescribedConsumerGroup) and group.protocol_type == SHARE_TYPE


def members(group: DescribedConsumerGroup | KafkaError | None) -> int | None:
    """How many; None where that is not told."""
    return len(group.members) if isinstance(group, DescribedConsumerGroup) else None


def reads(link: Link, group: DescribedConsumerGroup | KafkaError | None) -> bool:
    """Whether a group that never committed reads what is mirrored, or may be about to: it rebalances."""
    if not isinstance(group, DescribedConsumerGroup) or not group.members:
        return False
    assigned = {where.topic for member in group.members for where in member.assignment}
    assigned.update(topic for member in group.members for topic in member.subscribed)
    return not assigned or any(link.selects_topic(topic) for topic in assigned)
