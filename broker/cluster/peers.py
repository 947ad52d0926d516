"""The way to the other brokers of the cluster: their inter-broker listeners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.base.address import Address, mapped_address
from broker.base.time_limits import timeout
from broker.client.connection import Connection, connect
from broker.client.errors import ConnectionLost, RequestTimedOut
from broker.client.limits import ClientLimits
from broker.client.security.settings import PLAINTEXT, Access, Security
from broker.cluster.metadata import INTER_BROKER_LISTENER, BrokerRegistration
from broker.cluster.view import ClusterView
from broker.wire.errors import WireError
from broker.wire.messages.metadata import MetadataRequest

HEARD_S: Final = 5.0
"""Who is asked whether it lives has this long, login and all."""


class Peers:
    """Each call opens a connection of its own: answers come in order, so whoever waits long must not share one."""

    def __init__(
        self,
        view: ClusterView,
        node_id: int,
        address_map: Mapping[str, str] | None = None,
        security: Security = PLAINTEXT,
    ) -> None:
        """`node_id`: of this broker, by which others know who asks; `address_map`: what is dialled instead of the
        "host:port" that another one is registered with.
        """
        self._security = security
        self._view = view
        self._address_map = address_map or {}
        self._client_id = f"broker-{node_id}"
        self.limits = ClientLimits()

    async def connect(self, node_id: int, client_id: str | None = None) -> Connection:
        """To a broker that the controller told of. Raises ClientError, also where nobody knows such a broker."""
        broker = self._view.brokers.get(node_id)
        if broker is None:
            raise ConnectionLost(f"broker {node_id} is not there")
        return await self.connect_to(broker.registration, client_id)

    async def connect_to(self, broker: BrokerRegistration, client_id: str | None = None) -> Connection:
        """As `client_id`, or by the name of this broker. Raises ClientError."""
        endpoint = broker.endpoint(INTER_BROKER_LISTENER)
        if endpoint is None:
            raise ConnectionLost(f"broker {broker.node_id} has no listener {INTER_BROKER_LISTENER} for other brokers")
        address = mapped_address(Address(endpoint.host, endpoint.port), self._address_map)
        access = Access(f"broker {broker.node_id}", endpoint.host, self._security)
        return await connect(address, client_id=client_id or self._client_id, limits=self.limits, access=access)

    async def hear(self, broker: BrokerRegistration, cluster_id: str) -> None:
        """Returns when one of this cluster answers there: it is registered then, in the life that it has, as it takes
        no connection of brokers before. Raises ClientError.
        """
        try:
            async with timeout(HEARD_S):
                connection = await self.connect_to(broker)
                try:
                    answer = await connection.request(MetadataRequest([]))
                finally:
                    await connection.close()
        except TimeoutError:
            raise RequestTimedOut(f"broker {broker.node_id} did not answer in {HEARD_S:g} s") from None
        except WireError as error:
            raise ConnectionLost(f"where broker {broker.node_id} was, what answers is none: {error}") from error
        if answer.cluster_id != cluster_id:
            raise ConnectionLost(f"where broker {broker.node_id} was, one of cluster {answer.cluster_id} answers")
