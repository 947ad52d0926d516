"""A broker that answers what a test tells it to, over a real socket."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from broker.base.address import Address
from broker.wire.api import API, ApiKey
from broker.wire.frames import RequestHeader, decode_request, encode_response
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from broker.wire.schema import Message

Answer = Callable[[RequestHeader, Message], Awaitable[Message | bytes | None]]
"""A message, raw bytes to be written as they are, or None to close the connection."""


def all_versions(error_code: int = 0) -> ApiVersionsResponse:
    """What a broker that has everything offers."""
    keys = [ApiVersion(int(key), API[key].min_version, API[key].max_version) for key in ApiKey]
    return ApiVersionsResponse(error_code, keys)


@asynccontextmanager
async def peer(
    answer: Answer, versions: Answer | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Address]:
    """Serve on a free port; ApiVersions is answered with everything unless `versions` says otherwise."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                header, message = decode_request(await reader.readexactly(size))
                if header.api_key == ApiKey.API_VERSIONS:
                    reply = await versions(header, message) if versions else all_versions()
                    version = 0 if isinstance(reply, ApiVersionsResponse) and reply.error_code else header.api_version
                else:
                    reply, version = await answer(header, message), header.api_version
                if reply is None:
                    return
                if isinstance(reply, Message):
                    writer.writelines(encode_response(header.api_key, version, header.correlation_id, reply))
                else:
                    writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()
    try:
        yield Address(host, port)
    finally:
        server.close()
