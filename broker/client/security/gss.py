"""The client's side of SASL's GSSAPI (RFC 4752), as Kafka has it: without a security layer. Pure.

Whose context it is, and what it asks of Kerberos, is nothing to it.
"""

from __future__ import annotations

from typing import Final, Protocol

from broker.client.errors import AuthenticationFailed

_NO_LAYER: Final = 1
_LAYERS_BYTES: Final = 4
_NOT_GSSAPI: Final = "look who answers at this address, and what its log says of the login"


class SecurityContext(Protocol):
    """What is set up between both sides. Each method raises what says why it cannot go on."""

    @property
    def is_complete(self) -> bool: ...

    def step(self, token: bytes | None) -> bytes | None:
        """To the other side's token, the first time None, what it is to have; None: nothing."""

    def unwrap(self, message: bytes) -> bytes: ...

    def wrap(self, message: bytes) -> bytes:
        """So that the other side sees that nobody changed it; it is not encrypted."""


class GssapiClient:
    """One exchange."""

    def __init__(self, context: SecurityContext) -> None:
        self._context = context
        self._has_chosen = False

    def begin(self) -> bytes:
        return self._context.step(None) or b""

    def step(self, challenge: bytes) -> bytes | None:
        """What to answer; None: both sides know each other. Raises AuthenticationFailed, and what the context does."""
        if self._has_chosen:
            if challenge:
                raise AuthenticationFailed("goes on with GSSAPI behind its end", _NOT_GSSAPI)
            return None
        if not self._context.is_complete:
            return self._context.step(challenge) or b""
        return self._choice(self._context.unwrap(challenge))

    def _choice(self, offered: bytes) -> bytes:
        """Of the layers that the broker offers none, so that no size is given; and as nobody else than whose the ticket
        is, for which no name stands.
        """
        if len(offered) != _LAYERS_BYTES:
            raise AuthenticationFailed("sends what is not GSSAPI", _NOT_GSSAPI)
        if not offered[0] & _NO_LAYER:
            raise AuthenticationFailed(
                "asks for a security layer of GSSAPI, of which Kafka has none", "encrypt by SASL_SSL in its place"
            )
        self._has_chosen = True
        return self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]))
