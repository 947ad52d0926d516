"""SaslHandshake (API 17): version 1 says that tokens follow as SaslAuthenticate, version 0 that they follow bare."""

from __future__ import annotations

from broker.wire.schema import Kind, Message, array, int16, message, string


@message(key=17, versions=(0, 1))
class SaslHandshakeRequest(Message):
    mechanism: str = string()


@message(key=17, versions=(0, 1))
class SaslHandshakeResponse(Message):
    error_code: int = int16()
    mechanisms: list[str] = array(Kind.STRING)
