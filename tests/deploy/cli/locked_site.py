"""A broker of ours behind TLS, logins and rights, with certificates that a test chooses; and clients' files for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from broker.access.users import new_credentials, write_users
from deploy.local.processes import port_answers
from tests.certificates import Authority, KeyPair
from tests.interop.servers import FarshoreBroker

OWNER, LIMITED = "owner", "limited"
PASSWORD = "canary-secret-7Qw"


class LockedSite(FarshoreBroker):
    """`OWNER` may do everything, `LIMITED` nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.authority = Authority(folder / "ca")
        self.certificate = folder / "server.pem"
        self.show(self.authority.sign("server"))
        write_users(folder / "users.json", {user: new_credentials(PASSWORD) for user in (OWNER, LIMITED)})
        self.file = folder / "farshore.toml"
        self.file.write_text(
            f'[sites.east]\nbootstrap_servers = "{self.bootstrap}"\n[sites.east.broker]\ndata_dir = "data"\n'
            f'listeners = ["SASL_SSL://{self.bootstrap}"]\nssl_certificate_file = "{self.certificate}"\n'
            'sasl_enabled_mechanisms = ["SCRAM-SHA-512"]\nsasl_users_file = "users.json"\n'
            f'authorizer_enable = true\nsuper_users = ["User:{OWNER}"]\n'
        )

    def command(self) -> Sequence[str]:
        return [*super().command()[:3], "--config", str(self.file), "broker", "run", "--site", "east"]

    def ready(self) -> bool:
        return port_answers(self.port)

    def show(self, pair: KeyPair) -> None:
        """This certificate to whoever comes next."""
        os.replace(pair.both, self.certificate)

    def configure_client(
        self, folder: Path, user: str = OWNER, password: str = PASSWORD, host: str = "127.0.0.1"
    ) -> Path:
        """Its farshore.toml."""
        (folder / "password").write_text(password)
        file = folder / "farshore.toml"
        file.write_text(
            f'[sites.east]\nbootstrap_servers = "{host}:{self.port}"\n[sites.east.security]\nprotocol = "SASL_SSL"\n'
            f'ca_file = "{self.authority.certificate}"\nmechanism = "SCRAM-SHA-512"\nusername = "{user}"\n'
            'password_file = "password"\n'
        )
        return file
