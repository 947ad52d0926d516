"""A site: one Kafka cluster, under the name operators give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.base.address import Address, mapped_address, parse_address
from broker.client.errors import SiteInvalid
from broker.client.security.settings import PLAINTEXT, Access, Security


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster and how to reach it.

    `address_map` maps an advertised "host:port" to the address to dial instead (NAT, bastion, fault proxy).
    `freeze_principals`: whom a freeze denies to write, by ACLs ("User:*": everybody but super users); none: no ACLs.
    """

    name: str
    bootstrap_servers: str
    address_map: Mapping[str, str] = field(default_factory=dict)
    security: Security = PLAINTEXT
    freeze_principals: tuple[str, ...] = ()

    def bootstrap(self) -> dict[Address, Access]:
        """The servers to try, in order, after `address_map`, and how. Raises SiteInvalid, AddressInvalid."""
        return {self.dial(*server): self.access(server.host) for server in self.servers()}

    def servers(self) -> list[Address]:
        """`bootstrap_servers`, before `address_map`. Raises SiteInvalid, AddressInvalid."""
        servers = [parse_address(server) for server in self.bootstrap_servers.split(",") if server.strip()]
        if not servers:
            raise SiteInvalid(f"site {self.name} has no bootstrap_servers")
        return servers

    def access(self, host: str) -> Access:
        """How a broker is reached that is at this host by its own word, wherever it is dialled."""
        return Access(self.name, host, self.security)

    def dial(self, host: str, port: int) -> Address:
        """Where to connect for an advertised host and port."""
        return mapped_address(Address(host, port), self.address_map)
