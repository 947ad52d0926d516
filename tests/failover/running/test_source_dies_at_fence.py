"""The source dies at a request of a switchover's fence, and stays dead: the hints lead to the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ConnectionLost
from broker.client.limits import ClientLimits
from broker.wire.schema import Message
from failover.errors import CutShort, GateRefused, OperationUnderWay
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, load_operations
from failover.journal.values import Event
from failover.observing.sites import Sites
from failover.running.aborting import abort, plan_abort
from failover.running.taking_up import resume
from mirror.api import RunState, read_entries
from tests.failover.machines import operate, quick
from tests.failover.running.test_taking_up import FAILOVER, ID, SWITCHOVER, ready
from tests.failover.stage import GROUP, PARTITIONS, Stage, now_ms

HASTY = ClientLimits(
    bootstrap_timeout_ms=600, retry_timeout_ms=600, retry_backoff_max_ms=200, partition_patience_ms=500
)


@dataclass
class SourceDeath:
    """Of the source, for the operator's machine: at its request `at` (from 1) behind the beginning of the fence. Of
    another site, or behind that of another `step`, where so told.
    """

    address: str
    at: int
    step: str = "fence"
    is_fencing: bool = False
    requests: int = 0

    @property
    def is_dead(self) -> bool:
        return self.requests >= self.at


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, death: SourceDeath) -> Iterator[None]:
    real, record_all = Connection.send, OperationJournal.record_all

    async def send(
        self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        if str(self.address) == death.address and self._client_id == "operator" and death.is_fencing:
            death.requests += 1
            if death.is_dead:
                self.abort(lost := ConnectionLost("the site is gone"))
                raise lost
        return await real(self, message, version, timeout_ms=timeout_ms)

    async def noting(self: OperationJournal, noted: list[tuple[Any, Any]]) -> Any:
        entries = await record_all(self, noted)
        for event, one in noted:
            if event == Event.STARTED and not death.is_dead:
                death.is_fencing = one["step"] == death.step
        return entries

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "send", send)
        patched.setattr(OperationJournal, "record_all", noting)
        yield


@asynccontextmanager
async def operator(stage: Stage, *, is_dead: bool = False) -> AsyncIterator[list[Sites]]:
    link = stage.link
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(Cluster(link.target, client_id="operator"))
        source = Cluster(link.source, client_id="operator", limits=HASTY)
        if not is_dead:
            await stack.enter_async_context(source)
        yield [Sites(link, None if is_dead else source, target, (), now_ms)]


async def go_on(stage: Stage, error: CutShort) -> str:
    """By the hints alone, with the source dead -> how."""
    assert "west answers" not in error.hint
    run = (await read_entries(stage.link, stage.target)).run
    async with operator(stage, is_dead=True) as sites:
        log = (await load_operations(stage.target))[ID]
        if run is not None and run.state is RunState.PROMOTED:
            assert error.hint == f"from any machine, also while east does not answer: `farshore operation resume {ID}`"
            await resume(log, sites, Hooks(), "an heir")
            return "resumed"
        lost = f"if east is lost: `farshore operation abort {ID}`, then `farshore failover`"
        assert error.hint == f"when east answers, from any machine: `farshore operation resume {ID}`; {lost}"
        with pytest.raises(GateRefused, match="source_unreachable") as refused:
            await resume(log, sites, Hooks(), "an heir")
        assert refused.value.hint == lost
        failover = replace(FAILOVER, even_if_source_answers=False)
        with pytest.raises(OperationUnderWay) as held:
            await operate(failover, sites, "failover-1")
        assert f"`farshore operation abort {ID}`" in held.value.hint
        assert "is east lost, `farshore failover`" in held.value.hint
        log = (await load_operations(stage.target))[ID]
        await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
        (result,) = await operate(failover, sites, "failover-1")
        assert result.verified
        return "failed over"


async def test_wherever_the_source_dies_at_the_fence_the_hints_lead_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "when west answers"; resume pointed at abort or a switchover, and failover at resume."""
    quick(monkeypatch)
    monkeypatch.setattr("failover.running.patience.TAKEN_OVER_S", 0.3)
    ways = []
    for at in count(1):
        async with ready(tmp_path / str(at)) as stage:
            expected = [await stage.next_record(stage.source, where) for where in PARTITIONS]
            death = SourceDeath(stage.link.source.bootstrap_servers, at)
            with dying(monkeypatch, death):
                try:
                    async with operator(stage) as sites:
                        await operate(replace(SWITCHOVER, links=(stage.link.name,)), sites, ID)
                except CutShort as error:
                    ways.append(await go_on(stage, error))
            found = [await stage.next_record(stage.target, where) for where in PARTITIONS]
            assert found == expected, f"{GROUP} at {at}"
        if not death.is_dead:
            break
    assert set(ways) == {"failed over", "resumed"}
