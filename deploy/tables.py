"""The tables of farshore.toml: their keys and what each may be by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from broker.base.server_tls import ClientAuth
from broker.client.security.settings import Mechanism
from broker.client.site import Site
from broker.groups.model import MigrationPolicy
from broker.limits import PARTITIONS_PER_TOPIC_MAX
from broker.wire.vocabulary import EVERYBODY
from deploy.security_table import PASSWORD_KEYS, MetricsTable, SecurityTable, ShownTable, ZooKeeperSecurityTable
from deploy.values import (
    ETCD_PREFIX_PATTERN,
    NAME_PATTERN,
    AddressText,
    FilePath,
    PinText,
    Principal,
    Regex,
    Table,
    addresses,
    zookeeper,
)
from mirror.fleet.settings import DEFAULT_PREFIX, LEASE_SECONDS_MIN, WITHOUT_ETCD_SECONDS
from mirror.link import UNITS_MAX, Link, Priority, TopicNames

DEFAULT_STATE_DIR = Path("var")


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
    metrics: MetricsTable | None = None


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

    zookeeper: Annotated[str, AfterValidator(zookeeper)]
    zookeeper_security: ZooKeeperSecurityTable | None = None
    zookeeper_session_timeout_ms: int | None = Field(None, ge=1)
    zookeeper_connection_timeout_ms: int | None = Field(None, ge=1)
    security_inter_broker_protocol: Literal["PLAINTEXT", "SSL"] | None = None
    inter_broker_plaintext_beside_logins: bool | None = None
    replica_lag_time_max_ms: int | None = Field(None, ge=1)
    auto_leader_rebalance_enable: bool | None = None
    leader_imbalance_check_interval_seconds: int | None = Field(None, ge=1)
    leader_imbalance_per_broker_percentage: int | None = Field(None, ge=0)
    site_start_frozen: bool | None = None


class ClusterBrokerTable(ListeningTable):
    """A broker of such a cluster."""

    node_id: int = Field(ge=0, le=2**31 - 1)
    inter_broker_listen: AddressText | None = None


class SiteTable(Table):
    """With `broker` farshore runs the site as one broker, with `cluster` and `brokers` as a cluster on ZooKeeper."""

    bootstrap_servers: Annotated[str, AfterValidator(addresses)]
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
    prefix: str = Field(DEFAULT_PREFIX, pattern=ETCD_PREFIX_PATTERN)
    lease_seconds: int = Field(LEASE_SECONDS_MIN, ge=LEASE_SECONDS_MIN, le=3600)
    without_etcd_seconds: int = Field(WITHOUT_ETCD_SECONDS, ge=0)
    user: str | None = None
    password_file: FilePath | None = None
    password_env: str | None = Field(None, min_length=1)
    password_command: tuple[str, ...] | None = Field(None, min_length=1)
    tls_ca_file: FilePath | None = None
    tls_cert_file: FilePath | None = None
    tls_key_file: FilePath | None = None

    @model_validator(mode="after")
    def _pairs(self) -> FleetTable:
        given = [key for key in PASSWORD_KEYS if getattr(self, key) is not None]
        if len(given) != (0 if self.user is None else 1):
            raise ValueError(f"user and one of {', '.join(PASSWORD_KEYS)} belong together: write both or none")
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


class MonitorTable(ShownTable):
    """Defaults of `farshore monitor run`, and to whom it and `farshore audit watch` show what they know."""

    listen: AddressText | None = None


class AuditTable(Table):
    """Defaults of `farshore audit run` and `farshore audit watch`."""

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
