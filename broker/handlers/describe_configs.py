"""DescribeConfigs, v1-4: every config of a topic, or of this broker, with its value, source and type.

v3 types and documentation. A mirror copies what has source TOPIC and resets what has source DEFAULT, so both must
be right. An empty list of keys asks for all, as no list does.
"""

from __future__ import annotations

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.cluster.metadata import TopicState
from broker.errors import BrokerError
from broker.handlers.altering import require_on_resource
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.topics.broker_configs import DYNAMIC, TOPIC_DEFAULTS, BrokerSetting, broker_settings
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
from broker.wire.vocabulary import BROKER_RESOURCE, TOPIC_RESOURCE, AclOperation, ConfigSource


async def handle(broker: Broker, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    named = {
        (asked.resource_type, asked.resource_name, tuple(asked.configuration_keys or ())): asked
        for asked in request.resources
    }
    return DescribeConfigsResponse(
        results=[await _describe(broker, request, asked, context.rights) async for asked in in_turns(named.values())]
    )


async def _describe(
    broker: Broker, request: DescribeConfigsRequest, asked: DescribeConfigsResource, rights: Rights
) -> DescribeConfigsResult:
    wanted = set(asked.configuration_keys or ())
    try:
        require_on_resource(rights, AclOperation.DESCRIBE_CONFIGS, asked)
        if asked.resource_type == TOPIC_RESOURCE:
            check_name(asked.resource_name)
            topic = broker.view.require(asked.resource_name)
            configs = [_topic_config(broker, topic, config, request) for config in CATALOGUE.values()]
        elif asked.resource_type == BROKER_RESOURCE:
            settings = _settings(broker, asked.resource_name)
            configs = [_broker_config(one, request) for one in settings if one.name not in DYNAMIC]
            configs += _dynamic_configs(broker, asked.resource_name, settings, request)
        else:
            raise InvalidTopicRequest(f"Resources of type {asked.resource_type} have no configs here.")
    except BrokerError as error:
        return DescribeConfigsResult(error.error_code, str(error), asked.resource_type, asked.resource_name)
    if wanted:
        configs = [config for config in configs if config.name in wanted]
    return DescribeConfigsResult(0, None, asked.resource_type, asked.resource_name, configs)


def _settings(broker: Broker, name: str) -> list[BrokerSetting]:
    """Raises InvalidTopicRequest for another broker's name. The empty name is the cluster's default: no broker's start
    says anything of that.
    """
    if name == "":
        return []
    if name != str(broker.config.node_id):
        raise InvalidTopicRequest(f"This is broker {broker.config.node_id}, not {name}.")
    return broker_settings(broker.config, broker.advertised_at)


def _dynamic_configs(
    broker: Broker, name: str, settings: list[BrokerSetting], request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    """Of this broker all that can be set; of the cluster's default what is."""
    configs = broker.broker_configs
    if name:
        static = {
            one.name: [DescribeConfigsSynonym(one.name, one.value, one.source)]
            for one in settings
            if one.source is not ConfigSource.DEFAULT
        }
        return [
            _config(one, _set_on_broker(broker, one.name) + static.get(one.name, []), one.name, request)
            for one in DYNAMIC.values()
        ]
    return [
        _config(
            DYNAMIC[name], [DescribeConfigsSynonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)], None, request
        )
        for name, value in configs.default.items()
    ]


def _set_on_broker(broker: Broker, name: str) -> list[DescribeConfigsSynonym]:
    return [DescribeConfigsSynonym(name, value, source) for value, source in broker.broker_configs.sources(name)]


def _topic_config(
    broker: Broker, topic: TopicState, config: TopicConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    found, value, synonym = [], topic.configs.get(config.name), TOPIC_DEFAULTS.get(config.name)
    if value is not None:
        found.append(DescribeConfigsSynonym(config.name, value, ConfigSource.TOPIC))
    if synonym is not None:
        found += _set_on_broker(broker, synonym)
    return _config(config, found, synonym or config.name, request)


def _config(
    config: TopicConfig, found: list[DescribeConfigsSynonym], default: str | None, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    """`found` is where it is set, what is in force first; `default` what its default is called, None: left out."""
    if default is not None:
        found = [*found, DescribeConfigsSynonym(default, config.default, ConfigSource.DEFAULT)]
    return DescribeConfigsResourceResult(
        config.name,
        found[0].value,
        config_source=found[0].source,
        config_type=config.type,
        documentation=config.documentation if request.include_documentation else None,
        synonyms=found if request.include_synonyms else [],
    )


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
