"""DescribeConfigs, v1-4: every config of a topic, or of this broker, with its value, source and type.

v3 types and documentation. A mirror copies what has source TOPIC and resets what has source DEFAULT, so both must
be right. An empty list of keys asks for all, as no list does.
"""

from __future__ import annotations

from broker.broker import Broker
from broker.cluster.metadata import TopicState
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.topics.broker_configs import DYNAMIC, BrokerSetting, broker_settings
from broker.topics.catalogue import CATALOGUE, TopicConfig
from broker.topics.errors import InvalidTopicRequest
from broker.topics.naming import check_name
from broker.wire.api import ApiKey
from broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from broker.wire.vocabulary import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigSource


async def handle(broker: Broker, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    named = {
        (asked.resource_type, asked.resource_name, tuple(asked.configuration_keys or ())): asked
        for asked in request.resources
    }
    return DescribeConfigsResponse(
        results=[await _describe(broker, request, asked) async for asked in in_turns(named.values())]
    )


async def _describe(
    broker: Broker, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    wanted = set(asked.configuration_keys or ())
    try:
        if asked.resource_type == TOPIC_RESOURCE:
            check_name(asked.resource_name)
            topic = broker.view.require(asked.resource_name)
            configs = [_topic_config(topic, config, request) for config in CATALOGUE.values()]
        elif asked.resource_type == BROKER_RESOURCE:
            configs = [_broker_config(setting, request) for setting in _settings(broker, asked.resource_name)]
            if asked.resource_name:
                values = broker.broker_configs.own
                configs += [
                    _config(config, values.get(name), ConfigSource.DYNAMIC_BROKER, request)
                    for name, config in DYNAMIC.items()
                ]
        else:
            raise InvalidTopicRequest(f"Resources of type {asked.resource_type} have no configs here.")
    except BrokerError as error:
        return DescribeConfigsResult(error.error_code, str(error), asked.resource_type, asked.resource_name)
    if wanted:
        configs = [config for config in configs if config.name in wanted]
    return DescribeConfigsResult(0, None, asked.resource_type, asked.resource_name, configs)


def _settings(broker: Broker, name: str) -> list[BrokerSetting]:
    """Raises InvalidTopicRequest for another broker's name. The empty name is the cluster's default: nothing is set
    there.
    """
    if name == "":
        return []
    if name != str(broker.config.node_id):
        raise InvalidTopicRequest(f"This is broker {broker.config.node_id}, not {name}.")
    return broker_settings(broker.config, broker.advertised)


def _topic_config(
    topic: TopicState, config: TopicConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    return _config(config, topic.configs.get(config.name), ConfigSource.TOPIC, request)


def _config(
    config: TopicConfig, was_set: str | None, source: ConfigSource, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    """`source`: where it comes from if it was set."""
    result = DescribeConfigsResourceResult(
        config.name,
        config.default if was_set is None else was_set,
        config_source=ConfigSource.DEFAULT if was_set is None else source,
        config_type=config.type,
        documentation=config.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        if was_set is not None:
            result.synonyms.append(DescribeConfigsSynonym(config.name, was_set, source))
        result.synonyms.append(DescribeConfigsSynonym(config.name, config.default, ConfigSource.DEFAULT))
    return result


def _broker_config(setting: BrokerSetting, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        setting.name,
        setting.value,
        read_only=True,
        config_source=setting.source,
        config_type=setting.type,
        documentation=setting.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        result.synonyms.append(DescribeConfigsSynonym(setting.name, setting.value, setting.source))
    return result


HANDLER = Handler(api=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), handle=handle)
