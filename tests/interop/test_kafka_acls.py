"""kafka-acls of Kafka 3.9 and 4.3, and Kafka's console tools with and without rights, against a broker of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.interop.locked import USER, AuthorizingBroker, plain_login
from tests.interop.servers import run_java
from tests.interop.test_java_tools import TOOLS, Tools

RECORDS = [f"record {n}" for n in range(20)]


@pytest.fixture(scope="module")
def authorizing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingBroker]:
    with AuthorizingBroker(tmp_path_factory.mktemp("authorizing")) as server:
        yield server


def login_file(folder: Path, user: str) -> str:
    file = folder / f"{user}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in plain_login(user).items()))
    return str(file)


class Authorizing(Protocol):
    """Servers that ask who comes, at WORDS."""

    def at(self, listener: str) -> str: ...


class User:
    """Kafka's tools of one release, as one user."""

    def __init__(self, server: Authorizing, version: str, name: str, folder: Path) -> None:
        self.tools = Tools(version, server.at("WORDS"))
        self.file = login_file(folder, name)
        self.old = version.startswith("3.")

    def acls(self, *arguments: str, stdin: str | None = None) -> str:
        name = "kafka.admin.AclCommand" if self.old else f"{TOOLS}.AclCommand"
        return self.tools.run(name, "--command-config", self.file, *arguments, stdin=stdin)

    def topics(self, *arguments: str) -> str:
        return self.tools.topics("--command-config", self.file, *arguments)

    def produce(self, topic: str) -> None:
        option = "--producer.config" if self.old else "--command-config"
        self.tools.produce(topic, RECORDS, option, self.file)

    def consume(self, topic: str, group: str) -> list[str]:
        option = "--consumer.config" if self.old else "--command-config"
        return self.tools.consume(topic, len(RECORDS), option, self.file, "--from-beginning", "--group", group)


def refused_to_read(user: User, topic: str, group: str) -> bool:
    """The console consumer of some releases says so, and ends as if all were well."""
    try:
        return user.consume(topic, group) == []
    except AssertionError as failed:
        return "Authorization" in str(failed)


@pytest.mark.parametrize("version", [pytest.param("3.9.1", marks=pytest.mark.slow), "4.3.0"])
def test_what_kafka_acls_gives_is_what_the_console_tools_may(
    authorizing: AuthorizingBroker, topic: str, version: str, tmp_path: Path
) -> None:
    owner, shop, reader = (User(authorizing, version, name, tmp_path) for name in (USER, "shop", "reader"))
    topic, group = topic[-40:], f"group-{topic[-6:]}"
    with pytest.raises(AssertionError, match="Authorization"):
        shop.topics("--create", "--topic", topic)
    owner.topics("--create", "--topic", topic)
    assert topic not in shop.topics("--list")
    with pytest.raises(AssertionError, match="ClusterAuthorizationException"):
        shop.acls("--list")
    with pytest.raises(AssertionError, match="ClusterAuthorizationException"):
        shop.acls("--add", "--allow-principal", "User:shop", "--operation", "All", "--topic", topic)

    added = owner.acls("--add", "--allow-principal", "User:shop", "--producer", "--topic", topic)
    assert "User:shop" in added
    owner.acls("--add", "--allow-principal", "User:reader", "--consumer", "--topic", topic, "--group", group)
    prefixed = ("--topic", topic[:-3], "--resource-pattern-type", "prefixed")
    owner.acls("--add", "--deny-principal", "User:limited", "--deny-host", "10.1.2.3", "--operation", "Read", *prefixed)
    listed = owner.acls("--list", "--topic", topic, "--resource-pattern-type", "match")
    assert all(word in listed for word in ("User:shop", "User:reader", "PREFIXED", "DENY", "10.1.2.3"))
    assert "GROUP" in owner.acls("--list", "--principal", "User:reader").upper()

    shop.produce(topic)
    assert reader.consume(topic, group) == RECORDS
    assert topic in shop.topics("--list")
    assert refused_to_read(shop, topic, group)
    with pytest.raises(AssertionError):
        reader.topics("--delete", "--topic", topic)

    owner.acls("--remove", "--force", "--allow-principal", "User:shop", "--producer", "--topic", topic)
    owner.acls("--remove", "--force", *prefixed)
    left = owner.acls("--list", "--topic", topic, "--resource-pattern-type", "match")
    assert "User:reader" in left
    assert "User:shop" not in left
    assert "PREFIXED" not in left
    assert topic not in shop.topics("--list")


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_kafka_acls_is_told_what_is_not_there(authorizing: AuthorizingBroker, version: str, tmp_path: Path) -> None:
    owner = User(authorizing, version, USER, tmp_path)
    with pytest.raises(AssertionError, match="DELEGATION_TOKEN"):
        owner.acls("--add", "--allow-principal", "User:x", "--operation", "Describe", "--delegation-token", "t")


def test_other_tools_find_their_rights(authorizing: AuthorizingBroker, topic: str, tmp_path: Path) -> None:
    """Which need the cluster's, or a topic's configs."""
    topic = topic[-40:]
    owner = User(authorizing, "4.3.0", USER, tmp_path)
    owner.topics("--create", "--topic", topic)
    file = login_file(tmp_path, "limited")
    where = ("--bootstrap-server", authorizing.at("WORDS"), "--command-config", file)
    configs = ("kafka.admin.ConfigCommand", *where, "--entity-type", "topics", "--entity-name", topic)
    change = ("--alter", "--add-config", "retention.ms=1000")
    with pytest.raises(AssertionError, match="Authorization"):
        run_java("4.3.0", *configs, *change)
    operations = ("--operation", "AlterConfigs", "--operation", "Describe")
    owner.acls("--add", "--allow-principal", "User:limited", *operations, "--topic", topic)
    run_java("4.3.0", *configs, *change)
    assert "retention.ms=1000" in run_java("4.3.0", *configs, "--describe")
    with pytest.raises(AssertionError, match="Authorization"):
        run_java(
            "4.3.0", "kafka.admin.ConfigCommand", *where, "--entity-type", "brokers", "--entity-name", "1", *change
        )
