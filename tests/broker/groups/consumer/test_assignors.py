"""What every assignor owes, over random subscriptions and histories."""

import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordination.host import TopicShape
from broker.groups.consumer.assignors import ASSIGNORS, Wants, assign_range, assign_uniform
from broker.groups.consumer.model import Slot, Slots

TOPICS = {name: UUID(int=number) for number, name in enumerate(("flights", "carriers", "weather"), start=1)}
COUNTS = st.fixed_dictionaries({name: st.integers(0, 7) for name in TOPICS})
SUBSCRIPTIONS = st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from(sorted(TOPICS))), max_size=6)


def wants_of(subscriptions: dict[str, set[str]], counts: dict[str, int]) -> Wants:
    return {
        member: {name: TopicShape(TOPICS[name], counts[name]) for name in names}
        for member, names in subscriptions.items()
    }


def wanted(wants: Wants) -> set[Slot]:
    return {Slot(s.topic_id, i) for topics in wants.values() for s in topics.values() for i in range(s.partitions)}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(SUBSCRIPTIONS, SUBSCRIPTIONS, COUNTS, COUNTS)
def test_each_wanted_partition_has_exactly_one_member_and_that_one_wants_it(
    name: str,
    before: dict[str, set[str]],
    after: dict[str, set[str]],
    old_counts: dict[str, int],
    counts: dict[str, int],
) -> None:
    assign = ASSIGNORS[name]
    target = assign(wants_of(after, counts), assign(wants_of(before, old_counts), {}))
    given_out = [slot for slots in target.values() for slot in slots]
    assert sorted(given_out) == sorted(wanted(wants_of(after, counts)))
    for member, slots in target.items():
        assert slots <= wanted({member: wants_of(after, counts)[member]})
    assert target.keys() == after.keys()


@given(SUBSCRIPTIONS, SUBSCRIPTIONS, COUNTS)
def test_uniform_is_as_even_as_the_subscriptions_allow(
    before: dict[str, set[str]], after: dict[str, set[str]], counts: dict[str, int]
) -> None:
    wants = wants_of(after, counts)
    target = assign_uniform(wants, assign_uniform(wants_of(before, counts), {}))
    for giver, slots in target.items():
        for slot in slots:
            for taker in target:
                if slot in wanted({taker: wants[taker]}):
                    assert len(target[taker]) + 1 >= len(slots), f"{giver} could give {slot} to {taker}"


@given(st.integers(1, 40), st.lists(st.booleans(), min_size=1, max_size=8))
def test_uniform_moves_no_more_than_it_must(partitions: int, comes: list[bool]) -> None:
    """Equal subscriptions: who stays loses only what the newcomers are due, and gains only what was let go."""
    shape = {"flights": TopicShape(TOPICS["flights"], partitions)}
    members = ["m0"]
    target: dict[str, Slots] = assign_uniform(dict.fromkeys(members, shape), {})
    for number, joins in enumerate(comes, start=1):
        if joins:
            members.append(f"m{number}")
        elif len(members) > 1:
            members.pop(0)
        after = assign_uniform(dict.fromkeys(members, shape), target)
        stayed = target.keys() & after.keys()
        moved = sum(len(target[member] - after[member]) for member in stayed)
        assert moved <= (-(-partitions // len(members)) if joins else 0)
        target = after


def test_uniform_knows_nothing_better_than_to_leave_all_as_it_is() -> None:
    shape = {"flights": TopicShape(TOPICS["flights"], 10)}
    wants = dict.fromkeys("abc", shape)
    target = assign_uniform(wants, {})
    assert sorted(map(len, target.values())) == [3, 3, 4]
    assert assign_uniform(wants, target) == target


def test_uniform_leaves_what_is_even_also_where_not_all_want_the_same() -> None:
    wants = wants_of({"a": {"flights", "weather"}, "b": {"flights"}}, {"flights": 5, "weather": 1})
    flights, weather = ([Slot(TOPICS[name], index) for index in range(5)] for name in ("flights", "weather"))
    before = {"a": frozenset({weather[0], flights[4], flights[2]}), "b": frozenset({flights[n] for n in (0, 1, 3)})}
    assert assign_uniform(wants, before) == before
    more = wants_of({"a": {"flights", "weather"}, "b": {"flights"}}, {"flights": 7, "weather": 1})
    after = assign_uniform(more, before)
    assert all(after[member] >= before[member] for member in before)


def test_range_gives_neighbours_and_cuts_equal_topics_alike() -> None:
    shapes = {name: TopicShape(TOPICS[name], 5) for name in ("flights", "weather")}
    target = assign_range({"b": shapes, "a": shapes}, {})
    for name in shapes:
        assert target["a"] >= {Slot(TOPICS[name], index) for index in (0, 1, 2)}
        assert target["b"] >= {Slot(TOPICS[name], index) for index in (3, 4)}


def test_uniform_deals_out_very_many_partitions_in_a_blink() -> None:
    """The coordinator assigns on the broker's one loop: a hundred members, ten thousand partitions, and one more."""
    shape = {"flights": TopicShape(TOPICS["flights"], 10_000)}
    target = assign_uniform({f"m{n:03}": shape for n in range(100)}, {})
    started = time.process_time()
    after = assign_uniform({f"m{n:03}": shape for n in range(101)}, target)
    assert time.process_time() - started < 1.0
    assert sorted(map(len, after.values())) == [99] * 100 + [100]
