"""What stays at the source, in lines that people read."""

from __future__ import annotations

from broker.base.documents import to_document
from deploy.cli.late_lines import OTHERS_SHOWN
from deploy.cli.stay_lines import stay_lines
from failover.planning.staying import Stay, StayKind, StayReason, topics_detail


def lines(*stays: Stay) -> list[str]:
    return list(stay_lines(to_document(stays), "east"))


def test_each_reason_has_words_and_those_of_one_reason_are_together() -> None:
    for reason in StayReason:
        assert len(lines(Stay(StayKind.GROUP, "a", reason, "x"), Stay(StayKind.GROUP, "b", reason, "x"))) == 2
    assert lines() == []


def test_a_group_that_is_left_is_named_with_the_reason() -> None:
    assert lines(
        Stay(StayKind.GROUP, "temp-1", StayReason.GROUP_NOT_SELECTED, "east-west"),
        Stay(StayKind.GROUP, "analysts", StayReason.OTHER_TOPICS, topics_detail(["notes", "orders"])),
        Stay(StayKind.GROUP, "", StayReason.NOT_KNOWN, "east does not tell which groups it has"),
    ) == [
        "not moved from east now:",
        "- group temp-1: it has offsets in topics that go, but the link's `groups` do not select it (east-west)",
        "- group analysts: it goes, but its offsets in topics that do not go stay (notes, orders)",
        "- groups: not known (east does not tell which groups it has)",
    ]


def test_many_groups_and_many_topics_are_cut_for_people() -> None:
    topics = topics_detail(f"t{number}" for number in range(OTHERS_SHOWN + 2))
    groups = [Stay(StayKind.GROUP, f"g{n}", StayReason.OTHER_TOPICS, f"{topics}, t{n:03}") for n in range(12)]
    told = lines(*groups)
    assert len(told) == 1 + OTHERS_SHOWN + 1
    assert told[1].endswith("t9 and 3 more)")
    assert told[-1] == "- 2 more groups with offsets in topics that do not go: -o json names each"
