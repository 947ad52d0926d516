"""What a cluster is asked about its topics when a line is lost amid the question."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import describe_topics
from broker.wire.frames import RequestHeader
from broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.wire.schema import Message
from tests.broker.client.peer import peer


@pytest.mark.parametrize("given", [list, set, iter], ids=["list", "set", "iterator"])
async def test_topics_are_there_however_they_are_named_and_whatever_line_is_lost(
    given: Callable[[Iterable[str]], Iterable[str]],
) -> None:
    """Asked again for none, the site seemed to have lost them all."""
    port, asked = 0, 0

    async def answer(_header: RequestHeader, message: Message) -> Message | None:
        nonlocal asked
        assert isinstance(message, MetadataRequest)
        names = [topic.name for topic in message.topics or ()]
        asked += bool(names)
        if asked == 1 and names:
            return None
        topics = [
            MetadataResponseTopic(name=name, partitions=[MetadataResponsePartition(leader_id=1)]) for name in names
        ]
        return MetadataResponse(brokers=[MetadataResponseBroker(1, "127.0.0.1", port)], controller_id=1, topics=topics)

    async with peer(answer) as address:
        port = address.port
        async with Cluster(Site("here", f"127.0.0.1:{port}")) as cluster:
            assert sorted(await describe_topics(cluster, given(["flights", "orders"]))) == ["flights", "orders"]
            assert asked == 2
