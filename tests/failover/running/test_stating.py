"""When a move's loss is stated, as of when, and what a failure of that is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.errors import ClusterUnreachable
from broker.wire.api import ApiKey
from failover.freezing.hooks import Hooks
from failover.losses.statements import Certainty, PartitionLoss
from failover.observing.sites import Sites
from failover.observing.snapshot import Snapshot
from failover.running.groups_stand import GroupsStand
from failover.running.steps import Operation
from tests.broker.faults import Faults, injected
from tests.failover.freezing.test_hooks import NOTES, VERBS, python, run
from tests.failover.freezing.test_left_source import planned, roles_of
from tests.failover.stage import PARTITIONS, mirrored, now_ms, two_sites
from tests.mirror.harness import some_records, write

READING_MS = 20_000


async def test_it_is_as_of_when_its_ends_were_asked_and_not_of_when_all_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was exact when the source was asked was said of 20 s later, when the records had been read."""
    behind: list[GroupsStand] = []
    read: list[object] = []
    east = Faults(moments={ApiKey.FETCH: lambda request: read.append(request) if behind else None})
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write(stage.source, PARTITIONS[0], some_records(5000, 7))
        with injected(monkeypatch, {stage.brokers[0]: east}):
            sites = replace(stage.sites, now_ms=lambda: now_ms() + (READING_MS if read else 0))
            plan = await planned(sites, freezing=await roles_of(stage))
            result = await stage.run(plan, sites, tell=behind.append)
    assert read
    assert (result.loss.records, result.loss.certainty) == (7, Certainty.EXACT)
    assert plan.loss.stated_at_ms is not None
    assert result.loss.stated_at_ms is not None
    assert plan.loss.stated_at_ms < result.loss.stated_at_ms <= now_ms()


@pytest.mark.parametrize("verb", VERBS)
async def test_a_loss_that_cannot_be_stated_is_a_lower_bound_of_what_is_moved_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Operation
) -> None:
    """The after_hook told everybody so, and then the command ended with exit code 1."""
    after = tmp_path / "after"

    async def gone(_sites: Sites, _snapshot: Snapshot, _until_s: float) -> tuple[PartitionLoss, ...]:
        raise ClusterUnreachable("east is gone")

    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        module = "failover.running.stating"
        with monkeypatch.context() as patched:
            patched.setattr(f"{module}.stated_losses", gone)
            patched.setattr(f"{module}.losses_by_now", gone)
            result = await run(stage, verb, Hooks(after=python(NOTES, after)))
    assert json.loads(after.read_text())["FARSHORE_VERIFIED"] == "true"
    assert (result.verified, result.loss.certainty, result.loss.offsets) == (True, Certainty.AT_LEAST, 0)
