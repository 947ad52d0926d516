"""ApiVersions, v0-4: which keys and versions are served, taken from the table of handlers.

An unknown version is answered by the connection with `unsupported_version` in the v0 form (KIP-511). v3 names the
client's software; a name or version that is not of Kafka's pattern is refused. No feature is advertised:
`transaction.version` alone would switch Java clients to a protocol that is not served (KIP-890).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from broker.broker import Broker
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def _promised(served: Mapping[int, Handler]) -> list[ApiVersion]:
    return [ApiVersion(key, *handler.versions) for key, handler in sorted(served.items())]


def unsupported_version(served: Mapping[int, Handler]) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_promised(served))


async def handle(broker: Broker, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    named = (request.client_software_name, request.client_software_version)
    if context.api_version >= 3 and not all(_SOFTWARE.fullmatch(text) for text in named):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=_promised(context.served))


HANDLER = Handler(api=ApiKey.API_VERSIONS, versions=(0, 4), handle=handle)
