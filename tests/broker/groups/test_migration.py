"""A group goes over from one protocol to the other, and back, while its members live (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.coordination.host import TopicShape
from broker.groups.consumer.model import JOIN_EPOCH, LEAVE_EPOCH, NOTHING, HeartbeatAsk, HeartbeatRefused, MemberState
from broker.groups.model import GroupProtocol, JoinAsk, JoinResult, Leaver, MigrationPolicy, SyncAsk
from broker.wire.codec import decode_prefixed, encode_prefixed
from broker.wire.errors import ErrorCode
from broker.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from broker.wire.vocabulary import GroupState
from tests.broker.clock import ManualClock
from tests.broker.coordinator_host import Host, start

G = "readers"
NEW = HeartbeatAsk("new", JOIN_EPOCH, None, None, "client", "/host", 30_000, ["flights"], None, None, NOTHING)
SESSION_MS = 10_000
REBALANCE_MS = 30_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def host(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Host]:
    made = start(tmp_path, clock)
    made.create_topic("flights", 4)
    yield made
    made.close()


def subscribed(*owned: int, version: int = 1, name: str = "range") -> GroupProtocol:
    said = ConsumerProtocolSubscription(["flights"], None, [TopicPartition("flights", list(owned))] if owned else [])
    return GroupProtocol(name, encode_prefixed(said, version))


def ask(member_id: str = "", *, protocol: GroupProtocol | None = None, named: str = "old", **others: object) -> JoinAsk:
    protocols = (protocol or subscribed(),)
    given = JoinAsk(member_id, None, "client", "/host", "consumer", protocols, SESSION_MS, REBALANCE_MS, named)
    return replace(given, **others)  # type: ignore[arg-type]


def packed(*partitions: int, user_data: bytes | None = None) -> bytes:
    return encode_prefixed(ConsumerProtocolAssignment([TopicPartition("flights", list(partitions))], user_data), 1)


async def alone(host: Host, **others: object) -> JoinResult:
    """A classic group whose one member has every partition."""
    joined = await host.groups.join(G, ask(**others))  # type: ignore[arg-type]
    assert joined.error is ErrorCode.NONE
    assert await sync(host, joined, packed(0, 1, 2, 3)) == {0, 1, 2, 3}
    return joined


async def sync(host: Host, joined: JoinResult, assigned: bytes | None = None) -> set[int] | ErrorCode:
    assignments = {} if assigned is None else {joined.member_id: assigned}
    told = await host.groups.sync(
        G, SyncAsk(joined.member_id, None, joined.generation_id, "consumer", joined.protocol_name, assignments)
    )
    if told.error is not ErrorCode.NONE:
        return told.error
    read, _ = decode_prefixed(ConsumerProtocolAssignment, told.assignment)
    return {partition for topic in read.assigned_partitions for partition in topic.partitions}


def heartbeat(host: Host, joined: JoinResult) -> ErrorCode:
    return host.groups.heartbeat(G, joined.member_id, None, joined.generation_id)


def beat(host: Host, heartbeat_ask: HeartbeatAsk = NEW) -> tuple[int, set[int] | None]:
    result = host.groups.consumer_heartbeat(G, heartbeat_ask)
    told = result.assignment
    return result.member_epoch, None if told is None else {slot.partition for slot in told}


def stay(epoch: int, member_id: str = "new") -> HeartbeatAsk:
    return replace(NEW, member_id=member_id, member_epoch=epoch, names=None, owned=None, rebalance_timeout_ms=-1)


def refused(host: Host, heartbeat_ask: HeartbeatAsk = NEW) -> str:
    with pytest.raises(HeartbeatRefused) as caught:
        host.groups.consumer_heartbeat(G, heartbeat_ask)
    assert caught.value.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    return str(caught.value)


async def test_a_classic_member_goes_on_in_a_consumer_group_and_gives_up_its_half(host: Host) -> None:
    old = await alone(host)
    epoch, told = beat(host)
    assert (epoch, told) == (old.generation_id + 1, set()), "the classic member has everything still"
    assert host.groups.check_commit(G, "old", None, old.generation_id) is ErrorCode.NONE
    assert heartbeat(host, old) is ErrorCode.REBALANCE_IN_PROGRESS

    joined = await host.groups.join(G, ask("old"))
    assert (joined.error, joined.generation_id, joined.leader, joined.members) == (ErrorCode.NONE, epoch, "", ())
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    half = await sync(host, joined)
    assert isinstance(half, set)
    assert len(half) == 2
    assert beat(host, stay(epoch)) == (epoch, {0, 1, 2, 3} - half)
    assert heartbeat(host, joined) is ErrorCode.NONE
    assert host.groups.check_commit(G, "old", None, old.generation_id) is ErrorCode.ILLEGAL_GENERATION
    assert host.groups.consumer.groups[G].state is GroupState.STABLE


async def test_a_cooperative_member_reads_on_while_it_gives_up(host: Host) -> None:
    old = await alone(host, protocol=subscribed(name="cooperative-sticky"))
    epoch, _ = beat(host)
    joined = await host.groups.join(G, ask("old", protocol=subscribed(0, 1, 2, 3, name="cooperative-sticky")))
    assert joined.generation_id == old.generation_id, "the old epoch until it has let go"
    kept = await sync(host, joined)
    assert isinstance(kept, set)
    assert len(kept) == 2
    assert beat(host, stay(epoch))[1] is None, "it may still read them"
    assert heartbeat(host, joined) is ErrorCode.REBALANCE_IN_PROGRESS
    again = await host.groups.join(G, ask("old", protocol=subscribed(*kept, name="cooperative-sticky")))
    assert again.generation_id == epoch
    assert await sync(host, again) == kept
    assert beat(host, stay(epoch))[1] == {0, 1, 2, 3} - kept


async def test_a_classic_member_is_called_when_all_that_it_waits_for_is_free(host: Host) -> None:
    everything = replace(NEW, owned=NOTHING)
    beat(host, everything)
    group = host.groups.consumer.groups[G]
    joined = await host.groups.join(G, ask())
    assert await sync(host, joined) == set()
    assert heartbeat(host, joined) is ErrorCode.NONE, "nothing is free yet"
    held = group.members["new"].assigned
    host.groups.consumer_heartbeat(G, replace(stay(2), owned=held))
    kept = host.groups.consumer.groups[G].members["new"].assigned
    assert heartbeat(host, joined) is ErrorCode.NONE
    host.groups.consumer_heartbeat(G, replace(stay(2), owned=kept))
    assert heartbeat(host, joined) is ErrorCode.REBALANCE_IN_PROGRESS
    again = await host.groups.join(G, ask("old"))
    told = await sync(host, again)
    assert isinstance(told, set)
    assert len(told) == 2


async def test_when_the_last_of_the_new_protocol_leaves_the_others_rebalance_among_themselves(host: Host) -> None:
    await alone(host)
    epoch, _ = beat(host)
    joined = await host.groups.join(G, ask("old"))
    assert beat(host, stay(LEAVE_EPOCH)) == (LEAVE_EPOCH, None)
    assert G not in host.groups.consumer.groups
    assert heartbeat(host, joined) is ErrorCode.REBALANCE_IN_PROGRESS, "of the generation that it is at"
    again = await host.groups.join(G, ask("old"))
    assert (again.generation_id, again.leader, len(again.members)) == (epoch + 1, "old", 1)
    assert await sync(host, again, packed(0, 1, 2, 3)) == {0, 1, 2, 3}
    assert list(host.restart().groups.groups[G].members) == ["old"]


async def test_members_that_join_and_go_over_look_at_their_own_topics_alone(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may have a hundred thousand others."""
    host.create_topic("other")
    looks: set[str] = set()
    found = host.topic_shape

    def look(name: str) -> TopicShape | None:
        looks.add(name)
        return found(name)

    monkeypatch.setattr(host, "topic_shape", look)
    await alone(host)
    beat(host)
    joined = await host.groups.join(G, ask("old", protocol=subscribed(0, 1, 2, 3)))
    await sync(host, joined)
    beat(host, stay(LEAVE_EPOCH))
    assert looks == {"flights"}


@pytest.mark.parametrize("policy", MigrationPolicy)
async def test_the_policy_says_which_way_a_group_may_go(tmp_path: Path, policy: MigrationPolicy) -> None:
    host = start(tmp_path, group_consumer_migration_policy=policy)
    host.create_topic("flights", 4)
    await alone(host)
    if policy in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE):
        beat(host)
    else:
        assert "online upgrade is disabled" in refused(host)
        assert heartbeat(host, JoinResult(ErrorCode.NONE, "old", 1)) is ErrorCode.NONE
        host.groups.leave(G, [Leaver("old", None)])
        beat(host)
        assert (await host.groups.join(G, ask())).error is ErrorCode.NONE, "a classic one may always come"
    host.groups.consumer_heartbeat(G, stay(LEAVE_EPOCH))
    goes_back = policy in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)
    assert (G in host.groups.groups) == goes_back
    assert (G in host.groups.consumer.groups) != goes_back
    host.close()


async def test_groups_whose_members_cannot_be_understood_stay_as_they_are(host: Host) -> None:
    connect = await host.groups.join(G, ask(protocol_type="connect"))
    assert "does not use the consumer embedded protocol" in refused(host)
    host.groups.leave(G, [Leaver(connect.member_id, None)])
    broken = await host.groups.join(G, ask(protocol=GroupProtocol("range", b"\x00")))
    assert "malformed" in refused(host)
    host.groups.leave(G, [Leaver(broken.member_id, None)])
    joined = await host.groups.join(G, ask())
    await sync(host, joined, packed(0, user_data=b"mine"))
    assert "custom assignor" in refused(host)
    assert "is not a consumer group" in refused(host, stay(1))
    assert heartbeat(host, joined) is ErrorCode.NONE


async def test_who_waits_for_a_rebalance_is_told_to_join_the_group_that_it_became(host: Host) -> None:
    old = await alone(host)
    waiting = asyncio.create_task(host.groups.join(G, ask(named="second")))
    await asyncio.sleep(0)
    beat(host)
    joined = await waiting
    assert (joined.error, joined.member_id) == (ErrorCode.REBALANCE_IN_PROGRESS, "second")
    assert heartbeat(host, old) is ErrorCode.REBALANCE_IN_PROGRESS
    assert (await host.groups.join(G, ask("second"))).error is ErrorCode.NONE
    assert host.groups.consumer.groups[G].members.keys() == {"old", "second", "new"}


async def test_a_member_that_waits_for_its_assignment_is_told_too(host: Host) -> None:
    await alone(host)
    second = asyncio.create_task(host.groups.join(G, ask(named="second")))
    await asyncio.sleep(0)
    leader = await host.groups.join(G, ask("old"))
    waiting = asyncio.create_task(host.groups.sync(G, SyncAsk("second", None, leader.generation_id, None, None, {})))
    assert (await second).error is ErrorCode.NONE
    await asyncio.sleep(0)
    beat(host)
    assert (await waiting).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    "never",
    ["heartbeat", "join", "sync"],
)
async def test_a_classic_member_that_stops_is_dropped(host: Host, clock: ManualClock, never: str) -> None:
    """Silent for its own session; told to join, or given an assignment, and not back within its rebalance time-out."""
    old = await alone(host)
    epoch, _ = beat(host)
    joined = old
    if never == "sync":
        joined = await host.groups.join(G, ask("old"))
    elif never == "join":
        heartbeat(host, joined)
    limit_ms = SESSION_MS if never == "heartbeat" else REBALANCE_MS
    waited_ms = 0
    while waited_ms < limit_ms - 1:
        clock.advance(min(SESSION_MS - 1, limit_ms - 1 - waited_ms))
        waited_ms += min(SESSION_MS - 1, limit_ms - 1 - waited_ms)
        host.groups.tick()
        assert "old" in host.groups.consumer.groups[G].members
        if never != "heartbeat":
            heartbeat(host, joined)
        beat(host, stay(epoch))
    clock.advance(1)
    host.groups.tick()
    assert list(host.groups.consumer.groups[G].members) == ["new"]


async def test_a_classic_member_that_does_all_that_it_is_told_stays(host: Host, clock: ManualClock) -> None:
    await alone(host)
    epoch, _ = beat(host)
    joined = await host.groups.join(G, ask("old"))
    await sync(host, joined)
    for _ in range(10):
        clock.advance(SESSION_MS - 1)
        host.groups.tick()
        assert heartbeat(host, joined) is ErrorCode.NONE
        beat(host, stay(epoch))


async def test_a_restart_between_a_departure_and_the_rebalance_that_follows_loses_no_partition(host: Host) -> None:
    await alone(host)
    beat(host)
    joined = await host.groups.join(G, ask("old"))
    beat(host, stay(LEAVE_EPOCH))
    again = host.restart()
    assert heartbeat(again, joined) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_static_member_goes_over_and_back_in_its_place(host: Host) -> None:
    old = await alone(host, instance_id="i")
    epoch, told = beat(host, replace(NEW, instance_id="i"))
    assert told == {0, 1, 2, 3}, "no rebalance: it is one and the same"
    assert host.groups.heartbeat(G, old.member_id, "i", old.generation_id) is ErrorCode.FENCED_INSTANCE_ID
    back = await host.groups.join(G, ask(named="third", instance_id="i"))
    assert (back.error, back.generation_id) == (ErrorCode.NONE, epoch + 1)
    assert G in host.groups.groups
    assert host.groups.groups[G].instances == {"i": "third"}


async def test_the_ids_of_a_static_classic_member_are_checked(host: Host) -> None:
    beat(host)
    joined = await host.groups.join(G, ask(instance_id="i"))
    assert joined.error is ErrorCode.NONE
    fenced = await host.groups.join(G, ask("thief", instance_id="i"))
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
    unknown = await host.groups.join(G, ask("thief", instance_id="j"))
    assert unknown.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert host.groups.leave(G, [Leaver("thief", "i"), Leaver("", "j"), Leaver("nobody", None)]) == [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    epoch = host.groups.consumer.groups[G].epoch
    assert host.groups.leave(G, [Leaver("", "i")]) == [ErrorCode.NONE]
    assert list(host.groups.consumer.groups[G].members) == ["new"]
    assert host.groups.consumer.groups[G].epoch == epoch + 1


async def test_what_a_classic_member_may_not_ask(host: Host) -> None:
    beat(host)
    joined = await host.groups.join(G, ask())
    assert (await host.groups.join(G, ask(protocol_type="connect"))).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = ask(protocol=subscribed(name="sticky"), named="x")
    assert (await host.groups.join(G, other)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "one that all others have"
    broken = ask(protocol=GroupProtocol("range", b"\x00"), named="x")
    assert (await host.groups.join(G, broken)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    short = ask(named="x", session_timeout_ms=1)
    assert (await host.groups.join(G, short)).error is ErrorCode.INVALID_SESSION_TIMEOUT
    first = await host.groups.join(G, ask(named="x", requires_known_member_id=True))
    assert (first.error, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "x")
    for wrong, error in (
        (SyncAsk("old", None, joined.generation_id, "connect", None, {}), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (SyncAsk("old", None, joined.generation_id, None, "sticky", {}), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (SyncAsk("old", None, joined.generation_id - 1, None, None, {}), ErrorCode.ILLEGAL_GENERATION),
        (SyncAsk("new", None, 2, None, None, {}), ErrorCode.UNKNOWN_MEMBER_ID),
        (SyncAsk("old", "i", joined.generation_id, None, None, {}), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert (await host.groups.sync(G, wrong)).error is error
    beat(host, replace(NEW, member_id="third"))
    assert await sync(host, joined) is ErrorCode.REBALANCE_IN_PROGRESS
    assert host.groups.consumer.groups[G].members["old"].state is not MemberState.UNREVOKED_PARTITIONS


async def test_a_step_that_cannot_be_written_changes_neither_group(host: Host) -> None:
    old = await alone(host)
    with host.offline("__consumer_offsets"):
        with pytest.raises(HeartbeatRefused):
            beat(host)
        assert heartbeat(host, old) is ErrorCode.NONE
    beat(host)
    with host.offline("__consumer_offsets"):
        assert host.groups.leave(G, [Leaver("old", None)]) != [ErrorCode.NONE]
        assert (await host.groups.join(G, ask("old"))).error is not ErrorCode.NONE
    assert host.groups.consumer.groups[G].members["old"].epoch == old.generation_id
