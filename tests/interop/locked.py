"""Apache Kafka with locked listeners beside its open one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from broker.access.users import new_credentials, write_users
from broker.client.security.settings import Mechanism, Sasl, Secret, Security, Tls
from broker.client.site import Site
from deploy.config import load
from deploy.local.locksmith import make_locks
from deploy.local.processes import port_answers
from tests.certificates import Authority, KeyPair
from tests.interop.servers import FarshoreBroker, KafkaServer
from tests.issuer import AUDIENCE, ISSUER, ec_key, rsa_key, write_keys
from tests.ports import free_port

USER = "farshore"
OTHERS = ("shop", "reader", "limited")
PASSWORD = "canary-secret-7Qw"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
REAUTHENTICATE_MS = 3_000
BETWEEN_RECORDS_S = 0.02
"""Enough of them by the end of a session; one right behind the other they keep both sides busy for nothing."""
_CHECKS_TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_LOGIN_MODULES = {
    "plain": f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "oauthbearer": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
}


class LockedKafkaServer(KafkaServer):
    """TLS asks for a client's certificate, LOCKED is TLS with a login, WORDS a login alone, also by signed tokens, BOTH
    a client's certificate and such a token.
    """

    def __init__(self, version: str, folder: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(version, folder, overrides)
        self.ports = {name: free_port() for name in ("TLS", "LOCKED", "WORDS", "BOTH")}
        self.authority = Authority(folder / "ca")
        self.client: KeyPair = self.authority.sign("client")
        self.keys = f"file://{write_keys(folder / 'jwks.json', rsa_key('rsa-1'), ec_key('ec-1'))}"

    def command(self) -> Sequence[str]:
        program, *arguments = super().command()
        return [program, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.keys}", *arguments]

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def locked_site(self) -> Site:
        """At LOCKED, called by the server's folder."""
        password = self.folder / "password"
        password.write_text(PASSWORD)
        login = Sasl(Mechanism.SCRAM_SHA_512, USER, Secret(password))
        return Site(self.folder.name, self.at("LOCKED"), security=Security(Tls(self.authority.certificate), login))

    def properties(self) -> dict[str, str]:
        open_ones = super().properties()
        locked = ",".join(f"{name}://{self.at(name)}" for name in self.ports)
        logins = {
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config": module
            for listener in ("locked", "words")
            for mechanism, module in _LOGIN_MODULES.items()
        }
        mechanisms = f"PLAIN,{','.join(SCRAM)},OAUTHBEARER"
        return {
            **open_ones,
            "listeners": f"{open_ones['listeners']},{locked}",
            "advertised.listeners": f"{open_ones['advertised.listeners']},{locked}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,LOCKED:SASL_SSL,WORDS:SASL_PLAINTEXT,BOTH:SASL_SSL"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            # Two live for the whole run: records twice a second that say nothing are a third of what one at rest costs.
            "metadata.max.idle.interval.ms": "0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.sign("server").both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.tls.ssl.client.auth": "required",
            "listener.name.both.ssl.client.auth": "required",
            "listener.name.locked.sasl.enabled.mechanisms": mechanisms,
            "listener.name.words.sasl.enabled.mechanisms": mechanisms,
            "listener.name.both.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.both.oauthbearer.sasl.jaas.config": _LOGIN_MODULES["oauthbearer"],
            "listener.name.locked.connections.max.reauth.ms": str(REAUTHENTICATE_MS),
            # LOCKED takes tokens that nobody signed, as Kafka does for trials.
            "listener.name.words.oauthbearer.sasl.server.callback.handler.class": _CHECKS_TOKENS,
            "listener.name.both.oauthbearer.sasl.server.callback.handler.class": _CHECKS_TOKENS,
            "sasl.oauthbearer.jwks.endpoint.url": self.keys,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            **logins,
        }

    def format_options(self) -> Sequence[str]:
        users = [f"{mechanism}=[name={USER},password={PASSWORD}]" for mechanism in SCRAM]
        return [word for user in users for word in ("--add-scram", user)]


class AuthorizingKafkaServer(LockedKafkaServer):
    """Who logs in at WORDS by PLAIN is asked for his rights; the open listener is the brokers' own, and a super user's.

    `USER` is a super user, too; of all others each has what ACLs give him.
    """

    def properties(self) -> dict[str, str]:
        logins = "".join(f' user_{user}="{PASSWORD}"' for user in (USER, *OTHERS))
        plain = f"org.apache.kafka.common.security.plain.PlainLoginModule required{logins};"
        return {
            **super().properties(),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{USER}",
            "listener.name.words.plain.sasl.jaas.config": plain,
        }


class SecureBroker(FarshoreBroker):
    """farshore's own, that nobody reaches but by SASL_SSL; its site is called by its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        name, locks = folder.name, make_locks(folder / "locks")
        own = [
            f"[sites.{name}.broker]",
            'data_dir = "data"',
            *locks.listeners(f"SASL_SSL://{self.bootstrap}"),
            *locks.logins(),
        ]
        lines = [f"[sites.{name}]", f'bootstrap_servers = "{self.bootstrap}"', *own, *locks.security_table(name)]
        self.file = folder / "farshore.toml"
        self.file.write_text("\n".join(lines))

    def locked_site(self) -> Site:
        return load(self.file).site(self.folder.name)

    def command(self) -> Sequence[str]:
        return [*super().command()[:3], "--config", str(self.file), "broker", "run", "--site", self.folder.name]

    def ready(self) -> bool:
        return port_answers(self.port)


class AuthorizingBroker(FarshoreBroker):
    """farshore's own, as `AuthorizingKafkaServer` is."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.words = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        write_users(folder / "users.json", {user: new_credentials(PASSWORD) for user in (USER, *OTHERS)})
        self.file = folder / "farshore.toml"
        self.file.write_text(
            f'[sites.east]\nbootstrap_servers = "{self.bootstrap}"\n[sites.east.broker]\ndata_dir = "data"\n'
            f'listeners = ["PLAINTEXT://{self.bootstrap}", "WORDS://{self.at("WORDS")}"]\n'
            'listener_security_protocol_map = { WORDS = "SASL_PLAINTEXT" }\n'
            f'sasl_enabled_mechanisms = {["PLAIN", *SCRAM]}\nsasl_users_file = "users.json"\n'
            f'authorizer_enable = true\nsuper_users = ["User:ANONYMOUS", "User:{USER}"]\n'
        )

    def at(self, listener: str) -> str:
        assert listener == "WORDS"
        return f"127.0.0.1:{self.words}"

    def command(self) -> Sequence[str]:
        return [*super().command()[:3], "--config", str(self.file), "broker", "run", "--site", "east"]


def plain_login(user: str) -> dict[str, str]:
    """For Java's clients at WORDS."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="{user}" password="{PASSWORD}";',
    }


def site_tables(site: Site) -> str:
    """A site in farshore.toml, as it is reached: openly, or at LOCKED."""
    lines = [f"[sites.{site.name}]", f'bootstrap_servers = "{site.bootstrap_servers}"']
    tls, sasl = site.security.tls, site.security.sasl
    if tls is not None and sasl is not None and isinstance(sasl.secret, Secret):
        lines += [f"[sites.{site.name}.security]", f'protocol = "{site.security.protocol}"']
        lines += [f'ca_file = "{tls.ca_file}"', f'mechanism = "{sasl.mechanism}"', f'username = "{sasl.username}"']
        lines.append(f'password_file = "{sasl.secret.file}"')
    return "\n".join(lines)
