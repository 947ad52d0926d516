"""What was born at the source since the mirror's last look: exact as of when all else was asked for, or a bound."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.wire.vocabulary import TopicPartition
from failover.losses import stated_losses as module
from failover.losses.counting import count_losses
from failover.losses.stated_losses import losses_by_now, stated_losses
from failover.losses.statements import Certainty, PartitionLoss
from tests.failover.stage import Stage, mirrored, two_sites
from tests.mirror.harness import make_topic, some_records, write

BORN, LATER, EMPTY = (TopicPartition(name, 0) for name in ("flights.born", "flights.later", "flights.void"))
STATE = pytest.mark.parametrize("state", [stated_losses, losses_by_now])


def amid_count(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
    """Done once, between what is asked at first and what is counted of it."""
    acts = [act]

    async def count(source: Cluster, losses: Iterable[PartitionLoss], *more: Any) -> tuple[PartitionLoss, ...]:
        if acts:
            await acts.pop()()
        return await count_losses(source, losses, *more)

    monkeypatch.setattr(module, "count_losses", count)


async def found(stage: Stage, state: Any, act: Callable[[], Awaitable[None]]) -> dict[TopicPartition, PartitionLoss]:
    stage.link = replace(stage.link, topics=("flights.*",))
    async with mirrored(stage):
        pass
    seen = await stage.sites.look()
    await act()
    return {TopicPartition(one.topic, one.partition): one for one in await state(stage.sites, seen)}


@STATE
async def test_what_comes_to_it_while_all_is_counted_is_none_of_an_exact_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    """It was asked behind the count, up to 20 s after the time as of which it was stated, and was exact as of that."""
    async with two_sites(tmp_path) as stage:

        async def make() -> None:
            await make_topic(stage.source, BORN.topic)
            await write(stage.source, BORN, some_records(0, 2))

        async def more() -> None:
            await write(stage.source, BORN, some_records(10, 3))

        amid_count(monkeypatch, more)
        loss = (await found(stage, state, make))[BORN]
    assert (loss.certainty, loss.records, loss.first_offset, loss.end_offset) == (Certainty.AT_LEAST, 2, 0, 2)


@STATE
async def test_one_that_is_still_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Any) -> None:
    async with two_sites(tmp_path) as stage:

        async def make() -> None:
            await make_topic(stage.source, BORN.topic)
            await write(stage.source, BORN, some_records(0, 2))

        loss = (await found(stage, state, make))[BORN]
    assert (loss.certainty, loss.records, loss.first_offset, loss.end_offset) == (Certainty.EXACT, 2, 0, 2)


@STATE
async def test_one_that_is_born_amid_the_count_is_a_bound_with_its_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    async with two_sites(tmp_path) as stage:
        counted_ms: list[int] = []

        async def make() -> None:
            counted_ms.append(stage.sites.now_ms())
            for at in (LATER, EMPTY):
                await make_topic(stage.source, at.topic)
            await write(stage.source, LATER, some_records(0, 4))

        async def nothing() -> None:
            pass

        amid_count(monkeypatch, make)
        losses = await found(stage, state, nothing)
    loss = losses[LATER]
    assert (loss.certainty, loss.records, loss.first_offset, loss.end_offset) == (Certainty.AT_LEAST, 4, 0, 4)
    assert loss.seen_at_ms is not None
    assert loss.seen_at_ms >= counted_ms[0]
    assert losses[EMPTY].is_none, "as of before it was born, too"
