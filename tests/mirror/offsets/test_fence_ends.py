"""How the ends of a promotion stand in their topic: shares, operations, and what cannot be read."""

from __future__ import annotations

import json

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.ends_entries import ends_key
from mirror.offsets.fence_ends import FenceEnd, fence_entries, read_fence_ends
from mirror.offsets.source_ends import read_observation

ENDS = {
    TopicPartition(f"topic-{number}", partition): FenceEnd(number * 10 + partition, 7 + number, is_told=partition == 0)
    for number in range(40)
    for partition in range(2)
}


def test_what_is_written_is_read_back_for_each_operation_that_it_names_and_for_no_other() -> None:
    written = fence_entries(["first", "second", "first"], ENDS)
    assert len({key for key, _ in written}) == len(written) <= 16
    assert read_observation(written).fence_ends == {"first": ENDS, "second": ENDS}
    assert read_observation([]).fence_ends == {}


def test_what_nobody_was_shown_is_kept_beside_and_hides_nothing_from_earlier_versions() -> None:
    where = TopicPartition("topic-1", 1)
    ends = {**ENDS, where: FenceEnd(11, 8, True, 14, 3)}
    written = fence_entries(["first"], ends)
    assert read_observation(written).fence_ends == {"first": ends}
    entries = [json.loads(value) for _, value in written]
    assert [one["unshown"] for one in entries if "unshown" in one] == [{"topic-1": {"1": [14, 3]}}]
    for one in entries:
        one.pop("unshown", None)
    assert read_fence_ends(entries) == {"first": {**ENDS, where: FenceEnd(11, 8, is_told=True)}}


def test_a_later_promotion_takes_the_place_of_an_earlier_one() -> None:
    where = TopicPartition("topic-1", 0)
    of_all, of_one = fence_entries(["first"], ENDS), fence_entries(["second"], {where: FenceEnd(99, 1, is_told=True)})
    found = read_observation([*of_all, *of_one]).fence_ends
    assert found["second"] == {where: FenceEnd(99, 1, is_told=True)}
    assert where not in found["first"]


def test_what_cannot_be_understood_says_nothing_and_hides_no_other() -> None:
    good = {"operation_ids": ["o"], "topics": {"t": {"0": [3, 4, 1]}}}
    short: dict[str, object] = {"operation_ids": ["o"], "topics": {"t": {"1": [3]}}}
    bad: list[dict[str, object]] = [{}, {"operation_ids": 7, "topics": {}}, short, {"topics": []}]
    assert read_fence_ends([*bad, good]) == {"o": {TopicPartition("t", 0): FenceEnd(3, 4, is_told=True)}}
    assert read_observation([(ends_key("fence", 0), b"not json")]).fence_ends == {}
