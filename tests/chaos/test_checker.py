"""The checker finds what it is there to find: each anomaly planted in a history, and only that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.checker import Anomaly, SteadyState, check, find_anomalies
from chaos.history import History, Outcome, Phase, Read, Write

STEADY = SteadyState(latency_p99_max_ms=500, injected_latency_ms=100)


def clean_history() -> History:
    history = History()
    for sequence in range(30):
        phase = list(Phase)[sequence // 10]
        slow_s = 0.15 if phase is Phase.DURING else 0.01
        history.writes.append(Write(sequence, sequence % 2, phase, float(sequence), Outcome.ACKNOWLEDGED))
        history.reads.append(Read(sequence, sequence % 2, sequence + slow_s))
    return history


def test_a_clean_history_holds() -> None:
    verdict = check(clean_history(), STEADY)
    assert verdict.holds
    assert [phase.mirrored_records for phase in verdict.phases] == [10, 10, 10]


@pytest.mark.parametrize(
    ("anomaly", "plant"),
    [
        (Anomaly.LOST, lambda history: history.reads.pop(7)),
        (Anomaly.DUPLICATED, lambda history: history.reads.insert(8, history.reads[7])),
        (Anomaly.INVENTED, lambda history: history.reads.append(Read(99, 0, 50.0))),
        (Anomaly.REORDERED, lambda history: history.reads.insert(4, history.reads.pop(8))),
    ],
)
def test_each_planted_anomaly_is_found_and_nothing_else(anomaly: Anomaly, plant: Callable[[History], object]) -> None:
    history = clean_history()
    plant(history)
    assert set(find_anomalies(history)) == {anomaly}
    assert not check(history, STEADY).holds


def test_an_unknown_write_may_be_missing_but_not_twice() -> None:
    history = clean_history()
    history.writes[5] = Write(5, 1, Phase.BEFORE, 5.0, Outcome.UNKNOWN)
    read = history.reads.pop(5)
    assert find_anomalies(history) == {}
    history.reads += [read, read]
    assert Anomaly.DUPLICATED in find_anomalies(history)


def test_a_fault_that_does_not_show_is_not_a_passed_run() -> None:
    history = clean_history()
    history.reads = [Read(read.sequence, read.partition, read.sequence + 0.01) for read in history.reads]
    verdict = check(history, STEADY)
    assert not verdict.fault_seen
    assert not verdict.holds


def test_an_invented_number_marks_no_other_record() -> None:
    history = clean_history()
    history.reads.insert(2, Read(1_000_000, 0, 2.0))
    history.reads.insert(2, Read(-7, 1, 2.0))
    history.reads.insert(3, Read(-7, 1, 2.0))
    assert find_anomalies(history) == {Anomaly.INVENTED: (-7, 1_000_000)}


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(-50, 200).filter(lambda n: n not in range(30)), st.integers(0, 1))
    )
)
def test_whatever_is_invented_the_rest_is_judged_as_without_it(invented: list[tuple[int, int, int]]) -> None:
    history = clean_history()
    history.reads.insert(9, history.reads.pop(3))
    expected = find_anomalies(history)
    for at, sequence, partition in invented:
        history.reads.insert(at, Read(sequence, partition, 0.0))
    found = find_anomalies(history)
    found.pop(Anomaly.INVENTED, None)
    assert found == expected


def test_a_record_that_comes_again_is_a_duplicate_and_not_out_of_order() -> None:
    history = clean_history()
    history.reads.insert(20, history.reads[3])
    assert find_anomalies(history) == {Anomaly.DUPLICATED: (3,)}


def history_of(before_ms: list[float], during_ms: list[float], after_ms: list[float]) -> History:
    history = History()
    for phase, latencies in zip(Phase, (before_ms, during_ms, after_ms), strict=True):
        for latency_ms in latencies:
            sequence = len(history.writes)
            history.writes.append(Write(sequence, 0, phase, float(sequence), Outcome.ACKNOWLEDGED))
            history.reads.append(Read(sequence, 0, sequence + latency_ms / 1000))
    return history


QUIET = [10.0] * 10
NOISY = [10.0] * 8 + [60.0] * 2


@pytest.mark.parametrize(
    ("injected_ms", "before", "during", "after", "seen"),
    [
        (100, QUIET, [130.0] * 10, QUIET, True),
        (5, QUIET, QUIET, QUIET, False),  # as slow as the toxic without it
        (1, [40.0] * 10, [40.0] * 10, [40.0] * 10, False),
        (100, QUIET, [50.0] * 10, QUIET, False),  # something else made it slower, and by too little
        (30, NOISY, [40.0] * 10, NOISY, False),  # within what the way varies by itself
        (60, NOISY, [75.0] * 10, NOISY, True),
        (20, QUIET, [30.0] * 10, [31.0] * 10, False),  # it stayed slow: it was not the toxic
        (100, QUIET, [], QUIET, False),
    ],
)
def test_a_fault_is_seen_by_the_size_of_its_effect(
    injected_ms: float, before: list[float], during: list[float], after: list[float], seen: bool
) -> None:
    verdict = check(history_of(before, during, after), SteadyState(500, injected_ms))
    assert verdict.fault_seen is seen
    assert verdict.holds is seen


def test_a_latency_that_stays_after_the_fault_is_a_deviation() -> None:
    history = clean_history()
    history.reads = [
        read if read.sequence < 20 else Read(read.sequence, read.partition, read.sequence + 3.0)
        for read in history.reads
    ]
    assert [phase.steady for phase in check(history, STEADY).phases] == [True, True, False]
