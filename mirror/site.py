"""A site: one Kafka cluster, under the name operators give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mirror.errors import LinkInvalid


class Address(NamedTuple):
    """Where to dial."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read "host:port" or "[v6]:port". Raises LinkInvalid."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise LinkInvalid(f"{text!r} is no address: write host:port")
    return Address(host.strip("[]"), int(port))


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster and how to reach it.

    `address_map` maps an advertised "host:port" to the address to dial instead (NAT, bastion, fault proxy).
    """

    name: str
    bootstrap_servers: str
    address_map: Mapping[str, str] = field(default_factory=dict)

    def bootstrap_addresses(self) -> tuple[Address, ...]:
        """The servers to try, in order, after `address_map`. Raises LinkInvalid."""
        servers = [server for server in self.bootstrap_servers.split(",") if server.strip()]
        if not servers:
            raise LinkInvalid(f"site {self.name} has no bootstrap_servers")
        return tuple(self.dial(*parse_address(server)) for server in servers)

    def dial(self, host: str, port: int) -> Address:
        """Where to connect for an advertised host and port."""
        advertised = Address(host, port)
        mapped = self.address_map.get(str(advertised))
        return advertised if mapped is None else parse_address(mapped)
