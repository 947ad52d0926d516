"""Logging in over a connection, and again before the broker ends the session (KIP-368)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, Protocol, TypeVar

from broker.client.errors import AuthenticationFailed
from broker.client.security.kerberos import kdc_silent, kerberos_client
from broker.client.security.patience import call_within
from broker.client.security.scram import HASHES, ScramClient
from broker.client.security.settings import KerberosIdentity, Mechanism, Sasl
from broker.client.security.tokens import read_secret
from broker.wire.errors import ErrorCode
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from broker.wire.schema import Message

AGAIN_AT: Final = 0.85
"""Of a session's lifetime, as Kafka's own clients."""
NONCE_BYTES: Final = 24
KDC_TIMEOUT_S: Final = 10.0
"""For each of the two tickets of a login, its own and the broker's: the library itself waits for 25 s and more."""
_TICKET_REFUSED: Final = (
    "the KDC gave the ticket, so look at the broker's log: the broker's keytab may have an old key, its clock differ, "
    "or its sasl.kerberos.principal.to.local.rules not take this principal"
)

_Result = TypeVar("_Result")
Ask = Callable[[Message, int | None], Awaitable[Any]]
"""Sends a request, in a version of its own or None, and returns its response."""


class Exchange(Protocol):
    """The client's side of a mechanism."""

    def begin(self) -> bytes: ...

    def step(self, challenge: bytes) -> bytes | None:
        """What to send next; None: it has ended well. Raises AuthenticationFailed."""


class _OneMessage:
    """PLAIN (RFC 4616), OAUTHBEARER (RFC 7628)."""

    def __init__(self, message: bytes, goodbye: bytes | None = None) -> None:
        self._message, self._goodbye = message, goodbye

    def begin(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        """A challenge to OAUTHBEARER says why it is refused; the broker waits for the goodbye to say so itself."""
        if not challenge:
            return None
        if self._goodbye is None:
            raise AuthenticationFailed("asks for more than the mechanism has")
        return self._goodbye


def exchange_of(sasl: Sasl, where: str, host: str) -> Exchange:
    """With what is secret as it is now. Blocks. Raises SecretUnreadable, SecurityInvalid."""
    if isinstance(sasl.secret, KerberosIdentity):
        return kerberos_client(sasl.secret, where, host)
    secret = read_secret(sasl.secret)
    if sasl.mechanism in HASHES:
        return ScramClient(sasl.mechanism, sasl.username, secret, secrets.token_urlsafe(NONCE_BYTES))
    if sasl.mechanism is Mechanism.PLAIN:
        return _OneMessage(f"\0{sasl.username}\0{secret}".encode())
    return _OneMessage(f"n,,\x01auth=Bearer {secret}\x01\x01".encode(), goodbye=b"\x01")


class ThreadedExchange:
    """One exchange, whose every part blocks: in threads. `where` and `host` as in `exchange_of`."""

    def __init__(self, sasl: Sasl, where: str, host: str) -> None:
        self._sasl, self._where, self._host = sasl, where, host
        self._exchange: Exchange | None = None

    async def prepare(self) -> None:
        """Raises SecretUnreadable, SecurityInvalid."""
        self._exchange = await self._call(lambda: exchange_of(self._sasl, self._where, self._host))

    async def begin(self) -> bytes:
        return await self._call(self._prepared.begin)

    async def step(self, challenge: bytes) -> bytes | None:
        return await self._call(lambda: self._prepared.step(challenge))

    @property
    def _prepared(self) -> Exchange:
        assert self._exchange is not None, "prepare comes first"
        return self._exchange

    async def _call(self, call: Callable[[], _Result]) -> _Result:
        if not isinstance(self._sasl.secret, KerberosIdentity):
            return await asyncio.to_thread(call)
        try:
            return await call_within(KDC_TIMEOUT_S, call)
        except TimeoutError:
            raise kdc_silent(self._sasl.secret, self._where, self._host, KDC_TIMEOUT_S) from None


class Login:
    """Of one connection, to `host` by its own name. `now_s` is the loop's time."""

    def __init__(self, sasl: Sasl, where: str, host: str, ask: Ask, now_s: Callable[[], float]) -> None:
        self._sasl, self._where, self._host = sasl, where, host
        self._ask, self._now_s = ask, now_s
        self._again_at_s = inf
        self.lock = asyncio.Lock()

    @property
    def is_due(self) -> bool:
        """Whether the session is about to end."""
        return self._now_s() >= self._again_at_s

    async def perform(self) -> None:
        """Nothing else may be under way on the connection. Raises AuthenticationFailed, ClientError."""
        began_s = self._now_s()
        exchange = ThreadedExchange(self._sasl, self._where, self._host)
        await exchange.prepare()
        try:
            lifetime_ms = await self._exchange(exchange)
        except AuthenticationFailed as failed:
            text = f"{self._where} and {self._sasl.principal}, by {self._sasl.mechanism}: the broker {failed}"
            raise AuthenticationFailed(text, failed.hint) from failed
        self._again_at_s = began_s + lifetime_ms / 1000 * AGAIN_AT if lifetime_ms > 0 else inf

    async def _exchange(self, exchange: ThreadedExchange) -> int:
        """-> the session's lifetime in milliseconds, 0: without an end."""
        shaken: SaslHandshakeResponse = await self._ask(SaslHandshakeRequest(self._sasl.mechanism), 1)
        if shaken.error_code:
            offered = ", ".join(shaken.mechanisms) or "none"
            raise AuthenticationFailed(
                f"does not offer this mechanism ({ErrorCode.of(shaken.error_code).name})", f"it offers: {offered}"
            )
        answer = await self._present(await exchange.begin())
        while (token := await exchange.step(bytes(answer.auth_bytes))) is not None:
            answer = await self._present(token)
        return answer.session_lifetime_ms

    async def _present(self, token: bytes) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = await self._ask(SaslAuthenticateRequest(token), None)
        if answer.error_code:
            hint = _TICKET_REFUSED if self._sasl.mechanism is Mechanism.GSSAPI else AuthenticationFailed.hint
            raise AuthenticationFailed(f"refuses the login ({answer.error_message or 'without a reason'})", hint)
        return answer
