"""What the configs set on a topic mean: checking changes, and making a LogConfig of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from broker.log.config import LogConfig
from broker.topics.catalogue import CATALOGUE, ConfigType, TopicConfig, items
from broker.topics.errors import InvalidTopicConfig, InvalidTopicRequest
from broker.wire.vocabulary import ConfigOperation

Number = TypeVar("Number", int, float)


def known_config(name: str) -> TopicConfig:
    """Raises InvalidTopicConfig for a name that Kafka does not have."""
    config = CATALOGUE.get(name)
    if config is None:
        raise InvalidTopicConfig(f"Unknown topic config name: {name}")
    return config


def checked(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The configs of a new topic in the form in which they are kept. Raises InvalidTopicConfig."""
    kept = {}
    for name, value in configs.items():
        if value is None:
            raise InvalidTopicConfig(f"Null value not supported for topic configs: {name}")
        kept[name] = known_config(name).check(value)
    log_config(kept)
    return kept


def altered(
    configs: Mapping[str, str],
    changes: list[tuple[str, ConfigOperation, str | None]],
    known: Callable[[str], TopicConfig] = known_config,
) -> dict[str, str]:
    """`configs` after the changes, in order. Raises InvalidTopicConfig, InvalidTopicRequest; then none counts. `known`
    gives what can be set, and raises one of these for what cannot.

    Deleting what is not set, or not known, is no error; appending starts from the default where nothing is set.
    """
    names = [name for name, _, _ in changes]
    if len(set(names)) != len(names):
        raise InvalidTopicRequest("Error due to duplicate config keys")
    result = dict(configs)
    for name, operation, value in changes:
        if operation is ConfigOperation.DELETE:
            result.pop(name, None)
            continue
        config = known(name)
        if value is None:
            raise InvalidTopicRequest(f"Null value not supported for: {name}")
        if operation is not ConfigOperation.SET:
            value = _list_change(config, result.get(name, config.default), operation, value)
        result[name] = config.check(value)
    log_config(result)
    return result


def _list_change(config: TopicConfig, current: str, operation: ConfigOperation, value: str) -> str:
    if config.type is not ConfigType.LIST:
        raise InvalidTopicConfig(f"Config value {operation.name} is not allowed for config key: {config.name}")
    old, given = items(current), items(value)
    if operation is ConfigOperation.APPEND:
        return ",".join(old + [item for item in given if item not in old])
    return ",".join(item for item in old if item not in given)


def value_of(configs: Mapping[str, str], name: str) -> str:
    """The value in force: what was set, or the default."""
    return configs.get(name, CATALOGUE[name].default)


def log_config(configs: Mapping[str, str]) -> LogConfig:
    """The LogConfig that configs amount to. Raises InvalidTopicConfig where they contradict each other, and where a
    value that others wrote to the metadata store is none.
    """
    fields = {
        config.field: _typed(config, value_of(configs, config.name))
        for config in CATALOGUE.values()
        if config.field is not None
    }
    try:
        config = LogConfig(**fields)  # type: ignore[arg-type]  # the catalogue's types are LogConfig's, see the test
    except ValueError as error:
        raise InvalidTopicConfig(str(error)) from error
    longest = CATALOGUE["max.compaction.lag.ms"]
    if config.min_compaction_lag_ms > _number(int, longest, value_of(configs, longest.name)):
        raise InvalidTopicConfig("min.compaction.lag.ms is above max.compaction.lag.ms")
    return config


def _typed(config: TopicConfig, value: str) -> int | float | str | frozenset[str]:
    """Raises InvalidTopicConfig."""
    if config.type in (ConfigType.INT, ConfigType.LONG):
        return _number(int, config, value)
    if config.type is ConfigType.DOUBLE:
        return _number(float, config, value)
    if config.type is ConfigType.LIST:
        return frozenset(items(value))
    return value


def _number(kind: Callable[[str], Number], config: TopicConfig, value: str) -> Number:
    try:
        return kind(value)
    except ValueError:
        raise InvalidTopicConfig(f"Invalid value {value} for configuration {config.name}") from None
