"""What AlterConfigs and IncrementalAlterConfigs share: resources one by one, each changed wholly or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.cluster.metadata import TopicState
from broker.errors import BrokerError
from broker.topics.errors import InvalidTopicRequest
from broker.topics.naming import check_name
from broker.topics.site_role import check_site_change
from broker.wire.messages.alter_configs import AlterConfigsResourceResponse
from broker.wire.vocabulary import BROKER_RESOURCE, TOPIC_RESOURCE, AclOperation, AclResource


class Resource(Protocol):
    """A resource as both requests name it."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)
ConfigsOf: TypeAlias = Callable[[R, Mapping[str, str]], dict[str, str]]


async def altered_resources(
    broker: Broker,
    resources: Sequence[R],
    rights: Rights,
    configs_of: ConfigsOf[R],
    *,
    validate_only: bool,
    own_configs_of: ConfigsOf[R],
) -> list[AlterConfigsResourceResponse]:
    """`configs_of` makes of what is set on a topic all that is to be set from now on, or raises a BrokerError; so does
    `own_configs_of` for this broker, and for all of them.
    """
    named = Counter((asked.resource_type, asked.resource_name) for asked in resources)
    responses = []
    for asked in resources:
        code, message = 0, None
        try:
            require_on_resource(rights, AclOperation.ALTER_CONFIGS, asked)
            twice = named[asked.resource_type, asked.resource_name] > 1
            if asked.resource_type == BROKER_RESOURCE:
                await _alter_own(broker, asked, own_configs_of, twice, validate_only)
            else:
                await _alter_topic(broker, asked, configs_of, twice, validate_only)
        except BrokerError as error:
            code, message = error.error_code, str(error)
        responses.append(AlterConfigsResourceResponse(code, message, asked.resource_type, asked.resource_name))
    return responses


def require_on_resource(rights: Rights, operation: AclOperation, asked: Resource) -> None:
    """The right that is needed for its configs: those of a topic are its own, all others the cluster's. Raises
    NotAuthorized.
    """
    if asked.resource_type == TOPIC_RESOURCE:
        rights.require(operation, AclResource.TOPIC, asked.resource_name)
    else:
        rights.require(operation, AclResource.CLUSTER)


async def _alter_topic(broker: Broker, asked: R, configs_of: ConfigsOf[R], twice: bool, validate_only: bool) -> None:
    topic = _topic(broker, asked.resource_type, asked.resource_name, twice)
    if validate_only:
        configs_of(asked, topic.configs)
    else:
        await broker.topic_configs.alter(topic.name, partial(configs_of, asked))


async def _alter_own(broker: Broker, asked: R, configs_of: ConfigsOf[R], twice: bool, validate_only: bool) -> None:
    """Without a name: on all brokers. Raises InvalidTopicRequest for another broker's, SiteRoleMoved."""
    node_id, name = broker.config.node_id, asked.resource_name
    if twice or name not in ("", str(node_id)):
        raise InvalidTopicRequest(
            f"Unexpected broker id, expected {node_id} or empty string, but received {name}, which may be named once."
        )
    configs, default = broker.broker_configs, name == ""
    if validate_only:
        known = configs.default if default else configs.own
        check_site_change(known, configs_of(asked, known), default=default)
    else:
        await configs.alter(default=default, change=partial(configs_of, asked))


def _topic(broker: Broker, resource_type: int, name: str, twice: bool) -> TopicState:
    """The topic that a request to alter configs names. Raises InvalidTopicRequest, InvalidTopicName, UnknownTopic."""
    if twice:
        raise InvalidTopicRequest(f"'{name}' is in the request more than once.")
    if resource_type != TOPIC_RESOURCE:
        raise InvalidTopicRequest(
            f"Resources of type {resource_type} cannot be altered while the broker runs: only topics and brokers can."
        )
    if not name:
        raise InvalidTopicRequest("The default resource is not allowed for topics.")
    check_name(name)
    return broker.view.require(name)
