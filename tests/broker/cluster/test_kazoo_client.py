"""kazoo's TLS as we dial it: what is behind in a record is read, and a certificate is for its host."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker.client.security.settings import Secret, Tls
from broker.cluster.zookeeper.access import ZooKeeperAccess
from broker.cluster.zookeeper.kazoo_client import TlsHandler
from tests.certificates import Authority

SENT = b"one answer and the next"


@contextmanager
def sending(authority: Authority) -> Iterator[int]:
    """The port of a server that sends all in one record, and nothing more."""
    pair = authority.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError), listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as safe:
                safe.sendall(SENT)
                is_over.wait()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        is_over.set()
        thread.join()


def test_what_is_behind_in_a_record_is_readable_at_once(tmp_path: Path) -> None:
    """Its socket has nothing more: a heartbeat's time went by until the next answer was read."""
    authority = Authority(tmp_path)
    handler = TlsHandler(Tls(authority.certificate))
    with (
        sending(authority) as port,
        handler.create_connection(address=("127.0.0.1", port), hostname="127.0.0.1", timeout=10.0) as safe,
    ):
        assert safe.recv(4) == SENT[:4]
        assert handler.select([safe], [], [], 0.0) == ([safe], [], [])
        assert safe.recv(100) == SENT[4:]
        assert handler.select([safe], [], [], 0.0)[0] == []


def test_a_certificate_for_another_host_is_refused_and_said(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    handler = TlsHandler(Tls(authority.certificate))
    with sending(authority) as port, pytest.raises(OSError, match="TLS with zk-1:"):
        handler.create_connection(address=("127.0.0.1", port), hostname="zk-1", timeout=10.0)
    assert "Hostname mismatch" in handler.failure


def test_a_name_that_zookeeper_cannot_have_is_refused() -> None:
    with pytest.raises(ValueError, match="belong together"):
        ZooKeeperAccess(username="farshore")
    for name in ("", "a:b"):
        with pytest.raises(ValueError, match="is none"):
            ZooKeeperAccess(username=name, password=Secret(environment="ZOO"))
