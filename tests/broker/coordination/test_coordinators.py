"""Coordinators begin and end with leadership: what is asked meanwhile, who waits, and for how long others do."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import replace
from pathlib import Path

import pytest

from broker.cluster.metadata import CLIENT_LISTENER, BrokerRegistration, Endpoint
from broker.coordination.coordinators import Coordinators
from broker.coordination.host import InternalTopic
from broker.coordination.internal_log import Entry
from broker.errors import BrokerError
from broker.groups.coordinator import GroupCoordinator
from broker.groups.formats import Committed, offset_entry
from broker.groups.model import GroupProtocol, JoinAsk, JoinResult
from broker.topics.errors import RequestTimedOut
from broker.wire.coordinator_keys import OFFSETS_TOPIC, partition_for
from broker.wire.errors import ErrorCode
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.vocabulary import TopicPartition
from tests.broker.coordinator_host import Host, at_once, start
from tests.broker.running import running_server
from tests.broker.wire_client import connect

MEMBER = GroupProtocol("range", b"")
FLIGHTS = TopicPartition("flights", 0)


def join(new: str) -> JoinAsk:
    return JoinAsk("", None, "c", "/h", "consumer", (MEMBER,), 10_000, 30_000, new)


def groups_of(host: Host, partitions: int) -> Coordinators[GroupCoordinator]:
    for index in range(1, partitions):
        host.add_partition(OFFSETS_TOPIC, index)
    topic = InternalTopic(OFFSETS_TOPIC, partitions)
    return Coordinators(host, topic, lambda log: GroupCoordinator(host, log))


async def error_of(groups: Coordinators[GroupCoordinator], key: str = "g") -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        await groups.at(key)
    return refused.value.error_code


async def test_what_is_led_elsewhere_is_not_answered_here(tmp_path: Path) -> None:
    groups = groups_of(start(tmp_path), 4)
    mine = partition_for("g", 4)
    groups.leads((mine + 1) % 4, 0)
    assert await error_of(groups) is ErrorCode.NOT_COORDINATOR
    groups.leads(mine, 0)
    assert (await groups.at("g")).log.index == mine
    groups.leads(mine, None)
    assert await error_of(groups) is ErrorCode.NOT_COORDINATOR


async def test_who_waits_is_sent_away_when_the_leadership_ends_and_nothing_is_written_after(tmp_path: Path) -> None:
    host = start(tmp_path)
    groups = groups_of(host, 1)
    groups.leads(0, 0)
    first = await groups.wait_for("g", lambda at: at.join("g", join("a")))
    assert first.error is ErrorCode.NONE
    old = await groups.at("g")
    waiting = asyncio.create_task(groups.wait_for("g", lambda at: at.join("g", join("b"))))
    await asyncio.sleep(0)
    assert not waiting.done()
    end = host.log(OFFSETS_TOPIC).log_end_offset
    groups.leads(0, None)
    assert await waiting == JoinResult(ErrorCode.NOT_COORDINATOR, "b")
    committed = old.offsets.commit("g", {FLIGHTS: Committed(1, -1, "", 0)}, is_known=lambda _: True)
    assert committed == {FLIGHTS: ErrorCode.NOT_COORDINATOR}
    old.tick()
    assert host.log(OFFSETS_TOPIC).log_end_offset == end
    host.close()


async def test_a_partition_is_loaded_when_its_leadership_begins(tmp_path: Path) -> None:
    host = start(tmp_path)
    host.create_topic("flights")
    groups = groups_of(host, 1)
    groups.leads(0, 0)
    (await groups.at("g")).offsets.commit("g", {FLIGHTS: Committed(7, -1, "", 0)}, is_known=lambda _: True)
    groups.leads(0, None)
    groups.leads(0, 0)
    assert await error_of(groups) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(BrokerError) as listed:
        await groups.ask_all(lambda at: list(at.groups))
    assert listed.value.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a list that lacks some is none"
    running = asyncio.create_task(groups.run())
    async with asyncio.timeout(60):
        while not await _is_loaded(groups):
            await asyncio.sleep(0)
    assert await groups.ask("g", lambda at: at.offsets.of("g").committed[FLIGHTS].offset) == 7
    assert await groups.ask_all(lambda at: list(at.groups)) == [["g"]]
    running.cancel()
    host.close()


async def test_clients_are_sent_to_who_leads_the_partition(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, offsets_topic_num_partitions=2) as server,
        connect(server.address) as client,
    ):
        names = {partition_for(name, 2): name for name in ("a", "b", "c")}
        asked = FindCoordinatorRequest(coordinator_keys=[names[0], names[1]])
        host, port = server.broker.advertised
        here, _ = (await client.ask(asked, 4, FindCoordinatorResponse)).coordinators
        assert (here.node_id, here.host, here.port) == (1, host, port)
        view = server.broker.view
        led = view.topics[OFFSETS_TOPIC].partitions
        moved = replace(view.topics[OFFSETS_TOPIC], partitions=(led[0], replace(led[1], leader=7)))
        registration = BrokerRegistration(7, (Endpoint(CLIENT_LISTENER, "far", 7092),), None)
        view.brokers = {**view.brokers, 7: replace(view.brokers[1], registration=registration)}
        view.topics[OFFSETS_TOPIC] = moved
        here, there = (await client.ask(asked, 4, FindCoordinatorResponse)).coordinators
        assert (here.node_id, there.node_id, there.host, there.port) == (1, 7, "far", 7092)
        view.brokers = {1: view.brokers[1]}
        _, nobody = (await client.ask(asked, 4, FindCoordinatorResponse)).coordinators
        assert nobody.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_what_is_not_replicated_yet_is_not_served_and_not_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be lost with this broker, and nobody may have seen it then."""
    host = start(tmp_path)
    groups, reads = groups_of(host, 1), []
    (await _led_anew(groups)).log.append("g", [Entry(b"\x00\x63", b"")])
    groups.leads(0, None)
    groups.leads(0, 0)

    async def not_yet(*_: object) -> None:
        reads.append(groups.partition(0))
        raise RequestTimedOut("no replicas")

    with monkeypatch.context() as patch:
        patch.setattr(host.partition(OFFSETS_TOPIC, 0), "wait_replicated", not_yet)
        for _ in range(2):
            await groups.load()
        assert await error_of(groups) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await groups.load()
    assert reads == [await groups.at("g")] * 2, "what was read the first time"
    host.close()


async def _led_anew(groups: Coordinators[GroupCoordinator]) -> GroupCoordinator:
    groups.leads(0, 0)
    return await groups.at("g")


async def _is_loaded(groups: Coordinators[GroupCoordinator]) -> bool:
    try:
        await groups.at("g")
    except BrokerError:
        return False
    return True


async def test_others_get_their_turn_while_a_thousand_groups_are_loaded(tmp_path: Path) -> None:
    """1,000 groups with 100 offsets each, in a partition of their own and in one that has them all."""
    host = start(tmp_path)
    host.create_topic("flights", 1)
    groups = groups_of(host, 2)
    for index in range(2):
        groups.leads(index, 0)
    for number in range(1000):
        group = f"group-{number}"
        entries = [offset_entry(group, TopicPartition("flights", p), Committed(p, -1, "", 0)) for p in range(100)]
        at_once(groups.at(group)).log.append(group, entries)
    for index in range(2):
        groups.leads(index, None)
        groups.leads(index, 0)
    loading = asyncio.create_task(groups.load())
    longest = 0.0
    # What a collection takes depends on all that the tests before left in memory.
    gc.disable()
    try:
        while not loading.done():
            # Of the processor: the clock of a busy machine says little.
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)
    finally:
        gc.enable()
    assert sum(await groups.ask_all(lambda at: len(list(at.offsets.group_ids())))) == 1000
    assert longest < 0.1
    host.close()


async def test_a_broker_that_hands_over_answers_nobody_any_more(tmp_path: Path) -> None:
    """Who leads in its place may have answered by then, and does not wait for it."""
    groups = groups_of(start(tmp_path), 1)
    groups.leads(0, 0)
    coordinator = await groups.at("g")
    coordinator.offsets.commit("g", {FLIGHTS: Committed(5, -1, "", 0, -1)}, is_known=lambda _: True)
    assert await groups.ask("g", lambda at: at.offsets.of("g").committed[FLIGHTS].offset) == 5
    groups.hand_over()
    assert await error_of(groups) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(BrokerError, match="this broker stops"):
        await groups.ask_all(lambda at: at.offsets.group_ids())
