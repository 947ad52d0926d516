"""How ZooKeeper is reached, and as whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.client.security.settings import Secret, Tls


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """`tls` None: nothing is encrypted. `username` None: nobody in particular, and whoever reaches ZooKeeper may read
    and write what is made. With one, what is made belongs to him alone. Files and password are read for each session.
    """

    tls: Tls | None = None
    username: str | None = None
    password: Secret | None = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if (self.username is None) != (self.password is None):
            raise ValueError("username and its password belong together")
        if self.username is not None and (not self.username or ":" in self.username):
            raise ValueError(f"username {self.username!r} is none: write one without a colon")


UNLOCKED: Final = ZooKeeperAccess()
"""Of a ZooKeeper that asks for nothing."""
