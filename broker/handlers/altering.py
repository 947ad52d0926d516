"""What AlterConfigs and IncrementalAlterConfigs share: resources one by one, each changed wholly or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from broker.broker import Broker
from broker.cluster.metadata import TopicState
from broker.errors import BrokerError
from broker.topics.errors import InvalidTopicRequest
from broker.topics.naming import check_name
from broker.wire.messages.alter_configs import AlterConfigsResourceResponse
from broker.wire.vocabulary import BROKER_RESOURCE, TOPIC_RESOURCE


class Resource(Protocol):
    """A resource as both requests name it."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)
ConfigsOf: TypeAlias = Callable[[R, Mapping[str, str]], dict[str, str]]


async def altered_resources(
    broker: Broker,
    resources: Sequence[R],
    configs_of: ConfigsOf[R],
    *,
    validate_only: bool,
    own_configs_of: ConfigsOf[R] | None = None,
) -> list[AlterConfigsResourceResponse]:
    """`configs_of` makes of what is set on a topic all that is to be set from now on, or raises a BrokerError; so does
    `own_configs_of` for this broker, None: nothing can be set on it.
    """
    named = Counter((asked.resource_type, asked.resource_name) for asked in resources)
    responses = []
    for asked in resources:
        code, message = 0, None
        try:
            twice = named[asked.resource_type, asked.resource_name] > 1
            if asked.resource_type == BROKER_RESOURCE and own_configs_of is not None:
                await _alter_own(broker, asked, own_configs_of, twice, validate_only)
            else:
                await _alter_topic(broker, asked, configs_of, twice, validate_only)
        except BrokerError as error:
            code, message = error.error_code, str(error)
        responses.append(AlterConfigsResourceResponse(code, message, asked.resource_type, asked.resource_name))
    return responses


async def _alter_topic(broker: Broker, asked: R, configs_of: ConfigsOf[R], twice: bool, validate_only: bool) -> None:
    topic = _topic(broker, asked.resource_type, asked.resource_name, twice)
    if validate_only:
        configs_of(asked, topic.configs)
    else:
        await broker.topic_configs.alter(topic.name, partial(configs_of, asked))


async def _alter_own(broker: Broker, asked: R, configs_of: ConfigsOf[R], twice: bool, validate_only: bool) -> None:
    """Raises InvalidTopicRequest for another broker's name."""
    if twice or asked.resource_name != str(broker.config.node_id):
        raise InvalidTopicRequest(
            f"This is broker {broker.config.node_id}, and {asked.resource_name!r} was named; each sets its own, "
            "and once in a request."
        )
    if validate_only:
        configs_of(asked, broker.broker_configs.own)
    else:
        await broker.broker_configs.alter(default=False, change=partial(configs_of, asked))


def _topic(broker: Broker, resource_type: int, name: str, twice: bool) -> TopicState:
    """The topic that a request to alter configs names. Raises InvalidTopicRequest, InvalidTopicName, UnknownTopic."""
    if twice:
        raise InvalidTopicRequest(f"'{name}' is in the request more than once.")
    if resource_type != TOPIC_RESOURCE:
        raise InvalidTopicRequest(
            f"Resources of type {resource_type} cannot be altered while the broker runs: only topics can, "
            "and a broker's replication quotas."
        )
    if not name:
        raise InvalidTopicRequest("The default resource is not allowed for topics.")
    check_name(name)
    return broker.view.require(name)
