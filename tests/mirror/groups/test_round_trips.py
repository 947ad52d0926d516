"""A pass over many groups takes few round trips: counted, not timed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.client.cluster import Cluster
from broker.client.model import CommittedOffset
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.groups.sync import GroupSyncMemory, GroupSyncReport, sync_groups
from mirror.link import Link
from mirror.offsets.group_entries import GroupAction, GroupSync
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import GroupMap
from mirror.offsets.state_writer import Change
from tests.broker.client.group_site import GroupSite, serving

GROUPS = 1_000
PARTITIONS = 200
PER_GROUP = 4
MAP = OffsetMap({("t", n): PartitionMap([Interval(0, 5)], End(100, 105), 100) for n in range(PARTITIONS)})


def many_groups() -> dict[str, dict[TopicPartition, CommittedOffset]]:
    return {
        f"g{n}": {
            TopicPartition("t", (n * PER_GROUP + at) % PARTITIONS): CommittedOffset(n % 100) for at in range(PER_GROUP)
        }
        for n in range(GROUPS)
    }


async def one_pass(east: GroupSite, west: GroupSite, changes: list[Change]) -> GroupSyncReport:
    async def load_map() -> GroupMap:
        return GroupMap(MAP)

    async def write(written: Sequence[Change]) -> None:
        changes.extend(written)

    async with serving(east, "east") as source, serving(west, "west") as target:
        link = Link("l", source, target, ("t",), groups=(".*",))
        async with Cluster(source) as here, Cluster(target) as there:
            east.waves = west.waves = 0
            return await sync_groups(link, here, there, load_map, GroupSyncMemory(), write)


@pytest.mark.parametrize(
    ("newest", "round_trips"),
    [({}, 30), ({ApiKey.OFFSET_FETCH: 7, ApiKey.FIND_COORDINATOR: 3}, 30)],
    ids=["many groups in a request", "a group in a request"],
)
async def test_a_thousand_groups_take_a_few_round_trips(newest: dict[ApiKey, int], round_trips: int) -> None:
    """Metadata, list, find, fetch, at both sites; then all 1,000 commits in one transaction."""
    east, west = GroupSite(many_groups(), newest=newest), GroupSite(newest=newest)
    changes: list[Change] = []
    report = await one_pass(east, west, changes)
    assert not report.failures
    assert report.count(GroupAction.COMMIT) == GROUPS * PER_GROUP
    assert west.offsets["g7"] == {w: CommittedOffset(c.offset + 5) for w, c in east.offsets["g7"].items()}
    assert sum(isinstance(change, GroupSync) for change in changes) == GROUPS
    assert east.waves + west.waves <= round_trips
    if not newest:
        assert east.requests[ApiKey.OFFSET_FETCH] <= GROUPS // 100 + 1


async def test_failed_groups_leave_the_others_in_the_pass() -> None:
    """Both sites have groups that cannot be read, for reasons that a retry mends or not."""
    east, west = GroupSite(many_groups()), GroupSite()
    east.fetch_errors = {"g1": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    west.coordinator_errors = {"g2": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    changes: list[Change] = []
    report = await one_pass(east, west, changes)
    assert set(report.failures) == {"g1", "g2"}
    assert len(west.offsets) == GROUPS - 2
    told = {change.group: change.failure for change in changes if isinstance(change, GroupSync) and change.failure}
    assert set(told) == {"g1", "g2"}
    assert "GROUP_AUTHORIZATION_FAILED" in told["g1"]
