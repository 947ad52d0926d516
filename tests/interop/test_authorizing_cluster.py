"""Three of farshore's brokers on a real ZooKeeper that ask for logins and rights: kafka-acls of 3.9 and 4.3."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.access.users import new_credentials, write_users
from tests.certificates import Authority
from tests.interop.brokers import LONG_SESSION_MS, NODES, ClusterBroker
from tests.interop.locked import OTHERS, PASSWORD, USER
from tests.interop.servers import ZooKeeperServer, wait_until
from tests.interop.test_kafka_acls import RECORDS, User
from tests.ports import free_port


class AuthorizingCluster:
    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.ports = {node: free_port() for node in NODES}
        authority = Authority(folder / "ca")
        users = folder / "users.json"
        write_users(users, {user: new_credentials(PASSWORD) for user in (USER, *OTHERS)})
        tables = ""
        for node, port in self.ports.items():
            pair = authority.sign(f"broker-{node}")
            tables += (
                f'[[sites.east.brokers]]\nnode_id = {node}\nlisteners = ["SASL_PLAINTEXT://127.0.0.1:{port}"]\n'
                f'ssl_certificate_file = "{pair.certificate}"\nssl_key_file = "{pair.key}"\ndata_dir = "data-{node}"\n'
            )
        super_users = [f"User:{USER}", *(f"User:CN=broker-{node}" for node in NODES)]
        self.file = folder / "farshore.toml"
        self.file.write_text(
            f'[sites.east]\nbootstrap_servers = "{",".join(map(self.address, NODES))}"\n[sites.east.cluster]\n'
            f'zookeeper = "{zookeeper}"\nzookeeper_session_timeout_ms = {LONG_SESSION_MS}\n'
            f'security_inter_broker_protocol = "SSL"\nssl_client_ca_file = "{authority.certificate}"\n'
            f'sasl_enabled_mechanisms = ["PLAIN"]\nsasl_users_file = "{users}"\n'
            f"authorizer_enable = true\nsuper_users = {super_users}\n{tables}"
        )
        self.brokers = [
            ClusterBroker(folder / f"broker-{node}", self.file, node, port) for node, port in self.ports.items()
        ]

    def address(self, node: int) -> str:
        return f"127.0.0.1:{self.ports[node]}"

    def at(self, listener: str) -> str:
        """Of all brokers, as `AuthorizingBroker` has it."""
        assert listener == "WORDS"
        return ",".join(map(self.address, NODES))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[AuthorizingCluster]:
    folder = tmp_path_factory.mktemp("authorizing")
    made = AuthorizingCluster(folder, f"{zookeeper.address}/authorizing-{uuid.uuid4()}")
    with ExitStack() as stack:
        for broker in made.brokers:
            stack.callback(broker.stop)
            broker.launch()
        for broker in made.brokers:
            broker.wait_ready()
        yield made


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_what_is_given_at_one_holds_at_all(
    cluster: AuthorizingCluster, topic: str, version: str, tmp_path: Path
) -> None:
    owner, shop, reader = (User(cluster, version, name, tmp_path) for name in (USER, "shop", "reader"))
    topic, group = topic[-40:], f"group-{topic[-6:]}"
    owner.topics("--create", "--topic", topic, "--partitions", "6", "--replication-factor", "3")
    owner.acls("--add", "--allow-principal", "User:shop", "--producer", "--topic", topic)
    owner.acls("--add", "--allow-principal", "User:reader", "--consumer", "--topic", topic, "--group", group)
    wait_until(lambda: topic in shop.topics("--list"), 60, "the brokers to know the ACLs")
    shop.produce(topic)
    assert sorted(reader.consume(topic, group)) == sorted(RECORDS)
    with pytest.raises(AssertionError, match="Authorization"):
        shop.topics("--delete", "--topic", topic)
    owner.acls("--remove", "--force", "--topic", topic)
    wait_until(lambda: topic not in shop.topics("--list"), 60, "the brokers to know that they are gone")
