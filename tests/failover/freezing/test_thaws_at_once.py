"""Freezes by ACLs that end, and begin, in the same moment: what nobody holds is let in, what somebody holds is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from broker.client.acls import WriteDenial, known_denials
from broker.client.cluster import Cluster
from failover.freezing import acl_freeze
from failover.freezing.acl_freeze import AclFreeze, ThawUnderWay, open_again
from failover.freezing.denials import Denials, SiteDenials, read_denials
from tests.failover.freezing.test_acl_freeze import BEFORE, locked
from tests.failover.stage import TOPIC

STEPS = ("look", "create_denials", "delete_denials")
EVERYBODY = WriteDenial(TOPIC, "User:*")
DENIALS = SiteDenials((EVERYBODY.principal,))
DEPTH = 7
"""Steps of which either may be held up before the next one."""

Action = Callable[[Cluster], Coroutine[Any, Any, object]]


@dataclass
class Machine:
    """It takes so many steps, and the next one when it is let go on."""

    steps: int
    may_go_on: asyncio.Event
    is_waiting: asyncio.Event = field(default_factory=asyncio.Event)

    async def step(self) -> None:
        if self.steps == 0:
            self.is_waiting.set()
            await self.may_go_on.wait()
        else:
            self.steps -= 1


ON: ContextVar[Machine | None] = ContextVar("ON", default=None)


@pytest.fixture(autouse=True)
def _stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    def stepped(real: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def step(*asked: Any) -> Any:
            if (machine := ON.get()) is not None:
                await machine.step()
            return await real(*asked)

        return step

    for name in STEPS:
        monkeypatch.setattr(acl_freeze, name, stepped(getattr(acl_freeze, name)))


async def begun(cluster: Cluster, action: Action, steps: int, may_go_on: asyncio.Event) -> asyncio.Task[None]:
    """Until it has taken so many steps, or is done."""
    machine = Machine(steps, may_go_on)

    async def run() -> None:
        ON.set(machine)
        await action(cluster)

    task = asyncio.create_task(run())
    waiting = asyncio.create_task(machine.is_waiting.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return task


async def both(cluster: Cluster, one: Action, other: Action, steps: tuple[int, int]) -> None:
    """The one so far, then the other so far, then both to their ends."""
    may_go_on = asyncio.Event()
    tasks = [await begun(cluster, action, count, may_go_on) for action, count in zip((one, other), steps, strict=True)]
    may_go_on.set()
    await asyncio.gather(*tasks)


def closing(operation_id: str) -> Action:
    return lambda cluster: AclFreeze(cluster, operation_id).close(DENIALS, [TOPIC])


def thawing(operation_id: str) -> Action:
    return lambda cluster: AclFreeze(cluster, operation_id).undo()


async def denied(cluster: Cluster) -> Denials:
    return read_denials(await known_denials(cluster))


async def test_of_two_that_thaw_at_once_nothing_stays_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each saw the other's mark, took back its own, and the denial was nobody's."""
    async with locked(tmp_path, monkeypatch) as there:
        cluster = there.stage.source
        for first, second in product(range(DEPTH), repeat=2):
            await closing("a")(cluster)
            await closing("b")(cluster)
            await both(cluster, thawing("a"), thawing("b"), (first, second))
            assert there.east.acls == BEFORE, (first, second)


async def test_who_dies_amid_a_thaw_beside_another_one_leaves_what_its_heir_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with locked(tmp_path, monkeypatch) as there:
        cluster = there.stage.source
        for first, second in product(range(DEPTH), repeat=2):
            await closing("a")(cluster)
            await closing("b")(cluster)
            may_go_on = asyncio.Event()
            dying = await begun(cluster, thawing("a"), first, may_go_on)
            other = await begun(cluster, thawing("b"), second, may_go_on)
            dying.cancel()
            await asyncio.wait({dying})
            may_go_on.set()
            await other
            left = await denied(cluster)
            assert EVERYBODY not in left.there or EVERYBODY in left.marks, "who holds it is known"
            await thawing("a")(cluster)
            assert there.east.acls == BEFORE, (first, second)


@pytest.mark.parametrize("is_thaw_first", [False, True])
async def test_who_closes_while_another_one_thaws_has_it_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_thaw_first: bool
) -> None:
    """The thaw had looked before the other's mark was there, and took back what that one had found."""
    async with locked(tmp_path, monkeypatch) as there:
        cluster = there.stage.source
        for first, second in product(range(DEPTH), repeat=2):
            await closing("a")(cluster)
            actions = (thawing("a"), closing("b")) if is_thaw_first else (closing("b"), thawing("a"))
            await both(cluster, *actions, (first, second))
            found = await denied(cluster)
            assert EVERYBODY in found.there, (first, second)
            assert found.marks == {EVERYBODY: {"b"}}, (first, second)
            await thawing("b")(cluster)
            assert there.east.acls == BEFORE, (first, second)


async def test_who_is_cut_short_amid_a_close_has_closed_what_is_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover gives it five seconds: the topic was told as closed behind the first mark."""
    async with locked(tmp_path, monkeypatch) as there:
        cluster = there.stage.source
        for steps in range(6):
            dying = await begun(cluster, closing("a"), steps, asyncio.Event())
            dying.cancel()
            await asyncio.wait({dying})
            found = await denied(cluster)
            assert found.topics == ((TOPIC,) if EVERYBODY in found.there else ()), steps
            assert (EVERYBODY in found.there) == (steps >= 3), "looked, marked, denied"
            assert found.marked == ((TOPIC,) if steps >= 2 else ()), steps
            await thawing("a")(cluster)
            assert there.east.acls == BEFORE, steps


@pytest.mark.parametrize("steps", range(2, 6))
async def test_who_closes_behind_a_thaw_that_died_is_told_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """It said that it goes, and took back nothing, or nearly all."""
    async with locked(tmp_path, monkeypatch) as there:
        cluster = there.stage.source
        await closing("a")(cluster)
        dying = await begun(cluster, thawing("a"), steps, asyncio.Event())
        dying.cancel()
        await asyncio.wait({dying})
        assert (await denied(cluster)).leaving == {EVERYBODY: {"a"}}
        impatient = replace(cluster.limits, retry_timeout_ms=1_000, partition_patience_ms=1_000)
        async with Cluster(cluster.site, client_id="farshore-test", limits=impatient) as other:
            with pytest.raises(ThawUnderWay, match=r"a .*flights at east") as told:
                await closing("b")(other)
        assert "farshore site thaw --site east" in told.value.hint
        assert (await denied(cluster)).topics == (TOPIC,)
        await open_again(cluster, [TOPIC])
        assert there.east.acls == BEFORE
