"""kazoo's client as a session needs it: what the server granted, TLS by our own rules, and a login.

kazoo's own TLS looks at no host names, and reads what one record holds as if the next had to come first.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import ExitStack
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.security import make_digest_acl

from broker.client.errors import ClientError
from broker.client.security.settings import Tls
from broker.client.security.tls import context_of
from broker.cluster.zookeeper.access import ZooKeeperAccess
from broker.cluster.zookeeper.session import Stat

kazoos_log = logging.getLogger("broker.cluster.zookeeper.kazoo_session.kazoo")
kazoos_log.setLevel(logging.ERROR)
"""Its warnings tell of each try to connect; that ZooKeeper is away, and is back, is told by the session, once."""

OPEN: Final = (
    "ZooKeeper at %s has znodes of this cluster (%s) from before there was a login: whoever reaches it may read and "
    "write them, until their ACLs are set as docs/security.md says"
)

RECONNECTING: Final = {"max_tries": -1, "delay": 0.05, "max_delay": 1.0, "max_jitter": 0.1}


class Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Keeps what the server granted: kazoo tells nobody."""

    granted_ms = 0

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:
            self.granted_ms = answer[0].time_out
        return answer


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Dials by TLS. `failure`: why it last did not come to that, in words."""

    def __init__(self, tls: Tls) -> None:
        super().__init__()
        self._tls = tls
        self.failure = ""

    def create_connection(self, *, address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> ssl.SSLSocket:
        """With certificates as they are now. Raises OSError, which kazoo answers by the next try."""
        plain = socket.create_connection(address, timeout)
        with ExitStack() as unsafe:
            unsafe.callback(plain.close)
            try:
                safe = context_of(self._tls).wrap_socket(plain, server_hostname=hostname)
            except (ClientError, ssl.SSLError) as error:
                why = getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
                self.failure = f"TLS with {hostname}:{address[1]}: {why}"
                raise OSError(self.failure) from error
            unsafe.pop_all()
        safe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.failure = ""
        return safe

    def select(self, readers: Any, *others: Any, **options: Any) -> Any:
        """What came in a record, and was not read yet, makes no socket readable."""
        behind = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        return (behind, [], []) if behind else super().select(readers, *others, **options)


async def kazoo_client(hosts: str, session_timeout_ms: int, access: ZooKeeperAccess) -> tuple[KazooClient, Connection]:
    """Not connected yet. Raises SecretUnreadable, SecurityInvalid."""
    options: dict[str, Any] = {}
    if access.tls is not None:
        context_of(access.tls)
        options["handler"] = TlsHandler(access.tls)
    if access.username is not None and access.password is not None:
        password = await asyncio.to_thread(access.password.read)
        options["auth_data"] = [("digest", f"{access.username}:{password}")]
        # Not "auth", whoever made it: that is also who has this broker's certificate, and not the other brokers.
        options["default_acl"] = [make_digest_acl(access.username, password, all=True)]
    client = KazooClient(
        hosts=hosts, timeout=session_timeout_ms / 1000, connection_retry=RECONNECTING, logger=kazoos_log, **options
    )
    connection = client._connection = Connection(client, client._conn_retry.copy(), logger=client.logger)
    return client, connection


def stat_of(stat: Any) -> Stat:
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        ctime_ms=stat.ctime,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner or 0,
        children=stat.numChildren,
    )
