"""Kafka's classes as a JVM keeps them for the next one: a tool that finds them so starts in about half of the time."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.interop.servers import KAFKA_HEAP, java, kafka_class_path, run

_folder = TemporaryDirectory(prefix="farshore-classes-")
"""Gone with this process: an archive fits one Java, and jars at one place."""


@cache
def shared_classes(version: str) -> tuple[str, ...]:
    """A JVM's options, for one with the release's jars; written the first time, by a consumer that finds no broker."""
    archive = Path(_folder.name) / f"{version}.jsa"
    # A class that cannot be archived would be a line on standard output, among what a tool prints.
    command = [java(), *KAFKA_HEAP, "-Xlog:disable", f"-XX:ArchiveClassesAtExit={archive}"]
    command += ["-cp", kafka_class_path(version), "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    run([*command, "--bootstrap-server", "127.0.0.1:1", "--topic", "none", "--timeout-ms", "1"])
    return ("-Xlog:disable", f"-XX:SharedArchiveFile={archive}")
