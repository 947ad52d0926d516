"""A command of the demo that takes long says that it goes on."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from deploy.demo.stage import telling_time
from tests.mirror.harness import eventually


async def test_what_goes_on_for_minutes_says_so_now_and_then() -> None:
    """The audit printed nothing for 214 s."""
    told = StringIO()

    async def is_told_again() -> bool:
        return told.getvalue().count("goes on, 0 s by now") > 1

    async with telling_time(Console(file=told), every_s=0.001):
        await eventually(is_told_again, "a second line")
    before = told.getvalue()
    async with telling_time(Console(file=told), every_s=3_600.0):
        pass
    assert told.getvalue() == before, "what takes no time is not told"
