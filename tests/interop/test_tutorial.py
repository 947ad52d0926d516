"""docs/tutorial-cluster.md, step by step: what it says to type, and what it says that comes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.classes import kept_classes, tools_of
from tests.interop.servers import KAFKA_HEAP, ROOT, java, kafka_class_path
from tests.interop.walkthrough import Reader, Step, comes_as, steps, write_program
from tests.ports import free_port, free_ports_in_a_row

DOCUMENT: Final = ROOT / "docs" / "tutorial-cluster.md"
KAFKA: Final = "3.9.1"
TOOLS: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer.sh": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification.sh": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
}
"""What the scripts of a Kafka release run."""
START: Final = "farshore cluster start"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    programs = tmp_path / "bin"
    write_program(programs, "farshore", ["env", f"PYTHONPATH={ROOT}", sys.executable, "-P", "-m", "deploy.cli"])
    jvm = [java(), *KAFKA_HEAP, *kept_classes(tools_of(KAFKA)), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    for name, main_class in TOOLS.items():
        write_program(programs, name, [*jvm, "-cp", kafka_class_path(KAFKA), main_class])
    reader = Reader(tmp_path, programs, tmp_path / "farshore-cluster")
    yield reader
    reader.close()


def with_ports(text: str, base_port: int, zookeeper_port: int) -> str:
    """The document's ports are those of the command's defaults; here others are free."""
    ports = {"2181": zookeeper_port} | {str(9092 + number): base_port + number for number in range(3)}
    moved = re.sub(r"\b(2181|909[234])\b", lambda port: str(ports[port.group()]), text)
    return moved.replace(START, f"{START} --base-port {base_port} --zookeeper-port {zookeeper_port}", 1)


def test_each_step_of_the_tutorial_brings_what_it_says(reader: Reader) -> None:
    ports = free_ports_in_a_row(3), free_port()
    done = [
        Step(step.place, with_ports(step.command, *ports), with_ports(step.output, *ports))
        for step in steps(DOCUMENT.read_text())
    ]
    assert len(done) > 25
    for step in done:
        reader.do(step)
    reader.interrupt_all()


@pytest.mark.parametrize(
    ("expected", "printed", "comes"),
    [
        ("a  b\n", "a\tb\n", True),
        ("a\n", "a\nmore\n", False),
        ("a …\n", "a 17\n", True),
        ("a … c\n", "a\nb c\n", False),
        ("a\n…\nc\n", "a\nb\nb\nc\n", True),
        ("a\n…\nc\n", "a\nc\n", True),
        ("a\n…\nc\n", "a\nb\n", False),
        ("1.5\n", "1x5\n", False),
        ("a\n", "[main] WARN of a logger\na\n", True),
        ("", "error: no\n", False),
    ],
)
def test_an_output_is_compared_but_for_what_differs(expected: str, printed: str, comes: bool) -> None:
    assert comes_as(expected, printed) is comes


def test_every_tool_of_the_tutorial_is_used() -> None:
    text = DOCUMENT.read_text()
    assert [name for name in TOOLS if name not in text] == []
