"""The markers of this broker's coordinators on their way to the leaders of all partitions, here and at other brokers.

To each broker goes one request at a time, with all orders that were given meanwhile. An order fails with its connection
and is repeated by its coordinator; until it is sure that nothing of it is carried out any more (`channels.py`), nothing
else of its producer is sent anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Protocol

from broker.base.clock import Clock
from broker.client.errors import ClientError
from broker.cluster.view import ClusterView
from broker.coordination.host import CoordinatorHost
from broker.errors import BrokerError
from broker.transactions.channels import Channel
from broker.transactions.limits import MARKER_REQUEST_TIMEOUT_MS, MARKER_RETRY_MS
from broker.transactions.markers import LocalMarkers, Marker
from broker.wire.errors import ErrorCode, WireError
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker.wire.vocabulary import TopicPartition, by_topic

log = logging.getLogger(__name__)

Codes = dict[TopicPartition, ErrorCode]


class MarkerConnection(Protocol):
    """`broker.client.connection.Connection`, as far as it is used here."""

    async def request(
        self, message: WriteTxnMarkersRequest, version: int, *, timeout_ms: int
    ) -> WriteTxnMarkersResponse: ...

    def abort(self) -> None: ...


Connect = Callable[[int, str], Awaitable[MarkerConnection]]
"""To the broker of this node id, as this client id. Raises ClientError."""


class _Order:
    """`landed`: nothing of it is on its way."""

    def __init__(self, marker: Marker, partitions: Collection[TopicPartition]) -> None:
        loop = asyncio.get_running_loop()
        self.marker = marker
        self.partitions = sorted(partitions)
        self.answer: asyncio.Future[Codes] = loop.create_future()
        self.landed: asyncio.Future[None] = loop.create_future()
        self.sent = False
        self.answer.add_done_callback(lambda _: None if self.sent else self.land())

    def land(self) -> None:
        if not self.landed.done():
            self.landed.set_result(None)

    def fail(self, code: ErrorCode) -> None:
        if not self.answer.done():
            self.answer.set_result(dict.fromkeys(self.partitions, code))


class _Receiver:
    """One other broker. `sent`: what went out and is not known to have landed."""

    def __init__(self) -> None:
        self.waiting: list[_Order] = []
        self.sent: list[_Order] = []
        self.wanted = asyncio.Event()


class ClusterMarkers:
    """Implements Markers."""

    def __init__(
        self, host: CoordinatorHost, local: LocalMarkers, view: ClusterView, own: Callable[[], tuple[int, int]],
        connect: Connect, clock: Clock,
    ) -> None:  # fmt: skip
        """`own`: this broker's node id and epoch, as of now."""
        self._host = host
        self._local = local
        self._view = view
        self._own = own
        self._connect = connect
        self._clock = clock
        self._receivers: dict[int, _Receiver] = {}
        self._orders: dict[int, list[_Order]] = {}
        """By producer id, those that have not landed."""
        self._connections = 0
        self._tasks: asyncio.TaskGroup | None = None

    async def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        """See `Markers.write`."""
        producer_id = marker.producer.producer_id
        while earlier := [order.landed for order in self._orders.get(producer_id, ()) if not order.landed.done()]:
            await asyncio.wait(earlier)
        codes: Codes = {}
        orders: list[_Order] = []
        own_id, _ = self._own()
        here: list[TopicPartition] = []
        for leader, wheres in self._by_leader(partitions).items():
            if leader is None:
                codes.update(dict.fromkeys(wheres, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif leader == own_id:
                here = wheres
            else:
                orders.append(self._give(leader, _Order(marker, wheres)))
        try:
            codes.update(await self._local.write(marker, here))
            for order in orders:
                codes.update(await order.answer)
        finally:
            # What nobody waits for is not sent any more.
            for order in orders:
                order.answer.cancel()
        return await self._without_the_unknown(codes)

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int | None, list[TopicPartition]]:
        """None: nobody is known to lead them."""
        found: dict[int | None, list[TopicPartition]] = {}
        for where in sorted(partitions):
            found.setdefault(self._view.leader_of(*where), []).append(where)
        return found

    async def _without_the_unknown(self, codes: Codes) -> Codes:
        """A topic that nobody has heard of here, or there, is gone only when the cluster does not have it."""
        doubtful = {
            where
            for where, code in codes.items()
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            or (code is ErrorCode.NOT_LEADER_OR_FOLLOWER and where.topic not in self._view.topics)
        }
        if not doubtful:
            return codes
        try:
            gone = await self._host.gone_topics({where.topic for where in doubtful})
        except BrokerError:
            gone = set()
        for where in doubtful:
            known = where.topic not in gone
            codes[where] = ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return codes

    # -- to other brokers --------------------------------------------------------------------------------------------

    def _give(self, node_id: int, order: _Order) -> _Order:
        of_producer = self._orders.setdefault(order.marker.producer.producer_id, [])
        of_producer.append(order)
        order.landed.add_done_callback(lambda _: self._has_landed(order))
        receiver = self._receivers.get(node_id)
        if receiver is None:
            receiver = self._receivers[node_id] = _Receiver()
            if self._tasks is not None:
                self._tasks.create_task(self._send(node_id, receiver))
        receiver.waiting.append(order)
        receiver.wanted.set()
        return order

    def _has_landed(self, order: _Order) -> None:
        producer_id = order.marker.producer.producer_id
        left = [one for one in self._orders.get(producer_id, ()) if one is not order]
        if left:
            self._orders[producer_id] = left
        else:
            self._orders.pop(producer_id, None)

    async def run(self) -> None:
        """Ends only by being cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for node_id, receiver in self._receivers.items():
                    tasks.create_task(self._send(node_id, receiver))
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None

    async def _send(self, node_id: int, receiver: _Receiver) -> None:
        is_told = False
        while True:
            await receiver.wanted.wait()
            broker = self._view.brokers.get(node_id)
            try:
                if broker is not None:
                    own_id, own_epoch = self._own()
                    self._connections += 1
                    channel = Channel(own_id, own_epoch, self._connections, broker.epoch)
                    connection = await self._connect(node_id, channel.client_id)
                    is_told = False
                    await self._send_by(connection, receiver)
            except (ClientError, WireError) as error:
                if not is_told:
                    log.warning("markers for broker %d could not be delivered, tried again: %s", node_id, error)
                is_told = True
            except Exception:  # whatever one broker answers, markers for the others go on
                log.exception("markers for broker %d could not be delivered, tried again", node_id)
            self._fail(node_id, receiver, None if broker is None else broker.epoch)
            await self._clock.sleep(MARKER_RETRY_MS / 1000)

    async def _send_by(self, connection: MarkerConnection, receiver: _Receiver) -> None:
        """Until the connection breaks. Raises ClientError, WireError."""
        try:
            while True:
                await receiver.wanted.wait()
                receiver.wanted.clear()
                # Who waited for one may have been cancelled meanwhile.
                orders = [order for order in receiver.waiting if not order.answer.done()]
                receiver.waiting = []
                earlier, receiver.sent = receiver.sent, receiver.sent + orders
                for order in orders:
                    order.sent = True
                if not receiver.sent:
                    continue
                request = WriteTxnMarkersRequest([_message(order) for order in orders])
                response = await connection.request(request, 1, timeout_ms=MARKER_REQUEST_TIMEOUT_MS)
                _answer(orders, response)
                # Of earlier connections nothing is carried out any more.
                for order in [*earlier, *orders]:
                    order.land()
                receiver.sent = []
        finally:
            connection.abort()

    def _fail(self, node_id: int, receiver: _Receiver, epoch: int | None) -> None:
        """Those who wait ask again. What was sent to a broker that is gone, or has another life, has landed."""
        waiting, receiver.waiting = receiver.waiting, []
        for order in [*waiting, *receiver.sent]:
            order.fail(ErrorCode.NETWORK_EXCEPTION)
        now = self._view.brokers.get(node_id)
        if now is None or now.epoch != epoch:
            for order in receiver.sent:
                order.land()
            receiver.sent = []
        if receiver.sent:
            receiver.wanted.set()
        else:
            receiver.wanted.clear()


def _message(order: _Order) -> WritableTxnMarker:
    marker = order.marker
    return WritableTxnMarker(
        producer_id=marker.producer.producer_id,
        producer_epoch=marker.producer.producer_epoch,
        transaction_result=marker.commit,
        topics=[WritableTxnMarkerTopic(name, indexes) for name, indexes in by_topic(order.partitions).items()],
        coordinator_epoch=marker.coordinator_epoch,
    )


def _answer(orders: list[_Order], response: WriteTxnMarkersResponse) -> None:
    """Markers are answered in the order in which they were sent."""
    for order, marker in zip(orders, response.markers, strict=True):
        codes = {
            TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.error_code)
            for topic in marker.topics
            for one in topic.partitions
        }
        if not order.answer.done():
            order.answer.set_result(
                {where: codes.get(where, ErrorCode.UNKNOWN_SERVER_ERROR) for where in order.partitions}
            )
