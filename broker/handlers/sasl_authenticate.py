"""SaslAuthenticate, v0-2: a token of the mechanism that the handshake named; v1 how long the session is (KIP-368)."""

from __future__ import annotations

from broker.broker import Broker
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


async def handle(broker: Broker, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    assert context.login is not None, "served at listeners with logins alone"
    return SaslAuthenticateResponse(*await context.login.present(bytes(request.auth_bytes)))


HANDLER = Handler(api=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), handle=handle)
