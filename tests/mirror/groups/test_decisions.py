"""When a group's offset is committed at the target. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.groups.decisions import GroupDecision, plan_group_sync
from mirror.link import Link
from mirror.offsets.group_entries import GroupAction, Written
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import GroupMap

LINK = Link("l", Site("east", "e:1"), Site("west", "w:1"), (".*",), "prefixed", (".*",))
HERE = TopicPartition("t", 0)
THERE = TopicPartition("east.t", 0)


def decide(
    source: int,
    translated: int | None,
    target: int | None = None,
    *,
    written: Written | None = None,
    empty: bool = True,
    metadata: str = "",
) -> GroupDecision:
    at_target = {} if target is None else {THERE: CommittedOffset(target)}
    known: dict[tuple[str, int], Written] = {} if written is None else {HERE: written}
    committed = {HERE: CommittedOffset(source, metadata)}
    mapped = OffsetMap() if translated is None else one_run({HERE: (source, translated)})
    (decision,) = plan_group_sync(LINK, "g", GroupMap(mapped), committed, at_target, known, target_group_empty=empty)
    return decision


def one_run(places: dict[TopicPartition, tuple[int, int]]) -> OffsetMap:
    """Maps that say where one record of each partition lies."""
    return OffsetMap(
        {w: PartitionMap([Interval(*at)], End(at[0] + 1, at[1] + 1), at[0] + 1) for w, at in places.items()}
    )


def test_a_first_offset_is_committed_with_its_metadata() -> None:
    decision = decide(7, 9, metadata="state=3")
    assert decision == GroupDecision("g", HERE, THERE, GroupAction.COMMIT, 7, 9, "state=3", Written(7, 9))


def test_offset_zero_is_an_offset_like_any_other() -> None:
    assert decide(0, 0).action is GroupAction.COMMIT
    assert decide(0, 0, 0).action is GroupAction.UP_TO_DATE


def test_what_is_not_mirrored_is_held() -> None:
    assert decide(7, None).action is GroupAction.HOLD_NOT_MIRRORED
    assert decide(7, None, 3, written=Written(3, 3)).action is GroupAction.HOLD_NOT_MIRRORED


def test_what_the_link_wrote_of_that_very_offset_is_known_though_the_map_that_was_read_ends_before() -> None:
    """Behind the last record a marker: a worker knows at once that it is one, and writes so a second later."""
    known = Written(7, 9)
    assert decide(7, None, 9, written=known).action is GroupAction.UP_TO_DATE
    assert decide(7, None, written=known).target_offset == 9
    assert decide(8, None, 9, written=known).action is GroupAction.HOLD_NOT_MIRRORED
    assert decide(7, None, 12, written=known).target_offset == 12, "never back"
    doubted = GroupMap(OffsetMap(), in_doubt=frozenset({HERE}))
    (decision,) = plan_group_sync(
        LINK, "g", doubted, {HERE: CommittedOffset(7)}, {}, {HERE: known}, target_group_empty=True
    )
    assert decision.action is GroupAction.HOLD_OFFSETS_IN_DOUBT


def test_an_active_group_is_left_alone() -> None:
    assert decide(7, 9, empty=False).action is GroupAction.SKIP_ACTIVE
    assert decide(7, 9, 9, empty=False).action is GroupAction.UP_TO_DATE


def test_a_group_that_moved_on_at_the_target_is_left_alone() -> None:
    assert decide(7, 9, 20).action is GroupAction.SKIP_MOVED_ON
    assert decide(7, 9, 20, written=Written(7, 9)).action is GroupAction.SKIP_MOVED_ON
    assert decide(5, 6, 20, written=Written(7, 9)).action is GroupAction.SKIP_MOVED_ON


def test_it_goes_back_only_when_the_source_went_back() -> None:
    assert decide(3, 4, 9, written=Written(7, 9)).action is GroupAction.COMMIT
    assert decide(7, 4, 9, written=Written(7, 9)).action is GroupAction.SKIP_MOVED_ON
    assert decide(3, 4, 9).action is GroupAction.SKIP_MOVED_ON


def test_changed_metadata_alone_is_carried_over() -> None:
    assert decide(7, 9, 9, metadata="new").action is GroupAction.COMMIT


@example(source=3, translated=5, target=7, written=Written(3, 5, 7), empty=True)
@given(
    st.integers(0, 9),
    st.one_of(st.none(), st.integers(0, 9)),
    st.one_of(st.none(), st.integers(0, 9)),
    st.one_of(st.none(), st.builds(Written, st.integers(0, 9), st.integers(0, 9), st.none() | st.integers(0, 9))),
    st.booleans(),
)
def test_never_a_guess_never_back_by_itself(
    source: int, translated: int | None, target: int | None, written: Written | None, empty: bool
) -> None:
    action = decide(source, translated, target, written=written, empty=empty).action
    if action is GroupAction.COMMIT:
        assert translated is not None or (written is not None and written.source_offset == source)
        assert empty
        if target is not None and translated is not None and translated < target:
            assert written is not None
            assert target in (written.target_offset, written.replaced)
            assert source < written.source_offset or (source, target) == (written.source_offset, written.replaced)


@pytest.mark.parametrize(("offset", "expected"), [(0, 0), (1, None)])
def test_an_empty_partition_translates_at_its_end_only(offset: int, expected: int | None) -> None:
    empty = OffsetMap({HERE: PartitionMap([], End(0, 0))})
    assert GroupMap(empty).to_target(*HERE, offset) == expected


def test_translation_behind_the_tip_is_exact() -> None:
    mapped = OffsetMap({HERE: PartitionMap([Interval(0, 0), Interval(10, 15)], End(20, 25))})
    assert [GroupMap(mapped).to_target(*HERE, offset) for offset in (0, 9, 10, 19, 20, 21)] == [0, 9, 15, 24, 25, None]


def test_partitions_of_one_group_are_decided_each_for_itself() -> None:
    committed = {TopicPartition("t", at): CommittedOffset(7) for at in (2, 0, 1)}
    mapped = one_run({TopicPartition("t", 0): (7, 9)})
    at_target = {TopicPartition("east.t", 0): CommittedOffset(9), TopicPartition("east.t", 1): CommittedOffset(2)}
    decisions = plan_group_sync(LINK, "g", GroupMap(mapped), committed, at_target, {}, target_group_empty=True)
    assert [(d.source.partition, d.action, d.target_offset) for d in decisions] == [
        (0, GroupAction.UP_TO_DATE, 9),
        (1, GroupAction.HOLD_NOT_MIRRORED, None),
        (2, GroupAction.HOLD_NOT_MIRRORED, None),
    ]
    assert {d.target.topic for d in decisions} == {"east.t"}


def test_a_group_that_stood_still_at_the_source_is_not_moved_back() -> None:
    """The map now says an earlier offset for the same one: no reason to read again what was read."""
    assert decide(7, 8, 9, written=Written(7, 9)).action is GroupAction.SKIP_MOVED_ON
    assert decide(6, 8, 9, written=Written(7, 9)).action is GroupAction.COMMIT


def test_new_metadata_does_not_reach_into_an_active_group_or_back() -> None:
    assert decide(7, 9, 9, metadata="new", empty=False).action is GroupAction.SKIP_ACTIVE
    assert decide(7, 9, 10, metadata="new").action is GroupAction.SKIP_MOVED_ON


def test_an_offset_before_the_mirror_began_is_not_guessed() -> None:
    mapped = OffsetMap({HERE: PartitionMap([Interval(100, 0)], End(120, 20), 120)})
    assert [GroupMap(mapped).to_target(*HERE, offset) for offset in (0, 99, 100, 120, 121)] == [None, None, 0, 20, None]


def test_a_partition_nobody_mirrored_has_no_translation_even_at_zero() -> None:
    assert GroupMap(OffsetMap()).to_target(*HERE, 0) is None


def test_what_was_written_ahead_and_never_committed_is_still_the_links_own() -> None:
    """A crash between the state and the commit: the target has the offset of before, and so it may be set back."""
    ahead = decide(9, 11, 7, written=Written(5, 7)).written
    assert ahead == Written(9, 11, 7)
    assert decide(3, 5, 7, written=ahead).action is GroupAction.COMMIT
    assert decide(3, 5, 11, written=ahead).action is GroupAction.COMMIT
    assert decide(3, 5, 9, written=ahead).action is GroupAction.SKIP_MOVED_ON
    back = decide(3, 5, 7, written=Written(5, 7)).written
    assert back == Written(3, 5, 7)
    assert decide(3, 5, 7, written=back).action is GroupAction.COMMIT, "it is still to be set back"
    assert decide(3, 5, 6, written=back).action is GroupAction.SKIP_MOVED_ON
    assert decide(9, 11, 20, written=None).written is None
    others = Written(9, 11, stood=5)
    assert decide(9, 11, 5, written=None).written == others, "what others put there is not the link's own"
    assert decide(9, 11, 5, written=others).action is GroupAction.COMMIT, "and no set-back, if it stands there still"
    assert decide(9, 11, 4, written=others).action is GroupAction.SKIP_SET_BACK
    assert decide(9, 11, 11, written=others).written == Written(9, 11)
    assert decide(3, 5, 5, written=others).action is GroupAction.UP_TO_DATE
    assert decide(2, 4, 5, written=others).action is GroupAction.SKIP_MOVED_ON


def test_a_group_that_was_set_back_at_the_target_stays_there_until_the_source_moves() -> None:
    assert decide(7, 9, 4, written=Written(7, 9)).action is GroupAction.SKIP_SET_BACK
    assert decide(8, 10, 4, written=Written(7, 9)).action is GroupAction.COMMIT
    assert decide(7, 9, 4, written=Written(7, 9, 4)).action is GroupAction.COMMIT, "it was never committed"


def test_what_is_held_says_why() -> None:
    mapped = OffsetMap({HERE: PartitionMap([Interval(100, 0)], End(120, 20), 120)})
    committed = {99: GroupAction.HOLD_BEFORE_MIRROR, 121: GroupAction.HOLD_NOT_MIRRORED}
    for offset, reason in committed.items():
        assert GroupMap(mapped).why_unknown(*HERE, offset) is reason
    doubted = GroupMap(mapped, in_doubt=frozenset({HERE}))
    assert doubted.to_target(*HERE, 110) is None
    assert doubted.why_unknown(*HERE, 110) is GroupAction.HOLD_OFFSETS_IN_DOUBT


def test_in_a_shared_topic_metadata_alone_moves_nothing() -> None:
    """Two links would write each other's in turn."""
    back = Link("back", LINK.target, LINK.source, (".*",))
    there = Link("there", LINK.source, LINK.target, (".*",), reverse_links=(back,), shared_targets=True)
    mapped = GroupMap(one_run({HERE: (7, 9)}), ((back, OffsetMap()),))
    known = {HERE: CommittedOffset(7, "east's")}
    (decision,) = plan_group_sync(
        there, "g", mapped, known, {HERE: CommittedOffset(9, "west's")}, {}, target_group_empty=True
    )
    assert (decision.action, decision.target_offset) == (GroupAction.UP_TO_DATE, 9)


def test_what_a_third_site_writes_too_is_not_translated() -> None:
    """Which of the third site's records a group has read neither of the link's maps tells."""
    third = replace(LINK, name="north-west", source=replace(LINK.source, name="north"))
    mapped = one_run({HERE: (7, 9)})
    shared = GroupMap(mapped, other_links=(third,))
    assert GroupMap(mapped).to_target(*HERE, 7) is not None
    assert shared.to_target(*HERE, 7) is None
    assert shared.why_unknown(*HERE, 7) is GroupAction.HOLD_MORE_SITES
