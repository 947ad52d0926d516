"""A time that a site has does not run while another one is waited for."""

from __future__ import annotations

import asyncio

import pytest

from failover.running.patience import uncounted

MINUTE_S = 60.0


async def test_what_another_site_takes_is_not_counted() -> None:
    """A source was told as silent for the time that the target's new leader took."""
    seen: list[float | None] = []
    async with asyncio.timeout(MINUTE_S) as limit:
        before_s = limit.when()

        async def work() -> None:
            seen.append(limit.when())
            began_s = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() == began_s:  # it counts in whole milliseconds
                await asyncio.sleep(0)

        await uncounted(limit, work)
        after_s = limit.when()
    assert seen == [None]
    assert before_s is not None
    assert after_s is not None
    assert after_s > before_s


async def test_who_is_over_its_time_is_told_so_when_it_runs_again() -> None:
    async def work() -> None:
        pass

    async def wait_in_vain() -> None:
        async with asyncio.timeout(0.01) as limit:
            await uncounted(limit, work)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait_in_vain()
