"""A site's role: what its brokers take from clients. farshore's own, carried as configs that all brokers share.

The three are written together, and only with the epoch that follows the one that was read: of two that change the role
at the same time one is refused (`docs/adr/0020-a-sites-role.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SITE_ROLE: Final = "farshore.site.role"
SITE_EPOCH: Final = "farshore.site.epoch"
SITE_REASON: Final = "farshore.site.reason"
SITE_CONFIGS: Final = (SITE_ROLE, SITE_EPOCH, SITE_REASON)
REASON_CHARACTERS_MAX: Final = 200
OWN_CLIENT: Final = "farshore"
"""How the ids of farshore's own clients begin: the mirror, its state, the canary."""


class SiteRole(StrEnum):
    """Records of clients are taken by an ACTIVE site alone; FROZEN is for the time of a move, STANDBY for good."""

    ACTIVE = "active"
    FROZEN = "frozen"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class SiteStanding:
    """A site's role, since the change `epoch` (0: it was never changed), and who or what changed it."""

    role: SiteRole = SiteRole.ACTIVE
    epoch: int = 0
    reason: str = ""

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> SiteStanding:
        """Raises ValueError for what is neither a role nor a number."""
        role = SiteRole(configs.get(SITE_ROLE, SiteRole.ACTIVE))
        return cls(role, int(configs.get(SITE_EPOCH, "0")), configs.get(SITE_REASON, ""))

    def configs(self) -> dict[str, str]:
        return {SITE_ROLE: self.role.value, SITE_EPOCH: str(self.epoch), SITE_REASON: self.reason}

    @property
    def takes_writes(self) -> bool:
        return self.role is SiteRole.ACTIVE

    def then(self, role: SiteRole, reason: str) -> SiteStanding:
        """The next standing."""
        return SiteStanding(role, self.epoch + 1, reason[:REASON_CHARACTERS_MAX])


def is_own_client(client_id: str | None) -> bool:
    """Whether a client says that it is farshore's. Nothing proves it: a role guards against mistakes, not malice."""
    return client_id is not None and (client_id == OWN_CLIENT or client_id.startswith(f"{OWN_CLIENT}-"))
