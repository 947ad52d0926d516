"""Listeners by name, each with its own protocol, in Kafka's words (KIP-103)."""

from __future__ import annotations

import re
from asyncio import BaseTransport
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.access.distinguished_names import distinguished_name, subject_of
from broker.access.logins import Logins
from broker.access.principals import ANONYMOUS, PrincipalRules
from broker.base.address import Address, AddressInvalid, parse_address

EVERY_INTERFACE: Final = ("0.0.0.0", "::")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class SecurityProtocol(StrEnum):
    """What a listener asks of those who come: TLS, a login, both or neither."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self.endswith("SSL")

    @property
    def has_login(self) -> bool:
        return self.startswith("SASL")

    def asks_who_comes(self, *, by_certificate: bool) -> bool:
        """`by_certificate`: TLS asks for one."""
        return self.has_login or (self.has_tls and by_certificate)


@dataclass(frozen=True, slots=True)
class Listener:
    """`advertised_host` and `advertised_port` None: clients are told where it listens."""

    name: str
    address: Address
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    advertised_host: str | None = None
    advertised_port: int | None = None

    def advertised(self, bound: Address) -> Address:
        """What clients are told, of a listener that is bound there."""
        return Address(self.advertised_host or bound.host, self.advertised_port or bound.port)

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines may reach it, as far as its address tells."""
        return self.address.is_open_to_others

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def named_listeners(
    listeners: Sequence[str], advertised: Sequence[str], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Of "NAME://host:port" (port 0: a free one), in their order. A name that is itself a protocol's needs no entry in
    `protocols`. Raises ValueError, naming the setting.
    """
    bound = _by_name("listeners", listeners, port_min=0)
    told = _by_name("advertised_listeners", advertised, port_min=1)
    for setting, names in (("advertised_listeners", told), ("listener_security_protocol_map", protocols)):
        if unknown := sorted(set(names) - bound.keys()):
            raise ValueError(f"{setting} names {unknown[0]}, which is none of the listeners: {', '.join(bound)}")
    found = tuple(_listener(name, address, told.get(name), protocols) for name, address in bound.items())
    ports = [listener.address.port for listener in found if listener.address.port]
    if twice := next((port for port in ports if ports.count(port) > 1), None):
        raise ValueError(f"listeners has port {twice} twice: give each a port of its own")
    return found


def _listener(name: str, address: Address, told: Address | None, protocols: Mapping[str, str]) -> Listener:
    word = protocols.get(name, name)
    if word not in set(SecurityProtocol):
        known = ", ".join(SecurityProtocol)
        if name in protocols:
            raise ValueError(f"listener_security_protocol_map has {word!r} for {name}, which is none of {known}")
        raise ValueError(f"listener_security_protocol_map lacks {name}: give it one of {known}")
    if told is None and address.host in EVERY_INTERFACE:
        raise ValueError(
            f"advertised_listeners lacks {name}: {address.host} cannot be told to clients; give the address they dial"
        )
    if told is not None and told.host in EVERY_INTERFACE:
        raise ValueError(f"advertised_listeners has {told} for {name}, which is no address that a client can dial")
    return Listener(name, address, SecurityProtocol(word), *(told or (None, None)))


def _by_name(setting: str, texts: Sequence[str], port_min: int) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for text in texts:
        name, _, address = text.partition("://")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{setting} has {text!r}: write NAME://host:port")
        if name in found:
            raise ValueError(f"{setting} has {name} twice")
        try:
            found[name] = parse_address(address, port_min=port_min)
        except AddressInvalid as error:
            raise ValueError(f"{setting} has {text!r}: {error}") from error
    return found


def open_between_brokers(address: Address) -> str:
    """What is wrong with a listener between brokers that lets in everybody, where clients are asked who they are."""
    return (
        f"{address} between the brokers would ask nobody who he is, and clients are asked elsewhere: stop all brokers "
        'of the cluster, set security_inter_broker_protocol = "SSL", ssl_certificate_file and ssl_key_file of each '
        "broker, and the ssl_client_ca_file that signed them, and start them (one with TLS and one without cannot "
        "speak); or give each an inter_broker_listen of this machine alone, if all run on it; or, where a network "
        "keeps everybody else from that address, go on without by inter_broker_plaintext_beside_logins = true"
    )


@dataclass(frozen=True, slots=True)
class Entrance:
    """What the connections of one listener share. `inter_broker`: it is the one between the brokers of a cluster."""

    name: str
    inter_broker: bool = False
    certificates: PrincipalRules | None = None
    """Who those are that show a certificate; None: nobody is asked for one."""
    logins: Logins | None = None

    def principal(self, transport: BaseTransport) -> str:
        """Who came, as far as the certificate tells. Raises PrincipalRefused, CertificateUnreadable."""
        if self.certificates is None:
            return ANONYMOUS
        shown = transport.get_extra_info("ssl_object").getpeercert(True)
        return self.certificates.principal(None if shown is None else distinguished_name(subject_of(shown)))
