"""The tables of farshore.toml: their keys and what each may be by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from broker.access.tls import ClientAuth
from broker.base.address import AddressInvalid, parse_address
from broker.client.security.settings import Mechanism, TlsVersion
from broker.client.site import Site
from broker.groups.model import MigrationPolicy
from broker.limits import PARTITIONS_PER_TOPIC_MAX
from broker.wire.vocabulary import EVERYBODY
from mirror.fleet.settings import DEFAULT_PREFIX, LEASE_SECONDS_MIN, WITHOUT_ETCD_SECONDS
from mirror.link import UNITS_MAX, Link, Pin, Priority, TopicNames

DEFAULT_STATE_DIR = Path("var")
# Site names become prefixes of topics and parts of topic names, so they are of Kafka's alphabet; the dot separates.
NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"


def _address(text: str) -> str:
    try:
        parse_address(text)
    except AddressInvalid as error:
        raise ValueError(str(error)) from error
    return text


def _addresses(text: str) -> str:
    for server in text.split(","):
        _address(server)
    return text


def _zookeeper(text: str) -> str:
    """ "host:port,host:port/chroot"."""
    servers, slash, chroot = text.partition("/")
    _addresses(servers)
    if slash and (not chroot or not {"", ".", ".."}.isdisjoint(chroot.split("/"))):
        raise ValueError(f"{text!r}: write a chroot as /NAME or /NAME/NAME, or none")
    if "," in chroot:
        raise ValueError(f"{text!r}: the chroot is the same at all servers, and stands once, behind the last of them")
    return text


def _path(given: object) -> object:
    if given == "":
        raise ValueError("a path cannot be empty; name the file or the folder")
    return given


def _principal(text: str) -> str:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f'{text!r}: write a principal as "User:NAME", or "User:*" for everybody but super users')
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


def _pin(given: object) -> object:
    """A partition's name as the topic and the number."""
    if not isinstance(given, str):
        return given
    topic, _, partition = given.rpartition(":")
    if not (topic and partition.isascii() and partition.isdecimal()):
        raise ValueError(f'{given!r}: write a partition as "TOPIC:PARTITION", for example "flights:0"')
    return topic, int(partition)


Regex = Annotated[str, AfterValidator(_regex)]
Principal = Annotated[str, AfterValidator(_principal)]
AddressText = Annotated[str, AfterValidator(_address)]
PinText = Annotated[Pin, BeforeValidator(_pin)]
FilePath = Annotated[Path, BeforeValidator(_path)]


class Table(BaseModel):
    """A table of the file: unknown keys are refused, so that a typing error is not a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ListeningTable(Table):
    """Where a broker that farshore runs itself listens, and as whom."""

    data_dir: FilePath
    rack: str | None = None
    listen: AddressText | None = None
    advertised: AddressText | None = None
    listeners: tuple[str, ...] | None = Field(None, min_length=1)
    advertised_listeners: tuple[str, ...] | None = None
    ssl_certificate_file: FilePath | None = None
    ssl_key_file: FilePath | None = None


class AccessTable(Table):
    """Who gets in at such a broker, or at all of a cluster, and what he may do there."""

    listener_security_protocol_map: dict[str, str] | None = None
    ssl_client_ca_file: FilePath | None = None
    ssl_client_auth: ClientAuth | None = None
    ssl_principal_mapping_rules: str | None = None
    sasl_enabled_mechanisms: tuple[Mechanism, ...] | None = None
    sasl_users_file: FilePath | None = None
    connections_max_reauth_ms: int | None = Field(None, ge=0)
    sasl_oauthbearer_jwks_file: FilePath | None = None
    sasl_oauthbearer_expected_issuer: str | None = Field(None, min_length=1)
    sasl_oauthbearer_expected_audience: tuple[str, ...] | None = Field(None, min_length=1)
    sasl_oauthbearer_required_scope: tuple[str, ...] | None = Field(None, min_length=1)
    sasl_oauthbearer_sub_claim_name: str | None = Field(None, min_length=1)
    sasl_oauthbearer_scope_claim_name: str | None = Field(None, min_length=1)
    sasl_oauthbearer_clock_skew_seconds: int | None = Field(None, ge=0, le=3600)
    authorizer_enable: bool | None = None
    super_users: tuple[str, ...] | None = None
    allow_everyone_if_no_acl_found: bool | None = None


class BrokerTable(ListeningTable, AccessTable):
    """A broker that is alone; the other keys are those of `BrokerConfig`, with its defaults."""

    node_id: int | None = Field(None, ge=0, le=2**31 - 1)
    cluster_id: str | None = None
    num_partitions: int | None = Field(None, ge=1, le=PARTITIONS_PER_TOPIC_MAX)
    auto_create_topics_enable: bool | None = None
    offsets_topic_num_partitions: int | None = Field(None, ge=1, le=PARTITIONS_PER_TOPIC_MAX)
    group_initial_rebalance_delay_ms: int | None = Field(None, ge=0)
    group_consumer_migration_policy: MigrationPolicy | None = None
    log_retention_check_interval_ms: int | None = Field(None, ge=1)
    max_connections: int | None = Field(None, ge=1)
    record_validation: Literal["framing", "full"] | None = None
    site_start_frozen: bool | None = None


class ClusterTable(AccessTable):
    """The cluster that a site's own brokers form, and the ZooKeeper that keeps its metadata."""

    zookeeper: Annotated[str, AfterValidator(_zookeeper)]
    zookeeper_session_timeout_ms: int | None = Field(None, ge=1)
    zookeeper_connection_timeout_ms: int | None = Field(None, ge=1)
    security_inter_broker_protocol: Literal["PLAINTEXT", "SSL"] | None = None
    replica_lag_time_max_ms: int | None = Field(None, ge=1)
    auto_leader_rebalance_enable: bool | None = None
    leader_imbalance_check_interval_seconds: int | None = Field(None, ge=1)
    leader_imbalance_per_broker_percentage: int | None = Field(None, ge=0)
    site_start_frozen: bool | None = None


class ClusterBrokerTable(ListeningTable):
    """A broker of such a cluster."""

    node_id: int = Field(ge=0, le=2**31 - 1)
    inter_broker_listen: AddressText | None = None


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
    token_endpoint: str | None = Field(None, pattern=r"^https://[^/?#@]+")
    token_scope: str | None = Field(None, min_length=1)
    token_ca_file: FilePath | None = None
    client_id: str | None = Field(None, min_length=1)
    token_aws_region: str | None = Field(None, pattern=r"^[a-z]+(-[a-z0-9]+)+$")
    token_aws_profile: str | None = Field(None, min_length=1)

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
        if self.mechanism is Mechanism.OAUTHBEARER:
            self._check_token()
            return
        if given := self._given(_TOKEN_KEYS):
            raise ValueError(f"{given[0]} is for OAUTHBEARER, and of no use with {self.mechanism}")
        if self.username is None:
            raise ValueError("username is missing")
        self._check_password("of the user")

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
        elif given := self._given((*_ENDPOINT_KEYS, *_PASSWORD_KEYS)):
            raise ValueError(f"{given[0]} is of no use with {sources[0]}")

    def _check_password(self, whose: str) -> None:
        if len(self._given(_PASSWORD_KEYS)) != 1:
            raise ValueError(f"write one of {', '.join(_PASSWORD_KEYS)}, {whose}")


_PASSWORD_KEYS: Final = ("password_file", "password_env", "password_command")
_ENDPOINT_KEYS: Final = ("client_id", "token_scope", "token_ca_file")
_AWS_KEYS: Final = ("token_aws_region", "token_aws_profile")
_TOKEN_KEYS: Final = ("token_file", "token_endpoint", *_ENDPOINT_KEYS, *_AWS_KEYS)
_SASL_KEYS: Final = ("mechanism", "username", *_PASSWORD_KEYS, *_TOKEN_KEYS)
_CA_PASSWORD_KEYS: Final = tuple(f"ca_{key}" for key in _PASSWORD_KEYS)
_KEY_PASSWORD_KEYS: Final = tuple(f"key_{key}" for key in _PASSWORD_KEYS)
_FILE_KEYS: Final = ("ca_file", "certificate_file", "key_file")
_TLS_KEYS: Final = (*_FILE_KEYS, *_CA_PASSWORD_KEYS, *_KEY_PASSWORD_KEYS, "tls_version_min")


class SiteTable(Table):
    """With `broker` farshore runs the site as one broker, with `cluster` and `brokers` as a cluster on ZooKeeper."""

    bootstrap_servers: Annotated[str, AfterValidator(_addresses)]
    address_map: dict[AddressText, AddressText] = Field(default_factory=dict)
    security: SecurityTable | None = None
    freeze_principals: tuple[Principal, ...] = ()
    broker: BrokerTable | None = None
    cluster: ClusterTable | None = None
    brokers: tuple[ClusterBrokerTable, ...] = ()


class LinkTable(Table):
    name: str = Field(pattern=NAME_PATTERN)
    source: str
    target: str
    topics: tuple[Regex, ...] = Field(min_length=1)
    topic_names: TopicNames = "same"
    groups: tuple[Regex, ...] = ()
    priority: Priority = "normal"
    target_rack: str = ""
    sync_acls: bool = False
    acl_principals: dict[Principal, Principal] = Field(default_factory=dict)
    units: int = Field(1, ge=1, le=UNITS_MAX)
    pins: frozenset[PinText] = frozenset()

    @model_validator(mode="after")
    def _unit_count(self) -> LinkTable:
        if self.units + len(self.pins) > UNITS_MAX:
            raise ValueError(f"units and pins are {self.units + len(self.pins)} units: {UNITS_MAX} at most")
        return self

    @field_validator("acl_principals")
    @classmethod
    def _named(cls, given: dict[str, str]) -> dict[str, str]:
        if EVERYBODY in {*given, *given.values()}:
            raise ValueError(f"{EVERYBODY} is everybody at both sites: write principals by their names")
        return given

    def link(self, source: Site, target: Site) -> Link:
        """Between these sites, with nothing yet of what follows from other links."""
        return Link(
            name=self.name,
            source=source,
            target=target,
            topics=self.topics,
            topic_names=self.topic_names,
            groups=self.groups,
            priority=self.priority,
            target_rack=self.target_rack,
            sync_acls=self.sync_acls,
            acl_principals=tuple(sorted(self.acl_principals.items())),
            units=self.units,
            pins=tuple(sorted(self.pins)),
        )


class FleetTable(Table):
    """The etcd through which any number of `farshore mirror run` share the links."""

    etcd: tuple[AddressText, ...] = Field(min_length=1)
    prefix: str = Field(DEFAULT_PREFIX, pattern=r"^/(.+/)?$")
    lease_seconds: int = Field(LEASE_SECONDS_MIN, ge=LEASE_SECONDS_MIN, le=3600)
    without_etcd_seconds: int = Field(WITHOUT_ETCD_SECONDS, ge=0)
    user: str | None = None
    password_file: FilePath | None = None
    tls_ca_file: FilePath | None = None
    tls_cert_file: FilePath | None = None
    tls_key_file: FilePath | None = None

    @model_validator(mode="after")
    def _pairs(self) -> FleetTable:
        if (self.user is None) != (self.password_file is None):
            raise ValueError("user and password_file belong together: write both or none")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file belong together: write both or none")
        if self.tls_cert_file is not None and self.tls_ca_file is None:
            raise ValueError("tls_ca_file is missing: without it nothing is encrypted")
        return self


class FailoverTable(Table):
    """Programs, with their arguments, that keep a site's clients from writing, and let them again; and those that run
    before and after a move.
    """

    freeze_hook: tuple[str, ...] = ()
    thaw_hook: tuple[str, ...] = ()
    before_hook: tuple[str, ...] = ()
    after_hook: tuple[str, ...] = ()


class MonitorTable(Table):
    """Defaults of `farshore monitor run`."""

    listen: AddressText | None = None


class AuditTable(Table):
    """Defaults of `farshore audit run`."""

    master: str | None = None
    jars: tuple[FilePath, ...] = ()


class FileModel(Table):
    state_dir: FilePath = DEFAULT_STATE_DIR
    sites: dict[Annotated[str, Field(pattern=NAME_PATTERN)], SiteTable] = Field(min_length=1)
    links: tuple[LinkTable, ...] = ()
    fleet: FleetTable | None = None
    failover: FailoverTable = Field(default_factory=FailoverTable)
    monitor: MonitorTable = Field(default_factory=MonitorTable)
    audit: AuditTable = Field(default_factory=AuditTable)
