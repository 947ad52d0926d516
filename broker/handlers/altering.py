"""What AlterConfigs and IncrementalAlterConfigs share: topics one by one, each changed wholly or not at all.

The broker's own configs are read-only.
"""

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
from broker.wire.vocabulary import TOPIC_RESOURCE


class Resource(Protocol):
    """A resource as both requests name it."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)
ConfigsOf: TypeAlias = Callable[[R, Mapping[str, str]], dict[str, str]]


async def altered_resources(
    broker: Broker, resources: Sequence[R], configs_of: ConfigsOf[R], *, validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    """`configs_of` makes of what is set on a topic all that is to be set from now on, or raises a BrokerError."""
    named = Counter((asked.resource_type, asked.resource_name) for asked in resources)
    responses = []
    for asked in resources:
        code, message = 0, None
        try:
            twice = named[asked.resource_type, asked.resource_name] > 1
            topic = _topic(broker, asked.resource_type, asked.resource_name, twice)
            if validate_only:
                configs_of(asked, topic.configs)
            else:
                await broker.topic_configs.alter(topic.name, partial(configs_of, asked))
        except BrokerError as error:
            code, message = error.error_code, str(error)
        responses.append(AlterConfigsResourceResponse(code, message, asked.resource_type, asked.resource_name))
    return responses


def _topic(broker: Broker, resource_type: int, name: str, twice: bool) -> TopicState:
    """The topic that a request to alter configs names. Raises InvalidTopicRequest, InvalidTopicName, UnknownTopic."""
    if twice:
        raise InvalidTopicRequest(f"'{name}' is in the request more than once.")
    if resource_type != TOPIC_RESOURCE:
        raise InvalidTopicRequest(
            f"Resources of type {resource_type} cannot be altered while the broker runs: only topics can."
        )
    if not name:
        raise InvalidTopicRequest("The default resource is not allowed for topics.")
    check_name(name)
    return broker.view.require(name)
