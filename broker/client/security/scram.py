"""The client's side of SCRAM (RFC 5802; SHA-256: RFC 7677), without channel binding, as Kafka has it. Pure.

Kafka applies no SASLprep: user names and passwords are their UTF-8 bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from broker.client.errors import AuthenticationFailed
from broker.client.security.settings import Mechanism

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 1_000_000
"""Whoever answers in a broker's place may ask for the work of hours."""
_GS2_HEADER: Final = "n,,"
_NOT_PROVEN: Final = "this may not be the broker that it says it is: check its address, and who answers there"


HASHES: Final = {Mechanism.SCRAM_SHA_256: "sha256", Mechanism.SCRAM_SHA_512: "sha512"}
"""By hashlib's names, those that farshore speaks, and offers: Kafka has no other."""


class ScramClient:
    """One exchange. `nonce` must be new and random each time, and holds no comma."""

    def __init__(self, mechanism: Mechanism, username: str, password: str, nonce: str) -> None:
        assert nonce
        assert "," not in nonce
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature: bytes | None = None
        self._is_proven = False

    def begin(self) -> bytes:
        """The client's first message."""
        return f"{_GS2_HEADER}{self._first_bare}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        """What to answer; None: the broker has proven that it knows the password. Raises AuthenticationFailed."""
        if self._server_signature is None:
            return self._final(challenge)
        if self._is_proven:
            raise AuthenticationFailed("goes on with SCRAM behind its end", _NOT_PROVEN)
        self._verify(challenge)
        return None

    def _final(self, server_first: bytes) -> bytes:
        fields = _fields(server_first, "rsi")
        nonce, salt = fields["r"], _base64(fields["s"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("answers another nonce than the one that was sent", _NOT_PROVEN)
        iterations = int(fields["i"]) if fields["i"].isascii() and fields["i"].isdecimal() else 0
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX or not salt:
            raise AuthenticationFailed(f"asks for {fields['i'][:20]} iterations of SCRAM", _NOT_PROVEN)
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._mac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        binding = base64.b64encode(_GS2_HEADER.encode()).decode()
        final_bare = f"c={binding},r={nonce}"
        message = ",".join((self._first_bare, server_first.decode(), final_bare)).encode()
        proof = bytes(a ^ b for a, b in zip(client_key, self._mac(stored_key, message), strict=True))
        self._server_signature = self._mac(self._mac(salted, b"Server Key"), message)
        return f"{final_bare},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, server_final: bytes) -> None:
        assert self._server_signature is not None
        if server_final.startswith(b"e="):
            raise AuthenticationFailed(f"refuses SCRAM: {server_final[2:80].decode(errors='replace')}")
        signature = _base64(_fields(server_final, "v")["v"])
        if not hmac.compare_digest(signature, self._server_signature):
            raise AuthenticationFailed("does not know the password itself", _NOT_PROVEN)
        self._is_proven = True

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes, keys: str) -> dict[str, str]:
    """The attributes of a message, which begins with these, in this order; others may follow (RFC 5802, section 5)."""
    try:
        attributes = message.decode().split(",")
    except UnicodeDecodeError:
        attributes = []
    found = {attribute[0]: attribute[2:] for attribute in attributes if attribute[1:2] == "="}
    if [attribute[:2] for attribute in attributes[: len(keys)]] != [f"{key}=" for key in keys]:
        raise AuthenticationFailed("sends what is not SCRAM", _NOT_PROVEN)
    return found


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationFailed("sends what is not SCRAM", _NOT_PROVEN) from None
