"""A failover away from a source that answers: where nobody keeps its clients from writing there, that is a finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from failover.freezing import read_roles
from failover.plan import plan_failover
from failover.result import OperationResult
from failover.sites import Sites
from tests.failover.stage import Stage, mirrored, two_sites
from tests.failover.test_taken_up_frozen import without_roles


async def failed_over(stage: Stage, sites: Sites) -> OperationResult:
    async with mirrored(stage):
        roles = await read_roles(sites.link, sites.source, sites.target, even_without_source=True)
        seen = await sites.look_past_source()
        freezing = replace(roles, freezes=True)
        plan = plan_failover(seen, allow_data_loss=True, even_if_source_answers=True, freezing=freezing)
        return await stage.run(plan, sites)


async def test_a_source_that_was_closed_is_no_finding(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        result = await failed_over(stage, stage.sites)
    assert (result.verified, result.is_source_open, result.has_findings) == (True, False, False)


async def test_a_source_that_answers_and_that_nobody_closes_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 0, and its clients wrote on where no mirror carried it any more."""
    without_roles(monkeypatch)
    async with two_sites(tmp_path) as stage:
        result = await failed_over(stage, stage.sites)
    assert (result.verified, result.is_source_open, result.has_findings) == (True, True, True)


async def test_a_source_that_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_roles(monkeypatch)
    async with two_sites(tmp_path) as stage:
        result = await failed_over(stage, stage.without_source)
    assert (result.verified, result.is_source_open, result.has_findings) == (True, False, False)
