"""What a source that came back has at its leader and its followers have not got: told, and nothing is decided over it.

Nobody is shown it, so nobody can count it, save it or say whose it is; when the followers ask again it is a record that
only the source has.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.topics.partition import Partition
from deploy.cli.stranded import in_words, unshown_lines
from failover.errors import StrandedUnknown
from failover.failback.export import export_stranded
from failover.failback.plan import FailbackRefusal, plan_failback
from failover.failback.stranding import leave_at_source, look_for_stranded, read_stranded, resume_settled
from mirror.offsets.entries import RunState
from mirror.offsets.state import read_entries
from tests.broker.faults import injected
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.failback.test_promoted_later import NEWS, TAIL, Machines, bring_back
from tests.failover.losses.test_unshown_stranded import ends_connections, tells_nobody
from tests.failover.on_its_way import hold_drain, replicate
from tests.failover.stage import PARTITIONS, RECORDS
from tests.mirror.harness import contents, read_all, wait_for_records

FIRST = PARTITIONS[0]


def _leader(lost: Lost) -> Partition:
    return lost.stage.brokers[0].require_partition(*FIRST)


async def _run_of(lost: Lost) -> RunState:
    run = (await read_entries(lost.there, lost.stage.target)).run
    assert run is not None
    return run.state


@pytest.mark.parametrize("shown", [0, 3])
async def test_the_link_is_not_let_run_over_it_and_nothing_is_decided(tmp_path: Path, shown: int) -> None:
    """`stranded list` said that there was none, and the link, resumed, brought it behind newer records unasked."""
    async with lost_and_back(tmp_path, 1, (shown, 0), (3, 0)) as lost:
        stage = lost.stage
        await hold_drain(stage)
        reader, found = await read_stranded(lost.there, stage.source, stage.target)
        end = RECORDS + shown
        assert [(one.where, one.first_offset, one.end_offset, one.records, one.is_shown) for one in found.tails] == [
            *([(FIRST, RECORDS, end, shown, True)] if shown else []),
            (FIRST, end, end + 1, None, False),
        ]
        assert found.records is None
        assert "nobody is shown" in in_words(found)
        with pytest.raises(StrandedUnknown, match=f"nobody is shown flights-0 from offset {end} on"):
            await export_stranded(reader, found.undecided, tmp_path / "saved", 0)
        with pytest.raises(StrandedUnknown):
            await leave_at_source(lost.there, stage.target, found.undecided, "by a person")
        assert (await resume_settled(lost.there, stage.source, stage.target, "back"))[-1] == found.tails[-1]
        assert await _run_of(lost) is RunState.PROMOTED
        plan = plan_failback(found, (await read_entries(lost.there, stage.target)).run, (), "", same_names=True)
        assert FailbackRefusal.TAIL_NOT_SHOWN in plan.refusals
        assert FailbackRefusal.TRANSACTION_OPEN not in plan.refusals


async def test_when_the_followers_are_back_it_is_saved_with_the_others(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 1, (3, 0), (3, 0)) as lost:
        stage = lost.stage
        await hold_drain(stage)
        replicate(_leader(lost))
        await wait_for_records(stage.source, FIRST, RECORDS + 4)
        reader, found = await read_stranded(lost.there, stage.source, stage.target)
        assert found.records == 4
        assert await lost.listed(FIRST) == await lost.only_at_source(FIRST)
        assert (await lost.listed(FIRST))[-1] == contents((await read_all(stage.source, FIRST))[-1:])[0]
        manifest = await export_stranded(reader, found.undecided, tmp_path / "saved", 0)
        assert manifest.records == 4


async def test_one_that_its_followers_get_meanwhile_is_counted(tmp_path: Path) -> None:
    """As with acks=all: it is on its way for milliseconds."""
    async with lost_and_back(tmp_path, 1, (0, 0), (3, 0)) as lost:
        await hold_drain(lost.stage)
        asyncio.get_running_loop().call_later(0.3, replicate, _leader(lost))
        assert [(one.where, one.records, one.is_shown) for one in (await lost.stranded()).tails] == [(FIRST, 1, True)]


async def test_one_that_is_lost_with_its_leader_is_no_tail_and_the_link_runs(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 1, (0, 0), (3, 0)) as lost:
        stage = lost.stage
        await hold_drain(stage)
        assert (await lost.stranded()).records is None
        _leader(lost).log.truncate_to(RECORDS)
        replicate(_leader(lost))
        assert (await lost.stranded()).tails == ()
        assert await resume_settled(lost.there, stage.source, stage.target, "back") == ()
        assert await _run_of(lost) is RunState.RUNNING


async def test_of_a_cluster_that_tells_nobody_how_far_its_logs_go_what_it_shows_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lost_and_back(tmp_path, 1, (3, 0), (3, 0)) as lost:
        with injected(monkeypatch, {lost.stage.brokers[0]: tells_nobody()}):
            found = await lost.stranded()
            assert [(one.records, one.is_shown) for one in found.tails] == [(3, True)]
            assert (found.records, found.untold_ends) == (3, ())
            plan = plan_failback(
                found, (await read_entries(lost.there, lost.stage.target)).run, (), "", same_names=True
            )
            assert FailbackRefusal.TAIL_END_UNTOLD not in plan.refusals


@pytest.mark.parametrize("shown", [0, 3])
async def test_where_such_a_question_ends_the_connection_what_is_shown_is_saved_and_no_link_runs_over_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: int
) -> None:
    """Nothing was listed or saved there; then the rest was taken for nothing, and came behind newer records, resumed,
    as soon as it was shown.
    """
    async with lost_and_back(tmp_path, 1, (shown, 0), (3, 0)) as lost:
        stage = lost.stage
        await hold_drain(stage)
        with injected(monkeypatch, {stage.brokers[0]: ends_connections()}):
            reader, found = await read_stranded(lost.there, stage.source, stage.target)
            if shown:
                saved = await export_stranded(reader, found.undecided, tmp_path / "saved", 0)
                assert saved.records == shown
                await leave_at_source(lost.there, stage.target, found.undecided, "by a person")
            with pytest.raises(StrandedUnknown, match="east does not say how far its logs of flights-0, flights-1 go"):
                await resume_settled(lost.there, stage.source, stage.target, "back")
        assert await _run_of(lost) is RunState.PROMOTED
        assert [(one.records, one.is_shown) for one in found.tails] == ([(shown, True)] if shown else [])
        assert found.untold_ends == PARTITIONS
        assert (found.records, found.undecided_records) == (None, None)
        assert next(iter(unshown_lines(found))).startswith(
            "east does not say how far its logs of flights-0, flights-1 go behind what everybody is shown: whether "
            "there is more is not known; "
        )
        plan = plan_failback(found, (await read_entries(lost.there, stage.target)).run, (), "", same_names=True)
        assert FailbackRefusal.TAIL_END_UNTOLD in plan.refusals
        assert plan.stranded_records is None
        (still, *_) = (await lost.stranded()).undecided
        assert (still.where, still.first_offset, still.is_shown) == (FIRST, RECORDS + shown, False)


async def test_of_a_link_that_runs_it_is_no_more_than_lag(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 1, (0, 0), (0, 0)) as lost:
        stage = lost.stage
        assert await resume_settled(lost.there, stage.source, stage.target, "back") == ()
        await hold_drain(stage)
        found = await look_for_stranded(lost.there, stage.source, stage.target)
        assert (found.tails, found.is_promoted) == ((), False)


async def test_where_the_source_became_the_active_site_again_it_is_new(tmp_path: Path) -> None:
    """The link back brought what the other site wrote, and was promoted: what clients write since is no tail."""
    async with lost_and_back(tmp_path, 11, (TAIL, 0), (NEWS, 0)) as lost, AsyncExitStack() as stack:
        await bring_back(lost)
        await Machines(stack).promote(lost.back, "switchover-1", 0)
        await hold_drain(lost.stage)
        assert [(one.where, one.records, one.is_shown) for one in (await lost.stranded()).tails] == [
            (FIRST, TAIL, True)
        ]
