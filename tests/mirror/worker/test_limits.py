"""Limits that would make a worker stand still or lose its order are refused when they are set."""

from __future__ import annotations

import pytest

from mirror.worker.limits import MIB, WorkerLimits


@pytest.mark.parametrize(
    "limits",
    [
        {"fetch_start_bytes": 17 * MIB},
        {"fetch_fast_ms": 25},
        {"fetch_slow_ms": 500},
        {"fetch_room_min_bytes": 17 * MIB},
        {"in_flight_max_bytes": 15 * MIB},
        {"partition_buffer_max_bytes": 3 * MIB},
        {"partition_buffer_max_bytes": 65 * MIB},
        {"fetch_crowded_wait_ms": 501},
        {"produce_in_flight_requests": 6},
        {"restart_backoff_ms": 10_001},
    ],
    ids=str,
)
def test_limits_that_contradict_each_other_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        WorkerLimits(**limits)


def test_the_edges_are_allowed() -> None:
    WorkerLimits(fetch_start_bytes=16 * MIB, produce_in_flight_requests=5, restart_backoff_ms=10_000)
    WorkerLimits(in_flight_max_bytes=16 * MIB, fetch_room_min_bytes=16 * MIB, fetch_crowded_wait_ms=500)


def test_the_fence_is_renewed_before_a_cluster_forgets_the_producer() -> None:
    assert WorkerLimits().fence_renewal_ms < 24 * 3_600_000
