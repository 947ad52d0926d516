"""Groups that come to what only the old source has on their way."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.groups import committed_offsets
from broker.client.log import read_records
from broker.client.offsets import log_end_offsets
from failover.failback.looking import look_back
from failover.failback.stranding import leave_at_source
from failover.failback.through import ReadsTail, reads_through
from failover.observing.snapshot import GroupPartitionView, GroupView
from mirror.api import StrandedTail
from tests.failover.failback.returning import go_back, ready
from tests.failover.stage import GROUP, PARTITIONS

TAIL = StrandedTail(
    "flights", 0, "flights", 30, 35, 5, None, None, left=False, target_wrote=True, mirrored_target_next=40
)


def group(name: str, offset: int | None, partition: int = 0) -> GroupView:
    at = GroupPartitionView("flights", partition, "flights", offset, None, None, "")
    return GroupView(name, None, None, 0, 0, None, (at,))


def test_who_stands_before_the_end_of_what_both_have_comes_to_it_and_nobody_else() -> None:
    groups = [
        group("before", 39),
        group("behind", 40),
        group("elsewhere", 0, 1),
        group("nowhere", None),
        group("stays", 0),
    ]
    coming = {"before", "behind", "elsewhere", "nowhere"}
    assert reads_through([TAIL], groups, coming) == (ReadsTail("before", "flights", 0, 5),)


@pytest.mark.parametrize("is_left", [False, True])
async def test_who_comes_to_the_tail_is_named_also_where_it_was_decided_before_to_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    """The group reads all of it at east. Behind `stranded leave` the plan named nobody."""
    async with ready(tmp_path, monkeypatch) as lost:
        east, west = lost.stage.source, lost.stage.target
        tails = {at: await lost.only_at_source(at) for at in PARTITIONS}
        if is_left:
            await leave_at_source(lost.there, west, (await lost.stranded()).undecided, "test")
        plan = await look_back(lost.there, (lost.there, lost.back), (east, west), str(tmp_path / "saved"))
        assert plan.reads_tail == tuple(ReadsTail(GROUP, *at, len(tail)) for at, tail in tails.items())
        await go_back("first", lost, tmp_path)
        starts, ends = await committed_offsets(east, GROUP), await log_end_offsets(east, PARTITIONS)
        for at, tail in tails.items():
            read = [tuple(one)[1:] async for one in read_records(east, at, starts[at].offset, ends[at])]
            assert [record for record in read if record in tail] == tail
