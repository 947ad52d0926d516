"""A site: one Kafka cluster, under the name operators give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.base.address import Address, mapped_address, parse_address
from broker.client.errors import SiteInvalid


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster and how to reach it.

    `address_map` maps an advertised "host:port" to the address to dial instead (NAT, bastion, fault proxy).
    """

    name: str
    bootstrap_servers: str
    address_map: Mapping[str, str] = field(default_factory=dict)

    def bootstrap_addresses(self) -> tuple[Address, ...]:
        """The servers to try, in order, after `address_map`. Raises SiteInvalid, AddressInvalid."""
        servers = [server for server in self.bootstrap_servers.split(",") if server.strip()]
        if not servers:
            raise SiteInvalid(f"site {self.name} has no bootstrap_servers")
        return tuple(self.dial(*parse_address(server)) for server in servers)

    def dial(self, host: str, port: int) -> Address:
        """Where to connect for an advertised host and port."""
        return mapped_address(Address(host, port), self.address_map)
