"""SaslAuthenticate (API 36). A `session_lifetime_ms` of 0 has no end (KIP-368)."""

from __future__ import annotations

from broker.wire.schema import Message, bytestring, int16, int64, message, string


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = bytestring()


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse(Message):
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    auth_bytes: bytes = bytestring()
    session_lifetime_ms: int = int64(since=1)
