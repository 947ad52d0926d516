"""Stories of the classic group protocol, with the time told, not waited for."""

from dataclasses import replace
from math import inf

from hypothesis import example, given
from hypothesis import strategies as st

from broker.groups.model import Effects, JoinResult, SyncResult
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import GroupState
from tests.broker.groups.scenario import RULES, Story, stable_pair


def test_one_member_joins_leads_and_is_stable() -> None:
    story = Story()
    joined = story.join(named="a")
    assert joined is not None
    assert (joined.error, joined.generation_id, joined.leader, joined.protocol_name) == (0, 1, "a", "range")
    assert [m.metadata for m in joined.members] == [b"flights"]
    assert story.state() is GroupState.COMPLETING_REBALANCE

    synced = story.sync("a", 1, {"a": b"all"})

    assert synced is not None
    assert synced.assignment == b"all"
    assert story.state() is GroupState.STABLE
    assert story.stores == 1


def test_a_second_member_makes_the_first_come_back() -> None:
    story = Story()
    story.join(named="a")
    story.sync("a", 1, {"a": b"all"})

    assert story.join(named="b") is None, "waits for the others"
    assert story.heartbeat("a", 1) is ErrorCode.REBALANCE_IN_PROGRESS
    leader = story.join("a")

    assert leader is not None
    assert leader.generation_id == 2
    assert [m.member_id for m in leader.members] == ["a", "b"]
    assert story.joined["b"].members == (), "only the leader sees the others"
    assert story.sync("b", 2) is None, "waits for the leader"
    story.sync("a", 2, {"a": b"left", "b": b"right"})
    assert story.synced["b"].assignment == b"right"


def test_members_of_a_wrong_generation_or_unknown_id_are_refused() -> None:
    story = Story()
    a, _, generation = stable_pair(story)
    assert story.heartbeat(a, generation) is ErrorCode.NONE
    assert story.heartbeat(a, generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert story.heartbeat("nobody", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.commit(a, generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert story.commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID, "a simple consumer, while the group has members"
    stale = story.sync(a, generation - 1)
    assert stale is not None
    assert stale.error is ErrorCode.ILLEGAL_GENERATION


def test_commits_are_refused_between_join_and_sync_but_not_before() -> None:
    story = Story()
    a, _, generation = stable_pair(story)
    story.join(named="c")
    assert story.commit(a, generation) is ErrorCode.NONE, "the old generation may still save its positions"
    story.join("a")
    story.join("b")
    assert story.state() is GroupState.COMPLETING_REBALANCE
    assert story.commit(a, generation + 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_new_member_must_come_back_with_the_id_it_was_given() -> None:
    story = Story()
    first = story.join(named="a", asks_id_first=True)
    assert first is not None
    assert (first.error, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "a")
    assert story.state() is GroupState.EMPTY
    again = story.join("a", asks_id_first=True)
    assert again is not None
    assert again.error is ErrorCode.NONE


def test_an_id_that_was_given_out_lapses_with_the_session() -> None:
    story = Story()
    story.join(named="a", asks_id_first=True, session_ms=10_000)
    story.pass_time(10_000)
    late = story.join("a", asks_id_first=True)
    assert late is not None
    assert late.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_dropped_after_its_session_timeout() -> None:
    story = Story()
    _, b, generation = stable_pair(story)
    story.pass_time(9_000)
    assert story.heartbeat(b, generation) is ErrorCode.NONE
    story.pass_time(1_000)
    assert list(story.group.members) == [b]
    assert story.heartbeat(b, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    alone = story.join(b)
    assert alone is not None
    assert (alone.leader, alone.generation_id) == (b, generation + 1)


def test_who_does_not_come_back_in_the_rebalance_timeout_is_left_behind() -> None:
    story = Story()
    a, b, generation = stable_pair(story)
    story.join(named="c")
    assert story.join(a) is None, "b is still missing"
    story.now_ms += 29_999
    story.heartbeat(b, generation)
    story.pass_time(1)
    assert set(story.joined) == {"a", "c"}
    assert story.joined["a"].generation_id == generation + 1
    assert b not in story.group.members


def test_a_member_that_joined_but_never_synced_is_dropped() -> None:
    story = Story()
    stable_pair(story)
    story.join(named="c", session_ms=60_000)
    story.join("a", session_ms=60_000)
    story.join("b", session_ms=60_000)
    story.sync("a", story.group.generation_id, {})
    story.sync("b", story.group.generation_id)
    story.pass_time(30_000)
    assert set(story.group.members) == {"a", "b"}


def test_the_leader_leaves_while_others_wait_for_its_assignment() -> None:
    story = Story()
    stable_pair(story)
    story.join(named="c")
    story.join("a")
    story.join("b")
    assert story.sync("b", story.group.generation_id) is None
    assert story.leave("a") is ErrorCode.NONE
    assert story.synced["b"].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert story.group.leader_id == "b"


def test_the_last_member_leaves_and_the_group_is_empty() -> None:
    story = Story()
    story.join(named="a")
    story.sync("a", 1, {})
    assert story.leave("a") is ErrorCode.NONE
    assert story.state() is GroupState.EMPTY
    assert story.group.generation_id == 2
    assert story.stores == 2, "the empty group is stored, or a restart would bring the member back"
    assert story.group.next_deadline_ms() == inf
    assert story.commit("", -1) is ErrorCode.NONE


def test_an_empty_group_waits_for_a_fleet_to_arrive() -> None:
    story = Story(replace(RULES, initial_rebalance_delay_ms=3_000))
    assert story.join(named="a", rebalance_ms=7_000) is None
    story.pass_time(2_000)
    assert story.join(named="b", rebalance_ms=7_000) is None
    story.pass_time(1_000)
    assert story.joined == {}, "b came: another delay"
    story.pass_time(3_000)
    assert set(story.joined) == {"a", "b"}


def test_the_wait_for_a_fleet_ends_with_the_rebalance_timeout() -> None:
    story = Story(replace(RULES, initial_rebalance_delay_ms=3_000))
    for name in ("a", "b", "c", "d"):
        story.join(named=name, rebalance_ms=7_000, session_ms=60_000)
        story.pass_time(1_900)
    assert set(story.joined) == {"a", "b", "c", "d"}
    assert story.now_ms == 7_600


def test_protocols_must_be_common_to_all() -> None:
    story = Story()
    story.join(named="a", protocols=(("range", b"1"), ("sticky", b"2")))
    alien = story.join(named="b", protocols=(("roundrobin", b""),))
    assert alien is not None
    assert alien.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    worker = story.join(named="w", protocol_type="connect")
    assert worker is not None
    assert worker.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    nothing = story.join(named="n", protocols=())
    assert nothing is not None
    assert nothing.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert story.join(named="c", protocols=(("sticky", b"3"),)) is None
    leader = story.join("a", protocols=(("range", b"1"), ("sticky", b"2")))
    assert leader is not None
    assert leader.protocol_name == "sticky"
    assert [m.metadata for m in leader.members] == [b"2", b"3"]


def test_a_follower_that_joins_again_unchanged_gets_the_same_generation() -> None:
    story = Story()
    _, b, generation = stable_pair(story)
    again = story.join(b)
    assert again is not None
    assert again.generation_id == generation
    assert story.state() is GroupState.STABLE


def test_limits_of_size_and_session() -> None:
    story = Story()
    short = story.join(named="x", session_ms=999)
    assert short is not None
    assert short.error is ErrorCode.INVALID_SESSION_TIMEOUT
    for name in "abcde":
        story.join(named=name)
    full = story.join(named="f")
    assert full is not None
    assert full.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_an_assignment_that_could_not_be_stored_is_given_to_nobody() -> None:
    story = Story()
    a, _, generation = stable_pair(story)
    story.join(named="c")
    story.join("a")
    story.join("b")
    story.sync("b", generation + 1)
    story.sync(a, generation + 1, {"b": b"new"})
    after = story.group.assignment_not_stored(
        Effects(syncs=dict(story.synced)), ErrorCode.COORDINATOR_NOT_AVAILABLE, story.now_ms
    )
    assert {id_: r.error for id_, r in after.syncs.items()} == dict.fromkeys("ab", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert story.state() is GroupState.PREPARING_REBALANCE
    assert all(m.assignment == b"" for m in story.group.members.values())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "rejoin", "sync", "leave", "beat", "time"]),
        st.integers(0, 4),
        st.integers(0, 15_000),
    ),
    max_size=60,
)


@given(STEPS)
@example([("join", 0, 0), ("join", 0, 0), ("beat", 1, 0), ("time", 0, 10_000)])
def test_whatever_happens_only_the_current_generation_is_obeyed(steps: list[tuple[str, int, int]]) -> None:
    """Generations never go back; nobody of an older one may commit; every answered member is told a true generation."""
    story = Story()
    told: dict[str, int] = {}
    last = 0
    for verb, who, ms in steps:
        members = list(story.group.members)
        member = members[who % len(members)] if members else "nobody"
        if verb == "join":
            story.join()
        elif verb == "rejoin":
            story.join(member)
        elif verb == "sync":
            story.sync(member, story.group.generation_id, dict.fromkeys(members, b"x"))
        elif verb == "leave":
            story.leave(member)
        elif verb == "beat":
            story.heartbeat(member, story.group.generation_id)
        else:
            story.pass_time(ms)
        group = story.group
        assert group.generation_id >= last
        last = group.generation_id
        for id_, result in story.joined.items():
            if result.error is ErrorCode.NONE:
                assert result.generation_id == group.generation_id
                told[id_] = result.generation_id
        for id_, generation in told.items():
            if generation < group.generation_id:
                assert story.commit(id_, generation) is not ErrorCode.NONE
        assert (group.leader_id in group.members) == bool(group.members)
        assert bool(group.members) == (group.state is not GroupState.EMPTY) or group.pending_members
        if group.state is GroupState.PREPARING_REBALANCE:
            assert group.next_deadline_ms() < inf, "a rebalance that nothing would end"


def test_who_leaves_while_it_waits_is_told_that_it_is_out() -> None:
    story = Story()
    a, _, generation = stable_pair(story)
    story.join(named="c")
    assert story.leave("c") is ErrorCode.NONE
    assert story.joined["c"] == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")
    story.join("b")
    assert story.join(a) is not None
    assert story.sync("b", generation + 1) is None
    assert story.leave("b") is ErrorCode.NONE
    assert story.synced["b"] == SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_rebalance_waits_for_an_id_that_was_given_out_until_it_leaves_or_lapses() -> None:
    for lapses in (False, True):
        story = Story()
        a, _, generation = stable_pair(story)
        story.join(named="p", asks_id_first=True)
        story.join(a)
        assert story.join("b") is None, "the third may still come"
        if lapses:
            story.pass_time(10_000)
        else:
            assert story.leave("p") is ErrorCode.NONE
        assert {id_: answer.generation_id for id_, answer in story.joined.items()} == {
            a: generation + 1,
            "b": generation + 1,
        }


def test_nobody_is_waited_for_where_the_last_member_left_but_an_id_was_given_out() -> None:
    story = Story(now_ms=500)
    story.join(named="a")
    story.join(named="p", asks_id_first=True)
    story.leave("a")
    assert story.group.next_deadline_ms() == 500
