"""A move of many links asks a third site for its operations once, and not for each of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from failover.freezing.choice import UNFROZEN
from failover.journal.log import OperationJournal, OperationsReader, claim
from failover.journal.values import Event, OperationsFolding
from failover.observing.elsewhere import look_elsewhere
from failover.observing.readers import Readers
from failover.observing.upstream import look_upstream
from failover.planning.intent import Intent
from failover.planning.plan import Elsewhere
from failover.running.steps import Operation
from mirror.link import Link
from tests.broker.running import running_server

NOBODY = "127.0.0.1:9"
LINKS = 5


async def test_its_journal_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twenty links each read it by itself, all the evidence of twenty moves of 1,000 groups: none was done within
    the five seconds that the site has, and right before the fence who does not tell is passed over.
    """
    real, taken = OperationsFolding.take, []

    def take(self: OperationsFolding, key: bytes | None, value: bytes | None) -> None:
        taken.append(key)
        real(self, key, value)

    async with running_server(tmp_path) as server, Cluster(Site("north", server.address)) as north:
        east, west = Site("east", NOBODY), Site("west", NOBODY)
        topics = [f"topic-{number}" for number in range(LINKS)]
        moves = [Link(f"west-{topic}", east, west, (topic,)) for topic in topics]
        away = [Link(f"north-{topic}", east, north.site, (topic,)) for topic in topics]
        into = [Link(f"into-{topic}", west, north.site, (topic,)) for topic in topics]
        on = [Link(f"on-{topic}", north.site, east, (topic,)) for topic in topics]
        between = ("east", "north")
        writer, _ = await claim(north, between, lambda _operations: None)
        journal = OperationJournal(north, "op", "another", writer, between)
        intent = Intent(Operation.SWITCHOVER, tuple(one.name for one in away), *between)
        async with journal.kept((Event.PLANNED, {"intent": intent.document(), "who": "another"})):
            await OperationsReader().read(north)
            monkeypatch.setattr(OperationsFolding, "take", take)
            readers = Readers()
            looks = [look_elsewhere(one, away, one.topics, readers=readers) for one in moves]
            found = await asyncio.gather(*looks)
            assert found == [(Elsewhere(one.name, "north", is_active=False, operation_id="op"),) for one in away]
            once = len(taken)
            assert once == 2, "its lease and its first entry"
            again = [look_upstream(one, into, UNFROZEN, one.topics, readers) for one in on]
            assert await asyncio.gather(*again) == [()] * LINKS
            assert len(taken) == once
