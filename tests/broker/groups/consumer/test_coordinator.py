"""Consumer groups on a real log: time, restarts, what classic groups have to do with them, a disk that fails."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.coordination.host import TopicShape
from broker.groups.consumer.model import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NOTHING,
    HeartbeatAsk,
    HeartbeatRefused,
    HeartbeatResult,
)
from broker.groups.formats import Committed
from broker.groups.limits import (
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_SESSION_TIMEOUT_MS,
    CONSUMER_TOPICS_LOOK_MS,
    OFFSETS_RETENTION_MS,
)
from broker.groups.model import GroupProtocol, JoinAsk
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from tests.broker.clock import ManualClock
from tests.broker.coordinator_host import Host, start
from tests.broker.log.support import FaultyDisk

ASK = HeartbeatAsk("a", JOIN_EPOCH, None, None, "client", "/host", 30_000, ["flights"], None, None, NOTHING)
CLASSIC = JoinAsk("", None, "client", "/host", "consumer", (GroupProtocol("range", b""),), 10_000, 30_000, "old-1")
FLIGHTS = TopicPartition("flights", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def host(tmp_path: Path, clock: ManualClock) -> Host:
    made = start(tmp_path, clock)
    made.create_topic("flights", 4)
    return made


def beat(host: Host, ask: HeartbeatAsk = ASK) -> HeartbeatResult:
    return host.groups.consumer_heartbeat("readers", ask)


def refused(host: Host, ask: HeartbeatAsk = ASK) -> ErrorCode:
    with pytest.raises(HeartbeatRefused) as caught:
        beat(host, ask)
    return caught.value.error_code


def stay(epoch: int, member_id: str = "a") -> HeartbeatAsk:
    return replace(ASK, member_id=member_id, member_epoch=epoch, names=None, owned=None, rebalance_timeout_ms=-1)


def test_a_restarted_coordinator_knows_members_epochs_and_assignments(host: Host) -> None:
    told = beat(host)
    again = host.restart()
    assert again.groups.consumer.groups["readers"].members == host.groups.consumer.groups["readers"].members
    # The topics are looked at anew: a new epoch, with the same assignment.
    after = beat(again, replace(stay(told.member_epoch), owned=told.assignment))
    assert (after.member_epoch, after.assignment) == (told.member_epoch + 1, None)


def test_a_silent_member_is_dropped_and_others_take_over(host: Host, clock: ManualClock) -> None:
    beat(host)
    beat(host, replace(ASK, member_id="b"))
    clock.advance(CONSUMER_SESSION_TIMEOUT_MS - 1)
    beat(host, stay(3, "b"))
    clock.advance(1)
    host.groups.tick()
    assert list(host.groups.consumer.groups["readers"].members) == ["b"]
    told = beat(host, stay(3, "b")).assignment
    assert told is not None
    assert len(told) == 4
    assert refused(host, stay(2)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_that_a_full_disk_keeps_is_dropped_when_there_is_room(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    host = Host(tmp_path / "full", clock, BrokerConfig(tmp_path / "full"), disk)
    host.create_topic("flights", 4)
    beat(host)
    disk.room_bytes = 0
    clock.advance(CONSUMER_SESSION_TIMEOUT_MS)
    host.groups.tick()
    assert "members of group readers could not be dropped: " in caplog.text
    disk.room_bytes = None
    clock.advance(CONSUMER_HEARTBEAT_INTERVAL_MS)
    host.groups.tick()
    assert not host.groups.consumer.groups["readers"].members
    host.close()


def test_who_does_not_let_go_in_time_is_dropped(host: Host, clock: ManualClock) -> None:
    all_of_it = beat(host).assignment
    beat(host, replace(ASK, member_id="b"))
    beat(host, replace(stay(2), owned=all_of_it))
    for _ in range(3):
        clock.advance(10_000)
        host.groups.tick()
        if "a" in host.groups.consumer.groups["readers"].members:
            beat(host, replace(stay(2), owned=all_of_it))
        beat(host, stay(host.groups.consumer.groups["readers"].members["b"].epoch, "b"))
    host.groups.tick()
    assert list(host.groups.consumer.groups["readers"].members) == ["b"]


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(host: Host) -> None:
    assert host.groups.check_commit("readers", "", None, -1) is ErrorCode.NONE
    commit(host)
    beat(host)
    assert host.groups.offsets.of("readers").committed[FLIGHTS].offset == 7
    assert host.groups.check_commit("readers", "a", None, 2) is ErrorCode.NONE
    assert host.groups.check_commit("readers", "a", None, 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert host.groups.check_commit("readers", "", None, -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert host.groups.check_commit("readers", "", None, -1, transactional=True) is ErrorCode.NONE


async def test_an_empty_consumer_group_makes_room_for_a_classic_one(host: Host) -> None:
    beat(host)
    beat(host, stay(LEAVE_EPOCH))
    assert (await host.groups.join("readers", CLASSIC)).error is ErrorCode.NONE
    assert "readers" not in host.restart().groups.consumer.groups


def test_regular_expressions_are_matched_here_and_bad_ones_refused(host: Host, clock: ManualClock) -> None:
    host.create_topic("flights-old", 1)
    told = beat(host, replace(ASK, names=None, regex="flights.*"))
    assert told.assignment is not None
    assert len(told.assignment) == 5
    assert host.groups.subscribed_topics("readers") == frozenset({"flights", "flights-old"})
    host.create_topic("flights-new", 2)
    clock.advance(CONSUMER_TOPICS_LOOK_MS)
    grown = beat(host, stay(2)).assignment
    assert grown is not None
    assert len(grown) == 7
    assert refused(host, replace(ASK, names=None, regex="(")) is ErrorCode.INVALID_REGULAR_EXPRESSION


def topics_of(host: Host, member_id: str) -> set[str | None]:
    target = host.groups.consumer.groups["readers"].target[member_id]
    return {host.topic_name(slot.topic_id) for slot in target}


def test_a_regular_expression_matches_no_topic_that_the_member_may_not_see(host: Host, clock: ManualClock) -> None:
    host.create_topic("hidden", 3)
    shown = {"flights"}
    told = beat(host, replace(ASK, names=None, regex=".*", sees=shown.__contains__))
    assert topics_of(host, "a") == {"flights"}
    shown.add("hidden")
    clock.advance(CONSUMER_TOPICS_LOOK_MS)
    beat(host, replace(stay(told.member_epoch), sees=shown.__contains__))
    assert topics_of(host, "a") == {"flights", "hidden"}


def test_a_member_that_was_not_heard_of_since_the_load_gets_no_topic_that_it_may_not_see(host: Host) -> None:
    host.create_topic("hidden", 3)
    told = beat(host, replace(ASK, names=None, regex=".*", sees={"flights"}.__contains__))
    again = host.restart()
    beat(again, replace(ASK, member_id="b", names=None, regex=".*", sees=lambda topic: True))
    assert (topics_of(again, "a"), topics_of(again, "b")) == ({"flights"}, {"hidden"})
    beat(again, replace(stay(told.member_epoch), sees={"flights"}.__contains__))
    assert topics_of(again, "a") == {"flights"}


def test_no_regular_expression_stops_the_broker(host: Host) -> None:
    host.create_topic("a" * 200 + "!", 1)
    started = time.process_time()
    beat(host, replace(ASK, names=None, regex="(a+)+$"))
    assert time.process_time() - started < 5, "a backtracking matcher needs longer than the universe is old"


def test_deleting_and_expiring(host: Host, clock: ManualClock) -> None:
    beat(host)
    commit(host, "a", 2)
    assert host.groups.delete("readers") is ErrorCode.NON_EMPTY_GROUP
    beat(host, stay(LEAVE_EPOCH))
    clock.advance(OFFSETS_RETENTION_MS - 1)
    host.groups.expire_offsets()
    assert host.groups.exists("readers")
    clock.advance(2)
    host.groups.expire_offsets()
    assert not host.groups.exists("readers")
    host = host.restart()
    assert not host.groups.exists("readers")
    beat(host)
    beat(host, stay(LEAVE_EPOCH))
    assert host.groups.delete("readers") is ErrorCode.NONE
    assert not host.restart().groups.exists("readers")


def test_a_step_that_cannot_be_written_is_not_taken(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    beat(host)
    before = host.groups.consumer.groups["readers"]
    for index in range(100):
        if host.partition("__consumer_offsets", index) is None:
            break
        host.log("__consumer_offsets", index).close()
    assert refused(host, replace(ASK, member_id="b")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.groups.consumer.groups["readers"] is before


def commit(host: Host, member_id: str = "", epoch: int = -1) -> None:
    assert host.groups.check_commit("readers", member_id, None, epoch) is ErrorCode.NONE
    now_ms = host.clock.now_ms()
    host.groups.offsets.commit("readers", {FLIGHTS: Committed(7, -1, "", now_ms)}, is_known=lambda _: True)


def test_a_refused_heartbeat_leaves_an_empty_classic_group_as_it_was(host: Host) -> None:
    commit(host)
    assert refused(host, replace(ASK, assignor="sticky")) is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "readers" in host.groups.groups
    assert host.groups.delete("readers") is ErrorCode.NONE
    assert not host.groups.offsets.has_any("readers")


def test_an_idle_heartbeat_looks_at_no_topic(host: Host, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    told = beat(host)
    looks: list[str] = []
    found = host.topic_shape

    def look(name: str) -> TopicShape | None:
        looks.append(name)
        return found(name)

    monkeypatch.setattr(host, "topic_shape", look)
    for _ in range(10):
        beat(host, stay(told.member_epoch))
    assert looks == []
    clock.advance(CONSUMER_TOPICS_LOOK_MS)
    beat(host, stay(told.member_epoch))
    assert looks == ["flights"]
