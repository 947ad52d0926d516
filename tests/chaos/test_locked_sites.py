"""A chaos run between sites that are locked: its workload, and the mirror of its own, get in as the link's do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from broker.access.users import new_credentials, write_users
from broker.base.address import Address
from chaos.toxics import connect
from deploy.cli.terminal import ExitCode
from tests.certificates import Authority
from tests.chaos.test_scenario import SHOWS, Stage, finish, mirrors_below
from tests.interop.servers import FarshoreBroker, Toxiproxy

USER, PASSWORD = "farshore", "canary-secret-7Qw"
BROKER = """
[sites.here]
bootstrap_servers = "{address}"
[sites.here.broker]
data_dir = "data"
listeners = ["SASL_SSL://{address}"]
ssl_certificate_file = "{certificate}"
ssl_key_file = "{key}"
sasl_enabled_mechanisms = ["SCRAM-SHA-256"]
sasl_users_file = "users.json"
"""
PROPERTIES = """
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={ca}
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="{user}" password="{password}";
"""
CONFIG = """
[sites.east]
bootstrap_servers = "{east}"
[sites.east.security]
properties_file = "east.properties"
[sites.west]
bootstrap_servers = "{west}"
[sites.west.security]
protocol = "SASL_SSL"
ca_file = "ca.p12"
ca_password_command = ["cat", "{folder}/password"]
mechanism = "SCRAM-SHA-256"
username = "{user}"
password_file = "password"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["flights"]
"""


class LockedBroker(FarshoreBroker):
    """Lets in nobody without a login, over TLS."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        super().__init__(folder)
        folder.mkdir()
        pair = authority.sign(folder.name)
        write_users(folder / "users.json", {USER: new_credentials(PASSWORD)})
        self.file = folder / "farshore.toml"
        self.file.write_text(BROKER.format(address=self.bootstrap, certificate=pair.certificate, key=pair.key))

    def command(self) -> Sequence[str]:
        return [*super().command()[:3], "--config", str(self.file), "broker", "run", "--site", "here"]

    def ready(self) -> bool:
        return self.log.exists() and " listening on " in self.log.read_text()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    (tmp_path / "tmp").mkdir()
    authority = Authority(tmp_path / "ca")
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "ca.p12").write_bytes(authority.pkcs12(PASSWORD).read_bytes())
    login = PROPERTIES.format(ca=authority.certificate, user=USER, password=PASSWORD)
    (tmp_path / "east.properties").write_text(login)
    with (
        Toxiproxy(tmp_path / "toxiproxy") as proxy,
        LockedBroker(tmp_path / "east", authority) as east,
        LockedBroker(tmp_path / "west", authority) as west,
    ):
        servers = {"east": east.bootstrap, "west": west.bootstrap}
        (tmp_path / "farshore.toml").write_text(CONFIG.format(**servers, user=USER, folder=tmp_path))
        server = connect(Address("127.0.0.1", proxy.port), 10.0)
        yield Stage(tmp_path, east.bootstrap, west.bootstrap, server, f"127.0.0.1:{proxy.port}")


def test_the_promises_hold_between_locked_sites(stage: Stage) -> None:
    verdict = finish(stage.start(*SHOWS, "--duration", "3s"), ExitCode.DONE)["verdict"]
    assert isinstance(verdict, dict)
    assert (verdict["fault_seen"], verdict["anomalies"]) == (True, {})
    assert all(phase["acknowledged_records"] == phase["mirrored_records"] > 0 for phase in verdict["phases"])
    assert stage.server.proxies() == {}
    assert list((stage.folder / "tmp").glob("farshore*")) == []
    assert mirrors_below(stage.folder) == []
