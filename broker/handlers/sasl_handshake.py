"""SaslHandshake, v0-1: which mechanism the client logs in by. After v0 bare tokens follow, after v1 SaslAuthenticate.

At listeners with logins alone (Kafka answers it with ILLEGAL_SASL_STATE elsewhere).
"""

from __future__ import annotations

from broker.broker import Broker
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def handle(broker: Broker, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    login = context.login
    assert login is not None, "served at listeners with logins alone"
    return SaslHandshakeResponse(await login.handshake(request.mechanism, context.api_version), login.mechanisms)


HANDLER = Handler(api=ApiKey.SASL_HANDSHAKE, versions=(0, 1), handle=handle)
