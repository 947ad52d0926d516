"""The coordinator on a real log folder: answers, timers, restarts, a full disk."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.base.clock import Clock, SystemClock
from broker.config import BrokerConfig
from broker.coordination.internal_log import Entry, Producer
from broker.groups.coordinator import GroupCoordinator
from broker.groups.formats import Committed
from broker.groups.limits import OFFSETS_RETENTION_MS
from broker.groups.model import GroupProtocol, JoinAsk, JoinResult, Leaver, SyncAsk
from broker.transactions.markers import Marker
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import GroupState, TopicPartition
from tests.broker.clock import ManualClock
from tests.broker.coordinator_host import Host, at_once, turns
from tests.broker.coordinator_host import start as start_host
from tests.broker.log.support import FaultyDisk

FLIGHTS = TopicPartition("flights", 0)


def start(tmp_path: Path, clock: Clock | None = None, **config: Any) -> Host:
    host = start_host(tmp_path, clock, **config)
    host.create_topic("flights")
    return host


def ask(member_id: str = "", *, new: str = "a", instance: str | None = None, session_ms: int = 10_000) -> JoinAsk:
    return JoinAsk(
        member_id,
        instance,
        "c",
        "/h",
        "consumer",
        (GroupProtocol("range", b"m"),),
        session_ms,
        30_000,
        new_member_id=new,
    )


def offset(value: int, now_ms: int = 0, metadata: str = "") -> dict[TopicPartition, Committed]:
    return {FLIGHTS: Committed(value, 7, metadata, now_ms)}


def commit(
    host: Host, value: int, *, group: str = "g", metadata: str = "", producer: Producer | None = None
) -> ErrorCode:
    results = host.groups.offsets.commit(
        group, offset(value, host.clock.now_ms(), metadata), is_known=lambda _: True, producer=producer
    )
    return results[FLIGHTS]


async def stable(host: Host, group: str = "g", instance: str | None = None) -> JoinResult:
    joined = await host.groups.join(group, ask(instance=instance))
    synced = await host.groups.sync(group, SyncAsk("a", instance, joined.generation_id, None, None, {"a": b"all"}))
    assert synced.error is ErrorCode.NONE
    return joined


async def test_a_member_and_its_commits_survive_a_restart(tmp_path: Path) -> None:
    host = start(tmp_path)
    joined = await stable(host)
    assert commit(host, 41) is ErrorCode.NONE
    assert commit(host, 42, metadata="position of ✈") is ErrorCode.NONE

    again = host.restart()

    group = again.groups.groups["g"]
    assert (group.state, group.generation_id, group.leader_id) == (GroupState.STABLE, joined.generation_id, "a")
    assert group.members["a"].assignment == b"all"
    found = again.groups.offsets.of("g").committed[FLIGHTS]
    assert (found.offset, found.leader_epoch, found.metadata) == (42, 7, "position of ✈")
    assert again.groups.heartbeat("g", "a", None, 1) is ErrorCode.NONE
    again.close()


async def test_a_member_that_does_not_come_back_after_a_restart_expires(tmp_path: Path) -> None:
    clock = ManualClock()
    host = start(tmp_path, clock)
    await stable(host)
    again = host.restart(clean=False)
    clock.advance(9_999)
    again.groups.tick()
    assert again.groups.groups["g"].members
    clock.advance(1)
    again.groups.tick()
    assert again.groups.groups["g"].state is GroupState.EMPTY
    third = again.restart()
    assert third.groups.groups["g"].state is GroupState.EMPTY
    assert third.groups.groups["g"].generation_id == 2
    third.close()


async def test_state_survives_compaction(tmp_path: Path) -> None:
    host = start(tmp_path)
    await stable(host)
    for value in range(50):
        commit(host, value)
    commit(host, 5, group="other")
    host.groups.offsets.remove("other", [FLIGHTS])
    log = host.log(OFFSETS_TOPIC)
    log.update_config(replace(log.config, segment_bytes=200, min_cleanable_dirty_ratio=0.0))
    commit(host, 49)
    before = log.size_bytes
    assert log.compact()
    assert log.size_bytes < before
    again = host.restart()
    assert again.groups.offsets.of("g").committed[FLIGHTS].offset == 49
    assert not again.groups.offsets.has_any("other")
    assert again.groups.groups["g"].members["a"].assignment == b"all"
    again.close()


async def test_two_join_and_both_are_answered_when_the_rebalance_closes(tmp_path: Path) -> None:
    host = start(tmp_path)
    await stable(host)
    async with asyncio.TaskGroup() as tasks:
        second = tasks.create_task(host.groups.join("g", ask(new="b")))
        await asyncio.sleep(0)  # the task runs up to where it waits
        assert "b" in host.groups.groups["g"].members
        first = await host.groups.join("g", ask("a"))
    assert (first.generation_id, second.result().generation_id) == (2, 2)
    host.close()


async def test_the_timer_ends_the_session_of_a_silent_member(tmp_path: Path) -> None:
    """With the real time: the timer must wake by itself, and earlier than it first meant to."""
    host = start(tmp_path, SystemClock())
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        timer = tasks.create_task(host.groups.run())
        await asyncio.sleep(0)
        await host.groups.join("g", ask(session_ms=1_000))
        await host.groups.sync("g", SyncAsk("a", None, 1, None, None, {}))
        waiting = tasks.create_task(host.groups.join("g", ask(new="b")))
        assert (await waiting).leader == "b"
        assert list(host.groups.groups["g"].members) == ["b"]
        timer.cancel()
    host.close()


async def test_a_client_that_hangs_up_while_it_waits_leaves_nothing(tmp_path: Path) -> None:
    host = start(tmp_path)
    await stable(host)
    async with asyncio.TaskGroup() as tasks:
        second = tasks.create_task(host.groups.join("g", ask(new="b")))
        await asyncio.sleep(0)  # the task runs up to where it waits
        assert "b" in host.groups.groups["g"].members
        second.cancel()
    assert host.groups._joins._waiting == {}
    host.close()


async def test_an_unknown_group(tmp_path: Path) -> None:
    host = start(tmp_path)
    groups = host.groups
    assert groups.heartbeat("g", "a", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.leave("g", [Leaver("a", None)]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert (await groups.join("g", ask("a"))).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await groups.join("", ask())).error is ErrorCode.INVALID_GROUP_ID
    assert (await groups.join("g", ask(session_ms=1))).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert groups.check_commit("g", "a", None, 3) is ErrorCode.ILLEGAL_GENERATION
    assert groups.delete("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.groups == {}, "asking makes no group"
    host.close()


async def test_simple_consumers_commit_only_while_nobody_is_a_member(tmp_path: Path) -> None:
    host = start(tmp_path)
    assert host.groups.check_commit("g", "", None, -1) is ErrorCode.NONE
    assert commit(host, 3) is ErrorCode.NONE
    await stable(host)
    assert host.groups.check_commit("g", "", None, -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert host.groups.delete("g") is ErrorCode.NON_EMPTY_GROUP
    host.groups.leave("g", [Leaver("a", None)])
    assert host.groups.check_commit("g", "", None, -1) is ErrorCode.NONE
    assert host.groups.delete("g") is ErrorCode.NONE
    again = host.restart()
    assert again.groups.groups == {}
    assert not again.groups.offsets.has_any("g")
    again.close()


async def test_offsets_of_an_empty_group_expire_and_then_the_group_goes(tmp_path: Path) -> None:
    clock = ManualClock()
    host = start(tmp_path, clock)
    await stable(host)
    commit(host, 1)
    clock.advance(OFFSETS_RETENTION_MS)
    host.groups.expire_offsets()
    assert host.groups.offsets.has_any("g"), "it has a member"
    host.groups.leave("g", [Leaver("a", None)])
    clock.advance(OFFSETS_RETENTION_MS - 1)
    host.groups.expire_offsets()
    assert host.groups.offsets.has_any("g"), "it counts from when the last member left"
    clock.advance(1)
    host.groups.expire_offsets()
    assert host.groups.groups == {}
    again = host.restart()
    assert again.groups.groups == {}
    again.close()


async def test_the_timer_expires_offsets_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.groups.coordinator.OFFSETS_RETENTION_CHECK_MS", 1)
    clock = ManualClock()
    host = start(tmp_path, clock)
    host.groups.check_commit("g", "", None, -1)
    commit(host, 1)
    expired = asyncio.Event()
    host.log(OFFSETS_TOPIC).append_listeners.append(expired.set)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        timer = tasks.create_task(host.groups.run())
        await asyncio.sleep(0)  # the timer runs up to where it waits
        clock.advance(OFFSETS_RETENTION_MS + 1)
        await expired.wait()
        timer.cancel()
    assert host.groups.groups == {}
    assert not host.groups.offsets.has_any("g")
    host.close()


@pytest.mark.parametrize("per_turn", [1, 2, 1000])
async def test_others_have_their_turns_while_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_turn: int
) -> None:
    monkeypatch.setattr("broker.groups.coordinator.COORDINATOR_LOAD_RECORDS_PER_TURN", per_turn)
    host = start(tmp_path)
    for number in range(5):
        await stable(host, f"g{number}")
        commit(host, number, group=f"g{number}")
    loaded = GroupCoordinator(host, host.groups.log)
    assert turns(loaded.load()) == 10 // per_turn + 2 * (5 // per_turn), "of the records, the groups, and their offsets"
    assert loaded.groups.keys() == host.groups.groups.keys()
    assert [loaded.offsets.of(f"g{number}").committed[FLIGHTS].offset for number in range(5)] == list(range(5))
    host.close()


def test_what_cannot_be_committed_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    host = start(tmp_path)
    host.groups.check_commit("g", "", None, -1)
    many = {
        FLIGHTS: Committed(1, -1, "", 0),
        TopicPartition("gone", 0): Committed(2, -1, "", 0),
        TopicPartition("flights", 1): Committed(3, -1, "x" * 4097, 0),
    }
    assert list(host.groups.offsets.commit("g", many, is_known=lambda w: w.topic == "flights").values()) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
    ]
    assert list(host.groups.offsets.of("g").committed) == [FLIGHTS]
    host.close()


async def test_on_a_full_disk_nothing_is_acknowledged_and_later_all_goes_on(tmp_path: Path) -> None:
    disk = FaultyDisk()
    host = Host(tmp_path / "data", ManualClock(), BrokerConfig(tmp_path / "data"), disk)
    joined = await host.groups.join("g", ask())
    commit(host, 1)
    disk.room_bytes = 0
    assert commit(host, 2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.groups.offsets.of("g").committed[FLIGHTS].offset == 1
    synced = await host.groups.sync("g", SyncAsk("a", None, joined.generation_id, None, None, {"a": b"all"}))
    assert synced.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.groups.heartbeat("g", "a", None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    disk.room_bytes = None
    assert (await host.groups.join("g", ask("a"))).generation_id == 2
    assert commit(host, 2) is ErrorCode.NONE
    host.close()


def test_offsets_of_a_transaction_count_when_it_commits(tmp_path: Path) -> None:
    host = start(tmp_path)
    host.groups.check_commit("g", "", None, -1)
    commit(host, 1)
    producer = Producer(500, 0)
    commit(host, 2, producer=producer)
    offsets = host.groups.offsets.of("g")
    assert offsets.committed[FLIGHTS].offset == 1
    assert offsets.is_pending(FLIGHTS)
    again = host.restart(clean=False)
    assert again.groups.offsets.of("g").is_pending(FLIGHTS), "pending survives a restart"
    where = TopicPartition(OFFSETS_TOPIC, 0)
    assert at_once(again.markers.write(Marker(producer, True, 0), [where])) == {where: ErrorCode.NONE}
    for host in (again, again.restart()):
        assert host.groups.offsets.of("g").committed[FLIGHTS].offset == 2
        assert not host.groups.offsets.of("g").is_pending(FLIGHTS)
    host.close()


def test_offsets_of_an_aborted_transaction_are_forgotten(tmp_path: Path) -> None:
    host = start(tmp_path)
    host.groups.check_commit("g", "", None, -1)
    commit(host, 1)
    commit(host, 2, producer=Producer(500, 0))
    where = TopicPartition(OFFSETS_TOPIC, 0)
    at_once(host.markers.write(Marker(Producer(500, 0), False, 0), [where]))
    again = host.restart()
    assert again.groups.offsets.of("g").committed[FLIGHTS].offset == 1
    assert not again.groups.offsets.of("g").is_pending(FLIGHTS)
    again.close()


def test_a_group_whose_only_offsets_were_aborted_is_not_there_after_a_restart(tmp_path: Path) -> None:
    host = start(tmp_path)
    for group in ("aborted", "pending"):
        host.groups.check_commit(group, "", None, -1)
    commit(host, 1, group="aborted", producer=Producer(500, 0))
    where = TopicPartition(OFFSETS_TOPIC, 0)
    at_once(host.markers.write(Marker(Producer(500, 0), False, 0), [where]))
    commit(host, 1, group="pending", producer=Producer(501, 0))
    again = host.restart()
    assert not again.groups.exists("aborted")
    assert again.groups.exists("pending")
    again.close()


def test_a_later_plain_commit_wins_over_an_earlier_one_in_a_transaction(tmp_path: Path) -> None:
    host = start(tmp_path)
    host.groups.check_commit("g", "", None, -1)
    commit(host, 2, producer=Producer(500, 0))
    commit(host, 3)
    at_once(host.markers.write(Marker(Producer(500, 0), True, 0), [TopicPartition(OFFSETS_TOPIC, 0)]))
    assert host.groups.offsets.of("g").committed[FLIGHTS].offset == 3
    host.close()


def test_keys_of_newer_kafka_versions_are_passed_over(tmp_path: Path) -> None:
    host = start(tmp_path)
    host.groups.check_commit("g", "", None, -1)
    commit(host, 1)
    host.groups.log.append("g", [Entry(b"\x00\x63future", b"\x00\x00")])
    assert host.restart().groups.offsets.of("g").committed[FLIGHTS].offset == 1


async def test_a_commit_from_outside_may_name_a_member_as_long_as_there_is_none(tmp_path: Path) -> None:
    host = start(tmp_path)
    for member, generation, error in (("x", -1, ErrorCode.NONE), ("x", 3, ErrorCode.ILLEGAL_GENERATION)):
        assert host.groups.check_commit("new", member, None, generation) is error
        host.groups.groups.clear()
    await stable(host)
    assert host.groups.check_commit("g", "x", None, -1) is ErrorCode.UNKNOWN_MEMBER_ID
    host.groups.leave("g", [Leaver("a", None)])
    assert host.groups.check_commit("g", "x", None, -1) is ErrorCode.NONE
    assert host.groups.check_commit("g", "x", None, 1) is not ErrorCode.NONE
    host.close()


async def test_a_group_of_commits_alone_goes_with_the_last_of_them(tmp_path: Path) -> None:
    host = start(tmp_path)
    assert host.groups.check_commit("g", "", None, -1) is ErrorCode.NONE
    other = TopicPartition("flights", 1)
    assert commit(host, 4) is ErrorCode.NONE
    host.groups.offsets.commit("g", {other: Committed(1, 7, "", 0)}, is_known=lambda _: True)
    host.groups.remove_offsets("g", [FLIGHTS])
    assert "g" in host.groups.groups
    host.groups.remove_offsets("g", [other])
    assert "g" not in host.groups.groups
    host.close()


async def test_a_group_without_a_name_has_no_members(tmp_path: Path) -> None:
    host = start(tmp_path)
    assert host.groups.heartbeat("", "a", None, 1) is ErrorCode.INVALID_GROUP_ID
    assert (await host.groups.sync("", SyncAsk("a", None, 1, None, None, {}))).error is ErrorCode.INVALID_GROUP_ID
    host.close()
