"""What a worker of a fleet is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.base.address import Address
from broker.client.security.settings import Secret

DEFAULT_PREFIX: Final = "/farshore/fleet/"
LEASE_SECONDS_MIN: Final = 2
"""etcd grants no less where its election timeout is the default, a second."""
WITHOUT_ETCD_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class FleetSettings:
    prefix: str = DEFAULT_PREFIX
    """Of all keys; it ends with a slash. Fleets with different prefixes know nothing of each other."""
    lease_seconds: int = LEASE_SECONDS_MIN
    """A worker that is not heard of for so long is gone, and others take over what it ran."""
    without_etcd_seconds: int = WITHOUT_ETCD_SECONDS
    """So long a worker whose lease could not be renewed goes on with the sessions that run. It opens none meanwhile,
    and if others have taken over what it ran, their fences end its sessions."""
    prepare_seconds: float = 5.0
    """So long who runs a unit goes on with it when it is planned for another, until that one has prepared it."""
    leave_seconds: float = 8.0
    """So long a worker that is being stopped waits for others to take what it runs; then it goes all the same."""
    settle_seconds: float = 5.0
    """Nothing that runs is moved for balance before the fleet's workers were the same for so long."""
    ease_after_seconds: float = 30.0
    """Loads that changed move a unit only where they were that far apart for so long,"""
    ease_every_seconds: float = 30.0
    """one at a time,"""
    ease_rest_seconds: float = 300.0
    """and the same one not again for so long."""
    measure_seconds: float = 5.0
    """How often a worker measures what it moves."""
    retry_seconds: float = 0.5
    still_seconds: float = 10.0
    """A worker whose event loop did not turn for so long mirrors nothing: its lease is not renewed, and others can."""
    again_after_seconds: float = 1.0
    """A unit that ended by an error is begun anew after this, then after twice as long each time."""
    again_after_max_seconds: float = 60.0
    name_wait_leases: int = 3
    """So many leases a worker waits for an earlier one of its name to be gone."""


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """Where a fleet's etcd is, and as whom it is spoken to. Files are paths of PEM files; they and the password are
    read anew for each connection that is made.
    """

    servers: tuple[Address, ...]
    settings: FleetSettings
    user: str | None = None
    password: Secret | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for file in (self.tls_ca_file, self.tls_cert_file, self.tls_key_file) if file is not None)
