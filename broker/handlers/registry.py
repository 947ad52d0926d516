"""What a handler is, and the table of all of them.

The table is made by looking at this folder, so that the ApiVersions reply can promise nothing that is not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from broker.errors import BrokerError
from broker.wire.api import API, ApiKey

if TYPE_CHECKING:
    from broker.broker import Broker


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, and in which version."""

    api_version: int
    client_id: str | None
    client_host: str


@dataclass(frozen=True, slots=True)
class Handler:
    """`handle` gets the request message of `api` and gives its response, or None where the protocol has no answer.

    Its types are `Any` here because each handler takes its own message; the table is keyed by what decoding gives.
    Errors: a BrokerError that concerns one topic or partition is caught by the handler and becomes its error code;
    one that escapes `handle` closes the connection.
    """

    api: ApiKey
    versions: tuple[int, int]
    handle: Callable[[Broker, Any, RequestContext], Awaitable[Any]]


class CloseConnection(BrokerError):
    """The protocol's only answer to this request is to close the connection (a failed produce with acks=0)."""

    hint = "reconnect; the client cannot be told more on this connection"


@cache
def handlers() -> Mapping[int, Handler]:
    """API key -> handler, for every module in this folder that has a `HANDLER`."""
    import broker.handlers as folder

    found: dict[int, Handler] = {}
    for module in iter_modules(folder.__path__):
        handler = getattr(import_module(f"{folder.__name__}.{module.name}"), "HANDLER", None)
        if isinstance(handler, Handler):
            api = API[handler.api]
            if not api.min_version <= handler.versions[0] <= handler.versions[1] <= api.max_version:
                raise ValueError(f"{module.name}: versions {handler.versions} are not in the tables")
            found[int(handler.api)] = handler
    return MappingProxyType(found)
