"""A switchover on simulated time: how long applications stand still, and the source is waited for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from failover.journal.log import load_operations
from failover.journal.values import Event
from failover.limits import QUIET_S
from failover.running.steps import Operation, OperationStep
from tests.failover.far_sites import ID, INTENT, FarSites, at_far_sites

SWITCHOVER = replace(INTENT, operation=Operation.SWITCHOVER, allow_data_loss=False)


async def seconds(sites: FarSites, of: OperationStep, until: Event, last: OperationStep) -> float:
    """From the beginning of a step to that entry of another one, as the journal has them."""
    entries = (await load_operations(sites.target))[ID].entries
    at_ms = {(entry.event, entry.detail.get("step")): entry.at_ms for entry in entries}
    return (at_ms[until, last.value] - at_ms[Event.STARTED, of.value]) / 1000


@pytest.mark.parametrize(("round_trip_ms", "seconds_max"), [(0, 0.2), (100, 6.2)])
def test_applications_stand_still_for_no_longer_than_it_takes(
    tmp_path: Path, round_trip_ms: int, seconds_max: float
) -> None:
    """Two seconds of it were waited for writers that no broker of the source let write any more. To these a real
    command adds what a processor does for a thousand groups.
    """

    async def act(sites: FarSites) -> None:
        sites.go_far(round_trip_ms)
        assert (await sites.fail_over(SWITCHOVER)).verified
        still_s = await seconds(sites, OperationStep.FREEZE, Event.GROUPS_VERIFIED, OperationStep.VERIFY)
        assert still_s <= seconds_max

    at_far_sites(tmp_path, act)


def test_a_source_whose_brokers_refuse_nobody_is_seen_to_be_quiet_for_longer(tmp_path: Path) -> None:
    async def act(sites: FarSites) -> None:
        assert (await sites.fail_over(replace(SWITCHOVER, freezes=False))).verified
        assert await seconds(sites, OperationStep.DRAIN, Event.DONE, OperationStep.DRAIN) >= QUIET_S

    at_far_sites(tmp_path, act)
