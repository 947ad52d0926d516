"""How a site is reached safely, as farshore.toml says it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from broker.base.address import Address, parse_address
from broker.base.server_tls import ServerTls
from broker.client.security.settings import (
    PLAINTEXT,
    AwsIdentity,
    KerberosIdentity,
    Sasl,
    Secret,
    SecretSource,
    Security,
    Tls,
    TlsVersion,
    TokenEndpoint,
)
from broker.cluster.zookeeper.access import ZooKeeperAccess
from broker.http.settings import FaceSettings
from deploy.client_properties import security_of_properties
from deploy.security_table import MetricsTable, SecurityTable, ShownTable, ZooKeeperSecurityTable

PathOf = Callable[[Path], Path]
"""A path of the file as seen from the current folder."""


def security_of(table: SecurityTable | None, path: PathOf) -> Security:
    """What a site's table amounts to; a site without one is reached as PLAINTEXT. Its paths hold in every folder.

    Raises PropertiesRefused.
    """
    if table is None:
        return PLAINTEXT

    def absolute(file: Path) -> Path:
        return path(file).absolute()

    if table.properties_file is not None:
        return security_of_properties(absolute(table.properties_file))
    return Security(_tls(table, absolute), _sasl(table, absolute))


def face_of(table: ShownTable, listen: Address, path: PathOf) -> FaceSettings:
    """To whom what is shown there is shown."""
    tls = None
    if table.certificate_file is not None:
        files = (_file(table.key_file, path), _file(table.client_ca_file, path))
        tls = ServerTls.of_face(path(table.certificate_file), *files)
    return FaceSettings(listen, tls, password_of(table.token_file, table.token_env, table.token_command, path))


def metrics_of(table: MetricsTable | None, path: PathOf) -> FaceSettings | None:
    """What a broker shows of itself; None: nothing."""
    return None if table is None else face_of(table, parse_address(table.listen), path)


def zookeeper_access_of(table: ZooKeeperSecurityTable | None, path: PathOf) -> ZooKeeperAccess | None:
    """None: a ZooKeeper that asks for nothing. Raises ValueError."""
    if table is None:
        return None
    tls = None
    if table.ca_file is not None:
        key_password = password_of(table.key_password_file, table.key_password_env, table.key_password_command, path)
        own = (_file(table.certificate_file, path), _file(table.key_file, path))
        tls = Tls(path(table.ca_file), *own, key_password)
    password = password_of(table.password_file, table.password_env, table.password_command, path)
    return ZooKeeperAccess(tls, table.username, password)


def security_text(site: str, table: SecurityTable | None, path: PathOf) -> str:
    """What a site's table says, for a file in another folder; a site without one has none."""
    if table is None:
        return ""
    lines = [f"[sites.{site}.security]"]
    for key, value in table.model_dump(exclude_none=True).items():
        said = str(path(value).absolute()) if isinstance(value, Path) else value
        lines.append(f"{key} = {json.dumps(said, ensure_ascii=False)}")  # whose texts and lists are TOML's, too
    return "\n".join(lines)


def _tls(table: SecurityTable, path: PathOf) -> Tls | None:
    if not table.has_tls:
        return None
    return Tls(
        ca_file=_file(table.ca_file, path),
        certificate_file=_file(table.certificate_file, path),
        key_file=_file(table.key_file, path),
        key_password=password_of(table.key_password_file, table.key_password_env, table.key_password_command, path),
        version_min=table.tls_version_min or TlsVersion.TLS_1_2,
        ca_password=password_of(table.ca_password_file, table.ca_password_env, table.ca_password_command, path),
    )


def _sasl(table: SecurityTable, path: PathOf) -> Sasl | None:
    if table.mechanism is None:
        return None
    return Sasl(table.mechanism, table.username or "", _secret(table, path))


def _secret(table: SecurityTable, path: PathOf) -> SecretSource | KerberosIdentity:
    if table.kerberos_service_name is not None:
        return KerberosIdentity(table.kerberos_service_name, table.principal, _file(table.keytab_file, path))
    if table.token_aws_region is not None:
        return AwsIdentity(table.token_aws_region, table.token_aws_profile)
    if table.token_file is not None:
        return Secret(file=path(table.token_file))
    password = password_of(table.password_file, table.password_env, table.password_command, path)
    assert password is not None, "checked when the file was read"
    if table.token_endpoint is None:
        return password
    assert table.client_id is not None, "checked when the file was read"
    ca_file = _file(table.token_ca_file, path)
    return TokenEndpoint(table.token_endpoint, table.client_id, password, table.token_scope, ca_file)


def password_of(
    file: Path | None, environment: str | None, command: tuple[str, ...] | None, path: PathOf
) -> Secret | None:
    """A password, by its three keys of a table; None where none of them is there."""
    if file is None and environment is None and command is None:
        return None
    return Secret(_file(file, path), environment, command or ())


def _file(file: Path | None, path: PathOf) -> Path | None:
    return None if file is None else path(file)
