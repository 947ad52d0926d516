"""What was lost with a promoted link's source is counted, without what was written there since."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from broker.client.errors import ClusterUnreachable
from mirror.offsets.fence_ends import FenceEnd
from mirror.offsets.operations import promote_link
from mirror.offsets.state import load_link_state
from mirror.split import NotRead
from mirror.tails import TailsSeen, look_for_tails
from tests.mirror.harness import some_records, write
from tests.mirror.test_split import MIRRORED, OTHER, WHERE, Pair, pair

TAIL, SINCE = 7, 3


async def tails_of(both: Pair, until_s: float | None = None) -> TailsSeen | None:
    state = await load_link_state(both.link, both.west)
    until_s = asyncio.get_running_loop().time() + 60 if until_s is None else until_s
    return await look_for_tails(both.link, both.east, both.west, state, (), until_s)


async def lose(both: Pair, *, is_told: bool) -> None:
    """TAIL records of WHERE are lost; it is back, and SINCE are written. `is_told`: the source told its ends then."""
    await write(both.east, WHERE, some_records(100, TAIL, both.east.clock.now_ms() - 2_000))
    ends = {WHERE: FenceEnd(MIRRORED + TAIL, both.east.clock.now_ms(), is_told), OTHER: FenceEnd(0, 0, is_told)}
    if not is_told:
        ends[WHERE] = ends[WHERE]._replace(end=MIRRORED)
    await promote_link(both.link, both.west, "a failover", ends=ends)
    await write(both.east, WHERE, some_records(2_000, SINCE, both.east.clock.now_ms() + 60_000))


async def test_what_stood_there_at_the_promotion_is_counted_and_no_more(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        assert await tails_of(both) is None, "nobody promoted it"
        await lose(both, is_told=True)
        assert await tails_of(both) == TailsSeen({WHERE: TAIL})


async def test_of_a_source_that_was_silent_then_the_records_own_time_decides(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await lose(both, is_told=False)
        assert await tails_of(both) == TailsSeen({WHERE: TAIL})


async def test_what_was_not_read_in_the_time_is_told_as_that(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await lose(both, is_told=True)
        assert await tails_of(both, 0.0) == TailsSeen({}, (NotRead(*WHERE, "east", ""),))


async def test_a_partition_that_the_target_cannot_read_is_no_tail_and_hides_none(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await write(both.east, OTHER, some_records(2_000, TAIL))
        now_ms = both.east.clock.now_ms()
        told = {WHERE: FenceEnd(MIRRORED, now_ms, is_told=True), OTHER: FenceEnd(TAIL, now_ms, is_told=True)}
        await promote_link(both.link, both.west, "a failover", ends=told)
        state = await load_link_state(both.link, both.west)
        state = replace(state, unread={(*WHERE,): ClusterUnreachable("its leader is gone")})
        until_s = asyncio.get_running_loop().time() + 60
        seen = await look_for_tails(both.link, both.east, both.west, state, (), until_s)
        assert seen == TailsSeen({OTHER: TAIL}, (NotRead(*WHERE, "west", "its leader is gone"),))
