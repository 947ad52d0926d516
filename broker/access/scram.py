"""The broker's side of SCRAM (RFC 5802; SHA-256: RFC 7677), without channel binding, as Kafka has it. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

from broker.access.failed_logins import LoginFailure
from broker.access.users import Credential
from broker.client.security.scram import HASHES
from broker.client.security.settings import Mechanism
from broker.errors import BrokerError
from broker.wire.errors import ErrorCode

# "y": the client could bind to a channel and believes that we cannot, which is so.
_FIRST: Final = re.compile(r"((?:n|y),(?:a=([^,]*))?,)(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]=[^,]*)*)")
_FINAL: Final = re.compile(r"(c=([^,]*),r=([^,]*)(?:,[A-Za-z]=[^,]*)*),p=([^,]*)")


class LoginRefused(BrokerError):
    """What is told to the client is its text: it does not say whether there is such a user."""

    error_code = ErrorCode.SASL_AUTHENTICATION_FAILED
    hint = "compare user, password and mechanism with the broker's file of users"

    def __init__(self, message: str, reason: LoginFailure = LoginFailure.MALFORMED, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class ScramServer:
    """One exchange. `nonce` is new and random each time. `credential` gives a made-up one for who is not known."""

    ends_ms = None

    def __init__(self, mechanism: Mechanism, credential: Callable[[str], Credential], nonce: str) -> None:
        self._mechanism, self._hash = mechanism, HASHES[mechanism]
        self._credential_of, self._nonce = credential, nonce
        self._credential: Credential | None = None
        self._name = ""
        self.user: str | None = None
        """Who has proven to know the password."""

    async def step(self, message: bytes) -> bytes:
        """What to answer. Raises LoginRefused."""
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise self._malformed() from None
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise self._malformed()
        self._header, for_whom, self._first_bare, name, self._client_nonce = found.groups()
        self._name = self._unescaped(name)
        if for_whom is not None and self._unescaped(for_whom) != self._name:
            raise LoginRefused("Authentication failed: the authorization id is another one than the user name")
        one = self._credential = self._credential_of(self._name)
        self._nonce = self._client_nonce + self._nonce
        salt = base64.b64encode(one.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={one.iterations}"
        return self._server_first.encode()

    def _final(self, text: str, credential: Credential) -> bytes:
        found = _FINAL.fullmatch(text)
        if self.user is not None or found is None:
            raise self._malformed()
        bare, binding, nonce, proof = found.groups()
        # librdkafka before 2.6.1 puts its own nonce before it once more; Kafka until 3.9 takes anything there.
        if _decoded(binding) != self._header.encode() or nonce not in (self._nonce, self._client_nonce + self._nonce):
            raise self._malformed()
        signed = ",".join((self._first_bare, self._server_first, bare)).encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        shown = _decoded(proof)
        if shown is None or len(shown) != len(signature):
            raise self._malformed()
        client_key = bytes(a ^ b for a, b in zip(shown, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise LoginRefused(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self._mechanism}",
                LoginFailure.CREDENTIALS,
            )
        self.user = self._name
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, self._hash))

    def _unescaped(self, name: str) -> str:
        if re.search("=(?!2C|3D)", name):
            raise self._malformed()
        return name.replace("=2C", ",").replace("=3D", "=")

    def _malformed(self) -> LoginRefused:
        return LoginRefused(f"Authentication failed: what was sent is not {self._mechanism}")


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
