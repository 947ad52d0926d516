"""Coordinators' topics, made when somebody first asks for a coordinator."""

from __future__ import annotations

from broker.controller.requests import ControllerRequests, NewTopic
from broker.coordination.host import InternalTopic
from broker.coordination.internal_log import INTERNAL_TOPIC_CONFIGS
from broker.errors import BrokerError
from broker.limits import INTERNAL_TOPIC_TIMEOUT_MS
from broker.topics.errors import TopicExists
from broker.wire.errors import ErrorCode


class TooFewBrokersYet(BrokerError):
    """A coordinators' topic that was made with fewer replicas would keep these for good (KIP-115)."""

    error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    retriable = True
    hint = "start the other brokers; the client asks again by itself"


async def make_internal_topic(topic: InternalTopic, controller: ControllerRequests, brokers: int) -> None:
    """`brokers` are there, as far as is known here. Raises TooFewBrokersYet, and what the creation met."""
    if brokers < topic.replicas:
        raise TooFewBrokersYet(f"{topic.name} is to have {topic.replicas} replicas, {brokers} brokers run")
    configs = {**INTERNAL_TOPIC_CONFIGS, "min.insync.replicas": str(topic.min_insync_replicas)}
    new = NewTopic(topic.name, topic.partitions, topic.replicas, configs)
    try:
        await controller.create_topic(new, INTERNAL_TOPIC_TIMEOUT_MS)
    except TopicExists:
        # By a request of which it was not known what became of it.
        return
    except BrokerError as error:
        if error.error_code is ErrorCode.INVALID_REPLICATION_FACTOR:
            # The controller misses one that was there when it last told.
            raise TooFewBrokersYet(str(error)) from error
        raise
