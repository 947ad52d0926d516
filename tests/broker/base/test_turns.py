"""Work in turns: all of it is done, in its order, and others run in between."""

from __future__ import annotations

import asyncio

import pytest

from broker.base.turns import in_turns


@pytest.mark.parametrize(("count", "turns"), [(0, 0), (2, 0), (3, 1), (7, 2)])
async def test_others_run_after_so_many(count: int, turns: int) -> None:
    others: list[int] = []

    async def run() -> None:
        while True:
            others.append(len(done))
            await asyncio.sleep(0)

    done: list[int] = []
    running = asyncio.ensure_future(run())
    async for thing in in_turns(range(count), 3):
        done.append(thing)
    running.cancel()
    assert done == list(range(count))
    assert others == [3 * (turn + 1) for turn in range(turns)]
