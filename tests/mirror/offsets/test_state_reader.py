"""A reader of a link's state that reads on: it sees what one that reads the whole sees, and asks for what is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics, delete_topics
from broker.wire.api import ApiKey
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.errors import StateDamaged
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.offsets.entries import VoidEntry
from mirror.offsets.state import StateReader, StateReaders, read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import ensure_own_topics
from mirror.offsets.taking_over import Claim, claim_link
from mirror.offsets.topic_entries import TopicIdentity
from mirror.status import link_status
from tests.broker.faults import Faults, injected
from tests.broker.running import running_server
from tests.mirror.harness import write

FLIGHTS, GATES = TopicIdentity("flights", "1"), TopicIdentity("gates", "2")


async def test_it_sees_what_is_there_and_asks_for_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults()
    async with running_server(tmp_path) as served:
        link = Link("east-west", Site("east", "127.0.0.1:9"), Site("west", served.address), ("flights",))
        reader = StateReader(link)
        with injected(monkeypatch, {served.broker: faults}):
            async with Cluster(link.target, client_id="reader") as target:

                async def read() -> StateEntries:
                    entries = await reader.read(target)
                    assert entries == await read_entries(link, target)
                    return entries

                async def claim() -> Claim:
                    await ensure_own_topics(target, link)
                    return await claim_link(target, link, "worker")

                assert not (await read()).exists
                log = (await claim()).log
                await log.append([FLIGHTS])
                first = await read()
                fetches = faults.asked[ApiKey.FETCH]
                assert await reader.read(target) == first
                assert faults.asked[ApiKey.FETCH] == fetches, "nothing was new"
                await log.append([GATES, VoidEntry(FLIGHTS)])
                assert (await read()).topic_ids == {GATES.topic: GATES.topic_id}
                assert first.topic_ids == {FLIGHTS.topic: FLIGHTS.topic_id}, "what was read does not change"
                await delete_topics(target, [link.state_topic])
                assert not (await read()).exists
                await (await claim()).log.append([FLIGHTS, GATES, FLIGHTS, GATES])
                assert (await read()).topic_ids.keys() == {FLIGHTS.topic, GATES.topic}
                await write(target, TopicPartition(link.state_topic, 0), [Record(0, 1, b"[]", b"{}")])
                for _ in range(2):
                    with pytest.raises(StateDamaged):
                        await reader.read(target)


async def test_a_status_that_is_watched_reads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults()
    async with running_server(tmp_path) as served:
        link = Link("east-west", Site("east", served.address), Site("west", served.address), ("flights",))
        async with Cluster(link.target) as target:
            await ensure_own_topics(target, link)
            log = (await claim_link(target, link, "worker")).log
            await log.append([FLIGHTS])
            readers, heartbeats = StateReaders(), HeartbeatWatch(SystemClock())
            with injected(monkeypatch, {served.broker: faults}):

                async def fetches() -> int:
                    before = faults.asked[ApiKey.FETCH]
                    assert (await link_status(link, heartbeats, readers)).worker == "worker"
                    return faults.asked[ApiKey.FETCH] - before

                assert await fetches() > 0
                assert await fetches() == 0, "nothing was new"
                await log.append([GATES])
                assert await fetches() > 0


async def test_it_sees_where_logs_end_that_come_grow_and_go_between_two_looks(tmp_path: Path) -> None:
    """Those that were there are asked before it is known what is."""
    async with running_server(tmp_path) as served:
        link = Link("east-west", Site("east", "127.0.0.1:9"), Site("west", served.address), ("flights", "gates"))
        async with Cluster(link.target, client_id="reader") as target:
            reader = StateReader(link)

            async def ends() -> dict[TopicPartition, int]:
                found, failed = await reader.log_ends(target, link, None)
                fresh, _ = await StateReader(link).log_ends(target, link, None)
                assert not failed
                assert found == fresh
                return {where: at.offset for where, at in found.items()}

            flights, gates = TopicPartition("flights", 0), TopicPartition("gates", 0)
            assert not await ends()
            await create_topics(target, [NewTopic("flights", 1, 1)])
            assert await ends() == {flights: 0}
            await write(target, flights, [Record(0, 1, b"a", b"b")])
            await create_topics(target, [NewTopic("gates", 1, 1)])
            assert await ends() == {flights: 1, gates: 0}
            await delete_topics(target, ["flights"])
            assert await ends() == {gates: 0}
            await create_topics(target, [NewTopic("flights", 2, 1)])
            assert await ends() == {flights: 0, flights._replace(partition=1): 0, gates: 0}
