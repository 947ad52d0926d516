"""kafka-configs of Kafka 3.9 and 4.3 sets passwords and quotas at a broker of ours, and real clients go by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.locked import USER, AuthorizingBroker
from tests.interop.servers import run_java
from tests.interop.test_clients_kcat import kcat
from tests.interop.test_kafka_acls import login_file

SECRET, CHANGED = "canary-secret-4Kp", "canary-secret-5Lr"


@pytest.fixture(scope="module")
def authorizing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingBroker]:
    with AuthorizingBroker(tmp_path_factory.mktemp("users")) as server:
        yield server


class Owner:
    """Who may change users, by the tool of one release."""

    def __init__(self, server: AuthorizingBroker, version: str, folder: Path, user: str = USER) -> None:
        self.version = version
        self.where = ("--bootstrap-server", server.at("WORDS"), "--command-config", login_file(folder, user))

    def configs(self, *arguments: str) -> str:
        return run_java(self.version, "kafka.admin.ConfigCommand", *self.where, *arguments)


def gets_in(server: AuthorizingBroker, user: str, password: str, mechanism: str) -> bool:
    login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    options = [word for key, value in login.items() for word in ("-X", f"{key}={value}")]
    try:
        kcat(server.at("WORDS"), "-X", "security.protocol=SASL_PLAINTEXT", *options, "-L", "-m", "10")
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("version", [pytest.param("3.9.1", marks=pytest.mark.slow), "4.3.0"])
def test_a_password_that_kafka_configs_sets_lets_in(
    authorizing: AuthorizingBroker, version: str, tmp_path: Path
) -> None:
    owner, name = Owner(authorizing, version, tmp_path), f"clerk of {version}"
    user = ("--entity-type", "users", "--entity-name", name)
    added = f"SCRAM-SHA-256=[password={SECRET}]"
    assert "Completed updating config" in owner.configs("--alter", "--add-config", added, *user)
    assert gets_in(authorizing, name, SECRET, "SCRAM-SHA-256")
    assert not gets_in(authorizing, name, CHANGED, "SCRAM-SHA-256")
    assert not gets_in(authorizing, name, SECRET, "SCRAM-SHA-512")
    owner.configs("--alter", "--add-config", f"SCRAM-SHA-512=[iterations=8192,password={CHANGED}]", *user)
    owner.configs("--alter", "--add-config", f"SCRAM-SHA-256=[password={CHANGED}]", *user)
    assert gets_in(authorizing, name, CHANGED, "SCRAM-SHA-512")
    assert not gets_in(authorizing, name, SECRET, "SCRAM-SHA-256")
    described = owner.configs("--describe", *user)
    assert "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=8192" in described
    assert f"'{name}'" in owner.configs("--describe", "--entity-type", "users")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        owner.configs("--alter", "--delete-config", mechanism, *user)
    assert not gets_in(authorizing, name, CHANGED, "SCRAM-SHA-512")
    assert f"'{name}'" not in owner.configs("--describe", "--entity-type", "users")
    with pytest.raises(AssertionError, match="ResourceNotFound"):
        owner.configs("--alter", "--delete-config", "SCRAM-SHA-256", *user)
    limited = Owner(authorizing, version, tmp_path, "limited")
    with pytest.raises(AssertionError, match="ClusterAuthorization"):
        limited.configs("--alter", "--add-config", f"SCRAM-SHA-256=[password={SECRET}]", *user)
    shown = authorizing.log.read_text() + (authorizing.data_dir / "metadata.json").read_text()
    assert "canary-secret" not in shown


@pytest.mark.parametrize("version", [pytest.param("3.9.1", marks=pytest.mark.slow), "4.3.0"])
def test_quotas_that_kafka_configs_sets_are_shown_and_taken_away(
    authorizing: AuthorizingBroker, version: str, tmp_path: Path
) -> None:
    owner, user = Owner(authorizing, version, tmp_path), f"shop of {version}"
    both = ("--entity-type", "users", "--entity-name", user, "--entity-type", "clients", "--entity-name", "app é")
    defaults = ("--entity-type", "users", "--entity-default")
    values = "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=12.5"
    for way in (both, defaults):
        owner.configs("--alter", "--add-config", values, *way)
        described = owner.configs("--describe", *way)
        assert all(one in described for one in ("producer_byte_rate=1048576.0", "request_percentage=12.5")), described
    owner.configs("--alter", "--delete-config", "producer_byte_rate,request_percentage,consumer_byte_rate", *both)
    owner.configs("--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate", *defaults)
    described = owner.configs("--describe", "--entity-type", "users")
    assert "byte_rate" not in described
    assert "request_percentage=12.5" in described
    address = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
    owner.configs("--alter", "--add-config", "connection_creation_rate=7", *address)
    assert "connection_creation_rate=7.0" in owner.configs("--describe", *address)
    with pytest.raises(AssertionError, match="Authorization"):
        Owner(authorizing, version, tmp_path, "limited").configs("--describe", "--entity-type", "clients")
