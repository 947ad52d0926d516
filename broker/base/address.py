"""The one reader and writer of "host:port"."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple

from broker.base.errors import FarshoreError


class AddressInvalid(FarshoreError):
    """Text that is no address."""

    hint = "write host:port, or [host]:port for IPv6"


class Address(NamedTuple):
    """Where to dial or to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines may reach it, as far as it tells."""
        try:
            return not ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"


def parse_address(text: str, *, port_min: int = 1) -> Address:
    """Read "host:port" or "[v6]:port"; `port_min` 0 allows "any free port". Raises AddressInvalid."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or not port_min <= int(port) < 65536:
        raise AddressInvalid(f"{text!r} is no address: write host:port")
    return Address(host.strip("[]"), int(port))


def mapped_address(advertised: Address, address_map: Mapping[str, str]) -> Address:
    """Where to dial for it: `address_map` has "host:port" for "host:port". Raises AddressInvalid."""
    mapped = address_map.get(str(advertised))
    return advertised if mapped is None else parse_address(mapped)
