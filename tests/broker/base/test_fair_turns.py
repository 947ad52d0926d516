"""Turns that sources take one after the other, however many of one wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from broker.base.fair_turns import FairTurns


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Users:
    """Who has had a turn, in order; each keeps it until `go_on`."""

    def __init__(self) -> None:
        self.turns, self.had = FairTurns(), list[str]()
        self.ends = asyncio.Event()

    async def use(self, source: str, number: int) -> None:
        async with self.turns.of(source):
            self.had.append(f"{source}{number}")
            await self.ends.wait()
            self.ends.clear()

    async def begin(self, *asked: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.use(each[0], int(each[1]))) for each in asked]
        await settled()
        return tasks

    async def go_on(self) -> None:
        self.ends.set()
        await settled()


async def test_who_asks_for_many_waits_behind_who_asks_for_one() -> None:
    users = Users()
    await users.begin("a1", "a2", "a3", "a4", "b1", "c1", "b2")
    assert users.had == ["a1"], "one at a time"
    for _ in range(7):
        await users.go_on()
    assert users.had == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
    await users.begin("d1")
    assert users.had[-1] == "d1", "nobody has it when all are done"
    await users.go_on()


async def test_who_gives_up_waiting_takes_no_turn_and_keeps_none() -> None:
    users = Users()
    first, second, third, _ = await users.begin("a1", "a2", "b1", "c1")
    second.cancel()
    await settled()
    await users.go_on()
    assert users.had == ["a1", "b1"]
    third.cancel()
    await settled()
    assert users.had == ["a1", "b1", "c1"], "who had it and is gone gives it on"
    await users.go_on()
    await first
    for gone in (second, third):
        with suppress(asyncio.CancelledError):
            await gone
            raise AssertionError("it was cancelled")


@pytest.mark.parametrize("is_given", [False, True])
async def test_a_turn_of_who_leaves_in_that_moment_goes_to_the_next(is_given: bool) -> None:
    users = Users()
    _, leaving, _ = await users.begin("a1", "b1", "c1")
    users.ends.set()
    if is_given:
        await asyncio.sleep(0)  # the first has given it on, and the next does not know yet
    leaving.cancel()
    await settled()
    assert users.had == ["a1", "c1"]
    await users.go_on()
    await users.begin("d1")
    assert users.had == ["a1", "c1", "d1"]
    await users.go_on()
