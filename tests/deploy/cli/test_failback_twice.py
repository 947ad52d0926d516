"""Lost twice, and back twice, along a link back that was never moved, and brought all the while."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.wire.records import Record
from mirror.offsets.operations import promote_link
from tests.deploy.cli.test_failback import command, wait_for_worker
from tests.deploy.cli.test_stranded import WHERE, Operator
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import contents, make_topic, read_all, running, some_records, wait_for_records, write

SHARED, LOST, NEW, MORE = 20, 7, 5, 3


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        yield Operator(tmp_path, east.bootstrap, west.bootstrap)


async def lose(operator: Operator, number: int, *, at_west: int) -> None:
    """East has a tail, west is promoted, and both a group and a producer go on there."""
    link = operator.link
    async with Cluster(link.source) as east, Cluster(link.target) as west, AsyncExitStack() as stack:
        if number == 0:
            await make_topic(east, WHERE.topic)
            await write(east, WHERE, some_records(0, SHARED))
        async with running(link):
            if number:
                await write(east, WHERE, some_records(500, MORE))
                at_west += MORE
            await wait_for_records(west, WHERE, at_west)
        await promote_link(link, west, f"failover-{number}")
        await write(east, WHERE, some_records(1_000 * (number + 1), LOST))
        if number == 0:
            end = (await log_end_offsets(west, [WHERE]))[WHERE]
            await commit_offsets(west, "read", {WHERE: CommittedOffset(end)})
        await write(west, WHERE, some_records(10_000 * (number + 1), NEW))
        await stack.enter_async_context(running(operator.back))
        await wait_for_records(east, WHERE, SHARED + (LOST + NEW) * (number + 1) + MORE * number)


async def next_at_east(operator: Operator) -> tuple[object, ...]:
    """By content what the group reads next."""
    async with Cluster(operator.link.source) as east:
        at = (await committed_offsets(east, "read"))[WHERE].offset
        end = (await log_end_offsets(east, [WHERE]))[WHERE]
        return contents([record async for record in read_records(east, WHERE, at, end)])[0]


async def offset_at_east(operator: Operator, record: list[Record]) -> int:
    async with Cluster(operator.link.source) as east:
        there = await read_all(east, WHERE)
        return next(one.offset for one in there if contents([one]) == contents(record))


def test_a_group_goes_on_at_its_next_record_the_second_time_too(operator: Operator) -> None:
    """What was left at east was told up to the log's end, over what the link back had brought behind it: the map had
    nothing of that, and the second way back set groups into records that were left there by decision, "verified".
    """
    for number in range(2):
        asyncio.run(lose(operator, number, at_west=SHARED + NEW * number))
        listed = json.loads(operator.run("stranded list --link east-west -o json").stdout)
        (tail,) = [one for one in listed["tails"] if not one["left"]]
        assert tail["records"] == LOST
        assert tail["end_offset"] <= asyncio.run(offset_at_east(operator, some_records(10_000 * (number + 1), 1)))
        with command(operator, "mirror", "run", "--link", "west-east"):
            wait_for_worker(operator)
            operator.run("failback --link east-west --yes -o json")
        assert asyncio.run(next_at_east(operator)) == contents(some_records(10_000, 1))[0], number
        operator.run("link resume --link west-east --yes")
