"""Brokers with two doors, an open one and one of SASL_SSL, and how each kind of client is told to come by one."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from broker.client.security.settings import Sasl, Secret, Security, Tls
from broker.client.site import Site
from deploy.local.locks import CA_FILE, MECHANISM, PASSWORD_FILE, USER
from deploy.local.locksmith import make_locks
from tests.bench.clusters import StartedBroker, production_command
from tests.interop.locked import LockedKafkaServer
from tests.ports import free_port

Protocol = Literal["PLAINTEXT", "SASL_SSL"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("PLAINTEXT", "SASL_SSL")
CIPHER: Final = "TLS_AES_256_GCM_SHA384"
"""What OpenSSL and Java both take first; Java's clients are told, too."""
KAFKA_VERSION: Final = "4.3.0"


class TwoDoors(StartedBroker):
    """farshore's broker; its site is called by its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.locks, self._locked = make_locks(folder / "locks"), f"127.0.0.1:{free_port()}"
        doors = (f"PLAINTEXT://{self.bootstrap}", f"SASL_SSL://{self._locked}")
        lines = [f"[sites.{folder.name}]", f'bootstrap_servers = "{self.bootstrap}"', f"[sites.{folder.name}.broker]"]
        lines += ['data_dir = "data"', *self.locks.listeners(*doors), *self.locks.logins()]
        self.file = folder / "farshore.toml"
        self.file.write_text("\n".join(lines))

    def command(self) -> Sequence[str]:
        return [*super().command()[:3], "--config", str(self.file), "broker", "run", "--site", self.folder.name]

    def site(self, protocol: Protocol) -> Site:
        if protocol == "PLAINTEXT":
            return Site(self.folder.name, self.bootstrap)
        login = Sasl(MECHANISM, USER, Secret(self.locks.folder / PASSWORD_FILE))
        return Site(self.folder.name, self._locked, security=Security(Tls(self.locks.folder / CA_FILE), login))


class TwoDoorsKafka(LockedKafkaServer):
    """Apache Kafka as it runs in production."""

    def __init__(self, folder: Path) -> None:
        super().__init__(KAFKA_VERSION, folder)

    def command(self) -> Sequence[str]:
        return production_command(self)

    def properties(self) -> dict[str, str]:
        """Without what only tests want: sessions of seconds, and signed tokens."""
        mine = super().properties()
        kept = {key: value for key, value in mine.items() if "reauth" not in key and "oauthbearer" not in key}
        logins = {key: str(MECHANISM) for key in kept if key.endswith("sasl.enabled.mechanisms")}
        module = f"{MECHANISM.lower()}.sasl.jaas.config"
        # The door for certificates and tokens, which nobody enters here, would not open without a module.
        return kept | logins | {f"listener.name.both.{module}": kept[f"listener.name.locked.{module}"]}

    def site(self, protocol: Protocol) -> Site:
        return Site(self.folder.name, self.bootstrap) if protocol == "PLAINTEXT" else self.locked_site()


def require_cipher(site: Site) -> None:
    """Raises RuntimeError where a client of OpenSSL is given another cipher."""
    assert site.security.tls is not None
    context = ssl.create_default_context(cafile=str(site.security.tls.ca_file))
    ((server, _),) = site.bootstrap().items()
    with (
        socket.create_connection((server.host, server.port)) as plain,
        context.wrap_socket(plain, server_hostname=server.host) as wrapped,
    ):
        if (found := wrapped.cipher()) is None or found[0] != CIPHER:
            raise RuntimeError(f"{site.name} and OpenSSL agree on {found}, not on {CIPHER}")


def _login(site: Site) -> tuple[str, str, str]:
    """The CA's file, user, password of a locked site."""
    tls, sasl = site.security.tls, site.security.sasl
    assert tls is not None
    assert sasl is not None
    assert isinstance(sasl.secret, Secret)
    return str(tls.ca_file), sasl.username, sasl.secret.read()


def librdkafka_settings(site: Site) -> Mapping[str, str]:
    found = {"bootstrap.servers": site.bootstrap_servers, "security.protocol": site.security.protocol}
    if site.security.tls is None:
        return found
    ca_file, user, password = _login(site)
    login = {"sasl.mechanism": str(MECHANISM), "sasl.username": user, "sasl.password": password}
    return found | login | {"ssl.ca.location": ca_file}


def java_properties(site: Site) -> str:
    """As a file of Kafka's tools."""
    lines = [f"security.protocol={site.security.protocol}"]
    if site.security.tls is not None:
        ca_file, user, password = _login(site)
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        lines += [
            *("ssl.truststore.type=PEM", f"ssl.truststore.location={ca_file}", f"sasl.mechanism={MECHANISM}"),
            *("ssl.enabled.protocols=TLSv1.3", f"ssl.cipher.suites={CIPHER}"),
            f'sasl.jaas.config={module} required username="{user}" password="{password}";',
        ]
    return "".join(f"{line}\n" for line in lines)
