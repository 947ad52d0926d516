"""The broker's side of SCRAM, for tests."""

from __future__ import annotations

import base64
import hashlib
import hmac

from broker.client.security.scram import HASHES
from broker.client.security.settings import Mechanism


class ScramServer:
    """The other side, written from the RFC by itself; `is_honest` False: it does not know the password."""

    def __init__(self, mechanism: Mechanism, passwords: dict[str, str], *, is_honest: bool = True) -> None:
        self._hash = HASHES[mechanism]
        self._passwords = passwords
        self._is_honest = is_honest
        self._salt, self._iterations = b"a salt of its own", 4096
        self._said: list[str] = []

    def answer(self, message: bytes) -> bytes | None:
        """None: the login is refused."""
        text = message.decode()
        if not self._said:
            bare = text.removeprefix("n,,")
            self._user, nonce = (part[2:] for part in bare.split(",", 1))
            first = f"r={nonce}+server,s={base64.b64encode(self._salt).decode()},i={self._iterations}"
            self._said = [bare, first]
            return first.encode()
        bare, proof = text.rsplit(",p=", 1)
        name = self._user.replace("=2C", ",").replace("=3D", "=")
        password = self._passwords.get(name, "nobody's") if self._is_honest else "guessed"
        salted = hashlib.pbkdf2_hmac(self._hash, password.encode(), self._salt, self._iterations)
        signed = ",".join((*self._said, bare)).encode()
        client_key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), signed)
        right = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if self._is_honest and base64.b64decode(proof) != right:
            return None
        return b"v=" + base64.b64encode(self._mac(self._mac(salted, b"Server Key"), signed))

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)
