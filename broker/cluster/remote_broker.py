"""Another broker, as the controller orders it about: its inter-broker listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any, Final

from broker.client.connection import Connection
from broker.client.errors import ClientError
from broker.cluster.lane import Lane
from broker.cluster.metadata import BrokerRegistration
from broker.cluster.order_messages import (
    carried_order,
    leader_and_isr_request,
    stop_replica_failures,
    stop_replica_request,
    update_metadata_request,
)
from broker.cluster.order_ways import OrderWay
from broker.cluster.orders import (
    BrokerUnreachable,
    Carried,
    Failures,
    LeaderAndIsr,
    StaleBrokerEpoch,
    StaleController,
    StopReplica,
    UpdateMetadata,
)
from broker.errors import BrokerError
from broker.wire.errors import ErrorCode, WireError
from broker.wire.schema import Message

ORDER_TIMEOUT_MS: Final = 8_000
"""Then it is given again, by another connection: the network may have swallowed it, or its answer. One that takes
longer is carried out meanwhile, and what is asked again waits for that, and finds it done.
"""


Open = Callable[[str], Awaitable[Connection]]
"""Opens a connection to the broker under this client id. Raises ClientError."""


class OrderRefused(BrokerError):
    """A broker did not carry out an order, and says why."""

    hint = "see the log of the broker that is named"


class RemoteBroker:
    """Implements BrokerOrders. New partitions are made by a connection of their own: who is to lead must not wait."""

    def __init__(self, node_id: int, connect: Open, numbers: Iterator[int]) -> None:
        """`numbers` rise over all connections of this process (`OrderWay`)."""
        self._node_id = node_id
        self._orders = self._lane(connect, "lead", numbers)
        self._making = self._lane(connect, "make", numbers)

    def _lane(self, connect: Open, purpose: str, numbers: Iterator[int]) -> Lane:
        return Lane(lambda: connect(OrderWay(purpose, next(numbers)).client_id), ORDER_TIMEOUT_MS)

    async def lead_and_follow(self, order: LeaderAndIsr) -> Carried:
        lane = self._making if order.new else self._orders
        response = await self._asked(lane, leader_and_isr_request(order))
        self._check(response.error_code, response.error_message)
        return carried_order(order, response)

    async def stop(self, order: StopReplica) -> Failures:
        response = await self._asked(self._orders, stop_replica_request(order))
        self._check(response.error_code)
        return stop_replica_failures(response)

    async def learn(self, order: UpdateMetadata) -> None:
        response = await self._asked(self._orders, update_metadata_request(order))
        self._check(response.error_code)

    def close(self) -> None:
        """May be called again. What is on its way may or may not be carried out."""
        self._orders.close()
        self._making.close()

    async def _asked(self, lane: Lane, request: Message) -> Any:
        """Raises BrokerUnreachable."""
        try:
            return await lane.ask(request)
        except (ClientError, WireError) as error:
            raise BrokerUnreachable(f"broker {self._node_id} cannot be reached: {error}") from error

    def _check(self, code: int, text: str = "") -> None:
        told = f"broker {self._node_id}: {text or ErrorCode.of(code).description}"
        match ErrorCode.of(code):
            case ErrorCode.NONE:
                return
            case ErrorCode.STALE_CONTROLLER_EPOCH:
                raise StaleController(told)
            case ErrorCode.STALE_BROKER_EPOCH:
                raise StaleBrokerEpoch(told)
            case refused:
                raise OrderRefused(told, error_code=refused)


class RemoteBrokers:
    """The other brokers of the cluster, each in its newest life that the controller knows of."""

    def __init__(self, connect_to: Callable[[BrokerRegistration, str], Awaitable[Connection]]) -> None:
        """`connect_to` dials a broker under a client id."""
        self._connect_to = connect_to
        self._numbers = count(1)
        self._known: dict[int, RemoteBroker] = {}

    def broker(self, registration: BrokerRegistration) -> RemoteBroker:
        node_id = registration.node_id
        if (earlier := self._known.pop(node_id, None)) is not None:
            earlier.close()
        remote = self._known[node_id] = RemoteBroker(
            node_id, lambda client_id: self._connect_to(registration, client_id), self._numbers
        )
        return remote

    def close(self) -> None:
        for remote in self._known.values():
            remote.close()
