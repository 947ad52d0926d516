"""Servers for the tests against real clients and clusters."""

from __future__ import annotations

import gc
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.classes import CACHE
from tests.interop.brokers import LONG_SESSION_MS, cluster_of_brokers
from tests.interop.locked import LockedKafkaServer
from tests.interop.servers import FarshoreBroker, KafkaServer, ServerFailed, Toxiproxy, ZooKeeperServer


@pytest.fixture(scope="session")
def kafka_39(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedKafkaServer]:
    """Apache Kafka 3.9.1, one for the whole run: tests use topics of their own."""
    with LockedKafkaServer("3.9.1", tmp_path_factory.mktemp("kafka39")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_43(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedKafkaServer]:
    """Apache Kafka 4.3.0, one for the whole run: tests use topics of their own."""
    # Assignments at once, as they were until 4.2: what a heartbeat is told does not hang on how fast the machine is.
    at_once = {"group.consumer.assignment.interval.ms": "0", "group.consumer.assignor.offload.enable": "false"}
    with LockedKafkaServer("4.3.0", tmp_path_factory.mktemp("kafka43"), at_once) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """ZooKeeper, one server for the whole run: tests use chroots of their own."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[FarshoreBroker]:
    """farshore's broker in a process of its own, fresh for the test."""
    with FarshoreBroker(tmp_path / "broker") as server:
        yield server


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarshoreBroker]:
    """farshore's broker for all tests of a module: tests use topics of their own."""
    with FarshoreBroker(tmp_path_factory.mktemp("broker")) as server:
        yield server


@dataclass(frozen=True)
class ThreeBrokers:
    """A cluster of farshore's brokers that are all there."""

    bootstrap: str


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[ThreeBrokers]:
    """Three of farshore's brokers on ZooKeeper, one cluster for the whole run: tests use topics of their own."""
    where = f"{zookeeper.address}/three-{uuid.uuid4()}"
    with cluster_of_brokers(tmp_path_factory.mktemp("three"), where, LONG_SESSION_MS) as brokers:
        yield ThreeBrokers(",".join(broker.bootstrap for broker in brokers.values()))


@pytest.fixture
def toxiproxy(tmp_path: Path) -> Iterator[Toxiproxy]:
    with Toxiproxy(tmp_path / "toxiproxy") as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def spark_connector() -> None:
    """Spark's Kafka connector must be there: a test that skipped without it would prove nothing."""
    if not list((CACHE / "spark" / version("pyspark")).glob("*.jar")):
        raise ServerFailed("Spark's Kafka connector is not there; run: make .cache/spark/.ready")


@pytest.fixture(params=["farshore", "farshore-3", "kafka-3.9"])
def cluster(request: pytest.FixtureRequest) -> str:
    """Bootstrap address of farshore's broker, of three, of Apache Kafka: a client's test must hold on each."""
    return bootstrap_of(request, request.param)


SERVERS = {"farshore": "shared_broker", "farshore-3": "three_brokers", "kafka-3.9": "kafka_39", "kafka-4.3": "kafka_43"}


def bootstrap_of(request: pytest.FixtureRequest, name: str) -> str:
    """Start it where no other test has."""
    server: FarshoreBroker | ThreeBrokers | KafkaServer = request.getfixturevalue(SERVERS[name])
    return server.bootstrap


@pytest.fixture
def sockets_left_to_the_collector() -> Iterator[None]:
    """By kafka-python: collected while its test's filter of warnings holds, not in the middle of another test."""
    yield
    gc.collect()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    return re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name) + f"-{uuid.uuid4().hex[:6]}"
