"""Coordinators' topics, made when somebody first asks for a coordinator."""

from __future__ import annotations

from broker.config import BrokerConfig
from broker.controller.requests import ControllerRequests, NewTopic
from broker.coordination.host import InternalTopic
from broker.coordination.internal_log import INTERNAL_TOPIC_CONFIGS, TRANSACTIONS_TOPIC
from broker.errors import BrokerError
from broker.limits import INTERNAL_TOPIC_TIMEOUT_MS
from broker.topics.errors import TopicExists
from broker.wire.coordinator_keys import OFFSETS_TOPIC
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


def offsets_topic(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(OFFSETS_TOPIC, config.offsets_topic_num_partitions, config.offsets_topic_replication_factor)


def transactions_topic(config: BrokerConfig) -> InternalTopic:
    replicas = config.transaction_state_log_replication_factor
    # transaction.state.log.min.isr; with two replicas either broker may be missing.
    min_isr = min(2, max(1, replicas - 1))
    partitions = config.transaction_state_log_num_partitions
    return InternalTopic(TRANSACTIONS_TOPIC, partitions, replicas, min_insync_replicas=min_isr)
