"""How far a link back had come, as it is kept: which pairs count, and what is read back of them."""

from __future__ import annotations

import json

import pytest

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import NO_TOPIC_IDS, TopicIds
from mirror.offsets.returns import FROM_THE_START, SETTLED_MS, Returning, Returns, ReturnsSeen
from mirror.offsets.source_ends import read_observation

AT = TopicPartition("flights", 3)
IDS = TopicIds("here", "there")


def kept(*seen: ReturnsSeen) -> dict[TopicPartition, Returns]:
    entries = [entry for one in seen for entry in one.entries()]
    found = read_observation(entries)
    assert (found.last, found.ends) == (None, {}), "it says nothing of ends"
    return dict(found.returns)


def test_a_pair_counts_from_where_the_link_has_passed_what_the_link_back_had_brought() -> None:
    seen = ReturnsSeen(0)
    seen.see(AT, Returning(100, 40), 90, IDS, 0.0)
    assert kept(seen) == {AT: Returns((FROM_THE_START,), IDS)}
    seen.see(AT, Returning(150, 60), 120, IDS, 1_000.0)
    found = kept(seen)[AT]
    assert found.ways == (Returning(100, 40),), "the first that was seen ahead, and not only the newest"
    seen.see(AT, Returning(150, 60), 150, IDS, 2_000.0)
    found = kept(seen)[AT]
    assert found.ways == (Returning(100, 40), Returning(150, 60))
    assert [found.read_from(position, IDS) for position in (99, 100, 149, 150)] == [0, 40, 40, 60]
    assert kept(seen) == {}, "nothing has changed"
    seen.see(AT, Returning(150, 60), 150, IDS, 2_000.0 + SETTLED_MS)
    assert kept(seen)[AT].ways == (Returning(150, 60),), "that position stands in the state by now"
    seen.write_all()
    assert kept(seen)[AT].ways == (Returning(150, 60),)


def test_of_a_link_back_that_begins_anew_and_of_another_topic_nothing_is_known() -> None:
    for way, ids in (
        (Returning(99, 41), IDS),
        (Returning(101, 39), IDS),
        (Returning(200, 70), TopicIds("new", "there")),
    ):
        seen = ReturnsSeen(0)
        seen.see(AT, Returning(100, 40), 100, IDS, 0.0)
        seen.see(AT, way, 50, ids, 1_000.0)
        assert kept(seen) == {AT: Returns((FROM_THE_START,), ids)}
    found = Returns((Returning(100, 40),), IDS)
    assert found.read_from(100, TopicIds("here", "new")) == 0
    assert found.read_from(100, TopicIds("", "there")) == 40


def test_a_session_begins_with_what_the_ones_before_have_kept() -> None:
    """The link may stand still since then, with the link back far ahead of it."""
    before = Returns((Returning(100, 40), Returning(150, 60)), IDS)
    for way, expected in ((Returning(900, 800), before), (Returning(149, 60), Returns((FROM_THE_START,), IDS))):
        seen = ReturnsSeen(0)
        seen.begin({AT: before})
        seen.see(AT, way, 150 if way.source_from > 150 else 100, IDS, 1_000.0)
        assert kept(seen)[AT] == expected


def test_where_records_come_on_other_ways_nothing_is_known_whatever_another_unit_said() -> None:
    one, other = ReturnsSeen(0), ReturnsSeen(1)
    one.see(AT, Returning(100, 40), 100, IDS, 0.0)
    other.see(AT, Returning(150, 60), 150, IDS, 0.0)
    one.see(TopicPartition("gates", 0), FROM_THE_START, 0, NO_TOPIC_IDS, 0.0)
    found = kept(one, other)
    assert found[AT].ways == (Returning(100, 40), Returning(150, 60)), "both are true"
    assert found[TopicPartition("gates", 0)].read_from(7, IDS) == 0
    other.see_other_ways(AT, IDS)
    one.write_all()
    for order in ((one, other), (other, one)):
        for each in order:
            each.write_all()
        assert kept(*order)[AT].read_from(200, IDS) is None


@pytest.mark.parametrize("topics", [None, 5, {"flights": 5}, {"flights": {"ids": ["a", "b"], "ways": {"x": [1, 2]}}}])
def test_what_cannot_be_understood_says_nothing(topics: object) -> None:
    seen = ReturnsSeen(0)
    seen.see(AT, Returning(100, 40), 100, IDS, 0.0)
    odd = (b'["returns",99,0]', json.dumps({"v": 1, "topics": topics}).encode())
    assert read_observation([odd, *seen.entries()]).returns == {AT: Returns((Returning(100, 40),), IDS)}
