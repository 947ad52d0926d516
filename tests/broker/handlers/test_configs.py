"""DescribeConfigs and IncrementalAlterConfigs, and the catalogue behind them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from broker.log.config import LogConfig
from broker.topics.broker_configs import DYNAMIC
from broker.topics.catalogue import CATALOGUE, ConfigType
from broker.topics.configs import log_config
from broker.wire.messages import alter_configs
from broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.broker.running import running_broker, running_server
from tests.broker.wire_client import WireClient, batch_of, connect

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4


async def describe(
    client: WireClient, name: str, kind: int = TOPIC, keys: list[str] | None = None, version: int = 4
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)], True, True)
    return (await client.ask(request, version, DescribeConfigsResponse)).results[0]


async def configs(client: WireClient, name: str) -> dict[str, DescribeConfigsResourceResult]:
    result = await describe(client, name)
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


async def alter(
    client: WireClient, *changes: AlterableConfig, name: str = "t", kind: int = TOPIC, check: bool = False
) -> int:
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, list(changes))], check)
    return (await client.ask(request, 1, IncrementalAlterConfigsResponse)).responses[0].error_code


def test_the_defaults_of_the_catalogue_are_those_of_the_log() -> None:
    assert log_config({}) == LogConfig()
    assert {config.field for config in CATALOGUE.values() if config.field} == {
        field.name for field in fields(LogConfig)
    }


def test_every_default_passes_its_own_check() -> None:
    for config in CATALOGUE.values():
        assert config.check(config.default) == config.default


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_config_is_listed_with_its_source_and_type(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", cleanup_policy="compact", retention_ms="-1")
        result = await describe(client, "t", version=version)
        shown = {config.name: config for config in result.configs}
        assert shown.keys() == CATALOGUE.keys()
        assert (shown["cleanup.policy"].value, shown["cleanup.policy"].config_source) == ("compact", 1)
        assert (shown["segment.ms"].value, shown["segment.ms"].config_source) == ("604800000", 5)
        assert [s.source for s in shown["retention.ms"].synonyms] == [1, 5]
        if version >= 3:
            assert shown["cleanup.policy"].config_type == ConfigType.LIST
            assert shown["retention.ms"].config_type == ConfigType.LONG
            assert shown["segment.bytes"].documentation


async def test_only_the_keys_asked_for(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        result = await describe(client, "t", keys=["retention.ms", "unknown"])
        assert [config.name for config in result.configs] == ["retention.ms"]
        # No key is no wish for none.
        assert {config.name for config in (await describe(client, "t", keys=[])).configs} == CATALOGUE.keys()
        assert (await describe(client, "nowhere")).error_code == 3
        assert (await describe(client, "t", kind=77)).error_code == 42


async def test_the_broker_shows_its_settings_read_only(tmp_path: Path) -> None:
    async with running_broker(tmp_path, num_partitions=3) as address, connect(address) as client:
        result = await describe(client, "1", BROKER)
        shown = {config.name: config for config in result.configs}
        assert (shown["num.partitions"].value, shown["num.partitions"].config_source) == ("3", 4)
        assert shown["auto.create.topics.enable"].value == "true"
        assert shown["advertised.listeners"].value == f"PLAINTEXT://{address}"
        assert {config.name for config in result.configs if not config.read_only} == DYNAMIC.keys()
        assert (await describe(client, "", BROKER)).configs == []
        assert shown["log.retention.ms"].value == "604800000"
        assert (await describe(client, "2", BROKER)).error_code == 42
        assert await alter(client, AlterableConfig("num.partitions", SET, "1"), name="1", kind=BROKER) == 42


async def test_changes_reach_the_open_log_and_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        assert (await client.produce("t", batch_of("x" * 500))).error_code == 0
        assert await alter(client, AlterableConfig("max.message.bytes", SET, "300")) == 0
        assert (await client.produce("t", batch_of("x" * 500))).error_code == 10
    async with running_broker(tmp_path) as address, connect(address) as client:
        assert (await client.produce("t", batch_of("x" * 500))).error_code == 10
        assert await alter(client, AlterableConfig("max.message.bytes", DELETE, None)) == 0
        assert (await client.produce("t", batch_of("x" * 500))).error_code == 0
        assert (await configs(client, "t"))["max.message.bytes"].config_source == 5


async def test_the_old_request_replaces_all_that_is_set(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", retention_ms="5", segment_ms="6")

        async def replace(*configs: alter_configs.AlterableConfig, check: bool = False, **named: Any) -> int:
            asked = {"resource_type": TOPIC, "resource_name": "t", "configs": list(configs), **named}
            request = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(**asked)], check)
            return (await client.ask(request, 2, alter_configs.AlterConfigsResponse)).responses[0].error_code

        one = alter_configs.AlterableConfig("max.message.bytes", "300")
        assert await replace(one, check=True) == 0
        for bad, code in ((("segment.bytes", "-3"), 40), (("segment.ms", None), 42), (("max.message.bytes", "4"), 42)):
            assert await replace(one, alter_configs.AlterableConfig(*bad)) == code
        assert await replace(one, resource_name="nowhere") == 3
        assert await replace(one, resource_type=BROKER, resource_name="1") == 42, "that is a topic's config"
        assert server.broker.topics["t"].state.configs == {"retention.ms": "5", "segment.ms": "6"}
        assert await replace(one) == 0
        assert server.broker.topics["t"].state.configs == {"max.message.bytes": "300"}
        assert (await client.produce("t", batch_of("x" * 500))).error_code == 10


async def test_lists_are_added_to_and_taken_from(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")

        async def policy() -> str | None:
            return (await configs(client, "t"))["cleanup.policy"].value

        assert await alter(client, AlterableConfig("cleanup.policy", APPEND, "compact")) == 0
        assert await policy() == "delete,compact"
        assert await alter(client, AlterableConfig("cleanup.policy", APPEND, "compact")) == 0
        assert await policy() == "delete,compact"
        assert await alter(client, AlterableConfig("cleanup.policy", SUBTRACT, "delete")) == 0
        assert await policy() == "compact"
        assert await alter(client, AlterableConfig("retention.ms", APPEND, "5")) == 40


async def test_a_change_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", retention_ms="5", min_compaction_lag_ms="5")
        good = AlterableConfig("retention.ms", SET, "6")
        for bad, code in (
            (AlterableConfig("no.such", SET, "1"), 40),
            (AlterableConfig("segment.bytes", SET, "1_000"), 40),
            (AlterableConfig("compression.gzip.level", SET, "0"), 40),
            (AlterableConfig("compression.lz4.level", SET, "18"), 40),
            (AlterableConfig("compression.zstd.level", SET, "23"), 40),
            (AlterableConfig("remote.storage.enable", SET, "true"), 40),
            (AlterableConfig("leader.replication.throttled.replicas", SET, "1"), 40),
            (AlterableConfig("max.compaction.lag.ms", SET, "4"), 40),
            (AlterableConfig("segment.bytes", SET, "-3"), 40),
            (AlterableConfig("cleanup.policy", SET, "shred"), 40),
            (AlterableConfig("compression.type", SET, "lzma"), 40),
            (AlterableConfig("min.cleanable.dirty.ratio", SET, "1.5"), 40),
            (AlterableConfig("preallocate", SET, "maybe"), 40),
            (AlterableConfig("segment.ms", SET, None), 42),
            (AlterableConfig("segment.ms", 9, "1"), 42),
            (AlterableConfig("retention.ms", SET, "7"), 42),
        ):
            assert await alter(client, good, bad) == code, bad
        assert await alter(client, good, check=True) == 0
        assert server.broker.topics["t"].state.configs == {"retention.ms": "5", "min.compaction.lag.ms": "5"}
        assert await alter(client, good, name="nowhere") == 3
        assert await alter(client, good, name="no/where") == 17
        assert await alter(client, AlterableConfig("no.such", DELETE, None)) == 0
        assert await alter(client, AlterableConfig("segment.ms", DELETE, None)) == 0


async def test_every_config_of_one_topic_can_be_set_on_another(tmp_path: Path) -> None:
    """What MirrorMaker 2 does: SET for what is set at the source, DELETE for every other name the source lists."""
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("source", retention_ms="1000", cleanup_policy="compact,delete")
        await client.create_topic("t", segment_ms="5")
        changes = [
            AlterableConfig(config.name, SET, config.value)
            if config.config_source == 1
            else AlterableConfig(config.name, DELETE, None)
            for config in (await configs(client, "source")).values()
        ]
        assert await alter(client, *changes) == 0
        source, target = await configs(client, "source"), await configs(client, "t")
        assert {c.name: c.value for c in source.values()} == {c.name: c.value for c in target.values()}


async def test_what_kafka_reassign_partitions_sets_on_a_broker_is_kept_and_shown(tmp_path: Path) -> None:
    rate = "leader.replication.throttled.rate"
    async with running_broker(tmp_path) as address, connect(address) as client:

        async def shown() -> tuple[str | None, int]:
            (config,) = (await describe(client, "1", BROKER, [rate])).configs
            return config.value, config.config_source

        default = (str(2**63 - 1), 5)
        assert await shown() == default
        assert await alter(client, AlterableConfig(rate, SET, "5000"), name="1", kind=BROKER, check=True) == 0
        assert await shown() == default
        assert await alter(client, AlterableConfig(rate, SET, "5000"), name="1", kind=BROKER) == 0
        assert await shown() == ("5000", 2)
        assert await alter(client, AlterableConfig(rate, SET, "fast"), name="1", kind=BROKER) == 40
        assert await alter(client, AlterableConfig("log.dirs", SET, "/"), name="1", kind=BROKER) == 42
        assert await alter(client, AlterableConfig(rate, SET, "1"), name="2", kind=BROKER) == 42
        assert await shown() == ("5000", 2)
    async with running_broker(tmp_path) as address, connect(address) as client:
        assert (await describe(client, "1", BROKER, [rate])).configs[0].value == "5000"
        assert await alter(client, AlterableConfig(rate, DELETE), name="1", kind=BROKER) == 0
        assert (await describe(client, "1", BROKER, [rate])).configs[0].value == default[0]
