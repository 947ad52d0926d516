"""The command-line tools of Apache Kafka 3.9 and 4.3, unmodified, against one of farshore's brokers and three."""

from __future__ import annotations

import re

import pytest

from tests.interop.brokers import replicas_at
from tests.interop.conftest import bootstrap_of
from tests.interop.servers import run_java

PATIENCE_MS = "120000"
"""For the answers of a broker on a busy machine: a tool's own are as low as 5 s."""
TOOLS = "org.apache.kafka.tools"


class Tools:
    """The tools of one release, for one broker."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self.version = version
        self.bootstrap = bootstrap
        self.brokers = replicas_at(bootstrap)

    def run(self, name: str, *arguments: str, stdin: str | None = None) -> str:
        return self.run_plain(name, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)

    def run_plain(self, name: str, *arguments: str, stdin: str | None = None) -> str:
        return run_java(self.version, name, *arguments, stdin=stdin)

    def topics(self, *arguments: str) -> str:
        return self.run(f"{TOOLS}.TopicCommand", *arguments)

    def create(self, topic: str, *arguments: str) -> None:
        """With a replica at each broker."""
        self.topics("--create", "--topic", topic, "--replication-factor", str(self.brokers), *arguments)

    def produce(self, topic: str, lines: list[str], *arguments: str) -> None:
        # The console producer was Scala's until Kafka 4.0.
        name = "kafka.tools.ConsoleProducer" if self.version.startswith("3.") else f"{TOOLS}.ConsoleProducer"
        self.run(name, "--topic", topic, *arguments, stdin="".join(f"{line}\n" for line in lines))

    def consume(self, topic: str, count: int, *arguments: str) -> list[str]:
        name = f"{TOOLS}.consumer.ConsoleConsumer"
        until = ["--max-messages", str(count), "--timeout-ms", PATIENCE_MS]
        return self.run(name, "--topic", topic, *until, *arguments).splitlines()

    def shown(self, name: str) -> tuple[str, str]:
        """The console consumer's option for `name`; `--property` is the old word for it."""
        return ("--property" if self.version.startswith("3.") else "--formatter-property", name)

    def groups(self, *arguments: str) -> str:
        return self.run(f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--timeout", PATIENCE_MS, *arguments)

    def offsets(self, *arguments: str) -> dict[str, int]:
        """Offset by "topic:partition"."""
        printed = self.run(f"{TOOLS}.GetOffsetShell", *arguments)
        return {line.rpartition(":")[0]: int(line.rpartition(":")[2]) for line in printed.split()}


@pytest.fixture(
    params=[
        pytest.param(("3.9.1", "farshore"), id="3.9.1-farshore", marks=pytest.mark.slow),
        pytest.param(("4.3.0", "farshore"), id="4.3.0-farshore"),
        pytest.param(("3.9.1", "farshore-3"), id="3.9.1-farshore-3"),
        pytest.param(("4.3.0", "farshore-3"), id="4.3.0-farshore-3", marks=pytest.mark.slow),
    ]
)
def tools(request: pytest.FixtureRequest) -> Tools:
    version, name = request.param
    return Tools(version, bootstrap_of(request, name))


def test_topic_command(tools: Tools, topic: str) -> None:
    tools.create(topic, "--partitions", "3", "--config", "retention.ms=60000")
    assert topic in tools.topics("--list").split()
    described = tools.topics("--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert f"ReplicationFactor: {tools.brokers}" in described
    assert "retention.ms=60000" in described
    leaders = re.findall(r"Leader: (\d+)", described)
    assert sorted(leaders) == (["1", "2", "3"] if tools.brokers == 3 else ["1", "1", "1"])
    tools.topics("--alter", "--topic", topic, "--partitions", "4")
    assert "PartitionCount: 4" in tools.topics("--describe", "--topic", topic)
    tools.topics("--delete", "--topic", topic)
    assert topic not in tools.topics("--list").split()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_console_producer_and_consumer(tools: Tools, topic: str, codec: str) -> None:
    tools.create(topic)
    lines = [f"key{i}\tvalue {i}" for i in range(200)]
    tools.produce(topic, lines, "--property", "parse.key=true", "--compression-codec", codec)
    printed = tools.consume(topic, 200, "--from-beginning", *tools.shown("print.key=true"))
    assert printed == lines
    printed = tools.consume(topic, 1, "--partition", "0", "--offset", "199", *tools.shown("print.offset=true"))
    assert printed == ["Offset:199\tvalue 199"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_groups(tools: Tools, topic: str, protocol: str) -> None:
    group = f"g-{topic}"
    option = "--consumer-property" if tools.version.startswith("3.") else "--command-property"
    member = ["--group", group, option, f"group.protocol={protocol}"]
    tools.create(topic, "--partitions", "1")
    tools.produce(topic, [str(i) for i in range(20)])
    assert len(tools.consume(topic, 12, "--from-beginning", *member)) == 12
    assert group in tools.groups("--list").split()

    def position() -> tuple[str, ...]:
        """Committed offset, log end offset and lag, from the table that the tool prints."""
        rows = [line.split() for line in tools.groups("--describe", "--group", group).splitlines()]
        (row,) = [row for row in rows if topic in row]
        return tuple(row[3:6])

    # The console consumer commits what it has fetched, which may be more than it printed.
    committed, end, lag = (int(number) for number in position())
    assert 12 <= committed <= 20
    assert (end, lag) == (20, 20 - committed)
    reset = ["--reset-offsets", "--group", group, "--topic", topic]
    tools.groups(*reset, "--to-offset", "5", "--execute")
    assert position() == ("5", "20", "15")
    assert "Empty" in tools.groups("--describe", "--group", group, "--state")
    assert len(tools.consume(topic, 15, *member)) == 15
    tools.groups("--delete", "--group", group)
    assert group not in tools.groups("--list").split()


def test_get_offset_shell(tools: Tools, topic: str) -> None:
    tools.create(topic, "--partitions", "2")
    tools.produce(topic, [str(i) for i in range(30)])
    ends = tools.offsets("--topic", topic)
    assert sum(ends.values()) == 30
    assert set(ends) == {f"{topic}:0", f"{topic}:1"}
    assert set(tools.offsets("--topic", topic, "--time", "earliest").values()) == {0}


def test_perf_tools(tools: Tools, topic: str) -> None:
    tools.create(topic)
    settings = [f"bootstrap.servers={tools.bootstrap}", "acks=all", "compression.type=lz4", "linger.ms=5"]
    arguments = ["--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"]
    printed = tools.run_plain(f"{TOOLS}.ProducerPerformance", *arguments, "--producer-props", *settings)
    assert re.search(r"^20000 records sent, ", printed, re.MULTILINE), printed
    assert tools.offsets("--topic", topic) == {f"{topic}:0": 20000}
    counted = "--num-records" if tools.version >= "4.2" else "--messages"
    arguments = ["--topic", topic, counted, "20000", "--timeout", PATIENCE_MS]
    printed = tools.run(f"{TOOLS}.ConsumerPerformance", *arguments)
    (row,) = [line.split(", ") for line in printed.splitlines() if line.startswith("2")]
    assert int(row[4]) == 20000


def test_transactions_tool(tools: Tools, topic: str) -> None:
    tools.create(topic)
    settings = [f"bootstrap.servers={tools.bootstrap}", "acks=all"]
    arguments = ["--topic", topic, "--num-records", "100", "--record-size", "50", "--throughput", "-1"]
    arguments += ["--transactional-id", f"t-{topic}", "--transaction-duration-ms", "50"]
    tools.run_plain(f"{TOOLS}.ProducerPerformance", *arguments, "--producer-props", *settings)
    (row,) = [line.split() for line in tools.run(f"{TOOLS}.TransactionsCommand", "list").splitlines() if topic in line]
    assert row[0] == f"t-{topic}"
    assert row[-1] == "CompleteCommit"
    described = tools.run(f"{TOOLS}.TransactionsCommand", "describe", "--transactional-id", f"t-{topic}")
    assert "CompleteCommit" in described
    assert row[2] in described.split()
    none = tools.run(f"{TOOLS}.TransactionsCommand", "list", "--duration-filter", "3600000")
    assert topic not in none


def test_transactional_performance(tools: Tools, topic: str) -> None:
    tools.create(topic)
    settings = [f"bootstrap.servers={tools.bootstrap}", "acks=all"]
    arguments = ["--topic", topic, "--num-records", "2000", "--record-size", "50", "--throughput", "-1"]
    arguments += ["--transactional-id", f"t-{topic}", "--transaction-duration-ms", "50"]
    tools.run_plain(f"{TOOLS}.ProducerPerformance", *arguments, "--producer-props", *settings)
    read = tools.consume(topic, 2000, "--from-beginning", "--isolation-level", "read_committed")
    assert len(read) == 2000
