"""A tool of Kafka's does in a Java that goes on running what it does in one of its own."""

from __future__ import annotations

import subprocess

import pytest

from tests.classes import kept_classes, tools_of
from tests.interop.servers import java, kafka_class_path, run_java
from tests.interop.warm_tools import WarmTools, warm_tools

VERSION = "4.3.0"
NO_OPTIONS = ("-Dfarshore.own=true",)
"""One that asks for a Java's options has a Java of its own."""
CONSUMER = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", "127.0.0.1:1", "--topic", "none")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("kafka.tools.StorageTool", "version-mapping", "--release-version", "4.0"), 0),
        (("kafka.tools.StorageTool", "version-mapping", "--release-version", "0"), 1),
        (("org.apache.kafka.tools.TopicCommand", "--lost"), 1),
    ],
)
def test_it_says_and_ends_as_in_a_java_of_its_own(words: tuple[str, ...], code: int) -> None:
    assert run_java(VERSION, *words, expect=code) == run_java(VERSION, *words, expect=code, options=NO_OPTIONS)


def test_one_that_does_not_end_is_ended_and_the_next_one_runs() -> None:
    tools = WarmTools(warm_tools((java(), *kept_classes(tools_of(VERSION))), kafka_class_path(VERSION)).command)
    with pytest.raises(subprocess.TimeoutExpired):
        tools.run(CONSUMER, "", 0.5)
    said = tools.run(["kafka.tools.StorageTool", "random-uuid"], "", 60)
    assert said is not None
    assert (said.code, len(said.out.strip())) == (0, 22)
    assert tools.close() == 0
