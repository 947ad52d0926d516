"""What a plan says that groups read again and skip, held by content against a consumer that goes on where it puts them:
where each site has appended the other's records behind its own, an offset does not tell what was read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from failover.observing.snapshot import Snapshot
from failover.planning.moves import GroupMove, MoveKind
from failover.planning.plan import plan_switchover
from failover.planning.to_datetime import moves_to
from mirror.offsets.operations import resume_link
from mirror.offsets.state import load_link_state
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.stage import FIRST_TIMESTAMP_MS, PARTITIONS, RARE, RECORDS
from tests.mirror.harness import eventually, read_all, running, wait_for_records

AT = PARTITIONS[0]
TAIL, NEWS = 8, 5


@asynccontextmanager
async def in_two_orders(folder: Path) -> AsyncIterator[Lost]:
    """East has its tail before west's news, and west its news before east's tail. Nobody moves groups meanwhile."""
    async with lost_and_back(folder, 11, (TAIL, 0), (NEWS, 0)) as lost:
        await resume_link(lost.there, lost.stage.target, "resume-1")
        async with running(lost.there, limits=RARE), running(lost.back, limits=RARE):
            for site in (lost.stage.source, lost.stage.target):
                await wait_for_records(site, AT, RECORDS + TAIL + NEWS)
            await eventually(lambda: _is_all_passed(lost), "what the link back brought, to be passed")
        yield lost


async def _is_all_passed(lost: Lost) -> bool:
    end = (await load_link_state(lost.there, lost.stage.target)).map.mirrored_end(*AT)
    return end is not None and end.source_next == (await log_end_offsets(lost.stage.source, [AT]))[AT]


class Contents:
    """What both logs have, by content; markers are none."""

    def __init__(self, at_east: Mapping[int, object], at_west: Mapping[int, object]) -> None:
        self._at_east, self._at_west = at_east, at_west

    @classmethod
    async def of(cls, lost: Lost) -> Contents:
        east, west = [
            {record.offset: tuple(record)[1:] for record in await read_all(site, AT)}
            for site in (lost.stage.source, lost.stage.target)
        ]
        return cls(east, west)

    def again(self, move: GroupMove, read_at_west_to: int = 0) -> int:
        """How many records a consumer at west comes to, from the move's place on, that the group has read."""
        read = self._read(move, read_at_west_to)
        return sum(record in read for offset, record in self._at_west.items() if offset >= (move.target_offset or 0))

    def skipped(self, move: GroupMove, read_at_west_to: int = 0) -> int:
        """How many it never comes to, and has not read."""
        read = self._read(move, read_at_west_to)
        return sum(record not in read for offset, record in self._at_west.items() if offset < (move.target_offset or 0))

    def _read(self, move: GroupMove, read_at_west_to: int) -> set[object]:
        east = {record for offset, record in self._at_east.items() if offset < (move.source_offset or 0)}
        return east | {record for offset, record in self._at_west.items() if offset < read_at_west_to}


async def look(lost: Lost) -> Snapshot:
    return await replace(lost.stage.sites, link=lost.there).look()


def of_group(moves: tuple[GroupMove, ...], name: str) -> GroupMove:
    (found,) = [move for move in moves if move.group == name and (move.topic, move.partition) == AT]
    return found


async def test_what_a_group_reads_again_is_counted_by_the_map_wherever_it_stands(tmp_path: Path) -> None:
    """It goes on at the first record that it has not read, and comes to others that it has: 0 were said."""
    async with in_two_orders(tmp_path) as lost:
        east = lost.stage.source
        end = (await log_end_offsets(east, [AT]))[AT]
        for offset in range(RECORDS - 1, end + 1):
            await commit_offsets(east, f"at-{offset}", {AT: CommittedOffset(offset)})
        plan, both = plan_switchover(await look(lost)), await Contents.of(lost)
        moves = [of_group(plan.moves, f"at-{offset}") for offset in range(RECORDS - 1, end + 1)]
        assert [move.read_again_records for move in moves] == [both.again(move) for move in moves]
        assert {both.skipped(move) for move in moves} == {0} == {move.skipped_records for move in moves}
        assert max(both.again(move) for move in moves) == TAIL

        for move in moves:  # a pass has been there
            where = {AT: CommittedOffset(move.target_offset or 0)}
            await commit_offsets(lost.stage.target, move.group, where)
        there = plan_switchover(await look(lost)).moves
        assert [of_group(there, move.group).read_again_records for move in moves] == [
            both.again(move) for move in moves
        ]


async def test_so_it_is_with_one_that_is_ahead_or_goes_back_or_to_a_time(tmp_path: Path) -> None:
    async with in_two_orders(tmp_path) as lost:
        east, west = lost.stage.source, lost.stage.target
        first_news = min(record.offset for record in await read_all(west, AT) if record.offset > RECORDS)
        await commit_offsets(east, "ahead", {AT: CommittedOffset(RECORDS + 3)})  # three of the tail were read
        await commit_offsets(west, "ahead", {AT: CommittedOffset(first_news + 2)})  # and two of the news
        snapshot, both = await look(lost), await Contents.of(lost)
        move = of_group(plan_switchover(snapshot).moves, "ahead")
        assert (move.kind, move.read_again_records) == (MoveKind.AHEAD, both.again(move, first_news + 2))
        assert both.again(move, first_news + 2) == 3

        back = of_group(plan_switchover(snapshot, set_back_groups=["ahead"]).moves, "ahead")
        assert (back.kind, back.read_again_records) == (MoveKind.TRANSLATED, both.again(back, first_news + 2))
        assert both.again(back, first_news + 2) == 5

        timed = of_group(await moves_to(snapshot, west, FIRST_TIMESTAMP_MS), "ahead")
        assert timed.target_offset is not None
        assert timed.read_again_records is not None
        assert timed.read_again_records >= both.again(timed, first_news + 2) >= RECORDS + 5


def test_of_one_that_has_gone_on_since_the_plan_nobody_tells_what_it_reads_again_where_both_sites_write() -> None:
    planned = GroupMove("analysts", *AT, AT.topic, MoveKind.TRANSLATED, 490, 485, "", read_again_records=8, turn=2)
    gone_on = planned.of_one_at(487)
    assert (gone_on.kind, gone_on.read_again_records, gone_on.skipped_records) == (MoveKind.AHEAD, None, 2)
    assert replace(planned, turn=0).of_one_at(487).read_again_records == 0, "the order is the source's"
    assert replace(planned, read_again_records=0).of_one_at(487).read_again_records == 0, "further on there is no more"


def test_of_one_that_has_gone_on_since_the_plan_what_it_skips_by_the_plan_is_not_forgotten() -> None:
    planned = GroupMove("analysts", *AT, AT.topic, MoveKind.TRANSLATED, 490, 485, "", skipped_records=7)
    assert planned.of_one_at(487).skipped_records == 9
    assert replace(planned, skipped_records=None).of_one_at(487).skipped_records is None, "not known by then either"
    assert replace(planned, kind=MoveKind.RESTORED, skipped_records=None).of_one_at(487).skipped_records == 2
