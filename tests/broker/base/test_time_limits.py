"""A time limit that passes is a TimeoutError, a stop is none, whatever the task went through before."""

from __future__ import annotations

import asyncio

import pytest

from broker.base.time_limits import timeout, timeout_at

SOON_S = 0.001


async def pass_a_limit() -> None:
    async with timeout(SOON_S):
        await asyncio.Event().wait()


async def fail() -> None:
    raise ConnectionError


async def test_a_limit_passes_in_a_task_that_went_through_a_failed_group() -> None:
    """In Python 3.11.2 a CancelledError came instead, that nobody had asked for: commands said "interrupted"."""
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
    with pytest.raises(TimeoutError):
        await pass_a_limit()


async def test_a_limit_passes_while_a_task_that_was_stopped_cleans_up() -> None:
    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with pytest.raises(TimeoutError):
                await pass_a_limit()
        return "cleaned up"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cleaned up"


async def test_a_stop_in_it_is_none_of_its_own() -> None:
    async def work() -> None:
        async with timeout(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stop_that_comes_as_the_limit_passes_is_not_lost() -> None:
    async def work() -> None:
        async with timeout(0):
            task.cancel()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_limit_by_the_clock_of_the_loop_or_none() -> None:
    async with timeout(None), timeout_at(None):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with timeout_at(asyncio.get_running_loop().time()):
            await asyncio.Event().wait()


async def test_the_outer_of_two_limits_passes_through_the_inner() -> None:
    async def work() -> None:
        async with timeout(60):
            await asyncio.Event().wait()
        pytest.fail("the inner one swallowed it")

    outer = timeout(SOON_S)
    with pytest.raises(TimeoutError):
        async with outer:
            await work()
    assert outer.expired()
