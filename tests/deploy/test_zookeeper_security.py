"""How brokers reach their ZooKeeper, as farshore.toml says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.security.settings import Secret, Tls
from broker.cluster.zookeeper.access import ZooKeeperAccess
from deploy.config import parse
from deploy.errors import ConfigError

SITE = """
[sites.north]
bootstrap_servers = "127.0.0.1:9092"
[sites.north.cluster]
zookeeper = "zk-1:2281"
{security}
[[sites.north.brokers]]
node_id = 1
listen = "127.0.0.1:9092"
data_dir = "one"
"""
TABLE = "[sites.north.cluster.zookeeper_security]\n"


def read(security: str, file: Path = Path("farshore.toml")) -> ZooKeeperAccess | None:
    return parse(SITE.format(security=security), file).broker_config("north", 1).zookeeper_access


def test_without_a_table_it_asks_for_nothing() -> None:
    assert read("") is None


def test_tls_a_certificate_and_a_login(tmp_path: Path) -> None:
    files = 'ca_file = "ca.pem"\ncertificate_file = "one.pem"\nkey_file = "one.key"\n'
    found = read(f'{TABLE}{files}username = "farshore"\npassword_file = "zoo"\n', tmp_path / "farshore.toml")
    tls = Tls(tmp_path / "ca.pem", tmp_path / "one.pem", tmp_path / "one.key")
    assert found == ZooKeeperAccess(tls, "farshore", Secret(file=tmp_path / "zoo"))


def test_a_login_alone() -> None:
    found = read(f'{TABLE}username = "farshore"\npassword_env = "ZOO"\n')
    assert found == ZooKeeperAccess(None, "farshore", Secret(environment="ZOO"))


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("", "says nothing: write ca_file, or username and a password"),
        ('certificate_file = "a.pem"', "ca_file is missing: without it nothing is encrypted"),
        ('ca_file = "a.pem"\nkey_file = "b"', "certificate_file is missing: key_file is of no use without it"),
        ('username = "a"', "username and one of password_file, password_env, password_command belong together"),
        ('password_env = "A"', "username and one of password_file"),
        ('username = "a:b"\npassword_env = "A"', "username 'a:b' is none: write one without a colon"),
        ('username = "a"\npassword = "secret"', "zookeeper_security.password: there is no such key"),
    ],
)
def test_what_does_not_fit_together_is_told(keys: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(f"{TABLE}{keys}\n")
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)
