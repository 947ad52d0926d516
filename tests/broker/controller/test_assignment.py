"""Replicas are spread: over brokers, over racks, and over those who take a lost leader's place."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.controller.assignment import TooFewBrokers, assign_replicas
from broker.wire.errors import ErrorCode

RACKS = st.dictionaries(st.integers(0, 40), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12)
NO_RACKS = st.dictionaries(st.integers(0, 40), st.none(), min_size=1, max_size=12)


@given(RACKS | NO_RACKS, st.data())
def test_replicas_are_on_different_brokers_and_leaders_go_round(
    brokers: dict[int, str | None], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(brokers)))
    partitions = data.draw(st.integers(1, 60))
    assigned = assign_replicas(
        brokers, partitions, count, first=data.draw(st.integers(0, 50)), shift=data.draw(st.integers(0, 50))
    )
    assert len(assigned) == partitions
    assert all(len(set(replicas)) == count and set(replicas) <= brokers.keys() for replicas in assigned)
    leaders = Counter(dict.fromkeys(brokers, 0) | Counter(replicas[0] for replicas in assigned))
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(RACKS, st.data())
def test_no_rack_has_two_replicas_while_another_that_could_has_none(
    brokers: dict[int, str | None], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(brokers)))
    for replicas in assign_replicas(brokers, 20, count, first=data.draw(st.integers(0, 9)), shift=3):
        used = Counter(brokers[node] for node in replicas)
        for rack, size in Counter(brokers.values()).items():
            if used[rack] < size:
                assert max(used.values()) <= used[rack] + 1


def test_equal_racks_carry_equal_loads() -> None:
    brokers = {node: "abc"[node % 3] for node in range(6)}
    assigned = assign_replicas(brokers, 60, 3, first=0, shift=1)
    load = Counter(node for replicas in assigned for node in replicas)
    assert set(load.values()) == {30}


def test_a_lost_leaders_partitions_go_to_all_the_others() -> None:
    brokers: dict[int, str | None] = dict.fromkeys(range(5))
    assigned = assign_replicas(brokers, 100, 2, first=0, shift=0)
    followers = Counter(replicas[1] for replicas in assigned if replicas[0] == 0)
    assert followers == {1: 5, 2: 5, 3: 5, 4: 5}


def test_one_broker_without_a_rack_makes_racks_say_nothing() -> None:
    brokers = {0: "a", 1: "a", 2: None}
    assert assign_replicas(brokers, 3, 2, first=0, shift=0) == assign_replicas(
        dict.fromkeys(brokers), 3, 2, first=0, shift=0
    )


@pytest.mark.parametrize("count", [0, 4])
def test_more_replicas_than_brokers_are_refused(count: int) -> None:
    with pytest.raises(TooFewBrokers, match="3 brokers are running") as raised:
        assign_replicas(dict.fromkeys(range(3)), 1, count, first=0, shift=0)
    assert raised.value.error_code is ErrorCode.INVALID_REPLICATION_FACTOR
