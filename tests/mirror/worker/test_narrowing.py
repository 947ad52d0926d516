"""A file that takes topics off a link that runs: they leave, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.offsets import log_end_offsets
from mirror.coordinator.current import Current
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.status import link_status
from mirror.worker.events import Event
from mirror.worker.registry import registered_at
from mirror.worker.service import WorkerSettings, run_declared
from tests.mirror.harness import Told, contents, read_all, some_records
from tests.mirror.worker.stage import BAD, LIMITS, OTHER, Stage, open_stage


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path, monkeypatch) as opened:
        yield opened


@asynccontextmanager
async def following(link: Link) -> AsyncIterator[tuple[Current[dict[str, Link]], Told]]:
    """A worker whose file says so of the link; what it says may be replaced."""
    declared, told = Current({link.name: link}), Told()
    async with asyncio.TaskGroup() as tasks:
        settings = WorkerSettings(LIMITS, SystemClock(), told.sink)
        worker = tasks.create_task(run_declared(declared, settings))  # type: ignore[arg-type]
        try:
            yield declared, told
        finally:
            worker.cancel()


async def test_a_topic_that_is_taken_off_leaves_the_session_of_the_others_alone(stage: Stage) -> None:
    link, narrower = stage.link, replace(stage.link, topics=("flights",))
    await stage.write(BAD, OTHER)
    async with following(link) as (declared, told):
        await stage.wait_for(BAD, OTHER)
        ends = await log_end_offsets(stage.target, [BAD])
        declared.replace({link.name: narrower})
        (left,) = await told.wait_for(Event.TOPIC_LEFT)
        assert (left["topic"], left["reason"]) == ("gates", "the link's topics are without it now")
        assert await log_end_offsets(stage.target, [BAD]) == ends, "the others have not even a marker of it"
        await stage.write(BAD, OTHER)
        await stage.wait_for(BAD)
        assert contents(await read_all(stage.target, OTHER)) == contents(some_records(0, 10))
        assert (told.count(Event.STARTED), told.of(Event.RENEWED), told.of(Event.RESTARTING)) == (1, [], [])
        assert not told.of(Event.PARTITION_STOPPED), "it was not deleted"
        said = [one.topics for one in await registered_at(stage.target) if one.link == link.name]
        assert said == [("flights",)], "readers of the target know what the link brings from now on"
        status = await link_status(narrower, HeartbeatWatch(SystemClock()))
        assert (status.topics, status.lag_records, status.findings) == (1, 0, ())

        declared.replace({link.name: link})
        await stage.wait_for(BAD, OTHER)
        assert told.count(Event.STARTED) == 2, "with more topics it begins anew, and each goes on where it stood"
        said = [one.topics for one in await registered_at(stage.target) if one.link == link.name]
        assert said == [link.topics]


async def test_what_is_another_link_in_anything_else_begins_anew(stage: Stage) -> None:
    link = stage.link
    await stage.write(BAD)
    async with following(link) as (declared, told):
        await stage.wait_for(BAD)
        declared.replace({link.name: replace(link, topics=("flights",), groups=("readers",))})
        await told.wait_for(Event.STARTED, 2)
        assert [fields["reason"] for fields in told.of(Event.RENEWED)] == ["the file says something else of the link"]
