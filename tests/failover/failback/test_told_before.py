"""The plan of a failback says what its groups read again, by the logs as they are when what it leaves is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from failover.failback.foreseen import SetBack
from failover.failback.looking import look_back
from failover.failback.plan import FailbackPlan
from failover.planning.moves import GroupTotal
from tests.failover.failback.returning import go_back, ready
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.machines import HEIR
from tests.failover.stage import GROUP, PARTITIONS
from tests.mirror.harness import read_all

AT = PARTITIONS[0]
TAIL, MARKERS = 7, 1
"""Of which one that is set back from amid the tail may be told to read again what it reads for the first time."""
STANDS = {
    "behind": (30, 40),
    "further": (53, 40),
    "in the tail": (53, 55),
    "went on": (40, 59),
    "all": (50, 59),
    "new": (None, 45),
}
"""Per group where it stood at east when that was lost (None: nowhere), and where at west by now."""


async def looked(lost: Lost, folder: Path) -> FailbackPlan:
    ends = (lost.stage.source, lost.stage.target)
    return await look_back(lost.there, (lost.there, lost.back), ends, str(folder / "saved"))


async def read_at_both(lost: Lost) -> dict[str, set[object]]:
    """By content what each group has read, at either site."""
    found = dict[str, set[object]]()
    for group in STANDS:
        found[group] = set()
        for cluster in (lost.stage.source, lost.stage.target):
            stands_at = (await committed_offsets(cluster, group)).get(AT)
            records = await read_all(cluster, AT) if stands_at is not None else []
            found[group] |= {tuple(one)[1:] for one in records if stands_at and one.offset < stands_at.offset}
    return found


async def test_what_groups_read_again_is_told_before_as_they_then_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the result told it, of groups that were set back. What the switchover would tell before the tail is left at
    east is another number: who read behind it at west would come to it, and read what follows again.
    """
    async with ready(tmp_path, monkeypatch) as lost:
        east = lost.stage.source
        for group, (at_east, at_west) in STANDS.items():
            if at_east is not None:
                await commit_offsets(east, group, {AT: CommittedOffset(at_east)})
            await commit_offsets(lost.stage.target, group, {AT: CommittedOffset(at_west)})
        have_read = await read_at_both(lost)
        plan = await looked(lost, tmp_path)
        came_back = await go_back(HEIR, lost, tmp_path)
        end = (await log_end_offsets(east, [AT]))[AT]
        told = {one.group: one for one in plan.group_totals}
        assert set(told) == {*STANDS, GROUP}
        for group, before in have_read.items():
            goes_on = (await committed_offsets(east, group))[AT].offset
            again = [tuple(one)[1:] async for one in read_records(east, AT, goes_on, end)]
            twice = sum(content in before for content in again)
            assert (group, told[group].skipped_records) == (group, 0)
            at_most = twice + (MARKERS + TAIL if group == "further" else 0)
            assert twice <= (told[group].read_again_records or 0) <= at_most, f"{group}: {twice}"
        back = {one.group: one for one in plan.foreseen.set_back}
        assert {one.group: one.to_offset for one in came_back.groups_set_back} == {
            group: one.to_offset for group, one in back.items()
        }
        assert back["further"] == SetBack("further", AT.topic, AT.partition, 53, back["further"].to_offset)


async def test_of_what_is_still_to_be_carried_back_it_is_not_told_as_none(tmp_path: Path) -> None:
    """No worker has run the link back yet: where the group goes on hangs on records that east does not have."""
    async with lost_and_back(tmp_path, 3, (7, 2), (9, 4)) as lost:
        end = (await log_end_offsets(lost.stage.target, [AT]))[AT]
        await commit_offsets(lost.stage.target, GROUP, {AT: CommittedOffset(end - 2)})
        plan = await looked(lost, tmp_path)
        assert plan.group_totals == (GroupTotal(GROUP, None, None),)
        assert plan.foreseen.to_be_brought == (GROUP,)
