"""One offset at both sites, and why it has none."""

from __future__ import annotations

import pytest

from broker.client.site import Site
from mirror.errors import OffsetNotMirrored
from mirror.link import Link
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.translation import Translation, translate_offset

LINK = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2"), ("orders",), "prefixed")
MAP = OffsetMap({("orders", 0): PartitionMap([Interval(10, 0)], End(20, 10))})


@pytest.mark.parametrize(("offset", "reverse"), [(12, False), (2, True)])
def test_both_ways_are_one_translation(offset: int, reverse: bool) -> None:
    translation = Translation("east-west", "orders", "east.orders", 0, 12, 2)
    assert translate_offset(LINK, MAP, "orders", 0, offset, reverse=reverse) == translation


@pytest.mark.parametrize(
    ("partition", "offset", "reverse", "words"),
    [
        (0, 3, False, "offset 3 of orders partition 0 at east is not mirrored: offsets 10 to 20 are"),
        (0, 30, True, "offset 30 of orders partition 0 at west is not mirrored: offsets 0 to 10 are"),
        (1, 3, False, "link east-west has mirrored nothing of orders partition 1"),
    ],
)
def test_what_is_not_mirrored_is_told(partition: int, offset: int, reverse: bool, words: str) -> None:
    with pytest.raises(OffsetNotMirrored, match=words):
        translate_offset(LINK, MAP, "orders", partition, offset, reverse=reverse)
