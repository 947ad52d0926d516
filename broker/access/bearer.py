"""The broker's side of OAUTHBEARER (RFC 7628): a token in one message, and why it is refused in another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker.access.failed_logins import LoginFailure
from broker.access.scram import LoginRefused
from broker.errors import BrokerError
from broker.wire.errors import ErrorCode

INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
_SEPARATOR: Final = b"\x01"
_HEADER: Final = re.compile(rb"[ny],(?:a=([^,\x00\x01]+))?,")
_PAIR: Final = re.compile(rb"([A-Za-z]+)=([\x21-\x7e \t\r\n]*)")
_BEARER: Final = re.compile(rb"bearer +([\x21-\x7e]+)", re.IGNORECASE)


class TokenRefused(BrokerError):
    """Its text says why, and nothing of the token that is not signed. `status` is of RFC 6750, section 3.1."""

    error_code = ErrorCode.SASL_AUTHENTICATION_FAILED
    hint = "compare the token's claims and key with the broker's sasl_oauthbearer settings"

    def __init__(self, message: str, status: str = INVALID_TOKEN) -> None:
        super().__init__(message)
        self.status = status


class Bearer(NamedTuple):
    """Who shows a token, and until when it holds (Unix milliseconds)."""

    user: str
    ends_ms: int


class TokenCheck(Protocol):
    """What says of all who show tokens who they are: `tokens.py`."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """All that a token has to have."""

    def bearer(self, token: bytes, now_ms: int) -> Bearer:
        """Raises TokenRefused."""


class BearerServer:
    """One exchange. Who is refused is told why as the RFC has it, and then has to say that he has understood."""

    def __init__(self, bearer: Callable[[bytes], Bearer], scopes: tuple[str, ...]) -> None:
        """`bearer` says who shows a token, and raises TokenRefused."""
        self._bearer, self._scopes = bearer, scopes
        self._refused: TokenRefused | None = None
        self.user: str | None = None
        self.ends_ms: int | None = None

    async def step(self, message: bytes) -> bytes:
        """What to answer: nothing where the token holds. Raises LoginRefused."""
        if self._refused is not None:
            why = str(self._refused) if message == _SEPARATOR else "a refusal was answered by another token"
            raise LoginRefused(f"Authentication failed: {why}", LoginFailure.CREDENTIALS, hint=TokenRefused.hint)
        for_whom, token = _parts(message)
        try:
            found = self._bearer(token)
        except TokenRefused as refused:
            self._refused = refused
            scope = {"scope": " ".join(self._scopes)} if self._scopes else {}
            return json.dumps({"status": refused.status, **scope}).encode()
        if for_whom not in ("", found.user):
            text = "Authentication failed: the authorization id is another one than the token's"
            raise LoginRefused(text, hint=TokenRefused.hint)
        self.user, self.ends_ms = found
        return b""


def _parts(message: bytes) -> tuple[str, bytes]:
    """-> for whom ("": for who shows it), and the token. Extensions are passed over."""
    header, _, rest = message.partition(_SEPARATOR)
    begun = _HEADER.fullmatch(header)
    if begun is None or not rest.endswith(_SEPARATOR * 2):
        raise _malformed()
    pairs: dict[bytes, bytes] = {}
    for text in rest[:-2].split(_SEPARATOR):
        pair = _PAIR.fullmatch(text)
        if pair is None or pair[1] in pairs:
            raise _malformed()
        pairs[pair[1]] = pair[2]
    shown = _BEARER.fullmatch(pairs.get(b"auth", b""))
    if shown is None:
        raise _malformed()
    try:
        return (begun[1] or b"").decode().replace("=2C", ",").replace("=3D", "="), shown[1]
    except UnicodeDecodeError:
        raise _malformed() from None


def _malformed() -> LoginRefused:
    return LoginRefused("Authentication failed: what was sent is not OAUTHBEARER", hint=TokenRefused.hint)
