"""Denials that were asked for, not answered, and come while they are taken back, or when they were."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from broker.client.acls import DenialsNotEverywhere, create_denials
from broker.client.cluster import Cluster
from failover.acl_freeze import look, open_again, undo
from failover.denials import mark_of
from tests.failover.machines import VICTIM
from tests.failover.stage import TOPIC
from tests.failover.test_acl_freeze import BEFORE, ID, locked
from tests.failover.test_late_promotions import Asleep, before_a_request
from tests.failover.test_unfinished_closes import EVERYBODY


@pytest.mark.parametrize("acls_per_request", [1, 1_000])
@pytest.mark.parametrize("take_back", [lambda at: undo(at, ID), lambda at: open_again(at, [TOPIC])])
async def test_what_comes_amid_its_taking_back_is_gone_with_it_or_known_as_a_freezes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    take_back: Callable[[Cluster], Awaitable[None]],
    acls_per_request: int,
) -> None:
    """Behind the request for denials, and before the one for marks, it lost its mark: nobody found it again."""
    monkeypatch.setattr("broker.client.acls.ACLS_PER_REQUEST", acls_per_request)
    async with locked(tmp_path, monkeypatch) as there:
        for at in count(1):
            await create_denials(there.stage.source, {mark_of(EVERYBODY, ID)})

            async def land() -> None:
                await create_denials(there.stage.source, {EVERYBODY, mark_of(EVERYBODY, ID)})

            asleep = Asleep(at, land)
            limits = replace(there.stage.source.limits, retry_timeout_ms=1_000)
            async with Cluster(there.stage.source.site, client_id=VICTIM, limits=limits) as cluster:
                with before_a_request(monkeypatch, VICTIM, asleep), suppress(DenialsNotEverywhere):
                    await take_back(cluster)
            if asleep.requests < at:
                break
            found = await look(there.stage.source)
            if there.east.acls != BEFORE:
                assert (found.topics, found.operations(found.closed)) == ((TOPIC,), (ID,)), at
            await open_again(there.stage.source, [TOPIC])
            assert there.east.acls == BEFORE, at
        assert at > 4
