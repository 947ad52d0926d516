"""ApiVersions, v0-4: which keys and versions are served, taken from the handlers' own registrations.

An unknown version is answered by the connection with `unsupported_version` in the v0 form (KIP-511). v3 names the
client's software; a name or version that is not of Kafka's pattern is refused. No feature is advertised:
`transaction.version` alone would switch Java clients to a protocol that is not served (KIP-890).
"""

from __future__ import annotations

import re
from typing import Final

from broker.broker import Broker
from broker.handlers.registry import Handler, RequestContext, handlers
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def _served() -> list[ApiVersion]:
    return [ApiVersion(key, *handler.versions) for key, handler in sorted(handlers().items())]


def unsupported_version() -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_served())


async def handle(broker: Broker, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    named = (request.client_software_name, request.client_software_version)
    if context.api_version >= 3 and not all(_SOFTWARE.fullmatch(text) for text in named):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=_served())


HANDLER = Handler(api=ApiKey.API_VERSIONS, versions=(0, 4), handle=handle)
