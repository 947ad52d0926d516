"""A partition that was held when its link was promoted: no worker takes that back, and it holds up no way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from failover.failback.looking import look_back
from failover.failback.plan import FailbackRefusal
from failover.observing.observe import observe
from mirror.link import Link
from mirror.offsets.fence import fence_link
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.state import read_entries
from mirror.offsets.state_writer import StateLog
from mirror.worker.outlived import in_doubt_now
from tests.failover.failback.older_disk import GROUP, NEWER, OLDER, SINCE, WHERE, Disks, lose_an_end
from tests.failover.failback.returning import expected, go_back, ready, stands
from tests.failover.stage import PARTITIONS, now_ms
from tests.mirror.harness import running, wait_for_records


async def hold(link: Link, target: Cluster, *partitions: int) -> None:
    """As the worker left it that saw the partition's leader go, before the link was promoted."""
    writer = (await fence_link(target, link, [])).writer
    reason = HoldReason.NO_LEADER_AT_SOURCE
    await StateLog(target, link, writer).append(
        [Hold(WHERE.topic, at, reason, "it has no leader", 1) for at in partitions]
    )


async def test_a_failback_after_a_partial_loss_comes_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut short in its last step but one, each time anew: nobody was left to take the hold back."""
    async with ready(tmp_path, monkeypatch) as lost:
        await hold(lost.there, lost.stage.target, *(at.partition for at in PARTITIONS))
        wanted = await expected(lost)
        await go_back("who comes back", lost, tmp_path)
        assert await stands(lost) == wanted


async def test_what_came_back_with_an_older_disk_stays_in_doubt(tmp_path: Path) -> None:
    """East has other records by now where the map speaks of those that were mirrored."""
    disks = Disks(tmp_path)
    await lose_an_end(disks)
    async with disks.up() as up:
        await hold(up.there, up.target, WHERE.partition)
        await commit_offsets(up.target, GROUP, {WHERE: CommittedOffset(OLDER + SINCE)})
        async with running(up.back):
            await wait_for_records(up.source, WHERE, OLDER + NEWER)
        entries = await read_entries(up.there, up.target)
        assert await in_doubt_now(up.there, entries, up.source, up.target) == {tuple(WHERE)}
        seen = await observe(up.back, up.target, up.source, (GROUP,), now_ms())
        plan = await look_back(up.there, (up.there, up.back), (up.source, up.target), "", "")
    assert plan.foreseen.not_movable == (GROUP,)
    assert {FailbackRefusal.SOURCE_LACKS} == {*plan.refusals}
    (group,) = seen.groups
    assert [at.translated_offset for at in group.partitions] == [None]


async def test_what_its_switchover_would_refuse_refuses_a_failback_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had saved and carried, and was cut short then."""
    async with ready(tmp_path, monkeypatch) as lost:
        await commit_offsets(lost.stage.target, GROUP, {PARTITIONS[1]: CommittedOffset(10_000)})
        ends = (lost.stage.source, lost.stage.target)
        plan = await look_back(lost.there, (lost.there, lost.back), ends, str(tmp_path / "saved"))
    assert plan.refusals == (FailbackRefusal.GROUP_NOT_MOVABLE,)
    assert plan.foreseen.not_movable == (GROUP,)
