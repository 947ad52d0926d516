"""The way back as an operator takes it, held against both logs by content; killed at any step it is begun again."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.base.children import die_with_parent
from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from deploy.cli.terminal import ExitCode
from mirror.link import Link
from mirror.offsets.entries import RunState
from mirror.offsets.operations import promote_link
from mirror.offsets.state import read_entries
from tests.deploy.cli.test_stranded import WHERE, Operator
from tests.deploy.test_readme import environment
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import (
    contents,
    eventually,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)

SHARED, STRANDED, NEWER = 20, 7, 9
GROUPS = {"behind": (4, 6), "old": (SHARED + 5, 11), "current": (SHARED, -2), "done": (3, 0)}
"""Per group its offset at east when that was lost, and the later one at west; from the end if it is not above 0."""


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        yield Operator(tmp_path, east.bootstrap, west.bootstrap)


async def lose_and_go_on(operator: Operator) -> None:
    """East is lost with a tail; groups and producers go on at west."""
    link = operator.link
    async with Cluster(link.source) as east, Cluster(link.target) as west:
        await make_topic(east, WHERE.topic)
        await write(east, WHERE, some_records(0, SHARED))
        async with running(link):
            await wait_for_records(west, WHERE, SHARED)
        await promote_link(link, west, "failover-1")
        await write(east, WHERE, some_records(1_000, STRANDED))
        await write(west, WHERE, some_records(2_000, NEWER))
        end = (await log_end_offsets(west, [WHERE]))[WHERE]
        for group, (at_east, at_west) in GROUPS.items():
            await commit_offsets(east, group, {WHERE: CommittedOffset(at_east)})
            await commit_offsets(west, group, {WHERE: CommittedOffset(at_west if at_west > 0 else end + at_west)})


async def next_records(cluster: Cluster) -> dict[str, tuple[object, ...]]:
    """By content what each group reads next; () at the end."""
    found: dict[str, tuple[object, ...]] = {}
    end = (await log_end_offsets(cluster, [WHERE]))[WHERE]
    for group in GROUPS:
        offset = (await committed_offsets(cluster, group))[WHERE].offset
        found[group] = next(iter([tuple(r)[1:] async for r in read_records(cluster, WHERE, offset, end)]), ())
    return found


@contextmanager
def command(operator: Operator, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`farshore ...` as a process of its own; killed at the end."""
    argv = [sys.executable, "-m", "deploy.cli", "--config", str(operator.config), *words]
    with (operator.folder / f"{words[0]}.log").open("ab") as log:
        process = subprocess.Popen(
            argv, cwd=operator.folder, env=environment(), stdout=log, stderr=log, preexec_fn=die_with_parent
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def check_is_back(operator: Operator, at_west: list[tuple[object, ...]], expected: dict[str, object]) -> None:
    link = operator.link
    async with Cluster(link.source) as east, Cluster(link.target) as west:
        stranded = contents(some_records(1_000, STRANDED))
        assert contents(await read_all(east, WHERE)) == [*at_west[:SHARED], *stranded, *at_west[SHARED:]]
        assert contents(await read_all(west, WHERE)) == at_west
        assert await next_records(east) == expected
        run = (await read_entries(link, west)).run
        assert run is not None
        assert run.state is RunState.RUNNING
        await write(east, WHERE, some_records(5_000, 3))
        async with running(link):
            there = await wait_for_records(west, WHERE, len(at_west) + 3)
            assert contents(there) == [*at_west, *contents(some_records(5_000, 3))], "the tail is not carried"
            await eventually(lambda: _moved(west), "the groups to follow")


async def _moved(west: Cluster) -> bool:
    return len([group for group in GROUPS if WHERE in await committed_offsets(west, group)]) == len(GROUPS)


async def look_at_west(link: Link) -> tuple[list[tuple[object, ...]], dict[str, object]]:
    async with Cluster(link.target) as west:
        return contents(await read_all(west, WHERE)), dict(await next_records(west))


def wait_for_worker(operator: Operator) -> None:
    asyncio.run(eventually(lambda: _is_owned(operator.back), "the worker of the link back"))


async def _is_owned(back: Link) -> bool:
    async with Cluster(back.target) as east:
        owner = (await read_entries(back, east)).owner
        return owner is not None and owner.is_worker


def test_back_with_everything_and_each_group_at_its_very_record(operator: Operator) -> None:
    come_back(operator)


def come_back(operator: Operator) -> None:
    """Lose east, go on at west, come back by the command."""
    asyncio.run(lose_and_go_on(operator))
    at_west, expected = asyncio.run(look_at_west(operator.link))
    silent = operator.run("failback --link east-west --yes", ExitCode.REFUSED).stderr
    assert "farshore mirror run --link west-east" in " ".join(silent.split())
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        plan = json.loads(operator.run("failback --link east-west --dry-run -o json").stdout)
        assert plan["steps"] == ["export", "leave", "carry", "set_groups", "switch_over", "resume"]
        assert (plan["stranded_records"], plan["refusals"]) == (STRANDED, [])
        saved = operator.folder / "saved"
        done = operator.run(f"failback --link east-west --export-to {saved} --yes -o json")
        result = json.loads(done.stdout)
        assert result["switchover"]["verified"] is True
        assert {one["group"] for one in result["groups_set_back"]} == {"old"}
        assert json.loads((saved / "manifest.json").read_text())["ranges"][0]["records"] == STRANDED
    asyncio.run(check_is_back(operator, at_west, expected))
    assert "runs again" in operator.run("failback --link east-west --yes", ExitCode.REFUSED).stderr


def test_killed_anywhere_and_begun_again_it_ends_the_same(operator: Operator) -> None:
    chance = random.Random(7)
    asyncio.run(lose_and_go_on(operator))
    at_west, expected = asyncio.run(look_at_west(operator.link))
    with command(operator, "mirror", "run", "--link", "west-east"):
        wait_for_worker(operator)
        for _ in range(4):
            with command(operator, "failback", "--link", "east-west", "--yes") as process:
                until = time.monotonic() + chance.uniform(1.5, 6.0)
                while process.poll() is None and time.monotonic() < until:
                    time.sleep(0.02)
            if process.returncode == ExitCode.DONE:
                break
        else:
            operator.run("failback --link east-west --yes")
    asyncio.run(check_is_back(operator, at_west, expected))
