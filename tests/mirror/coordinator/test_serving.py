"""Runs follow the shares: begun, ended, let go, and never two of one unit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from mirror.coordinator.embedded import Unconditional
from mirror.coordinator.model import Meter, Permit, Share, Unit
from mirror.coordinator.serving import serve_shares

A, B = Unit("a"), Unit("b")
WAIT_S = 120.0


class Told:
    """A member whose shares a test decides, and runs that say what becomes of them."""

    worker_id = "told"

    def __init__(self) -> None:
        self._shares: asyncio.Queue[Share | None] = asyncio.Queue()
        self.said: asyncio.Queue[str] = asyncio.Queue()
        self.slow_end = asyncio.Event()
        self.slow_end.set()
        self.ended_by_itself: set[Unit] = set()
        self.running: list[Unit] = []

    def give(self, *units: Unit) -> None:
        self._shares.put_nowait(frozenset(units))

    def give_no_more(self) -> None:
        self._shares.put_nowait(None)

    async def shares(self) -> AsyncIterator[Share]:
        while (share := await self._shares.get()) is not None:
            yield share

    def permit(self, unit: Unit) -> Permit:
        return Unconditional()

    def meter(self, unit: Unit) -> Meter:
        return Meter()

    async def released(self, unit: Unit) -> None:
        assert unit not in self.running
        self.said.put_nowait(f"released {unit}")

    async def goes_on_after(self, unit: Unit, error: Exception) -> bool:
        return False

    async def run(self, unit: Unit) -> None:
        assert unit not in self.running, "one unit runs twice"
        self.running.append(unit)
        self.said.put_nowait(f"begins {unit}")
        try:
            if unit not in self.ended_by_itself:
                await asyncio.Event().wait()
        finally:
            await self.slow_end.wait()
            self.running.remove(unit)
            self.said.put_nowait(f"ends {unit}")

    async def hears(self, *expected: str) -> None:
        async with asyncio.timeout(WAIT_S):
            heard = [await self.said.get() for _ in expected]
        assert sorted(heard) == sorted(expected), heard


async def test_units_begin_and_end_with_the_share() -> None:
    member = Told()
    serving = asyncio.create_task(serve_shares(member, member.run))
    member.give(A)
    await member.hears("begins a")
    member.give(A, B)
    await member.hears("begins b")
    member.give(B)
    await member.hears("ends a", "released a")
    assert member.running == [B]
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    await member.hears("ends b", "released b")


async def test_a_unit_that_comes_back_waits_for_its_end() -> None:
    member = Told()
    serving = asyncio.create_task(serve_shares(member, member.run))
    member.give(A)
    await member.hears("begins a")
    member.slow_end.clear()
    member.give()
    member.give(A)
    await asyncio.sleep(0.05)
    assert member.said.empty()
    member.slow_end.set()
    await member.hears("ends a", "released a", "begins a")
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_what_ended_by_itself_is_not_begun_again() -> None:
    member = Told()
    member.ended_by_itself = {A, B}
    serving = asyncio.create_task(serve_shares(member, member.run))
    member.give(A)
    await member.hears("begins a", "ends a", "released a")
    member.give(A, B)
    await member.hears("begins b", "ends b", "released b")
    member.give_no_more()
    async with asyncio.timeout(WAIT_S):
        await serving
    assert member.said.empty()


async def test_what_leaves_before_it_began_is_released() -> None:
    """Two shares lie there: nothing else of the loop comes between them."""
    member = Told()
    member.give(A)
    member.give()
    serving = asyncio.create_task(serve_shares(member, member.run))
    await member.hears("released a")
    member.give(A)
    await member.hears("begins a")
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
