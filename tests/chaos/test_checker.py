"""The checker finds what it is there to find: each anomaly planted in a history, and only that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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


def test_a_latency_that_stays_after_the_fault_is_a_deviation() -> None:
    history = clean_history()
    history.reads = [
        read if read.sequence < 20 else Read(read.sequence, read.partition, read.sequence + 3.0)
        for read in history.reads
    ]
    assert [phase.steady for phase in check(history, STEADY).phases] == [True, True, False]
