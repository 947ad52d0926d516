"""How aiokafka's clients are told to reach a site, as applications there are."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError

from broker.client.errors import ClientError
from broker.client.security.kerberos import require_library
from broker.client.security.login import ThreadedExchange
from broker.client.security.settings import KerberosIdentity, Mechanism, Sasl, SecretSource
from broker.client.security.tls import context_of
from broker.client.security.tokens import read_secret
from broker.client.site import Site

_TELLS_REQUESTS: Final = logging.getLogger("aiokafka.conn")


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, secret: SecretSource) -> None:
        self._secret = secret

    async def token(self) -> str:
        return await asyncio.to_thread(read_secret, self._secret)


class _Tickets:
    """As whom its connections log in by Kerberos."""

    def __init__(self, site: str, sasl: Sasl) -> None:
        self._site, self._sasl = site, sasl

    def authenticator(self, host: str, port: int) -> _Authenticator:
        return _Authenticator(self._sasl, f"site {self._site} at {host}:{port}", host)


class _Authenticator:
    """Of one connection, as aiokafka asks one. It takes any error but its own for a bug, and ends a producer by it."""

    def __init__(self, sasl: Sasl, where: str, host: str) -> None:
        self._exchange = ThreadedExchange(sasl, where, host)

    async def step(self, challenge: bytes | None) -> tuple[bytes, bool] | None:
        """What to send, and that it is answered; None: both sides know each other."""
        try:
            token = await self._token(challenge)
        except ClientError as error:
            raise KafkaConnectionError(str(error)) from error
        return None if token is None else (token, True)

    async def _token(self, challenge: bytes | None) -> bytes | None:
        if challenge is not None:
            return await self._exchange.step(bytes(challenge))
        await self._exchange.prepare()
        return await self._exchange.begin()


def _by_tickets(connection: Any) -> _Authenticator:
    """In place of aiokafka's own authenticator: that takes whatever ticket the process has, and no keytab."""
    tickets: _Tickets = connection._sasl_kerberos_domain_name
    return tickets.authenticator(connection.host, connection.port)


async def client_options(site: Site) -> dict[str, Any]:
    """Its servers, and its security as it is now. Raises SecretUnreadable, SecurityInvalid."""
    security = site.security
    options: dict[str, Any] = {"bootstrap_servers": site.bootstrap_servers, "security_protocol": security.protocol}
    if security.tls is not None:
        options["ssl_context"] = await asyncio.to_thread(context_of, security.tls)
    return options if security.sasl is None else options | await _login_options(site.name, security.sasl)


def _is_no_request(line: logging.LogRecord) -> bool:
    """Whether it may be logged: under DEBUG aiokafka shows each request, and a login by PLAIN is the password."""
    return line.levelno > logging.DEBUG


async def _login_options(site: str, sasl: Sasl) -> dict[str, Any]:
    _TELLS_REQUESTS.addFilter(_is_no_request)
    if isinstance(sasl.secret, KerberosIdentity):
        require_library(sasl.secret, f"site {site}")
        AIOKafkaConnection.authenticator_gssapi = _by_tickets
        # aiokafka hands it to each of its connections, and has no other place for whose login it is.
        return {"sasl_mechanism": sasl.mechanism.value, "sasl_kerberos_domain_name": _Tickets(site, sasl)}
    options: dict[str, Any] = {"sasl_mechanism": sasl.mechanism.value}
    if sasl.mechanism is Mechanism.OAUTHBEARER:
        return options | {"sasl_oauth_token_provider": _Token(sasl.secret)}
    secret = await asyncio.to_thread(read_secret, sasl.secret)
    return options | {"sasl_plain_username": sasl.username, "sasl_plain_password": secret}
