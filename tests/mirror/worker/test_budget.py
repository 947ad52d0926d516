"""The bytes in memory: none given back twice or too early, and nobody waits for room that is there."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mirror.worker.budget import Budget, Lease


async def is_waiting(task: asyncio.Task[Any]) -> bool:
    """Whether the task is still under way after every turn that is due now."""
    _, pending = await asyncio.wait([task], timeout=0)
    return bool(pending)


async def test_a_fetch_waits_until_the_room_is_worth_its_while() -> None:
    budget = Budget(100, 30)
    budget.take(80)
    room = asyncio.create_task(budget.wait_room())
    assert await is_waiting(room)
    budget.give(9)
    assert await is_waiting(room), "29 bytes are free"
    budget.give(1)
    assert await room == 30


async def test_room_that_is_there_is_not_waited_for() -> None:
    budget = Budget(100, 30)
    budget.take(70)
    assert await asyncio.wait_for(budget.wait_room(), 1) == 30


async def test_all_that_wait_are_woken() -> None:
    budget = Budget(100, 30)
    budget.take(100)
    waiting = [asyncio.create_task(budget.wait_room()) for _ in range(3)]
    assert all([await is_waiting(task) for task in waiting])
    budget.give(100)
    assert await asyncio.gather(*waiting) == [100, 100, 100]


async def test_a_release_of_before_is_not_waited_for_again() -> None:
    budget = Budget(100, 30)
    budget.take(50)
    budget.give(10)
    release = asyncio.create_task(budget.wait_release())
    assert await is_waiting(release), "what was given back before the wait is in free_bytes already"
    budget.give(10)
    await release
    assert budget.used_bytes == 30


def test_one_oversized_batch_leaves_no_room_and_not_less_than_none() -> None:
    budget = Budget(100, 30)
    budget.take(250)
    assert (budget.used_bytes, budget.free_bytes) == (250, 0)
    budget.give(250)
    assert (budget.used_bytes, budget.free_bytes) == (0, 100)


def test_a_frame_lives_as_long_as_its_last_batch() -> None:
    budget = Budget(100, 30)
    lease = Lease(budget, 40)
    lease.hold()
    lease.hold()
    for _ in range(2):
        lease.release()
        assert budget.used_bytes == 40
    lease.release()
    assert budget.used_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), max_size=6), st.randoms(use_true_random=False))
def test_in_any_order_of_releases_all_is_given_back_once(frames: list[tuple[int, int]], random: Any) -> None:
    budget = Budget(100, 30)
    held: list[Lease] = []
    alive: dict[int, tuple[int, int]] = {}
    for size_bytes, more_holders in frames:
        lease = Lease(budget, size_bytes)
        for _ in range(more_holders):
            lease.hold()
        held += [lease] * (more_holders + 1)
        alive[id(lease)] = (size_bytes, more_holders + 1)
    random.shuffle(held)
    for lease in held:
        size_bytes, holders = alive[id(lease)]
        alive[id(lease)] = (size_bytes, holders - 1)
        lease.release()
        assert budget.used_bytes == sum(size for size, holders in alive.values() if holders)
    assert budget.used_bytes == 0
