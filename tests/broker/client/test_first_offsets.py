"""Groups' first offsets in a partition, pending in a transaction: told by name, and few are asked by name."""

from __future__ import annotations

import pytest

from broker.client.cluster import Cluster
from broker.client.first_offsets import NOT_KNOWN, OpenOffsets, open_offsets, with_first_offsets
from broker.client.limits import NAMED_OFFSETS_PER_REQUEST
from broker.client.model import CommittedOffset
from broker.client.offset_fetch import GroupOffsets
from broker.wire.coordinator_keys import partition_for
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from tests.broker.client.group_site import GroupSite, serving

PLACES = [TopicPartition("t", number) for number in range(200)]
FIRST = {PLACES[3]: CommittedOffset(9)}
OFFSET_PARTITIONS = 50


def site_of(groups: int = 300) -> GroupSite:
    known = {f"g{number}": {PLACES[number % 3]: CommittedOffset(7)} for number in range(groups)}
    return GroupSite(known, leaders=[0, 1] * (OFFSET_PARTITIONS // 2))


def known_of(east: GroupSite) -> dict[str, GroupOffsets]:
    return {name: GroupOffsets(dict(offsets)) for name, offsets in east.offsets.items()}


async def test_where_nothing_is_open_nobody_is_asked_by_name() -> None:
    east = site_of()
    async with serving(east, "east") as site, Cluster(site) as cluster:
        opened = await open_offsets(cluster)
        assert opened == OpenOffsets(OFFSET_PARTITIONS)
        east.waves = 0
        assert await with_first_offsets(cluster, known_of(east), PLACES, opened) == known_of(east)
    assert (east.waves, east.named_offsets) == (0, 0)


async def test_of_an_open_transaction_the_groups_of_its_partition_are_asked() -> None:
    east = site_of()
    east.hold("g7", FIRST)
    async with serving(east, "east") as site, Cluster(site) as cluster:
        opened = await open_offsets(cluster)
        assert opened.partitions == {partition_for("g7", OFFSET_PARTITIONS)}
        found = await with_first_offsets(cluster, known_of(east), PLACES, opened)
        of_g7 = found.pop("g7")
        assert of_g7 == GroupOffsets({PLACES[1]: CommittedOffset(7)}, frozenset(FIRST))
        assert found.items() < known_of(east).items()
        east.end_held()
        of_g7 = (await with_first_offsets(cluster, known_of(east), PLACES, opened))["g7"]
        assert isinstance(of_g7, GroupOffsets)
        assert (of_g7.offsets.items() >= FIRST.items(), of_g7.pending) == (True, frozenset())
    asked = sum(opened.may_hold(group) for group in east.offsets)
    assert east.named_offsets == 2 * asked * len(PLACES) < 2 * 15 * len(PLACES)


@pytest.mark.parametrize("of_topic", ["not described", "not asked", "no leader"])
async def test_where_it_is_not_told_what_is_open_all_are_asked_in_requests_of_a_bounded_size(of_topic: str) -> None:
    east = site_of(101)
    if of_topic == "not described":
        east.leaders = []
    elif of_topic == "not asked":
        east.log_starts = None
    else:
        east.leaders = [-1] * OFFSET_PARTITIONS
    east.hold("g7", FIRST)
    places = [TopicPartition("t", number) for number in range(501)]
    async with serving(east, "east") as site, Cluster(site) as cluster:
        opened = await open_offsets(cluster)
        found = await with_first_offsets(cluster, known_of(east), places, opened)
    assert (opened == NOT_KNOWN) == (of_topic == "not described")
    assert [name for name, each in found.items() if isinstance(each, GroupOffsets) and each.pending] == ["g7"]
    assert east.named_offsets == len(found) * len(places)
    assert east.named_at_once <= NAMED_OFFSETS_PER_REQUEST


async def test_a_group_that_does_not_answer_by_name_has_its_error() -> None:
    east = site_of(5)
    east.fetch_errors["g2"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    async with serving(east, "east") as site, Cluster(site) as cluster:
        found = await with_first_offsets(cluster, known_of(east), PLACES, NOT_KNOWN)
    assert [name for name, each in found.items() if not isinstance(each, GroupOffsets)] == ["g2"]
