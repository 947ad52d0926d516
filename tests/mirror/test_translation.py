"""One offset at both sites, and why it has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.errors import ClientError
from broker.client.site import Site
from mirror.errors import OffsetDeclined, OffsetNotMirrored
from mirror.findings import resume_command
from mirror.link import Link
from mirror.offsets.acceptance import gap_key
from mirror.offsets.doubt import TRANSLATED_KINDS
from mirror.offsets.entries import Gap, GapKind, GapStatus
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.state import LinkState
from mirror.offsets.state_entries import StateEntries
from mirror.translation import Translation, translate_offset

LINK = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2"), ("orders",), "prefixed")
MAP = OffsetMap({("orders", 0): PartitionMap([Interval(10, 0)], End(20, 10))})


def state(*gaps: Gap) -> LinkState:
    at = {gap_key(gap): gap for gap in gaps}
    return LinkState(StateEntries(LINK, exists=True, gaps=at), MAP)


def stopped(kind: GapKind, partition: int = 0, status: GapStatus = GapStatus.STOPPED) -> Gap:
    return Gap("orders", partition, kind, 20, 5, 10, status, 1, "the source's log ends at 5")


@pytest.mark.parametrize(("offset", "reverse"), [(12, False), (2, True)])
def test_both_ways_are_one_translation(offset: int, reverse: bool) -> None:
    translation = Translation("east-west", "orders", "east.orders", 0, 12, 2)
    assert translate_offset(LINK, state(), "orders", 0, offset, reverse=reverse) == translation


@pytest.mark.parametrize(
    ("partition", "offset", "reverse", "words"),
    [
        (0, 3, False, "offset 3 of orders partition 0 at east is not mirrored: offsets 10 to 19 are"),
        (0, 30, True, "offset 30 of orders partition 0 at west is not mirrored: offsets 0 to 9 are"),
        (1, 3, False, "link east-west has mirrored nothing of orders partition 1"),
    ],
)
def test_what_is_not_mirrored_is_told(partition: int, offset: int, reverse: bool, words: str) -> None:
    with pytest.raises(OffsetNotMirrored, match=words):
        translate_offset(LINK, state(), "orders", partition, offset, reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", sorted(set(GapKind) - TRANSLATED_KINDS))
def test_an_offset_of_a_log_that_was_recreated_or_cut_is_declined(kind: GapKind, reverse: bool) -> None:
    with pytest.raises(OffsetDeclined, match=f"{kind.value}: the source's log ends at 5") as declined:
        translate_offset(LINK, state(stopped(kind)), "orders", 0, 12, reverse=reverse)
    assert resume_command("east-west", stopped(kind)) in declined.value.hint


def test_what_is_accepted_and_not_yet_passed_is_declined_too() -> None:
    accepted = stopped(GapKind.RECREATED, status=GapStatus.ACCEPTED)
    with pytest.raises(OffsetDeclined) as declined:
        translate_offset(LINK, state(accepted), "orders", 0, 12, reverse=False)
    assert "farshore mirror run --link east-west" in declined.value.hint


@pytest.mark.parametrize(
    "gap",
    [
        *(stopped(kind) for kind in sorted(TRANSLATED_KINDS)),
        stopped(GapKind.RECREATED, partition=1),
        stopped(GapKind.RECREATED, status=GapStatus.PASSED),
        stopped(GapKind.RECREATED, status=GapStatus.GONE),
    ],
)
def test_other_gaps_and_those_of_others_decline_nothing(gap: Gap) -> None:
    assert translate_offset(LINK, state(gap), "orders", 0, 12, reverse=False).target_offset == 2


def test_a_partition_that_could_not_be_read_is_not_said_to_be_unmirrored() -> None:
    unread = replace(state(), map=OffsetMap(), unread={("orders", 0): ClientError("west does not answer")})
    with pytest.raises(ClientError, match="west does not answer"):
        translate_offset(LINK, unread, "orders", 0, 12, reverse=False)


def test_what_was_left_at_the_source_has_no_place_unless_it_was_brought_since() -> None:
    left = Gap("orders", 0, GapKind.STRANDED, 15, 18, 5, GapStatus.PASSED, 1, "a person said so")
    behind = OffsetMap({("orders", 0): PartitionMap([Interval(10, 0), Interval(15, 9), Interval(18, 9)], End(20, 11))})
    stands = replace(state(left), map=behind)
    for offset, target_offset in ((14, 4), (18, 9)):
        assert translate_offset(LINK, stands, "orders", 0, offset, reverse=False).target_offset == target_offset
    with pytest.raises(OffsetNotMirrored, match=r"offset 15 .* is not at west: offsets 15 to 17 were left at east"):
        translate_offset(LINK, stands, "orders", 0, 15, reverse=False)
    assert translate_offset(LINK, state(left), "orders", 0, 15, reverse=False).target_offset == 5, "mirrored anew"


@pytest.mark.parametrize(
    ("offset", "reverse", "behind"),
    [
        (21, False, "the next that it brought is at 30"),
        (12, True, "the next that it brought is at 14"),
        (40, False, ""),
    ],
)
def test_a_record_of_a_link_back_is_not_taken_for_the_next_one_of_the_link(
    offset: int, reverse: bool, behind: str
) -> None:
    """It was told as far behind the place where it is."""
    back = replace(LINK, name="west-east", source=LINK.target, target=LINK.source, topic_names="same")
    link = replace(LINK, topic_names="same", reverse_links=(back,))
    intervals = [Interval(10, 0), Interval(20, 14), Interval(30, 14)]
    stands = replace(state(), map=OffsetMap({("orders", 0): PartitionMap(intervals, End(40, 24), 44)}))
    with pytest.raises(OffsetNotMirrored, match=f"east-west brought no record at .*{behind}") as refused:
        translate_offset(link, stands, "orders", 0, offset, reverse=reverse)
    assert ("--link west-east" in refused.value.hint, "--reverse" in refused.value.hint) == (True, not reverse)
    for here, there in ((10, 0), (19, 9), (30, 14), (39, 23), (44, 24)):
        assert translate_offset(link, stands, "orders", 0, here, reverse=False).target_offset == there
    assert translate_offset(link, stands, "orders", 0, 24, reverse=True).source_offset == 44
