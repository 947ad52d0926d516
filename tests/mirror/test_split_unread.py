"""What came to a source since its link was promoted, where the target cannot say what had been mirrored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.base.clock import SystemClock
from broker.client.errors import ClusterUnreachable
from mirror.offsets.fence_ends import FenceEnd
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.operations import promote_link
from mirror.offsets.state import load_link_state
from mirror.split import NotRead, look_for_split
from tests.mirror.test_split import MIRRORED, OTHER, WHERE, pair


async def test_a_partition_that_the_target_cannot_read_is_said_not_to_be_known(tmp_path: Path) -> None:
    """Its map is not there then: all that had been mirrored was named as what the source has alone."""
    async with pair(tmp_path) as both:
        end = FenceEnd(MIRRORED, SystemClock().now_ms(), is_told=True)
        await promote_link(both.link, both.west, "a failover", ends={WHERE: end, OTHER: end._replace(end=0)})
        state = await load_link_state(both.link, both.west)
        error = ClusterUnreachable("its leader is gone")
        state = replace(state, map=OffsetMap(), unread={(WHERE.topic, WHERE.partition): error})
        split = await look_for_split(both.link, both.east, both.west, state, ())
        assert split is not None
        assert (split.at_source, split.tails) == ((), ())
        assert split.not_read == (NotRead(*WHERE, "west", "its leader is gone"),)
