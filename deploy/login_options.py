"""The options of a login in a file of properties, as Kafka's own tools take them: what is taken, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker.client.security.places import Property
from broker.client.security.settings import KerberosIdentity, Secret

JAAS: Final = "sasl.jaas.config"
SERVICE_NAME: Final = "sasl.kerberos.service.name"
_ALWAYS_SO: Final = ("storeKey", "doNotPrompt", "refreshKrb5Config")
"""Of Java's login by Kerberos, what farshore does whatever is said, or has nothing to do with."""
_OTHER_REASONS: Final = {"ticketCache": "farshore takes the one that KRB5CCNAME names in its environment"}


class LoginOptions:
    """Of a login."""

    def __init__(self, file: Path, given: dict[str, str]) -> None:
        self._file, self.given = file, given
        self._taken: set[str] = set()
        self.problems: list[str] = []

    def text(self, name: str) -> str | None:
        self._taken.add(name)
        if not self.given.get(name):
            what = "is empty" if name in self.given else "is missing"
            self.problems.append(f"{JAAS}: {name} {what}")
        return self.given.get(name) or None

    def secret(self, name: str) -> Secret | None:
        return Secret(file=Property(self._file, JAAS, name)) if self.text(name) is not None else None

    def ca_file(self) -> Path | None:
        """Who signed the certificate of a token endpoint."""
        if "ssl.truststore.location" not in self.given:
            return None
        location = self.text("ssl.truststore.location")
        if self.given.get("ssl.truststore.type", "").upper() != "PEM":
            self.problems.append(f"{JAAS}: ssl.truststore.type has to be PEM")
        self._taken.add("ssl.truststore.type")
        return self._path(location) if location else None

    def kerberos(self, service_name: str | None) -> KerberosIdentity | None:
        """As Java's Krb5LoginModule has them; `service_name`: as the property has it, which Kafka also takes here."""
        if "serviceName" in self.given:
            named = self.text("serviceName")
            if service_name not in (None, named):
                self.problems.append(f"{JAAS}: serviceName is another than {SERVICE_NAME}: take one of them out")
            service_name = named
        elif service_name is None:
            self.problems.append(f"{SERVICE_NAME} is missing: it is the brokers' one, mostly kafka")
        self._taken.update(_ALWAYS_SO)
        has_keytab, has_cache = self._is_true("useKeyTab"), self._is_true("useTicketCache")
        if has_keytab == has_cache:
            self.problems.append(f"{JAAS}: write one of useKeyTab=true and useTicketCache=true")
            self._taken.update(("keyTab", "principal"))
            return None
        principal = self.text("principal") if has_keytab or "principal" in self.given else None
        keytab = self.text("keyTab") if has_keytab else None
        if service_name is None or (has_keytab and not keytab):
            return None
        return KerberosIdentity(service_name, principal, self._path(keytab) if keytab else None)

    def _is_true(self, name: str) -> bool:
        self._taken.add(name)
        return self.given.get(name, "").lower() == "true"

    def _path(self, text: str) -> Path:
        return self._file.parent / Path(text).expanduser()

    def left_over(self) -> Iterator[str]:
        for name in self.given:
            if name not in self._taken:
                why = _OTHER_REASONS.get(name, "farshore has nothing like it")
                yield f"{JAAS}: {name} cannot be mapped: {why}; take it out"
