"""Who lets a link run, or begin anew, writes that only where the link stands as it was looked at."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.wire.vocabulary import NO_OFFSET
from deploy.cli.resuming import Resuming, amid_no_operation
from deploy.cli.terminal import ExitCode
from failover.errors import FailoverError, OperationUnderWay, WorldChanged
from failover.failback.stranding import look_for_stranded
from failover.failback.way_back import SwitchoverEnd
from failover.freezing.hooks import Hooks
from failover.journal.values import Event
from failover.running.taking_up import resume
from mirror.link import Link
from mirror.offsets.entries import Gap, GapKind, GapStatus, LinkRun
from mirror.offsets.operations import pause_link, promote_link, resume_link
from mirror.offsets.state import read_entries
from mirror.offsets.taking_over import claim_link
from tests.chaos_runs.warm_commands import Said, warm_commands
from tests.deploy.cli.test_failover import CONFIG
from tests.failover.failback import returning
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.machines import HEIR, machine, quick
from tests.failover.running.test_taking_up import ID, die_in, ready
from tests.failover.stage import PARTITIONS, RECORDS, mirrored, two_sites


async def run_of(lost: Lost) -> LinkRun | None:
    return (await read_entries(lost.there, lost.stage.target)).run


@pytest.mark.parametrize("moved", ["promoted", "paused"])
async def test_a_link_that_ran_and_was_moved_or_paused_since_does_not_begin_anew(tmp_path: Path, moved: str) -> None:
    """`farshore link retry`, whose question was answered late, undid a failover."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        seen = (await read_entries(stage.link, stage.target)).run
        await (promote_link if moved == "promoted" else pause_link)(stage.link, stage.target, "another-1")
        stood = (await read_entries(stage.link, stage.target)).run
        with pytest.raises(WorldChanged, match=f"running -> {moved} by another-1; nothing was changed"):
            await Resuming(stage.link, seen, "retry-1").resume((), (), stage.source, stage.target)
        assert (await read_entries(stage.link, stage.target)).run == stood


async def test_one_that_somebody_else_let_run_meanwhile_is_no_other(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 3, (7, 2), (9, 4)) as lost:
        await resume_link(lost.there, lost.stage.target, "resume-1")
        seen = await run_of(lost)
        await resume_link(lost.there, lost.stage.target, "resume-2")
        await Resuming(lost.there, seen, "retry-1").resume((), (), lost.stage.source, lost.stage.target)
        run = await run_of(lost)
        assert run is not None
        assert (run.state.value, run.operation_id) == ("running", "retry-1")


async def test_it_leaves_no_record_of_a_link_that_was_moved_anew(tmp_path: Path) -> None:
    """Before it lets the link run it writes what stays at the source: that is not written either."""
    async with lost_and_back(tmp_path, 3, (7, 2), (9, 4)) as lost:
        seen, east, west = await run_of(lost), lost.stage.source, lost.stage.target
        stays = (await look_for_stranded(lost.there, east, west)).behind_newer
        assert stays
        await resume_link(lost.there, west, "resume-1")
        await promote_link(lost.there, west, "failover-2")
        before = await read_entries(lost.there, west)
        with pytest.raises(WorldChanged, match="promoted by failover-1 -> promoted by failover-2"):
            await Resuming(lost.there, seen, "resume-2").resume((), stays, east, west)
        after = await read_entries(lost.there, west)
        assert (after.run, dict(after.gaps)) == (before.run, dict(before.gaps))


async def test_what_was_written_before_it_was_refused_is_not_said_to_be_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two writings another operator moves it anew: the records stay left."""
    async with lost_and_back(tmp_path, 3, (7, 2), (9, 4)) as lost:
        seen, east, west = await run_of(lost), lost.stage.source, lost.stage.target
        stays = (await look_for_stranded(lost.there, east, west)).behind_newer
        asked = 0
        real = Resuming.check

        async def check(self: Resuming, source: object, target: object) -> None:
            nonlocal asked
            asked += 1
            if asked == 2:
                await promote_link(lost.there, west, "failover-2")
            await real(self, east, west)

        monkeypatch.setattr(Resuming, "check", check)
        with pytest.raises(FailoverError, match="it was written down that those records stay at east") as told:
            await Resuming(lost.there, seen, "resume-2").resume((), stays, east, west)
        assert not isinstance(told.value, WorldChanged), "its exit code would say that nothing was changed"
        assert "nothing was changed" not in str(told.value)
        assert (await look_for_stranded(lost.there, east, west)).undecided == ()


async def test_a_link_of_an_operation_that_has_not_ended_is_not_let_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operation behind its last look ended as verified beside a mirror that ran into the site just opened."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "verify")
        stood = (await read_entries(stage.link, stage.target)).run
        assert stood is not None
        for refused in (
            amid_no_operation(stage.link, stage.source, stage.target),
            Resuming(stage.link, stood, "resume-1").resume((), (), stage.source, stage.target),
        ):
            with pytest.raises(OperationUnderWay, match=f"{ID} moves .*nothing was changed") as told:
                await refused
            assert ID in told.value.hint
        assert (await read_entries(stage.link, stage.target)).run == stood
        async with machine(HEIR, stage.link) as sites:
            await resume(await stage.log(ID), sites, Hooks(), "an heir")
        await Resuming(stage.link, stood, "resume-2").resume((), (), stage.source, stage.target)


async def run_of_link(link: Link, folder: Path, verb: str, *options: str) -> Said:
    """`farshore link` of it, by a file that declares it alone."""
    config = CONFIG.format(east=link.source.bootstrap_servers, west=link.target.bootstrap_servers)
    (folder / "farshore.toml").write_text(config.replace('"east-west"', f'"{link.name}"'))
    arguments = ["--config", str(folder / "farshore.toml"), "link", verb, *(options or ("--yes",))]
    return await asyncio.to_thread(warm_commands().run, arguments, folder)


@pytest.mark.parametrize("verb", ["resume", "retry"])
async def test_nor_is_it_said_to_run_as_it_should_where_the_operation_died_before_its_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """It ended with 0, and the source stayed closed to its clients."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        run = partial(run_of_link, stage.link, tmp_path, verb)
        before = await run()
        assert (before.code, "there is nothing to" in before.err) == (ExitCode.DONE, True), before.err
        await die_in(stage, monkeypatch, "drain")
        said = await run()
        assert said.code == ExitCode.REFUSED, said.err
        assert f"{ID} moves {stage.link.name}: " in " ".join(said.err.split())
        assert (await run("--dry-run")).code == ExitCode.DONE


@pytest.mark.parametrize("verb", ["resume", "retry"])
async def test_of_one_that_a_failback_has_let_run_it_is_said_whether_or_not_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """It was refused, where nothing was wrong: a failback lets the link run, and goes nowhere from there."""
    async with returning.ready(tmp_path, monkeypatch) as lost:
        await returning.die_in_step(lost, tmp_path, monkeypatch, "resume", Event.DONE)
        assert not (await returning.log_of(lost)).is_ended
        said = await run_of_link(lost.there, tmp_path, verb)
        assert (said.code, "there is nothing to" in said.err) == (ExitCode.DONE, True), said.err


async def stand_at_gap(link: Link) -> None:
    """As a worker that has ended left it."""
    async with Cluster(link.target) as target:
        claim = await claim_link(target, link, "host:1")
        at = PARTITIONS[0]
        gap = Gap(*at, GapKind.UNREADABLE_BATCH, RECORDS, RECORDS + 1, NO_OFFSET, GapStatus.STOPPED, 5, "damaged")
        await claim.log.append([gap])


async def test_a_gap_of_a_link_that_a_move_has_not_ended_is_not_accepted_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was, and the plan that somebody had said yes to was another one."""
    quick(monkeypatch)
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await die_in(stage, monkeypatch, "drain")
        await stand_at_gap(stage.link)
        run = partial(run_of_link, stage.link, tmp_path, "resume", f"--gap={PARTITIONS[0].topic}:0")
        assert (await run("--dry-run")).code == ExitCode.DONE
        said = await run("--yes")
        assert said.code == ExitCode.REFUSED, said.err
        assert f"{ID} moves {stage.link.name}: " in " ".join(said.err.split())
        assert f"`farshore operation wait {ID}`" in said.err
        assert [gap.status for gap in (await read_entries(stage.link, stage.target)).gaps.values()] == [
            GapStatus.STOPPED
        ]


async def test_what_the_link_back_holds_is_tried_again_while_a_failback_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused until the failback had ended, which waited for just that."""
    async with returning.ready(tmp_path, monkeypatch) as lost:
        told = await returning.expected(lost)
        await returning.die_in_step(lost, tmp_path, monkeypatch, "carry")
        ends = lost.stage.target, lost.stage.source
        seen = (await read_entries(lost.back, lost.stage.source)).run
        with pytest.raises(OperationUnderWay, match=returning.ID):
            await Resuming(lost.back, seen, "resume-1").resume((), (), *ends)
        await Resuming(lost.back, seen, "retry-1", amid_failback=True).resume((), (), *ends)
        assert (await returning.go_back(HEIR, lost, tmp_path / "another machine")).switchover is SwitchoverEnd.VERIFIED
        assert await returning.stands(lost) == told
