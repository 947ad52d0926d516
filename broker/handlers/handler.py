"""What a handler is, and what it is told beside its request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from broker.access.authorizer import EVERYTHING, Rights
from broker.access.logins import Login
from broker.broker import Broker
from broker.cluster.metadata import CLIENT_LISTENER
from broker.controller.requests import ControllerRequests
from broker.errors import BrokerError
from broker.limits import ITEMS_PER_TURN
from broker.quotas.client_quotas import ClientQuota
from broker.wire.api import ApiKey

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, in which version, and what else could be asked: API key -> handler. `inter_broker`: on the listener
    between the brokers of a cluster, where whoever says that he is a replica is believed.
    """

    api_version: int
    client_id: str | None
    client_host: str
    served: Mapping[int, Handler]
    inter_broker: bool = False
    behind: Collection[bytearray] = ()
    """Requests of another broker that wait, on the same connection, for the answer to this one."""
    behind_waiters: dict[asyncio.Event, None] = field(default_factory=dict)
    """Set whenever there is one more."""
    listener: str = CLIENT_LISTENER
    """The one that he came by, and whose addresses of brokers he is told."""
    login: Login | None = None
    """At listeners that ask for one."""
    rights: Rights = EVERYTHING
    quota: ClientQuota | None = None
    """None: nobody is held back."""


@dataclass(frozen=True, slots=True)
class Handler:
    """`handle` gets the request message of `api` and gives its response, or None where the protocol has no answer.

    Its types are `Any` here because each handler takes its own message; the table is keyed by what decoding gives.
    Errors: a BrokerError that concerns one topic or partition is caught by the handler and becomes its error code;
    one that escapes `handle` closes the connection.

    `begin` is the first part of `handle`, which gives the response, or what is left to wait for: meanwhile the next
    request of the connection begins if it is one of the same kind.
    """

    api: ApiKey
    versions: tuple[int, int]
    handle: Callable[[Broker, Any, RequestContext], Awaitable[Any]]
    begin: Callable[[Broker, Any, RequestContext], Awaitable[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """All is done for which the order of requests matters; `wait` gives the response when others did their part."""

    wait: Callable[[], Awaitable[Any]]


def controller_for(broker: Broker, context: RequestContext) -> ControllerRequests:
    """What another broker sent on is not sent on again: by the time it comes the controller may be a third."""
    return broker.own_controller if context.inter_broker else broker.controller


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items of a request; after every few, whoever else waits for the event loop gets it."""
    for number, item in enumerate(items, 1):
        yield item
        if number % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)


class CloseConnection(BrokerError):
    """The protocol's only answer to this request is to close the connection (a failed produce with acks=0)."""

    hint = "reconnect; the client cannot be told more on this connection"
