"""`python -m tests.class_archives 3.9.1 4.3.0` writes the archives of `tests.classes` that are missing, for these
releases of Kafka: about a minute of one processor, once for a checkout.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from monitoring.audit import session
from monitoring.audit.session import JAVA_OPTIONS, SparkSettings, require_connector, spark_session
from tests.classes import SPARK, ZOOKEEPER, archive_of, server_of, tools_of
from tests.conftest import LEAN_JAVA, SPARK_JARS
from tests.interop import servers
from tests.interop.locked import LockedKafkaServer
from tests.interop.servers import KafkaServer, ZooKeeperServer, run_java

TOPIC = "classes"
WRITTEN_S = 600.0
"""A JVM writes its archive when it ends: seconds of a processor, which a busy machine gives it late."""


def write(name: str, begin: Callable[[Sequence[str], Path], None]) -> None:
    """`begin`: run a JVM with these options, in a folder, to its end."""
    archive = archive_of(name)
    if archive.exists():
        return
    print(f"setup: classes for the JVMs of tests: {name} ...", file=sys.stderr)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="farshore-classes-", dir=archive.parent) as folder:
        written = Path(folder) / "archive"
        begin(("-Xlog:disable", f"-XX:ArchiveClassesAtExit={written}"), Path(folder))
        if written.exists():
            written.rename(archive)
        else:
            print(f"setup: {name} ended before its classes were written; it starts slower without", file=sys.stderr)


class Noting(LockedKafkaServer):
    """Kafka with all listeners that tests use, and a JVM's options besides."""

    jvm_options: Sequence[str] = ()

    def command(self) -> Sequence[str]:
        java, *rest = super().command()
        return [java, *self.jvm_options, *rest]


def kafka(version: str) -> None:
    """The broker serves what its tools ask for."""

    def serve(options: Sequence[str], folder: Path) -> None:
        server = Noting(version, folder / "kafka")
        server.jvm_options = options
        with server:
            asyncio.run(make_topic(server))
            write(tools_of(version), lambda more, _: use_tools(server, more))

    write(server_of(version), serve)
    write(tools_of(version), lambda options, _: use_nowhere(version, options))


async def make_topic(server: KafkaServer) -> None:
    async with Cluster(Site("here", server.bootstrap)) as cluster:
        assert not await create_topics(cluster, [NewTopic(TOPIC, 1)])


def use_tools(server: KafkaServer, options: Sequence[str]) -> None:
    at = ("--bootstrap-server", server.bootstrap, "--topic", TOPIC)
    old = "kafka.tools.ConsoleProducer" if server.version.startswith("3.") else "org.apache.kafka.tools.ConsoleProducer"
    run_java(server.version, old, *at, stdin="a record\n")
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    run_java(server.version, consumer, *at, "--from-beginning", "--max-messages", "1", options=options)


def use_nowhere(version: str, options: Sequence[str]) -> None:
    """A broker's archive was there already, so that none runs now."""
    at = ("--bootstrap-server", "127.0.0.1:1", "--topic", TOPIC, "--timeout-ms", "1")
    run_java(version, "org.apache.kafka.tools.consumer.ConsoleConsumer", *at, options=options)


class NotingZooKeeper(ZooKeeperServer):
    jvm_options: Sequence[str] = ()

    def command(self) -> Sequence[str]:
        java, *rest = super().command()
        return [java, *self.jvm_options, *rest]


def zookeeper(options: Sequence[str], folder: Path) -> None:
    server = NotingZooKeeper(folder / "zookeeper")
    server.jvm_options = options
    with server:
        pass


def spark(options: Sequence[str], folder: Path) -> None:
    """Queries of the kinds that an audit makes; the connector is loaded, and asks no broker."""
    jars = tuple(sorted(str(jar) for jar in SPARK_JARS.glob("*.jar")))
    settings = {"spark.sql.shuffle.partitions": "2", JAVA_OPTIONS: " ".join(options)}
    with spark_session(SparkSettings("local[2]", jars, folder / "spark.log", settings)) as started:
        require_connector(started)
        rows = started.createDataFrame([(1, "a", b"x"), (2, "b", b"y")], ["number", "text", "value"])
        sums = started.range(100).selectExpr("id % 10 AS number", "id").groupBy("number").sum("id")
        rows.join(sums, "number", "outer").orderBy("number").collect()
        rows.join(sums, "number").localCheckpoint().write.parquet(str(folder / "rows"))
        started.read.parquet(str(folder / "rows")).groupBy("text").agg({"number": "max"}).collect()


def main(kafka_versions: Sequence[str]) -> None:
    os.environ["JDK_JAVA_OPTIONS"] = LEAN_JAVA
    session.JAVA_STOP_S = servers.STOP_TIMEOUT_S = WRITTEN_S
    for version in kafka_versions:
        kafka(version)
    write(ZOOKEEPER, zookeeper)
    write(SPARK, spark)


if __name__ == "__main__":
    main(sys.argv[1:])
