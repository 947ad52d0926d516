"""What an operation that was cut short would do by now, before a person lets it go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.cli.consent_again import _plan_now
from failover.planning.gates import RefusalReason
from tests.deploy.cli.test_taking_up import TheseLinks
from tests.failover.running.test_taken_up_anew import answering_in_part


async def test_a_source_that_answers_in_part_by_now_is_a_refusal_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the error of the first partition that did not answer, exit code 1."""
    async with answering_in_part(tmp_path, monkeypatch) as (log, sites):
        shown = await _plan_now(TheseLinks((sites.link,)), log, sites)  # type: ignore[arg-type]
    assert shown is not None
    assert RefusalReason.SOURCE_PARTLY_THERE in {one.reason for one in shown.plan.refusals}
