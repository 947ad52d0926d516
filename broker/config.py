"""How a broker is configured. Names are Kafka's, with `_` for `.`; units are in the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from broker.access.authorizer import Authorizer
from broker.access.bearer import TokenCheck
from broker.access.failed_logins import FailedLogins
from broker.access.known_users import KnownUsers
from broker.access.listeners import EVERY_INTERFACE, Listener, SecurityProtocol, named_listeners, open_between_brokers
from broker.access.logins import OF_PASSWORDS, SERVED_MECHANISMS, Logins
from broker.access.principals import ANONYMOUS, DEFAULT_RULES, PrincipalRules
from broker.access.users import read_users
from broker.base.address import Address
from broker.base.clock import Clock
from broker.base.reloaded import Reloaded
from broker.base.server_tls import ClientAuth, ServerTls
from broker.client.security.settings import Mechanism, Security, Tls
from broker.cluster.metadata import CLIENT_LISTENER, INTER_BROKER_LISTENER
from broker.cluster.zookeeper.access import ZooKeeperAccess
from broker.groups.model import MigrationPolicy
from broker.limits import MIB, QUEUED_REQUEST_BYTES_MAX, SOCKET_REQUEST_BYTES_MAX
from broker.wire.vocabulary import EVERYBODY

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9092
FRAMING: Final = "framing"
FULL: Final = "full"
RECORD_VALIDATIONS: Final = (FRAMING, FULL)
_OF_TOKENS: Final = (
    "sasl_oauthbearer_jwks_file",
    "sasl_oauthbearer_expected_issuer",
    "sasl_oauthbearer_expected_audience",
    "sasl_oauthbearer_required_scope",
)


def cluster_defaults(brokers: int) -> dict[str, int]:
    """Kafka's, for brokers that are not alone; with fewer brokers than its three replicas, one at each."""
    replicas = min(brokers, 3)
    return {
        "offsets_topic_num_partitions": 50,
        "offsets_topic_replication_factor": replicas,
        "transaction_state_log_num_partitions": 50,
        "transaction_state_log_replication_factor": replicas,
    }


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """`listen_port` 0 takes a free port; the advertised address is the listening one where it is None.

    Where a default differs from Kafka's, it is because one broker is the whole cluster:
    no rebalance delay (it collects the members of a large fleet that starts together, and costs every small group 3 s),
    one partition for each coordinator's topic (`cluster_defaults` has what spreads the load over brokers), and sessions
    from 1 s on (client test suites use them; Kafka's 6 s protect large clusters from heartbeat storms).
    """

    data_dir: Path
    listen_host: str = DEFAULT_HOST
    listen_port: int = DEFAULT_PORT
    advertised_host: str | None = None
    advertised_port: int | None = None
    # In place of these four: "NAME://host:port" each, and the protocol of those whose name is none.
    listeners: tuple[str, ...] = ()
    advertised_listeners: tuple[str, ...] = ()
    listener_security_protocol_map: Mapping[str, str] = field(default_factory=dict)
    # TLS of the listeners that have it; files in PEM, read again when they change.
    ssl_certificate_file: Path | None = None
    ssl_key_file: Path | None = None
    ssl_client_ca_file: Path | None = None
    ssl_client_auth: str = ClientAuth.NONE.value
    ssl_principal_mapping_rules: str = DEFAULT_RULES
    # Logins of the listeners that ask for them; 0: a session has no end. The file is read again when it changes.
    sasl_enabled_mechanisms: tuple[str, ...] = ()
    sasl_users_file: Path | None = None
    connections_max_reauth_ms: int = 0
    # OAUTHBEARER: which tokens let in. The file has the issuer's public keys, and is read again when it changes.
    sasl_oauthbearer_jwks_file: Path | None = None
    sasl_oauthbearer_expected_issuer: str | None = None
    sasl_oauthbearer_expected_audience: tuple[str, ...] = ()
    sasl_oauthbearer_required_scope: tuple[str, ...] = ()
    sasl_oauthbearer_sub_claim_name: str = "sub"
    sasl_oauthbearer_scope_claim_name: str = "scope"
    sasl_oauthbearer_clock_skew_seconds: int = 30
    # Whether it is asked what who came may do: by ACLs, which stand in the metadata. Super users may do everything.
    authorizer_enable: bool = False
    super_users: tuple[str, ...] = ()
    allow_everyone_if_no_acl_found: bool = False
    node_id: int = 1
    cluster_id: str | None = None
    rack: str | None = None

    # "host:port,host:port/chroot"; None: the broker keeps the metadata of its cluster, of which it is all, by itself.
    zookeeper: str | None = None
    zookeeper_session_timeout_ms: int = 18_000
    zookeeper_connection_timeout_ms: int = 18_000
    # TLS, and a login whose znodes nobody else may read or write; None: neither.
    zookeeper_access: ZooKeeperAccess | None = None
    # The listener for the brokers of the cluster, which one that is alone does not have; None: the host that clients
    # have. Other brokers read its port from ZooKeeper: 0 takes a free one.
    inter_broker_listen_host: str | None = None
    inter_broker_listen_port: int = 0
    # PLAINTEXT: whoever comes by it is believed. SSL: who shows a certificate that `ssl_client_ca_file` signed, and of
    # a super user where there is an authorizer.
    security_inter_broker_protocol: str = SecurityProtocol.PLAINTEXT.value
    # Whether PLAINTEXT is on an address that is open to others, though clients are asked who they are.
    inter_broker_plaintext_beside_logins: bool = False
    # Where this broker dials instead of what others are registered with: "host:port" -> "host:port".
    address_map: Mapping[str, str] = field(default_factory=dict)

    # How deep a produced batch is looked at: "framing" (log/validation.py) or "full", every record of it.
    record_validation: str = FRAMING

    # Whether a site none of whose brokers was there takes no records of clients before somebody thaws it.
    site_start_frozen: bool = False

    num_partitions: int = 1
    auto_create_topics_enable: bool = True
    log_retention_check_interval_ms: int = 5 * 60 * 1000
    log_cleaner_backoff_ms: int = 15 * 1000
    # Within it a replica must have had all that its leader had, to count as in sync.
    replica_lag_time_max_ms: int = 30_000
    # Whether the controller looks so often who leads, and has partitions led by their first replicas where another
    # leads more than this part of those that are a broker's own.
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10

    # Of the coordinators' topics, which are not made before there are brokers for all replicas (KIP-115).
    offsets_topic_num_partitions: int = 1
    offsets_topic_replication_factor: int = 1
    group_initial_rebalance_delay_ms: int = 0
    # May a classic group become a consumer group when a member of that protocol joins, and go back when the last such
    # member has left?
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    group_min_session_timeout_ms: int = 1000
    group_max_session_timeout_ms: int = 30 * 60 * 1000
    transaction_state_log_num_partitions: int = 1
    transaction_state_log_replication_factor: int = 1
    transaction_max_timeout_ms: int = 15 * 60 * 1000

    socket_request_max_bytes: int = SOCKET_REQUEST_BYTES_MAX
    queued_max_request_bytes: int = QUEUED_REQUEST_BYTES_MAX
    fetch_max_bytes: int = 55 * MIB
    max_connections: int = 10_000
    max_connections_per_ip: int = 2**31 - 1
    connections_max_idle_ms: int = 10 * 60 * 1000

    def __post_init__(self) -> None:
        """Raises ValueError, naming the setting."""
        for name in ("listen_port", "advertised_port", "inter_broker_listen_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                raise ValueError(f"{name} {port} is outside 0..65535")
        self._check_listeners()
        self._check_tls()
        self._check_logins()
        self._check_authorizer()
        for name in ("num_partitions", "leader_imbalance_check_interval_seconds", *cluster_defaults(1)):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} is below 1")
        if self.replica_lag_time_max_ms <= 0:
            raise ValueError(f"replica_lag_time_max_ms {self.replica_lag_time_max_ms} is not above 0")
        if self.leader_imbalance_per_broker_percentage < 0:
            raise ValueError(
                f"leader_imbalance_per_broker_percentage {self.leader_imbalance_per_broker_percentage} is below 0"
            )
        if self.record_validation not in RECORD_VALIDATIONS:
            raise ValueError(f"record_validation {self.record_validation!r} is none of {', '.join(RECORD_VALIDATIONS)}")
        if self.node_id < 0:
            raise ValueError(f"node_id {self.node_id} is below 0")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ValueError("group_min_session_timeout_ms is above group_max_session_timeout_ms")
        if self.socket_request_max_bytes > self.queued_max_request_bytes:
            raise ValueError("socket_request_max_bytes is above queued_max_request_bytes: such a frame would never fit")

    def client_listeners(self) -> tuple[Listener, ...]:
        """At least one. Raises ValueError, naming the setting."""
        if self.listeners:
            return named_listeners(self.listeners, self.advertised_listeners, self.listener_security_protocol_map)
        address = Address(self.listen_host, self.listen_port)
        advertised = (self.advertised_host, self.advertised_port)
        return (Listener(CLIENT_LISTENER, address, SecurityProtocol.PLAINTEXT, *advertised),)

    def _check_listeners(self) -> None:
        self._check_advertised()
        if not self.listeners:
            for name in ("advertised_listeners", "listener_security_protocol_map"):
                if getattr(self, name):
                    raise ValueError(f"{name} is there without listeners")
            return
        if (self.listen_host, self.listen_port) != (DEFAULT_HOST, DEFAULT_PORT):
            raise ValueError("listen and listeners are both there: give one of them")
        if (self.advertised_host, self.advertised_port) != (None, None):
            raise ValueError("advertised is for listen: with listeners give advertised_listeners")
        if self.zookeeper is not None and INTER_BROKER_LISTENER in {each.name for each in self.client_listeners()}:
            raise ValueError(f"listeners has {INTER_BROKER_LISTENER}: so the one between the brokers is called")

    @property
    def inter_broker_address(self) -> Address:
        """Where a broker of a cluster listens for the others."""
        return Address(
            self.inter_broker_listen_host or self.client_listeners()[0].address.host, self.inter_broker_listen_port
        )

    @property
    def has_inter_broker_tls(self) -> bool:
        return self.security_inter_broker_protocol == SecurityProtocol.SSL

    def inter_broker_tls(self) -> ServerTls | None:
        """Of the listener for other brokers, each of which shows its certificate; None: it has no TLS."""
        tls = self.server_tls()
        return replace(tls, client_auth=ClientAuth.REQUIRED) if tls is not None and self.has_inter_broker_tls else None

    def inter_broker_security(self) -> Security:
        """How this broker reaches the others: by the certificate that it shows to all."""
        if not self.has_inter_broker_tls:
            return Security()
        return Security(Tls(self.ssl_client_ca_file, self.ssl_certificate_file, self.ssl_key_file))

    def server_tls(self) -> ServerTls | None:
        """What listeners with TLS have in common; None: there are none."""
        if self.ssl_certificate_file is None:
            return None
        client_auth = ClientAuth(self.ssl_client_auth)
        return ServerTls(self.ssl_certificate_file, self.ssl_key_file, self.ssl_client_ca_file, client_auth)

    def _check_tls(self) -> None:
        if self.ssl_client_auth not in set(ClientAuth):
            raise ValueError(f"ssl_client_auth {self.ssl_client_auth!r} is none of {', '.join(ClientAuth)}")
        try:
            PrincipalRules(self.ssl_principal_mapping_rules)
        except ValueError as error:
            raise ValueError(f"ssl_principal_mapping_rules: {error}") from error
        with_tls = [each.name for each in self.client_listeners() if each.protocol.has_tls]
        self._check_inter_broker()
        if self.has_inter_broker_tls:
            with_tls.append(INTER_BROKER_LISTENER)
        if with_tls and self.ssl_certificate_file is None:
            raise ValueError(f"ssl_certificate_file is missing; listener {with_tls[0]} needs it")
        given = [name for name in ("ssl_certificate_file", "ssl_key_file", "ssl_client_ca_file") if getattr(self, name)]
        if given and not with_tls:
            raise ValueError(f"{given[0]} is there, and no listener has TLS: it would lock nothing")
        asks = self.ssl_client_auth != ClientAuth.NONE or self.has_inter_broker_tls
        if asks and self.ssl_client_ca_file is None:
            raise ValueError(f"ssl_client_ca_file is missing; ssl_client_auth is {self.ssl_client_auth}")
        if self.ssl_client_ca_file is not None and not asks:
            raise ValueError("ssl_client_ca_file is there, and ssl_client_auth is none: no client would be asked")

    def _check_inter_broker(self) -> None:
        if self.security_inter_broker_protocol not in (SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL):
            raise ValueError(
                f"security_inter_broker_protocol {self.security_inter_broker_protocol!r} is none of PLAINTEXT, SSL"
            )
        if self.has_inter_broker_tls and self.zookeeper is None:
            raise ValueError("security_inter_broker_protocol is there, and the broker is alone: nobody comes by it")

    def users(self, clock: Clock) -> KnownUsers:
        """Those of the file. Raises AccessInvalid."""
        file = self.sasl_users_file
        return KnownUsers(None if file is None else Reloaded([file], lambda: read_users(file), clock.monotonic))

    def logins(self, users: KnownUsers, clock: Clock, failed: FailedLogins) -> Logins | None:
        """What listeners with logins have in common; None: there are none. Raises AccessInvalid."""
        if not self.sasl_enabled_mechanisms:
            return None
        mechanisms = [Mechanism(each) for each in self.sasl_enabled_mechanisms]
        return Logins(mechanisms, users, self.connections_max_reauth_ms, clock, failed, self._tokens(clock))

    def _tokens(self, clock: Clock) -> TokenCheck | None:
        file, issuer = self.sasl_oauthbearer_jwks_file, self.sasl_oauthbearer_expected_issuer
        if file is None or issuer is None:
            return None
        from broker.access.tokens import TokenRules, Tokens

        rules = TokenRules(
            issuer,
            self.sasl_oauthbearer_expected_audience,
            self.sasl_oauthbearer_required_scope,
            self.sasl_oauthbearer_sub_claim_name,
            self.sasl_oauthbearer_scope_claim_name,
            self.sasl_oauthbearer_clock_skew_seconds,
        )
        return Tokens(file, rules, clock.monotonic)

    def _check_logins(self) -> None:
        for mechanism in self.sasl_enabled_mechanisms:
            if mechanism not in SERVED_MECHANISMS:
                known = ", ".join(SERVED_MECHANISMS)
                raise ValueError(f"sasl_enabled_mechanisms has {mechanism!r}, which is none of {known}")
        if self.connections_max_reauth_ms < 0:
            raise ValueError(f"connections_max_reauth_ms {self.connections_max_reauth_ms} is below 0")
        with_login = [each.name for each in self.client_listeners() if each.protocol.has_login]
        for name in ("sasl_enabled_mechanisms", "sasl_users_file", *_OF_TOKENS):
            if getattr(self, name) and not with_login:
                raise ValueError(f"{name} is there, and no listener asks for a login: it would lock nothing")
        if with_login and not self.sasl_enabled_mechanisms:
            raise ValueError(f"sasl_enabled_mechanisms is missing; listener {with_login[0]} needs it")
        has_passwords = any(each in OF_PASSWORDS for each in self.sasl_enabled_mechanisms)
        if has_passwords and self.sasl_users_file is None:
            raise ValueError(f"sasl_users_file is missing; listener {with_login[0]} needs it")
        if with_login and not has_passwords and self.sasl_users_file is not None:
            raise ValueError("sasl_users_file is there, and sasl_enabled_mechanisms has no login by a password")
        self._check_tokens()

    def _check_tokens(self) -> None:
        if Mechanism.OAUTHBEARER not in self.sasl_enabled_mechanisms:
            for name in _OF_TOKENS:
                if getattr(self, name):
                    raise ValueError(f"{name} is there, and sasl_enabled_mechanisms has no OAUTHBEARER")
            return
        for name in ("sasl_oauthbearer_jwks_file", "sasl_oauthbearer_expected_issuer"):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing; OAUTHBEARER needs it")
        if not self.sasl_oauthbearer_expected_audience and not self.sasl_oauthbearer_required_scope:
            raise ValueError(
                "sasl_oauthbearer_expected_audience is missing, or sasl_oauthbearer_required_scope: every token of the "
                "issuer would let in, whatever it was given out for"
            )
        for name in ("sasl_oauthbearer_expected_audience", "sasl_oauthbearer_required_scope"):
            if any(not each or each.split() != [each] for each in getattr(self, name)):
                raise ValueError(f"{name} has one that is empty, or has blanks in it: write one text for each")
        for name in ("sasl_oauthbearer_sub_claim_name", "sasl_oauthbearer_scope_claim_name"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty")
        if (skew_seconds := self.sasl_oauthbearer_clock_skew_seconds) < 0:
            raise ValueError(f"sasl_oauthbearer_clock_skew_seconds {skew_seconds} is below 0")

    def authorizer(self, clock: Clock) -> Authorizer | None:
        """None: nobody is asked for his rights."""
        if not self.authorizer_enable:
            return None
        return Authorizer(self.super_users, allows_without_acls=self.allow_everyone_if_no_acl_found, clock=clock)

    def _check_authorizer(self) -> None:
        for name in ("super_users", "allow_everyone_if_no_acl_found"):
            if getattr(self, name) and not self.authorizer_enable:
                raise ValueError(f"{name} is there without authorizer_enable: nobody would be asked for his rights")
        if not self.authorizer_enable:
            return
        if unnamed := [user for user in self.super_users if not user.startswith("User:") or user == EVERYBODY]:
            raise ValueError(f"super_users has {unnamed[0]!r}: write principals as User:NAME, each by its own name")
        if not self._asks_clients():
            raise ValueError(
                "authorizer_enable: no listener tells who comes; give one a login (SASL_SSL), or TLS that asks for a "
                "certificate (SSL, and ssl_client_auth)"
            )
        if self.zookeeper is not None and not self.has_inter_broker_tls:
            raise ValueError(
                'authorizer_enable needs security_inter_broker_protocol = "SSL" in a cluster: whoever reached the '
                "listener between the brokers would be taken for one of them, and asked for no right"
            )
        if not self.super_users and not self.allow_everyone_if_no_acl_found:
            raise ValueError("super_users is missing: there would be nobody who may make the first ACL")
        for listener in self.client_listeners():
            if ANONYMOUS in self.super_users and listener.is_open_to_others and self.lets_strangers_in(listener):
                raise ValueError(
                    f"super_users has {ANONYMOUS}, and {listener.name} lets in who shows neither a login nor a "
                    "certificate: whoever reached it would be a super user; take it out of super_users, or give the "
                    'listener a login (SASL_SSL), or TLS with ssl_client_auth = "required"'
                )

    def check_start(self) -> None:
        """Raises ValueError for what no broker starts with, and whoever else reads its settings goes on with."""
        is_open = self.zookeeper is not None and self.inter_broker_address.is_open_to_others
        is_meant = self.has_inter_broker_tls or self.inter_broker_plaintext_beside_logins
        if is_open and not is_meant and self._asks_clients():
            raise ValueError(open_between_brokers(self.inter_broker_address))

    def _asks_clients(self) -> bool:
        """Whether any listener asks who comes, by a login or a certificate."""
        by_certificate = self.ssl_client_auth != ClientAuth.NONE
        return any(each.protocol.asks_who_comes(by_certificate=by_certificate) for each in self.client_listeners())

    def lets_strangers_in(self, listener: Listener) -> bool:
        """Whether it is not known of everybody who he is that comes by it."""
        return not listener.protocol.asks_who_comes(by_certificate=self.ssl_client_auth == ClientAuth.REQUIRED)

    def _check_advertised(self) -> None:
        """Clients dial what they are told: an address that means "every interface" leads them to themselves."""
        if self.advertised_host is None and self.listen_host in EVERY_INTERFACE:
            raise ValueError(
                f"listen {self.listen_host} cannot be told to clients; give the address they are to dial: "
                "--advertised HOST:PORT, or advertised in the site's broker table"
            )
        if self.inter_broker_listen_host in EVERY_INTERFACE and self.advertised_host is None and not self.listeners:
            raise ValueError(
                f"inter_broker_listen {self.inter_broker_listen_host} cannot be told to brokers; give an address that "
                "they can dial, or advertised, whose host they are told then"
            )
        if self.advertised_host in EVERY_INTERFACE:
            raise ValueError(f"advertised {self.advertised_host} is no address that a client can dial")
