"""The target dies behind a switchover's freeze: neither site takes writes then, and the operator is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from failover.errors import StillFrozen
from tests.failover.machines import operate, quick
from tests.failover.running.test_late_promotions import takes_writes
from tests.failover.running.test_source_dies_at_fence import SourceDeath, dying, operator
from tests.failover.running.test_taking_up import ID, SWITCHOVER, ready


async def test_a_source_that_stays_frozen_is_named_with_the_command_that_lets_its_clients_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to wait for the target, which was lost, and nothing said that the source refused writes, too."""
    quick(monkeypatch)
    monkeypatch.setattr("failover.journal.log.HEARTBEAT_S", 0.2)
    monkeypatch.setattr("failover.journal.log.LEASE_S", 1.0)
    async with ready(tmp_path) as stage:
        death = SourceDeath(stage.link.target.bootstrap_servers, 1, step="drain")
        with dying(monkeypatch, death), pytest.raises(StillFrozen) as told:
            async with operator(stage) as sites:
                await operate(SWITCHOVER, sites, ID)
        assert not await takes_writes(stage)
        assert str(told.value).startswith("writes at east may be frozen still: west was not told in time")
        assert f"when west answers: `farshore operation resume {ID}`" in told.value.hint
        assert (
            "is west lost: `farshore site thaw --site east --topic flights --even-if-other-active`" in told.value.hint
        )
