"""Which of etcd's servers is asked, and what it means when one does not answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import etcd3
import grpc

from broker.client.errors import SecretUnreadable
from mirror.fleet.errors import StoreRefused, StoreUnreachable
from mirror.fleet.etcd.requests import CALL_TIMEOUT_S
from mirror.fleet.settings import FleetAccess

T = TypeVar("T")

CHANNEL_OPTIONS: Final = (
    # grpc would wait for ever longer, up to two minutes, before it dials a server again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # So long, its name notwithstanding, it waits for a connection: over a distance TLS alone takes three round trips.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    # A connection that was cut without a word. etcd closes those that ask more often than every five seconds.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    # Of an answer. grpc's 4 MiB are less than what forty workers of a thousand links say of themselves.
    ("grpc.max_receive_message_length", -1),
)
REFUSALS: Final = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
REFUSED_WORDS: Final = ("authentication failed", "user name is empty", "authentication is not enabled")
"""What etcd says with other codes of one who is not known, or did not say who he is."""
LOGIN_OVER_WORDS: Final = ("invalid auth token", "revision of auth store is old")
"""It was good: the server was restarted since, some time went by, or users or roles were changed."""


@dataclass(frozen=True, slots=True)
class _Connected:
    """A connection, and when each of the files was written that it was made with."""

    client: etcd3.Etcd3Client
    written_ns: tuple[int, ...]


class Servers:
    """Which server is asked: the first of the list until it fails, then the next. Used by several threads."""

    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._at = 0
        self._connected: dict[int, _Connected] = {}
        self._calls: dict[Any, int] = {}
        """Watches that run, by their server: one that does not answer others ends them, too."""
        self._closed = False

    def any_of(self, ask: Callable[[etcd3.Etcd3Client], T]) -> T:
        """Ask, if need be each server once."""
        for _ in self._access.servers[1:]:
            with suppress(StoreUnreachable):
                return self.first(ask)
        return self.first(ask)

    def first(self, ask: Callable[[etcd3.Etcd3Client], T]) -> T:
        """Ask one server once. Raises StoreUnreachable, StoreRefused."""
        at = self._at
        with self._failing(at):
            return ask(self._client(at))

    def watch(self, open_call: Callable[[etcd3.Etcd3Client], Any], use: Callable[[Any], None]) -> None:
        """A call that goes on until it is cancelled, or its server fails."""
        at = self._at
        with self._failing(at):
            call = open_call(self._client(at))
            with self._lock:
                self._calls[call] = at
            try:
                use(call)
            finally:
                with self._lock:
                    del self._calls[call]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connected = [*self._connected.values()]
        for one in connected:
            one.client.close()

    def _client(self, at: int) -> etcd3.Etcd3Client:
        with self._lock:
            if self._closed:
                raise StoreUnreachable("the store was closed")
            if at in self._connected:
                return self._connected[at].client
        access, server = self._access, self._access.servers[at]
        host = f"[{server.host}]" if ":" in server.host else server.host
        written_ns = self._written_ns()
        made = etcd3.Etcd3Client(  # logs in, which may take its time
            host,
            server.port,
            ca_cert=access.tls_ca_file,
            cert_cert=access.tls_cert_file,
            cert_key=access.tls_key_file,
            timeout=CALL_TIMEOUT_S,
            user=access.user,
            password=None if access.password is None else access.password.read(),
            grpc_options=CHANNEL_OPTIONS,
        )
        with self._lock:
            if self._closed or at in self._connected:
                made.close()
            return self._connected.setdefault(at, _Connected(made, written_ns)).client

    def _written_ns(self) -> tuple[int, ...]:
        """Of the files that a connection is made with. Raises OSError."""
        return tuple(os.stat(file).st_mtime_ns for file in self._access.files)

    def _has_new_files(self, at: int) -> bool:
        """Whether a connection that failed may be one with a certificate that was replaced since."""
        connected = self._connected.get(at)
        with suppress(OSError):  # of files that are being replaced right now: the next failure looks again
            return connected is not None and connected.written_ns != self._written_ns()
        return False

    @contextmanager
    def _failing(self, at: int) -> Iterator[None]:
        """Turns errors of grpc into ours, and makes the next server the one that is asked."""
        try:
            yield
        except grpc.RpcError as error:
            code, detail = error.code(), error.details() or ""
            is_login_over = any(words in detail for words in LOGIN_OVER_WORDS)
            self._leave(at, forget=is_login_over or self._has_new_files(at))
            server = self._access.servers[at]
            is_refused = code in REFUSALS or any(words in detail for words in REFUSED_WORDS)
            if is_refused and not is_login_over:
                raise StoreRefused(f"etcd at {server}: {detail}") from error
            raise StoreUnreachable(f"etcd at {server}: {code.name.lower()}: {detail}") from error
        except OSError as error:  # grpc has errors of its own: this is one of the TLS files
            raise StoreRefused(f"{error.filename}: {error.strerror}") from error
        except SecretUnreadable as error:
            raise StoreRefused(str(error)) from error
        except ValueError as error:  # grpc's word for a channel that was closed meanwhile
            raise StoreUnreachable(f"etcd at {self._access.servers[at]}: {error}") from error

    def _leave(self, at: int, forget: bool) -> None:
        with self._lock:
            if forget:  # the next call connects, and logs in, anew
                self._connected.pop(at, None)
            if self._at == at:
                self._at = (at + 1) % len(self._access.servers)
            calls = [call for call, server in self._calls.items() if server == at]
        for call in calls:
            call.cancel()
