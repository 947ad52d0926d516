"""A seed says what is done to a cluster of brokers, and when."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos_runs.brokers_faults import (
    BROKER_FAULTS,
    OTHER_FAULTS,
    FaultKind,
    Manner,
    all_ways,
    faults_of,
    faults_that_lose,
)

LENGTH_S = 20.0
KINDS = list(FaultKind)


def test_a_seed_tells_the_faults() -> None:
    assert faults_of(7, LENGTH_S, KINDS) == faults_of(7, LENGTH_S, KINDS) != faults_of(8, LENGTH_S, KINDS)


@pytest.mark.parametrize("lane", [BROKER_FAULTS, OTHER_FAULTS])
def test_two_faults_of_a_kind_are_never_on_at_once(lane: tuple[FaultKind, ...]) -> None:
    for seed in range(50):
        faults = [fault for fault in faults_of(seed, LENGTH_S, KINDS) if fault.kind in lane]
        ends = [fault.start_s + fault.length_s for fault in faults]
        assert all(end < fault.start_s for end, fault in zip(ends, faults[1:], strict=False))
        assert all(0 < fault.start_s < LENGTH_S for fault in faults)


def test_a_hundred_seeds_have_everything_often() -> None:
    faults = [fault for seed in range(100) for fault in faults_of(seed, LENGTH_S, KINDS)]
    assert min(Counter(fault.kind for fault in faults)[kind] for kind in FaultKind) > 50
    cuts = [fault for fault in faults if fault.kind is FaultKind.CUT]
    assert min(Counter(cut.manner for cut in cuts)[manner] for manner in Manner) > 20
    assert {way for cut in cuts for way in cut.ways} == set(all_ways())
    assert all(cut.ways for cut in cuts)


def test_a_kind_that_is_left_out_is_left_out() -> None:
    kinds = [kind for kind in FaultKind if kind is not FaultKind.DISK_FULL]
    assert FaultKind.DISK_FULL not in {fault.kind for seed in range(50) for fault in faults_of(seed, LENGTH_S, kinds)}


def test_a_leader_is_alone_before_it_dies_and_comes_back_to_another() -> None:
    for seed in range(50):
        faults = faults_that_lose(seed, LENGTH_S)
        cuts, kills = faults[::2], faults[1::2]
        assert faults
        for cut, kill in zip(cuts, kills, strict=True):
            assert {dialled for _, dialled in cut.ways} == set(kill.names)
            assert cut.start_s < kill.start_s < kill.start_s + kill.length_s <= cut.start_s + cut.length_s + 1e-6
