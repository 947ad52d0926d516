"""The listening side of TLS: its certificate, and those that it asks clients for."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Final, NoReturn, Self

from broker.base.reloaded import AccessInvalid, Reloaded

log = logging.getLogger(__name__)

FAILED_TOLD_S: Final = 60
COMING: Final[ContextVar[socket.socket | None]] = ContextVar("COMING", default=None)
"""Whose hands are shaken: event loops ask the context of all connections, and do not say for which."""


class ClientAuth(StrEnum):
    """Kafka's `ssl.client.auth`. REQUESTED: who shows no certificate is anonymous."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


_VERIFIED = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Files in PEM. `key_file` None: the key stands beside the certificate."""

    certificate_file: Path
    key_file: Path | None = None
    client_ca_file: Path | None = None
    client_auth: ClientAuth = ClientAuth.NONE

    @classmethod
    def of_face(cls, certificate_file: Path, key_file: Path | None, client_ca_file: Path | None) -> Self:
        """Who names a CA of clients wants each of them to show a certificate."""
        auth = ClientAuth.NONE if client_ca_file is None else ClientAuth.REQUIRED
        return cls(certificate_file, key_file, client_ca_file, auth)

    def files(self) -> tuple[Path, ...]:
        return tuple(file for file in (self.certificate_file, self.key_file, self.client_ca_file) if file is not None)

    def context(self) -> ssl.SSLContext:
        """Of the files as they are now. Raises AccessInvalid."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.verify_mode = _VERIFIED[self.client_auth]
        key_file = self.key_file or self.certificate_file
        try:
            context.load_cert_chain(self.certificate_file, key_file, password=lambda: _encrypted(key_file))
            if self.client_ca_file is not None:
                context.load_verify_locations(self.client_ca_file)
        except OSError as error:  # ssl.SSLError is one
            names = " and ".join(map(str, self.files()))
            why = getattr(error, "reason", None) or error.strerror or "it is no PEM"
            raise AccessInvalid(f"TLS cannot be had with {names}: {why}") from error
        return context


def _encrypted(key_file: Path) -> NoReturn:
    raise AccessInvalid(f"the key in {key_file} is encrypted: give one that is not, readable by this process alone")


class _Handshaking(ssl.SSLObject):
    """Says why its handshake failed, also to who came, by TLS's own alert: event loops close without it, and Kafka's
    clients take that for a fault of the network, and come again and again.
    """

    failed: Callable[[ssl.SSLError], None]
    came: socket.socket | None
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if self.came is not None:
                # What the socket does not take at once is not waited for.
                with suppress(OSError):
                    self.came.send(self.outgoing.read())
            self.failed(error)
            raise


class ServerContext(ssl.SSLContext):
    """Gives each connection the newest certificate: event loops ask their context for every one of them. Those that
    stand keep theirs.
    """

    _contexts: Reloaded[ssl.SSLContext]
    _now_s: Callable[[], float]
    _told_s: float
    _failed: Callable[[ssl.SSLError], None]

    @classmethod
    def of(
        cls, tls: ServerTls, now_s: Callable[[], float], failed: Callable[[ssl.SSLError], None] = lambda error: None
    ) -> Self:
        """`failed` is told of each handshake that did. Raises AccessInvalid."""
        found = cls(ssl.PROTOCOL_TLS_SERVER)
        found._contexts, found._now_s = Reloaded(tls.files(), tls.context, now_s), now_s
        found._told_s, found._failed = -inf, failed
        return found

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        context = self._contexts.current()
        context.sslobject_class = _Handshaking
        found = context.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(found, _Handshaking)
        found.failed, found.came, found.outgoing = self._tell, COMING.get(), outgoing
        return found

    def _tell(self, error: ssl.SSLError) -> None:
        """In the log not of each: who fails comes again and again."""
        self._failed(error)
        now_s = self._now_s()
        if now_s - self._told_s >= FAILED_TOLD_S:
            self._told_s = now_s
            what = "a client and this broker agree on no TLS: %s (said once in %d s at most)"
            log.warning(what, error.reason or error, FAILED_TOLD_S)
