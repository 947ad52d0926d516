"""What `make` keeps of the JVMs' classes is what they find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.classes import SPARK, ZOOKEEPER, kept_classes, server_of, tools_of
from tests.interop.servers import run_java

VERSIONS = ("3.9.1", "4.3.0")
FOUND = "org.apache.kafka.common.config.ConfigDef source: shared objects file (top)"


def test_all_archives_are_there() -> None:
    names = [SPARK, ZOOKEEPER, *map(server_of, VERSIONS), *map(tools_of, VERSIONS)]
    assert [name for name in names if not kept_classes(name)] == [], "run: make classes"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_tool_takes_its_classes_from_the_archive(version: str, tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    run_java(
        version,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", "127.0.0.1:1", "--topic", "none", "--timeout-ms", "1"),
        options=(f"-Xlog:class+load:file={loaded}",),
    )
    assert FOUND in loaded.read_text()
