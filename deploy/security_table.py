"""The tables of farshore.toml that say how others are reached safely, and how they reach us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from broker.client.security.settings import Mechanism, TlsVersion, is_endpoint
from deploy.values import AWS_REGION_PATTERN, KERBEROS_SERVICE_PATTERN, AddressText, FilePath, Table


def _endpoint(url: str) -> str:
    if not is_endpoint(url):
        raise ValueError("write https://HOST/PATH without a user, who is client_id, and without a #")
    return url


class SecurityTable(Table):
    """How a site's brokers are reached: Kafka's names of protocols and mechanisms; secrets stand elsewhere.

    `properties_file` says all of it in place of the other keys, as Kafka's own tools are told.
    """

    properties_file: FilePath | None = None
    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] | None = None
    ca_file: FilePath | None = None
    certificate_file: FilePath | None = None
    key_file: FilePath | None = None
    ca_password_file: FilePath | None = None
    ca_password_env: str | None = Field(None, min_length=1)
    ca_password_command: tuple[str, ...] | None = Field(None, min_length=1)
    key_password_file: FilePath | None = None
    key_password_env: str | None = Field(None, min_length=1)
    key_password_command: tuple[str, ...] | None = Field(None, min_length=1)
    tls_version_min: TlsVersion | None = None
    mechanism: Mechanism | None = None
    username: str | None = Field(None, min_length=1)
    password_file: FilePath | None = None
    password_env: str | None = Field(None, min_length=1)
    password_command: tuple[str, ...] | None = Field(None, min_length=1)
    token_file: FilePath | None = None
    token_endpoint: Annotated[str, AfterValidator(_endpoint)] | None = None
    token_scope: str | None = Field(None, min_length=1)
    token_ca_file: FilePath | None = None
    client_id: str | None = Field(None, min_length=1)
    token_aws_region: str | None = Field(None, pattern=AWS_REGION_PATTERN)
    token_aws_profile: str | None = Field(None, min_length=1)
    kerberos_service_name: str | None = Field(None, pattern=KERBEROS_SERVICE_PATTERN)
    principal: str | None = Field(None, min_length=1)
    keytab_file: FilePath | None = None

    @property
    def has_tls(self) -> bool:
        return self.protocol is not None and self.protocol.endswith("SSL")

    @property
    def has_login(self) -> bool:
        return self.protocol is not None and self.protocol.startswith("SASL_")

    @model_validator(mode="after")
    def _fits_together(self) -> SecurityTable:
        if self.properties_file is not None:
            if others := self.model_fields_set - {"properties_file"}:
                raise ValueError(
                    f"properties_file stands alone, as it says all of it: take {', '.join(sorted(others))} out, or "
                    "write the table without it"
                )
            return self
        if self.protocol is None:
            raise ValueError("protocol is missing: write it, or name a properties_file")
        for has, needs, keys in ((self.has_login, "SASL", _SASL_KEYS), (self.has_tls, "SSL", _TLS_KEYS)):
            if not has and (given := self._given(keys)):
                raise ValueError(f"{given[0]} is of no use with protocol {self.protocol}, which has no {needs}")
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("certificate_file is missing: key_file is the key of it")
        for needed, which, keys in (
            ("certificate_file", "of its key", _KEY_PASSWORD_KEYS),
            ("ca_file", "of it", _CA_PASSWORD_KEYS),
        ):
            given = self._given(keys)
            if given and getattr(self, needed) is None:
                raise ValueError(f"{needed} is missing: {given[0]} is {which}")
            if len(given) > 1:
                raise ValueError(f"{given[0]} and {given[1]} are both there: write one of them")
        if self.has_login:
            self._check_login()
        return self

    def _given(self, keys: Sequence[str]) -> list[str]:
        return [key for key in keys if getattr(self, key) is not None]

    def _check_login(self) -> None:
        if self.mechanism is None:
            raise ValueError(f"mechanism is missing: one of {', '.join(Mechanism)}")
        if self.mechanism is not Mechanism.GSSAPI and (given := self._given(_KERBEROS_KEYS)):
            raise ValueError(f"{given[0]} is for GSSAPI, and of no use with {self.mechanism}")
        if self.mechanism is Mechanism.GSSAPI:
            self._check_kerberos()
            return
        if self.mechanism is Mechanism.OAUTHBEARER:
            self._check_token()
            return
        if given := self._given(_TOKEN_KEYS):
            raise ValueError(f"{given[0]} is for OAUTHBEARER, and of no use with {self.mechanism}")
        if self.username is None:
            raise ValueError("username is missing")
        self._check_password("of the user")

    def _check_kerberos(self) -> None:
        if given := self._given(("username", *PASSWORD_KEYS, *_TOKEN_KEYS)):
            raise ValueError(f"{given[0]} is of no use with GSSAPI: write principal and keytab_file")
        if self.kerberos_service_name is None:
            raise ValueError("kerberos_service_name is missing: the brokers' sasl.kerberos.service.name, mostly kafka")
        if self.keytab_file is not None and self.principal is None:
            raise ValueError("principal is missing: as whom to log in by keytab_file")

    def _check_token(self) -> None:
        if self.username is not None:
            raise ValueError("username is of no use with OAUTHBEARER: the token says who comes")
        sources = self._given(("token_file", "token_endpoint", "token_aws_region"))
        if len(sources) != 1:
            raise ValueError(
                "write token_file, or token_endpoint with client_id and the client's secret, or token_aws_region"
            )
        if self.token_aws_profile is not None and self.token_aws_region is None:
            raise ValueError(f"token_aws_profile is of no use with {sources[0]}")
        if self.token_aws_region is not None and not self.has_tls:
            raise ValueError("token_aws_region is for AWS MSK, which takes its tokens over SASL_SSL alone")
        if self.token_endpoint is not None:
            if self.client_id is None:
                raise ValueError("client_id is missing: as whom to ask token_endpoint")
            self._check_password("which is the client's secret")
        elif given := self._given((*_ENDPOINT_KEYS, *PASSWORD_KEYS)):
            raise ValueError(f"{given[0]} is of no use with {sources[0]}")

    def _check_password(self, whose: str) -> None:
        if len(self._given(PASSWORD_KEYS)) != 1:
            raise ValueError(f"write one of {', '.join(PASSWORD_KEYS)}, {whose}")


PASSWORD_KEYS: Final = ("password_file", "password_env", "password_command")
_ENDPOINT_KEYS: Final = ("client_id", "token_scope", "token_ca_file")
_AWS_KEYS: Final = ("token_aws_region", "token_aws_profile")
_TOKEN_KEYS: Final = ("token_file", "token_endpoint", *_ENDPOINT_KEYS, *_AWS_KEYS)
_KERBEROS_KEYS: Final = ("kerberos_service_name", "principal", "keytab_file")
_SASL_KEYS: Final = ("mechanism", "username", *PASSWORD_KEYS, *_TOKEN_KEYS, *_KERBEROS_KEYS)
_CA_PASSWORD_KEYS: Final = tuple(f"ca_{key}" for key in PASSWORD_KEYS)
_KEY_PASSWORD_KEYS: Final = tuple(f"key_{key}" for key in PASSWORD_KEYS)
_FILE_KEYS: Final = ("ca_file", "certificate_file", "key_file")
_TLS_KEYS: Final = (*_FILE_KEYS, *_CA_PASSWORD_KEYS, *_KEY_PASSWORD_KEYS, "tls_version_min")


class ShownTable(Table):
    """To whom metrics are shown over HTTP: those who bring a token, or show a certificate, or both."""

    certificate_file: FilePath | None = None
    key_file: FilePath | None = None
    client_ca_file: FilePath | None = None
    token_file: FilePath | None = None
    token_env: Annotated[str, Field(min_length=1)] | None = None
    token_command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _shown_safely(self) -> ShownTable:
        if self.certificate_file is None:
            for key in ("key_file", "client_ca_file"):
                if getattr(self, key) is not None:
                    raise ValueError(f"certificate_file is missing: {key} is of no use without it")
        given = [key for key in _TOKEN_PLACES if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"{given[0]} and {given[1]} are both there: write one of them")
        return self


_TOKEN_PLACES: Final = ("token_file", "token_env", "token_command")


class ZooKeeperSecurityTable(Table):
    """How the brokers of a cluster reach their ZooKeeper, and as whom: with `ca_file` over TLS."""

    ca_file: FilePath | None = None
    certificate_file: FilePath | None = None
    key_file: FilePath | None = None
    key_password_file: FilePath | None = None
    key_password_env: Annotated[str, Field(min_length=1)] | None = None
    key_password_command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    username: str | None = None
    password_file: FilePath | None = None
    password_env: Annotated[str, Field(min_length=1)] | None = None
    password_command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _reaches_it(self) -> ZooKeeperSecurityTable:
        given = [key for key in (*_KEY_PASSWORD_KEYS, "key_file") if getattr(self, key) is not None]
        if self.certificate_file is None and given:
            raise ValueError(f"certificate_file is missing: {given[0]} is of no use without it")
        if self.certificate_file is not None and self.ca_file is None:
            raise ValueError("ca_file is missing: without it nothing is encrypted")
        passwords = [key for key in PASSWORD_KEYS if getattr(self, key) is not None]
        if len(passwords) != (self.username is not None):
            raise ValueError(f"username and one of {', '.join(PASSWORD_KEYS)} belong together: write both or none")
        if self.ca_file is None and self.username is None:
            raise ValueError("says nothing: write ca_file, or username and a password, or both")
        return self


class MetricsTable(ShownTable):
    """Where a broker that farshore runs shows its metrics."""

    listen: AddressText
