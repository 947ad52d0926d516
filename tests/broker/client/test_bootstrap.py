"""What becomes of the connection by which a cluster was reached first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from broker.base.address import Address
from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.frames import RequestHeader
from broker.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from broker.wire.schema import Message
from tests.broker.client.peer import all_versions, peer


@dataclass
class Lonely:
    """A cluster of one broker. `held`: the handshakes (counted from one) that wait until `let_go`."""

    host: str = "127.0.0.1"
    port: int = 0
    handshakes: int = 0
    held: set[int] = field(default_factory=set)
    waits: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, _header: RequestHeader, _message: Message) -> Message:
        return MetadataResponse(brokers=[MetadataResponseBroker(1, self.host, self.port)], controller_id=1)

    async def versions(self, _header: RequestHeader, _message: Message) -> Message:
        self.handshakes += 1
        if self.handshakes in self.held:
            self.waits.set()
            await self.let_go.wait()
        return all_versions()

    def site(self, address: Address) -> Site:
        self.port = address.port
        return Site("here", f"127.0.0.1:{address.port}")


@pytest.mark.parametrize(("host", "handshakes"), [("127.0.0.1", 1), ("localhost", 2)])
async def test_it_goes_on_where_the_broker_would_be_dialled_just_so(host: str, handshakes: int) -> None:
    """Behind a name that leads to any of several brokers nobody knows which one answered."""
    lonely = Lonely(host)
    async with peer(lonely.answer, lonely.versions) as address:
        async with Cluster(lonely.site(address)) as cluster:
            opened = await cluster.connection(1)
            assert await cluster.any_connection() is opened
            assert opened.is_open
            assert lonely.handshakes == handshakes
        assert not opened.is_open


async def test_it_does_not_take_the_place_of_one_that_is_being_opened() -> None:
    """That one would take the place in its turn, and nobody would ever close the first."""
    lonely = Lonely(held={2})
    async with peer(lonely.answer, lonely.versions) as address, Cluster(lonely.site(address)) as cluster:
        (await cluster.connection(1)).abort()
        opening = asyncio.ensure_future(cluster.connection(1))
        await lonely.waits.wait()
        await cluster._bootstrap()
        assert lonely.handshakes == 3
        assert not [known for known in cluster._connections.values() if known.is_open], "the third was closed"
        lonely.let_go.set()
        assert (await opening).is_open
