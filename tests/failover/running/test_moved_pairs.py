"""An offset that an operation committed is known to be the link's own, and no consumer's, to all that come later."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.offsets import log_end_offsets
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from failover.errors import CutShort
from failover.journal.log import OperationJournal
from failover.journal.values import Event, JournalEntry
from failover.observing.sites import Sites
from failover.planning.moves import MoveKind
from failover.planning.plan import plan_failover, plan_switchover
from failover.running.moving import FencedCommits
from mirror.groups.committing import Due
from mirror.link import Link
from mirror.offsets.group_entries import Written
from mirror.offsets.operations import promote_link, resume_link
from mirror.offsets.state import load_link_state, read_entries
from mirror.offsets.state_writer import StateLog
from tests.broker.faults import Faults, injected
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, Stage, commit_group, mirrored, now_ms, two_sites
from tests.mirror.harness import eventually, running, some_records, wait_for_records, write


@dataclass
class TwoWays:
    """A stage whose link back has run, and runs no more, as its link does."""

    stage: Stage
    back: Link

    @property
    def sites_back(self) -> Sites:
        return Sites(self.back, self.stage.target, self.stage.source, (), now_ms)

    async def stand(self) -> tuple[list[int], list[int]]:
        """Where the group is at both sites."""
        at_both = await self.stage.group_at(self.stage.source), await self.stage.group_at(self.stage.target)
        return [at_both[0][at] for at in PARTITIONS], [at_both[1][at] for at in PARTITIONS]


@asynccontextmanager
async def two_ways(folder: Path) -> AsyncIterator[TwoWays]:
    async with two_sites(folder) as stage:
        there = replace(stage.link, shared_targets=True)
        back = replace(there, name=f"{there.name}-back", source=there.target, target=there.source)
        stage.link, back = replace(there, reverse_links=(back,)), replace(back, reverse_links=(there,))
        async with mirrored(stage), running(back):
            for at in PARTITIONS:
                await write(stage.target, at, some_records(5_000, 3))
                await wait_for_records(stage.source, at, RECORDS + 3)
        yield TwoWays(stage, back)


async def test_a_group_that_was_moved_and_is_set_back_goes_back_where_it_came_from(tmp_path: Path) -> None:
    """No pass saw where the operation brought it: the first site seemed to have read what it was to read again."""
    async with two_ways(tmp_path) as world:
        stage = world.stage
        await commit_group(stage.source, 44, 45)
        before, _ = await world.stand()
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        result = await stage.run(plan, stage.sites)
        assert result.verified, result.differences
        assert {move.kind for move in result.moves} == {MoveKind.TRANSLATED}

        _, moved_to = await world.stand()
        await commit_group(stage.target, *(offset - 20 for offset in moved_to))
        moves = plan_switchover(await world.sites_back.look()).moves
        assert [(move.kind, move.target_offset, move.skipped_records) for move in moves] == [
            (MoveKind.TRANSLATED, offset - 20, 0) for offset in before
        ]

        async def is_carried() -> bool:
            return (await world.stand())[0] == [offset - 20 for offset in before]

        async with running(world.back):
            await eventually(is_carried, "the way back")


async def test_a_group_ahead_right_before_a_marker_stays_there(tmp_path: Path) -> None:
    """It was called translated, with what it would skip, and was to go on behind the marker."""
    async with two_ways(tmp_path) as world:
        stage = world.stage
        ends = await log_end_offsets(stage.target, PARTITIONS)
        async with running(stage.link):  # its fence leaves the marker
            for at in PARTITIONS:
                await write(stage.source, at, some_records(9_000, 2))
                await wait_for_records(stage.target, at, RECORDS + 5)

        async def is_passed() -> bool:
            found = (await load_link_state(world.back, stage.source)).map
            return all((end := found.mirrored_end(*at)) and end.source_next > ends[at] for at in PARTITIONS)

        async with running(world.back):
            await eventually(is_passed, "the link back to pass the marker")
        await commit_group(stage.source, 30, 40)
        await commit_group(stage.target, *(ends[at] for at in PARTITIONS))
        moves = plan_switchover(await stage.sites.look()).moves
        assert [(move.kind, move.target_offset) for move in moves] == [(MoveKind.AHEAD, ends[at]) for at in PARTITIONS]
        assert all(move.skipped_records for move in moves)


@pytest.mark.parametrize("read_to", [44, RECORDS + 3])
async def test_a_link_that_is_resumed_behind_the_fence_keeps_its_groups_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_to: int
) -> None:
    """Its mirror may carry them by then. Of groups that go on at the end there is no pair to be refused."""
    real = OperationJournal.record_all
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        for at in PARTITIONS:
            await write(stage.source, at, some_records(5_000, 3))
        await commit_group(stage.source, read_to, read_to)
        before = await stage.group_at(stage.target)

        async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
            if any(event == Event.STARTED and detail["step"] == "move_groups" for event, detail in noted):
                await resume_link(stage.link, stage.target, "resume-1")
            return await real(self, noted)

        monkeypatch.setattr(OperationJournal, "record_all", record_all)
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        with pytest.raises(CutShort, match="another command took") as cut:
            await stage.run(plan, stage.sites)
        assert cut.value.hint == (
            "when no other command runs along it, from any machine: `farshore operation resume operation-1`"
        )
        assert await stage.group_at(stage.target) == before


FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


@pytest.mark.parametrize(
    ("is_taken_up", "coordinator"),
    [(True, None), *((False, code) for code in (None, *FENCED, ErrorCode.CONCURRENT_TRANSACTIONS))],
)
async def test_what_the_state_does_not_take_at_first_is_written_where_the_link_is_this_ones_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_taken_up: bool, coordinator: ErrorCode | None
) -> None:
    """As while another broker takes over from the one that led it; or this machine hung, and another one carries the
    same operation on, whose applications read by now: it fenced that one, and moved the groups by what it had seen.

    What the coordinator says of the link's own id tells nothing of that: Apache Kafka's says that it was fenced where
    it died with its own answer, and keeps it waiting for ever where a fence waits for a partition that is gone.
    """
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 44, 45)
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        faults, state = Faults(), TopicPartition(stage.link.state_topic, 0)
        refused: list[object] = []
        taken_up: list[object] = []

        def refuse_once(request: Any) -> None:
            faults.partitions.clear()
            about_groups = any(
                b'"group"' in bytes(data.records or b"")
                for topic in request.topic_data
                for data in topic.partition_data
                if topic.name == state.topic
            )
            if about_groups and not refused:
                refused.append(request)
                if coordinator is not None:
                    faults.transactional_ids[stage.link.transactional_id] = coordinator
                faults.refuse(state, ErrorCode.NOT_ENOUGH_REPLICAS, ApiKey.PRODUCE)

        faults.moments[ApiKey.PRODUCE] = refuse_once
        real = StateLog.settle

        async def settle(self: StateLog) -> None:
            if is_taken_up and refused and not taken_up:
                taken_up.append(await promote_link(stage.link, stage.target, "operation-1"))
            await real(self)

        monkeypatch.setattr(StateLog, "settle", settle)
        before = await stage.group_at(stage.target)
        with injected(monkeypatch, {stage.brokers[1]: faults}):
            if is_taken_up:
                with pytest.raises(CutShort, match="another command took"):
                    await stage.run(plan, stage.sites)
                assert refused
                assert await stage.group_at(stage.target) == before
                return
            result = await stage.run(plan, stage.sites)
        assert refused
        assert result.verified, result.differences
        kept = (await read_entries(stage.link, stage.target)).groups.by_group[GROUP].written
        moved_to = await stage.group_at(stage.target)
        assert kept == {at: Written(offset, moved_to[at]) for at, offset in zip(PARTITIONS, (44, 45), strict=True)}


async def test_a_link_that_is_resumed_amid_the_commits_is_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target was opened to clients while the link's mirror wrote there, and the check alone said so."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 44, 45)

        real = FencedCommits.commit

        async def commit(self: FencedCommits, due: Sequence[Due], check: Callable[[], Awaitable[None]]) -> object:
            refused = await real(self, due, check)
            await resume_link(stage.link, stage.target, "resume-1")
            return refused

        monkeypatch.setattr(FencedCommits, "commit", commit)
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        with pytest.raises(CutShort, match=r"step move_groups.*another command took"):
            await stage.run(plan, stage.sites)


async def test_a_promotion_of_the_operations_own_that_lands_late_is_gone_on_with(tmp_path: Path) -> None:
    """Its machine before had asked for it: the next one took it for another operation's, and gave up what was moved."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 44, 45)
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        await promote_link(stage.link, stage.target, "operation-1")
        result = await stage.run(plan, stage.sites)
        assert result.verified, result.differences
