"""A KDC of MIT's, and Apache Kafka that lets in whom it knows."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.certificates import Authority
from tests.interop.servers import KafkaServer, Server, ServerFailed
from tests.ports import free_port

REALM = "FARSHORE.TEST"
SERVICE = "kafka"
ANOTHER_SERVICE = "another"
"""The KDC knows it, and the broker has no key of it."""
HOST = "localhost"
REAUTHENTICATE_MS = 2_000
SHORT_S = 6
"""How long tickets of `short` hold: when half of that is over, what is left is enough for a login on a slow machine."""
_PROGRAMS = "/usr/sbin:/usr/bin"
_MODULE = "com.sun.security.auth.module.Krb5LoginModule"


class Kdc(Server):
    """It knows the service, `farshore` and `short`; keytabs are in its folder, by their name and `old`, whose key
    `farshore` has no more.
    """

    name = "krb5kdc"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        self.config = folder / "krb5.conf"

    def environment(self) -> Mapping[str, str]:
        return os.environ | {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}

    def command(self) -> Sequence[str]:
        return [_program("krb5kdc"), "-n"]

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        self.config.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_canonicalize_hostname = false\n"
            f"rdns = false\nudp_preference_limit = 1\n[realms]\n{REALM} = {{\n kdc = 127.0.0.1:{self.port}\n}}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f'[kdcdefaults]\nkdc_listen = ""\nkdc_tcp_listen = 127.0.0.1:{self.port}\n[realms]\n{REALM} = {{\n'
            f" database_name = {self.folder}/principals\n key_stash_file = {self.folder}/stash\n}}\n"
            "[logging]\nkdc = STDERR\n"
        )
        self.tool("kdb5_util", "create", "-s", "-P", "of a test")
        services = "".join(f"addprinc -randkey {service}/{HOST}\n" for service in (SERVICE, ANOTHER_SERVICE))
        others = f"{services}addprinc -randkey -maxlife {SHORT_S}sec short\n"
        own = f"addprinc -randkey +requires_preauth farshore\n{self._keytab('old', 'farshore')}cpw -randkey farshore\n"
        keytabs = ((SERVICE, f"{SERVICE}/{HOST}"), ("farshore", "farshore"), ("short", "short"))
        self.tool("kadmin.local", stdin=others + own + "".join(self._keytab(*keytab) for keytab in keytabs))
        super().start()

    def ready(self) -> bool:
        with socket.socket() as peer:
            return peer.connect_ex(("127.0.0.1", self.port)) == 0

    def keytab(self, name: str) -> Path:
        return self.folder / f"{name}.keytab"

    def tool(self, program: str, *arguments: str, stdin: str = "") -> None:
        done = subprocess.run(
            [_program(program), *arguments], env=self.environment(), input=stdin, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{program} {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"

    def issued(self, principal: str) -> int:
        """How often a ticket was got by what it is got with."""
        lines = [line for line in self.log.read_text().splitlines() if "AS_REQ" in line and ": ISSUE: " in line]
        return sum(f"{principal}@{REALM} for krbtgt/" in line for line in lines)

    def _keytab(self, name: str, principal: str) -> str:
        return f"ktadd -norandkey -k {self.keytab(name)} {principal}\n"


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:{_PROGRAMS}")
    if found is None:
        raise ServerFailed(f"{name} is not there; run: make tools")
    return found


class KerberosKafkaServer(KafkaServer):
    """WORDS asks for a ticket, LOCKED does so over TLS."""

    def __init__(self, version: str, folder: Path, kdc: Kdc) -> None:
        super().__init__(version, folder)
        self.kdc = kdc
        self.ports = {name: free_port() for name in ("LOCKED", "WORDS")}
        self.authority = Authority(folder / "ca")

    def command(self) -> Sequence[str]:
        program, *arguments = super().command()
        return [program, *java_options(self.kdc), *arguments]

    def at(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def properties(self) -> dict[str, str]:
        open_ones = super().properties()
        locked = ",".join(f"{name}://{self.at(name)}" for name in self.ports)
        login = f'{_MODULE} required useKeyTab=true storeKey=true keyTab="{self.kdc.keytab(SERVICE)}"'
        login += f' principal="{SERVICE}/{HOST}@{REALM}";'
        return {
            **open_ones,
            "listeners": f"{open_ones['listeners']},{locked}",
            "advertised.listeners": f"{open_ones['advertised.listeners']},{locked}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOCKED:SASL_SSL,WORDS:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.sign("server", f"DNS:{HOST}").both),
            "sasl.kerberos.service.name": SERVICE,
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.locked.connections.max.reauth.ms": str(REAUTHENTICATE_MS),
            "listener.name.locked.gssapi.sasl.jaas.config": login,
            "listener.name.words.gssapi.sasl.jaas.config": login,
        }


def java_options(kdc: Kdc) -> Sequence[str]:
    return [f"-Djava.security.krb5.conf={kdc.config}"]
