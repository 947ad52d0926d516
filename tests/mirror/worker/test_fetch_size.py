"""How much a fetch asks for."""

from __future__ import annotations

from mirror.worker.fetching import next_fetch_bytes
from mirror.worker.limits import MIB, WorkerLimits

LIMITS = WorkerLimits()


def sizes(round_trip_ms: float, ms_per_mib: float, steps: int = 12) -> list[int]:
    """What is asked for, one fetch after another, from a source that always fills its answers."""
    asked = [LIMITS.fetch_start_bytes]
    for _ in range(steps):
        took_ms = round_trip_ms + ms_per_mib * asked[-1] / MIB
        asked.append(next_fetch_bytes(LIMITS, asked[-1], asked[-1], took_ms))
    return asked


def test_nearby_it_stays_small() -> None:
    assert set(sizes(round_trip_ms=0.2, ms_per_mib=1.5)) == {LIMITS.fetch_start_bytes}


def test_over_a_distance_it_grows_to_the_limit() -> None:
    assert sizes(round_trip_ms=100, ms_per_mib=1.5)[-1] == LIMITS.fetch_max_bytes


def test_small_answers_do_not_make_it_grow() -> None:
    assert next_fetch_bytes(LIMITS, MIB, 100, 500) == MIB


def test_it_comes_back_when_the_distance_is_gone() -> None:
    assert next_fetch_bytes(LIMITS, 16 * MIB, 100, 1) == 8 * MIB
    assert next_fetch_bytes(LIMITS, LIMITS.fetch_start_bytes, 100, 1) == LIMITS.fetch_start_bytes
