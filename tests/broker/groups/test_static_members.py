"""Members of the classic protocol that have an instance id keep their place (KIP-345)."""

from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import GroupState
from tests.broker.groups.scenario import Story, stable_pair


def test_a_restarted_static_member_takes_its_place_without_a_rebalance() -> None:
    story = Story()
    story.join(named="a", instance="reader-1")
    story.sync("a", 1, {"a": b"all"})
    back = story.join(named="a2", instance="reader-1", skips=True)
    assert back is not None
    assert (back.error, back.generation_id, back.leader, back.skip_assignment) == (0, 1, "a2", True)
    assert story.state() is GroupState.STABLE
    assert story.heartbeat("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.group.heartbeat("a", "reader-1", 1, story.now_ms) is ErrorCode.FENCED_INSTANCE_ID
    synced = story.sync("a2", 1)
    assert synced is not None
    assert synced.assignment == b"all"


def test_an_old_client_as_static_leader_is_not_told_that_it_leads() -> None:
    story = Story()
    story.join(named="a", instance="reader-1")
    story.sync("a", 1, {"a": b"all"})
    back = story.join(named="a2", instance="reader-1")
    assert back is not None
    assert back.leader == "a", "it would compute a new assignment that the others never see"


def test_a_static_member_with_another_subscription_starts_a_rebalance() -> None:
    story = Story()
    story.join(named="a", instance="reader-1")
    story.sync("a", 1, {"a": b"all"})
    back = story.join(named="a2", instance="reader-1", protocols=(("sticky", b""),))
    assert back is not None
    assert back.generation_id == 2


def test_two_that_wait_under_one_instance_id_the_second_fences_the_first() -> None:
    story = Story()
    stable_pair(story)
    assert story.join(named="s1", instance="reader-1") is None
    assert story.join(named="s2", instance="reader-1") is None
    assert story.joined["s1"].error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_comes_back_under_its_id_is_checked_as_all_are() -> None:
    story = Story()
    story.join(named="a", instance="i")
    generation = story.group.generation_id
    for member_id, instance, protocol_type, error in (
        ("a", "j", "consumer", ErrorCode.UNKNOWN_MEMBER_ID),
        ("thief", "i", "consumer", ErrorCode.FENCED_INSTANCE_ID),
        ("nobody", "j", "consumer", ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", "i", "connect", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        refused = story.join(member_id, instance=instance, protocol_type=protocol_type)
        assert refused is not None
        assert (refused.error, refused.member_id) == (error, member_id)
    back = story.join("a", instance="i")
    assert back is not None
    assert (back.error, back.generation_id) == (ErrorCode.NONE, generation)
    assert story.group.instances == {"i": "a"}


def test_static_members_are_waited_for_until_their_session_ends() -> None:
    story = Story()
    story.join(named="s", instance="reader-1", session_ms=20_000, rebalance_ms=5_000)
    story.sync("s", 1, {"s": b"all"})
    assert story.join(named="b", rebalance_ms=5_000) is None
    story.pass_time(5_000)
    assert story.joined["b"].error is ErrorCode.NONE
    assert "s" in story.group.members, "it keeps its place"
    story.heartbeat("b", 2)
    story.sync("b", 2, {})
    for _ in range(3):
        story.now_ms += 5_000
        story.heartbeat("b", 2)
    story.pass_time(0)
    assert "s" not in story.group.members


def test_who_joins_while_all_static_members_are_away_waits_for_one_rebalance_at_most() -> None:
    story = Story()
    story.join(named="s", instance="reader-1", session_ms=60_000, rebalance_ms=5_000)
    story.sync("s", 1, {"s": b"all"})
    story.join(named="b", rebalance_ms=5_000)
    story.leave("b")
    story.pass_time(5_000)
    assert "s" in story.group.members, "it keeps its place"
    assert story.join(named="c", rebalance_ms=5_000) is None
    story.pass_time(5_000)
    assert story.joined["c"].error is ErrorCode.NONE


def test_a_static_member_leaves_by_its_instance_id() -> None:
    story = Story()
    story.join(named="s", instance="reader-1")
    assert story.leave(instance="reader-2") is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.leave("other", instance="reader-1") is ErrorCode.FENCED_INSTANCE_ID
    assert story.leave(instance="reader-1") is ErrorCode.NONE
    assert story.state() is GroupState.EMPTY
