"""Which topics the members of a consumer group are subscribed to: the one place that looks into member metadata."""

from __future__ import annotations

from broker.groups.group import Group
from broker.groups.limits import SUBSCRIPTION_ITEMS_MAX
from broker.wire.codec import decode_prefixed
from broker.wire.errors import MalformedMessage
from broker.wire.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL = "consumer"


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """None when the group has members and it cannot be known: another protocol (Connect), or unreadable metadata."""
    topics: set[str] = set()
    for member in group.members.values():
        if group.protocol_type != CONSUMER_PROTOCOL or not member.protocols:
            return None
        metadata = member.metadata(group.protocol_name) or member.protocols[0].metadata
        try:
            subscription, _ = decode_prefixed(ConsumerProtocolSubscription, metadata, max_items=SUBSCRIPTION_ITEMS_MAX)
            topics.update(subscription.topics)
        except MalformedMessage:
            return None
    return frozenset(topics)
