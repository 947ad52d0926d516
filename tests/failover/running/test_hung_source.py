"""A failover from a source that hangs, on simulated time: how long its operator waits, and what is not taken for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from failover.freezing.hooks import Hooks
from failover.journal.log import load_operations
from failover.journal.values import Event
from failover.limits import REFUSED_MS, SOURCE_AWAITED_MS, SOURCE_SILENT_MS
from failover.observing.held_silence import SourceHeard
from failover.planning.gates import RefusalReason
from failover.planning.links import enter_links, plan_link
from failover.running.taking_up import left_by_all
from mirror.api import promote_link, read_entries
from tests.failover.far_sites import ID, INTENT, FarSites, at_far_sites
from tests.failover.machines import PlanRefused
from tests.mirror.simulation.loop import SimulatedClock

SILENT_S, REFUSED_S = SOURCE_SILENT_MS / 1000, REFUSED_MS / 1000


async def refused(sites: FarSites) -> str:
    """Fail over from a source that is heard in between -> what is said."""
    with pytest.raises(SourceHeard) as told:
        await sites.fail_over()
    assert sites.told_s == []
    return str(told.value)


@pytest.mark.parametrize(
    ("go", "round_trip_ms", "called_s", "seconds_max"),
    [
        (FarSites.hang, 0, SILENT_S, 5.0),
        (FarSites.hang, 100, SILENT_S, 8.2),
        (FarSites.vanish, 0, SILENT_S, 5.0),
        (FarSites.vanish, 100, SILENT_S, 8.2),
        (FarSites.stop_listening, 0, REFUSED_S, 3.3),
        (FarSites.stop_listening, 100, REFUSED_S, 7.2),  # a worker that starts anew fences the link meanwhile
    ],
)
def test_applications_may_start_within_seconds(
    tmp_path: Path, go: Callable[[FarSites], None], round_trip_ms: int, called_s: float, seconds_max: float
) -> None:
    """A source that hung was called for ten seconds before anything else was done: 10.1 and 15.4 s. To these a real
    command adds its start, and what a processor does for a thousand groups.
    """

    async def act(sites: FarSites) -> None:
        sites.go_far(round_trip_ms)
        go(sites)
        result = await sites.fail_over()
        assert (result.verified, result.seen_by) == (True, ())
        assert called_s <= sites.told_s[0] <= seconds_max

    at_far_sites(tmp_path, act)


@pytest.mark.parametrize("round_trip_ms", [0, 100])
def test_a_source_that_speaks_before_the_fence_is_not_left(tmp_path: Path, round_trip_ms: int) -> None:
    """It stood still for longer than what nobody hears of waits for it, and for less than a dead one is given."""

    async def act(sites: FarSites) -> None:
        sites.go_far(round_trip_ms)
        sites.hang((SOURCE_AWAITED_MS + SOURCE_SILENT_MS) / 2000)
        said = await refused(sites)
        assert "node-1:9092" in said
        assert "nothing was changed" in said
        assert (await read_entries(sites.link, sites.target)).run is None
        log = (await load_operations(sites.target))[ID]
        assert log.entries[-1].event == Event.GIVEN_UP
        again = sites.fail_over()
        with pytest.raises(PlanRefused) as told:
            await again
        assert [refusal.reason for refusal in told.value.refusals] == [RefusalReason.SOURCE_ANSWERS]

    at_far_sites(tmp_path, act)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_source_that_takes_two_seconds_for_each_answer_is_not_left(tmp_path: Path, *, goes_on: bool) -> None:
    """Also the connection takes as long: its first word comes four seconds behind the call."""

    async def act(sites: FarSites) -> None:
        sites.slow_down(2.0)
        if goes_on:
            await refused(sites)
        else:
            with pytest.raises(PlanRefused) as told:
                await sites.fail_over(goes_on=False)
            assert [refusal.reason for refusal in told.value.refusals] == [RefusalReason.SOURCE_ANSWERS]
        assert (await read_entries(sites.link, sites.target)).run is None

    at_far_sites(tmp_path, act)


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_source_is_not_told_as_dead_by_a_refusal_before_it_was_silent_for_long(
    tmp_path: Path, *, is_dead: bool
) -> None:
    """One whose first word took 3 s was called dead, and refused as one whose loss nobody had consented to."""

    async def act(sites: FarSites) -> None:
        sites.hang(None if is_dead else (SOURCE_AWAITED_MS + SOURCE_SILENT_MS) / 2000)
        with pytest.raises(PlanRefused if is_dead else SourceHeard) as told:
            await sites.fail_over(replace(INTENT, allow_data_loss=False))
        if isinstance(told.value, PlanRefused):
            reasons = [refusal.reason for refusal in told.value.refusals]
            assert reasons == [RefusalReason.DATA_LOSS_NOT_ALLOWED]

    at_far_sites(tmp_path, act)


def test_who_consents_to_leave_a_source_that_answers_late_is_not_refused_for_that(tmp_path: Path) -> None:
    async def act(sites: FarSites) -> None:
        sites.slow_down(2.0)
        result = await sites.fail_over(replace(INTENT, even_if_source_answers=True))
        assert result.verified
        assert sites.told_s[0] > SILENT_S

    at_far_sites(tmp_path, act)


def test_a_source_that_the_worker_sees_before_the_fence_is_not_left(tmp_path: Path) -> None:
    """From the operator nothing comes there, and from the mirror nothing while the plan was made."""

    async def act(sites: FarSites) -> None:
        sites.vanish()
        sites.loop.call_later(SOURCE_AWAITED_MS / 1000, sites.let_mirror_reach_east)
        said = await refused(sites)
        assert "the worker of east-west" in said

    at_far_sites(tmp_path, act)


def test_a_source_that_speaks_right_before_it_is_left_is_not_left(tmp_path: Path) -> None:
    """While the promotion read what it needs it was not listened to any more, nor when it had to read that again."""
    round_trip_ms = 200
    promoted_s: list[float] = []

    async def leave(sites: FarSites) -> None:
        sites.go_far(round_trip_ms)
        began_ms = SimulatedClock(sites.loop).now_ms()
        sites.hang()
        await sites.fail_over()
        run = (await read_entries(sites.link, sites.target)).run
        assert run is not None
        promoted_s.append((run.at_ms - began_ms) / 1000)

    async def speak_before(sites: FarSites) -> None:
        sites.go_far(round_trip_ms)
        sites.hang(promoted_s[0] - 2 * round_trip_ms / 1000)
        await refused(sites)
        assert (await read_entries(sites.link, sites.target)).run is None

    at_far_sites(tmp_path / "left", leave)
    assert promoted_s[0] > SILENT_S + 2 * round_trip_ms / 1000, "the silence is not what the promotion waits for"
    at_far_sites(tmp_path / "not left", speak_before)


@pytest.mark.parametrize("speaks_first", [True, False])
def test_all_links_of_a_site_leave_it_or_none_does(tmp_path: Path, *, speaks_first: bool) -> None:
    """Their promotions come there one after the other: one was given up while another was made already. And the workers
    are not asked for a word that decides nothing any more.
    """

    async def act(sites: FarSites) -> None:
        sites.vanish()
        async with AsyncExitStack() as stack:
            of_both = [sites.link, replace(sites.link, name="another")]
            now_ms = SimulatedClock(sites.loop).now_ms
            one, other = await enter_links(stack, of_both, INTENT, now_ms, tuple(of_both), goes_on=True)
            assert one.silence is not None
            if speaks_first:
                sites.let_mirror_reach_east()
                await asyncio.sleep(SILENT_S)
            for left in (one, other):
                if speaks_first:
                    with pytest.raises(SourceHeard):
                        await left.still_silent()
                else:
                    assert (await left.still_silent()).answers
                sites.let_mirror_reach_east()
                await asyncio.sleep(SILENT_S)
            assert one.silence.watching.done()

    at_far_sites(tmp_path, act)


@pytest.mark.parametrize("is_left", [True, False])
def test_a_site_that_one_link_has_left_is_left_by_the_others_whatever_is_heard_of_it_since(
    tmp_path: Path, *, is_left: bool
) -> None:
    """Taken up between two promotions, the operation gave the second link up: half of the site was active at each."""

    async def act(sites: FarSites) -> None:
        sites.vanish()
        if is_left:
            await promote_link(sites.link, sites.target, ID)
        async with AsyncExitStack() as stack:
            of_both = [sites.link, replace(sites.link, name="another")]
            now_ms = SimulatedClock(sites.loop).now_ms
            entered = await enter_links(stack, of_both, INTENT, now_ms, tuple(of_both), goes_on=True)
            moves = [await plan_link(INTENT, one, Hooks()) for one in entered]
            sites.let_mirror_reach_east()
            await asyncio.sleep(SILENT_S)
            for move in left_by_all(moves, ID):
                if is_left:
                    assert (await move.sites.still_silent()).source is None
                else:
                    with pytest.raises(SourceHeard):
                        await move.sites.still_silent()

    at_far_sites(tmp_path, act)
