"""A look whose line to one site stalls: what it saw of the other one is old by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from broker.broker import Broker
from broker.client.cluster import Cluster
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from failover.planning.moves import MoveKind
from failover.planning.plan import plan_switchover
from mirror.link import Link
from mirror.offsets.state import read_entries
from tests.broker.faults import SPARED, Faults, injected
from tests.failover.stage import GROUP, PARTITIONS, commit_group, mirrored, two_sites
from tests.mirror.harness import eventually, running


@dataclass
class Stalling(Faults):
    """The first question about offsets that a look asks is answered when `meanwhile` is over."""

    meanwhile: Callable[[], Awaitable[None]] | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, handler: Handler, served: Broker, request: Any, context: RequestContext) -> Any:
        asks = handler.api is ApiKey.OFFSET_FETCH and context.client_id == "farshore-test"
        if asks and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        response = await super().answer(handler, served, request, context)
        if asks:
            self.answered.set()
        return response


async def carry_back(back: Link, source: Cluster, *offsets: int) -> None:
    """The link back runs until the group stands at the source where it does at the target, and its state says so."""

    async def is_carried() -> bool:
        entry = (await read_entries(back, source)).groups.by_group.get(GROUP)
        written = entry.written if entry is not None else {}
        seen = [written[at] for at in PARTITIONS if at in written]
        return [one.source_offset for one in seen if one.stood == one.target_offset] == list(offsets)

    async with running(back):
        await eventually(is_carried, "the group's way back")


async def test_a_set_back_at_the_target_that_a_link_back_carries_over_meanwhile_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's offsets were read before that, the target's and what the link back says behind it."""
    async with two_sites(tmp_path) as stage:
        there = replace(stage.link, shared_targets=True)
        back = replace(there, name=f"{there.name}-back", source=there.target, target=there.source)
        stage.link, back = replace(there, reverse_links=(back,)), replace(back, reverse_links=(there,))
        async with mirrored(stage):
            pass
        at_target = list((await stage.group_at(stage.target)).values())
        read_to = [offset + 10 for offset in at_target]
        set_back = [offset - 10 for offset in at_target]
        source, target = Stalling(), Stalling()
        async with (
            Cluster(there.source, client_id=SPARED) as east,
            Cluster(there.target, client_id=SPARED) as west,
        ):
            await commit_group(west, *read_to)
            await carry_back(back, east, *read_to)

            async def meanwhile() -> None:
                await source.answered.wait()
                await commit_group(west, *set_back)
                await carry_back(back, east, *set_back)

            target.meanwhile = meanwhile
            with injected(monkeypatch, dict(zip(stage.brokers, (source, target), strict=True))):
                moves = plan_switchover(await stage.sites.look()).moves
        assert target.meanwhile is None, "the look has stalled"
        assert [(move.kind, move.target_offset) for move in moves] == [
            (MoveKind.ALREADY_THERE, offset) for offset in set_back
        ]
