"""What sets up Java and the jars: the parts that need no network."""

from __future__ import annotations

import socket
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from deploy.tools import zookeeper
from deploy.tools.fetch_jars import COMPLETE, fetch, ivy_file, kafka_coordinates, main
from deploy.tools.java import parse_major_version, require_java


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_version_of_java(banner: str, major: int | None) -> None:
    assert parse_major_version(banner) == major


def test_no_java_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Exception, match="Java 17 or newer is needed") as caught:
        require_java()
    assert "apt-get install" in getattr(caught.value, "hint", "")


def test_an_old_java_is_told_with_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Exception, match="this machine has 11"):
        require_java()


def test_the_ivy_file_names_every_coordinate() -> None:
    tree = ElementTree.fromstring(ivy_file("kafka-3.9.1", kafka_coordinates("3.9.1")))
    names = {(node.get("name"), node.get("rev")) for node in tree.iter("dependency")}
    assert names == {("kafka_2.13", "3.9.1"), ("kafka-tools", "3.9.1"), ("slf4j-simple", "1.7.36")}


def test_a_finished_folder_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / COMPLETE).touch()
    (tmp_path / "a.jar").touch()
    monkeypatch.setenv("PATH", "")
    assert fetch("kafka-3.9.1", kafka_coordinates("3.9.1"), tmp_path) == 1


def test_wrong_arguments_are_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka"]) == 2
    assert "python -m deploy.tools.fetch_jars" in capsys.readouterr().err


def test_zookeepers_help_names_what_it_takes_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        zookeeper.main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "of the first; the others follow [2181]" in told
    assert "how many [1]" in told


def test_a_port_that_zookeeper_cannot_have_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert zookeeper.main([str(tmp_path / "zk"), "--port", str(port)]) == 1
    told = capsys.readouterr().err
    assert told == f"error: another program listens on 127.0.0.1:{port}\nhint: stop it, or give another --port\n"
    assert not (tmp_path / "zk").exists()
