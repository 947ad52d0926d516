"""What locks a site of this machine: certificates and a user, in a folder that `locksmith.py` fills."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.client.security.settings import Mechanism

USER: Final = "farshore"
MECHANISM: Final = Mechanism.SCRAM_SHA_512
CA_FILE: Final = "ca.pem"
CERTIFICATE_FILE: Final = "broker.pem"
KEY_FILE: Final = "broker.key"
USERS_FILE: Final = "users.json"
PASSWORD_FILE: Final = "password"


@dataclass(frozen=True, slots=True)
class Locks:
    """As tables of farshore.toml have them; `folder` is absolute."""

    folder: Path

    def security_table(self, site: str) -> Sequence[str]:
        """How clients get in."""
        return (
            f"[sites.{site}.security]",
            'protocol = "SASL_SSL"',
            self._file("ca_file", CA_FILE),
            f'mechanism = "{MECHANISM}"',
            f'username = "{USER}"',
            self._file("password_file", PASSWORD_FILE),
        )

    def listeners(self, *listeners: str) -> Sequence[str]:
        """Keys of a broker's table: where it lets clients in, and what it shows them."""
        return (
            f"listeners = {json.dumps(listeners)}",
            self._file("ssl_certificate_file", CERTIFICATE_FILE),
            self._file("ssl_key_file", KEY_FILE),
        )

    def logins(self) -> Sequence[str]:
        """Keys of a table of a broker that is alone, or of its cluster."""
        return (f'sasl_enabled_mechanisms = ["{MECHANISM}"]', self._file("sasl_users_file", USERS_FILE))

    def between_brokers(self) -> Sequence[str]:
        """Keys of a cluster's table: brokers show each other the certificate, which is for both sides of TLS."""
        return ('security_inter_broker_protocol = "SSL"', self._file("ssl_client_ca_file", CA_FILE))

    def _file(self, key: str, name: str) -> str:
        return f"{key} = {json.dumps(str(self.folder / name), ensure_ascii=False)}"  # whose texts are TOML's, too
