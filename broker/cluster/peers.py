"""The way to the other brokers of the cluster: their inter-broker listeners."""

from __future__ import annotations

from collections.abc import Mapping

from broker.base.address import Address, mapped_address
from broker.client.connection import Connection, connect
from broker.client.errors import ConnectionLost
from broker.client.limits import ClientLimits
from broker.client.security.settings import PLAINTEXT, Access, Security
from broker.cluster.metadata import INTER_BROKER_LISTENER, BrokerRegistration
from broker.cluster.view import ClusterView


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
