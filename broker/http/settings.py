"""Where metrics are shown, and to whom."""

from __future__ import annotations

from dataclasses import dataclass

from broker.base.address import Address
from broker.base.server_tls import ServerTls
from broker.client.security.settings import Secret
from broker.http.errors import FaceOpen


@dataclass(frozen=True, slots=True)
class FaceSettings:
    """`tls` None: plain HTTP. A CA of clients in `tls`: each shows a certificate. `token`: each brings it. Who is asked
    for both has to have both.
    """

    listen: Address
    tls: ServerTls | None = None
    token: Secret | None = None

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    @property
    def asks_who_comes(self) -> bool:
        return self.token is not None or (self.tls is not None and self.tls.client_ca_file is not None)

    @property
    def shows_token(self) -> bool:
        """Whether the token passes unencrypted between machines."""
        return self.token is not None and self.tls is None and self.listen.is_open_to_others

    def check(self) -> None:
        """Raises FaceOpen."""
        if self.listen.is_open_to_others and not self.asks_who_comes:
            raise FaceOpen(f"{self.listen} is no address of this machine alone, and would show metrics to everybody")
