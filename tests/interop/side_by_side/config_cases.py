"""DescribeConfigs, IncrementalAlterConfigs, DescribeLogDirs, DescribeAcls."""

from __future__ import annotations

from pathlib import Path

from broker.base.address import Address
from broker.config import BrokerConfig
from broker.topics.broker_configs import broker_settings
from broker.wire.messages import alter_configs as messages
from broker.wire.messages.describe_acls import DescribeAclsRequest
from broker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from broker.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from broker.wire.vocabulary import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigOperation
from tests.broker.wire_client import batch_of
from tests.interop.side_by_side.asking import DAY_MS, SHORT_PATIENCE_SECONDS, Case, Peer
from tests.interop.side_by_side.topic_cases import CONFIGS

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
DEFAULT_SEGMENT_MS = str(7 * DAY_MS)
BROKER_SETTINGS = {
    setting.name for setting in broker_settings(BrokerConfig(Path("data")), lambda _: Address("127.0.0.1", 0))
}


async def describe_configs(peer: Peer) -> None:
    topic = await peer.topic(retention_ms="60000", cleanup_policy="compact", compression_type="gzip")

    async def describe(label: str, kind: int, name: str, keys: list[str] | None, version: int = 4) -> None:
        resource = DescribeConfigsResource(kind, name, keys)
        await peer.ask(label, DescribeConfigsRequest([resource]), version)

    for version in range(1, 5):
        await describe(f"all, v{version}", TOPIC_RESOURCE, topic, None, version)
    await describe("no key", TOPIC_RESOURCE, topic, [])
    await describe("one key", TOPIC_RESOURCE, topic, ["retention.ms"])
    await describe("a key twice", TOPIC_RESOURCE, topic, ["retention.ms", "retention.ms"])
    await describe("unknown key", TOPIC_RESOURCE, topic, ["no.such.config"])
    await describe("unknown topic", TOPIC_RESOURCE, peer.name("unknown"), None)
    await describe("bad name", TOPIC_RESOURCE, "a b", None)
    await describe("empty name", TOPIC_RESOURCE, "", None)
    await describe("broker, a key", BROKER_RESOURCE, "1", ["num.partitions"])
    await describe("another broker", BROKER_RESOURCE, "7", ["num.partitions"])
    await describe("not a broker", BROKER_RESOURCE, "x", ["num.partitions"])
    await describe("all brokers", BROKER_RESOURCE, "", None)
    await describe("all brokers, no key", BROKER_RESOURCE, "", [])
    await describe("unknown kind", 99, "x", None)
    await describe("kind 0", 0, "x", None)
    await describe("kind any", 1, "x", None)
    await describe("broker, what we have", BROKER_RESOURCE, "1", sorted(BROKER_SETTINGS))
    twice = DescribeConfigsResource(TOPIC_RESOURCE, topic, ["retention.ms"])
    await peer.ask("a topic twice", DescribeConfigsRequest([twice, twice]), 4)
    await peer.ask("none", DescribeConfigsRequest([]), 4)
    keys = ["retention.ms", "segment.ms", "cleanup.policy", "min.insync.replicas", "flush.messages"]
    resource = DescribeConfigsResource(TOPIC_RESOURCE, topic, keys)
    await peer.ask("synonyms", DescribeConfigsRequest([resource], include_synonyms=True), 4)
    await peer.ask("documentation", DescribeConfigsRequest([resource], include_documentation=True), 4)


def _change(name: str, operation: int, value: str | None) -> AlterableConfig:
    return AlterableConfig(name, operation, value)


async def incremental_alter_configs(peer: Peer) -> None:
    topic = await peer.topic(retention_ms="60000")

    async def alter(label: str, *changes: AlterableConfig, kind: int = TOPIC_RESOURCE, name: str = topic) -> None:
        resource = AlterConfigsResource(kind, name, list(changes))
        await peer.ask(label, IncrementalAlterConfigsRequest([resource]), 1)

    await alter("set", _change("retention.ms", SET, "5000"))
    await alter("delete", _change("retention.ms", DELETE, None))
    await alter("delete what is not set", _change("retention.ms", DELETE, "x"))
    await alter("append", _change("cleanup.policy", APPEND, "compact"))
    await alter("append again", _change("cleanup.policy", APPEND, "compact"))
    await alter("subtract", _change("cleanup.policy", SUBTRACT, "delete"))
    await alter("subtract what is not there", _change("cleanup.policy", SUBTRACT, "delete"))
    await alter("subtract the last", _change("cleanup.policy", SUBTRACT, "compact"))
    await alter("append to a number", _change("retention.ms", APPEND, "1"))
    await alter("set to null", _change("retention.ms", SET, None))
    await alter("append null", _change("cleanup.policy", APPEND, None))
    await alter("unknown operation", _change("retention.ms", 9, "1"))
    await alter("unknown config", _change("no.such.config", SET, "1"))
    await alter("delete an unknown config", _change("no.such.config", DELETE, None))
    await alter("a config twice", _change("retention.ms", SET, "1"), _change("retention.ms", SET, "2"))
    await alter("one right, one wrong", _change("retention.ms", SET, "7"), _change("segment.ms", SET, "0"))
    await alter("no change")
    await alter("unknown topic", _change("retention.ms", SET, "1"), name=peer.name("unknown"))
    await alter("bad name", _change("retention.ms", SET, "1"), name="a b")
    await alter("empty name", _change("retention.ms", SET, "1"), name="")
    await alter("another broker", _change("log.cleaner.threads", SET, "1"), kind=BROKER_RESOURCE, name="7")
    await alter("not a broker", _change("log.cleaner.threads", SET, "1"), kind=BROKER_RESOURCE, name="x")
    await alter("unknown kind", _change("retention.ms", SET, "1"), kind=99)
    await alter("kind 0", _change("retention.ms", SET, "1"), kind=0)
    resource = AlterConfigsResource(TOPIC_RESOURCE, topic, [_change("retention.ms", SET, "9")])
    await peer.ask("a topic twice", IncrementalAlterConfigsRequest([resource, resource]), 1)
    await peer.ask("to look only", IncrementalAlterConfigsRequest([resource], True), 1)
    await peer.ask("v0", IncrementalAlterConfigsRequest([resource]), 0)
    await peer.ask("none", IncrementalAlterConfigsRequest([]), 1)
    keys = ["retention.ms", "segment.ms", "cleanup.policy"]
    await peer.ask("in the end", DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, topic, keys)]), 4)


async def incremental_alter_values(peer: Peer) -> None:
    topic = await peer.topic()
    for name, value in CONFIGS:
        resource = AlterConfigsResource(TOPIC_RESOURCE, topic, [_change(name, SET, value)])
        await peer.ask(f"{name}={value!r}", IncrementalAlterConfigsRequest([resource], True), 1)


async def alter_configs(peer: Peer) -> None:
    topic = await peer.topic(retention_ms="60000")

    async def alter(
        label: str, *configs: tuple[str, str | None], kind: int = TOPIC_RESOURCE, name: str = topic, version: int = 2
    ) -> None:
        resource = messages.AlterConfigsResource(kind, name, [messages.AlterableConfig(*config) for config in configs])
        await peer.ask(label, messages.AlterConfigsRequest([resource]), version)

    async def see(label: str, segment_ms: str) -> None:
        """Once what was altered shows: Kafka's controller answers before its brokers have heard of it."""
        await peer.until_configured(topic, "segment.ms", segment_ms)
        keys = ["retention.ms", "segment.ms", "cleanup.policy"]
        await peer.ask(label, DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, topic, keys)]), 4)

    for version, segment_ms in enumerate(("5", "6", "7")):
        await alter(f"v{version}", ("segment.ms", segment_ms), version=version)
        await see(f"after v{version}", segment_ms)
    await alter("one right, one wrong", ("retention.ms", "7"), ("segment.ms", "0"))
    await alter("null", ("retention.ms", None))
    await alter("unknown config", ("no.such.config", "1"))
    await alter("a config twice", ("retention.ms", "1"), ("retention.ms", "2"))
    await alter("unknown topic", ("retention.ms", "1"), name=peer.name("unknown"))
    await alter("bad name", ("retention.ms", "1"), name="a b")
    await alter("empty name", ("retention.ms", "1"), name="")
    await alter("another broker", ("log.cleaner.threads", "1"), kind=BROKER_RESOURCE, name="7")
    await alter("unknown kind", ("retention.ms", "1"), kind=99)
    await see("nothing changed", "7")
    resource = messages.AlterConfigsResource(TOPIC_RESOURCE, topic, [messages.AlterableConfig("retention.ms", "9")])
    twice = messages.AlterConfigsRequest([resource, resource])
    await peer.ask("a topic twice", twice, 2, SHORT_PATIENCE_SECONDS)
    await peer.ask("to look only", messages.AlterConfigsRequest([resource], True), 2)
    await see("still nothing changed", "7")
    await alter("all gone")
    await see("with nothing", DEFAULT_SEGMENT_MS)


async def dynamic_configs(peer: Peer) -> None:
    """Set on the broker and on all of them, and taken back: other cases ask the same servers."""
    topic = await peer.topic()

    async def alter(label: str, name: str, *changes: AlterableConfig, check: bool = False) -> None:
        resource = AlterConfigsResource(BROKER_RESOURCE, name, list(changes))
        await peer.ask(label, IncrementalAlterConfigsRequest([resource], check), 1)

    async def see(label: str, segment_ms: str) -> None:
        await peer.until_configured(topic, "segment.ms", segment_ms)
        asked = [
            DescribeConfigsResource(TOPIC_RESOURCE, topic, ["segment.ms"]),
            DescribeConfigsResource(BROKER_RESOURCE, "1", ["log.roll.ms"]),
            DescribeConfigsResource(BROKER_RESOURCE, "", ["log.roll.ms"]),
        ]
        await peer.ask(label, DescribeConfigsRequest(asked, include_synonyms=True), 4)

    async def replace(label: str, name: str, *configs: tuple[str, str]) -> None:
        given = [messages.AlterableConfig(*config) for config in configs]
        request = messages.AlterConfigsRequest([messages.AlterConfigsResource(BROKER_RESOURCE, name, given)])
        await peer.ask(label, request, 2)

    await alter("on all", "", _change("log.roll.ms", SET, "86400000"))
    await see("set on all", "86400000")
    await alter("on the broker", "1", _change("log.roll.ms", SET, "43200000"))
    await see("set on both", "43200000")
    await alter("not on the broker", "1", _change("log.roll.ms", DELETE, None))
    await see("set on all again", "86400000")
    await replace("replaced on all", "", ("log.roll.ms", "7200000"))
    await see("set on all anew", "7200000")
    await replace("replaced on the broker", "1", ("log.roll.ms", "3600000"))
    await see("set on both anew", "3600000")
    await replace("nothing on the broker", "1")
    await replace("nothing on all", "")
    await peer.until_configured(topic, "segment.ms", DEFAULT_SEGMENT_MS)
    for name in ("1", ""):
        await alter(f"log.dirs of {name!r}", name, _change("log.dirs", SET, "/"))
        await alter(f"num.partitions of {name!r}", name, _change("num.partitions", SET, "3"))
        await alter(f"a bad value of {name!r}", name, _change("message.max.bytes", SET, "many"))
        await alter(f"too low, of {name!r}", name, _change("min.insync.replicas", SET, "0"))
        await alter(f"null of {name!r}", name, _change("log.segment.bytes", SET, None))
        await alter(f"appended of {name!r}", name, _change("log.segment.bytes", APPEND, "3"))
        await alter(f"an unknown one of {name!r}", name, _change("no.such.config", SET, "3"), check=True)
        for limit, value in (
            ("max.connections", "0"),
            ("max.connections.per.ip", "0"),
            ("log.cleaner.backoff.ms", "-1"),
        ):
            await alter(f"{limit}={value} of {name!r}", name, _change(limit, SET, value), check=True)


async def dynamic_limits(peer: Peer) -> None:
    """What is applied to the broker itself."""
    for name, value, other in (
        ("max.connections", "5000", "6000"),
        ("max.connections.per.ip", "5000", "6000"),
        ("log.cleaner.backoff.ms", "20000", "30000"),
    ):
        for of, given in (("", value), ("1", other)):
            resource = AlterConfigsResource(BROKER_RESOURCE, of, [_change(name, SET, given)])
            await peer.ask(f"{name} of {of!r}", IncrementalAlterConfigsRequest([resource]), 1)
            await peer.until_configured("1", name, given, BROKER_RESOURCE)
        asked = [DescribeConfigsResource(BROKER_RESOURCE, of, [name]) for of in ("1", "")]
        await peer.ask(f"{name} is shown", DescribeConfigsRequest(asked, include_synonyms=True), 4)
        for of in ("1", ""):
            resource = AlterConfigsResource(BROKER_RESOURCE, of, [_change(name, DELETE, None)])
            await peer.ask(f"{name} not of {of!r}", IncrementalAlterConfigsRequest([resource]), 1)
        await peer.until_configured("", name, None, BROKER_RESOURCE)


async def describe_log_dirs(peer: Peer) -> None:
    topic = await peer.topic(partitions=2)
    await peer.produce(topic, batch_of("a"))
    for version in range(1, 5):
        request = DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0, 1, 9])])
        await peer.ask(f"v{version}", request, version)
    await peer.ask("unknown", DescribeLogDirsRequest([DescribableLogDirTopic(peer.name("unknown"), [0])]), 4)
    await peer.ask("no partition", DescribeLogDirsRequest([DescribableLogDirTopic(topic, [])]), 4)
    await peer.ask("no topic", DescribeLogDirsRequest([]), 4)


async def describe_acls(peer: Peer) -> None:
    for version in range(1, 4):
        await peer.ask(f"v{version}", DescribeAclsRequest(1, None, 1, None, None, 1, 1), version)


CASES: tuple[Case, ...] = (
    describe_configs, alter_configs, incremental_alter_configs, incremental_alter_values, dynamic_configs,
    dynamic_limits, describe_log_dirs, describe_acls,
)  # fmt: skip
