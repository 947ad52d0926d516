"""The way back of groups that went in waves, there or back: each at its very record, and none is passed over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets, delete_groups
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failback import command
from tests.deploy.cli.test_stranded import WHERE, Operator
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import eventually, make_topic, some_records, wait_for_records, write

RECORDS, NEWER = 20, 6


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        yield Operator(tmp_path, east.bootstrap, west.bootstrap)


async def begin(operator: Operator) -> None:
    """Records and groups at east, mirrored by who runs meanwhile."""
    async with Cluster(operator.link.source) as east, Cluster(operator.link.target) as west:
        await make_topic(east, WHERE.topic)
        await write(east, WHERE, some_records(0, RECORDS))
        await commit_offsets(east, "a", {WHERE: CommittedOffset(5)})
        await commit_offsets(east, "b", {WHERE: CommittedOffset(7)})
        await wait_for_records(west, WHERE, RECORDS)
        await eventually(lambda: _has(west, "a", "b"), "the groups at west")


async def _has(cluster: Cluster, *groups: str) -> bool:
    return all([WHERE in await committed_offsets(cluster, group) for group in groups])


async def write_at_west(operator: Operator) -> None:
    """And see it carried to east."""
    async with Cluster(operator.link.source) as east, Cluster(operator.link.target) as west:
        await write(west, WHERE, some_records(2_000, NEWER))
        await wait_for_records(east, WHERE, RECORDS + NEWER)


async def read_to(site: Site, group: str, from_end: int) -> tuple[object, ...]:
    """The group reads until so many records are left -> the one that it reads next."""
    async with Cluster(site) as cluster:
        end = (await log_end_offsets(cluster, [WHERE]))[WHERE]
        records = [record async for record in read_records(cluster, WHERE, 0, end)]
        await commit_offsets(cluster, group, {WHERE: CommittedOffset(records[-from_end].offset)})
        return tuple(records[-from_end])[1:]


async def next_of(site: Site, group: str) -> tuple[object, ...]:
    async with Cluster(site) as cluster:
        end = (await log_end_offsets(cluster, [WHERE]))[WHERE]
        offset = (await committed_offsets(cluster, group))[WHERE].offset
        return next(iter([tuple(record)[1:] async for record in read_records(cluster, WHERE, offset, end)]), ())


def failback(operator: Operator) -> Any:
    plan = json.loads(operator.run("failback --link east-west --dry-run -o json").stdout)
    result = json.loads(operator.run("failback --link east-west --yes -o json").stdout)
    assert [plan[name] for name in ("groups_back", "groups_stay")] == [
        result[name] for name in ("groups_back", "groups_stay")
    ]
    return result


def test_a_group_that_never_went_stays_where_it_is_and_the_one_that_did_comes_back(operator: Operator) -> None:
    east, west = operator.link.source, operator.link.target
    with command(operator, "mirror", "run"):
        asyncio.run(begin(operator))
        operator.run("switchover --link east-west --group a --yes")
        asyncio.run(write_at_west(operator))
        a_reads = asyncio.run(read_to(west, "a", 3))
        b_reads = asyncio.run(read_to(east, "b", 2))
        result = failback(operator)
        assert (result["groups_back"], result["groups_stay"]) == (["a"], ["b"])
        assert {move["group"] for move in result["switchover"]["moves"]} == {"a"}
        assert asyncio.run(next_of(east, "a")) == a_reads
        assert asyncio.run(next_of(east, "b")) == b_reads, "nobody moved it"


def test_a_failback_behind_a_wave_back_brings_the_groups_that_are_left(operator: Operator) -> None:
    east, west = operator.link.source, operator.link.target
    with command(operator, "mirror", "run"):
        asyncio.run(begin(operator))
        operator.run("switchover --link east-west --yes")
        asyncio.run(write_at_west(operator))
        expected = {group: asyncio.run(read_to(west, group, left)) for group, left in (("a", 3), ("b", 2))}
        operator.run("switchover --link west-east --group a --yes")
        asyncio.run(read_to(east, "a", 1))
        result = failback(operator)
        assert (result["groups_back"], result["groups_stay"]) == (["b"], [])
        assert "switch_over" in result["steps_done"]
        assert asyncio.run(next_of(east, "b")) == expected["b"]
        assert asyncio.run(next_of(east, "a")) == asyncio.run(read_to(east, "a", 1)), "it has read on since"


def test_where_the_groups_of_the_wave_are_gone_the_site_comes_back_and_nobody_is_moved(operator: Operator) -> None:
    """None to be named was taken for all: who had stayed was moved."""
    east, west = operator.link.source, operator.link.target
    with command(operator, "mirror", "run"):
        asyncio.run(begin(operator))
        operator.run("switchover --link east-west --group a --yes")
        asyncio.run(write_at_west(operator))
        asyncio.run(forget("a", west, east))
        b_reads = asyncio.run(read_to(east, "b", 2))
        result = failback(operator)
        assert (result["groups_back"], result["groups_stay"]) == ([], ["b"])
        assert (result["switchover"]["moves"], result["switchover"]["verified"]) == ([], True)
        assert "resume" in result["steps_done"]
        assert asyncio.run(next_of(east, "b")) == b_reads, "nobody moved it"


def test_a_group_that_was_deleted_where_it_had_gone_is_named_and_stays_as_it_was(operator: Operator) -> None:
    """It was in no list; and the link brought its old offset to west again."""
    east, west = operator.link.source, operator.link.target
    with command(operator, "mirror", "run"):
        asyncio.run(begin(operator))
        operator.run("switchover --link east-west --yes")
        asyncio.run(write_at_west(operator))
        asyncio.run(forget("a", west))
        before = asyncio.run(next_of(east, "a"))
        result = failback(operator)
        assert (result["groups_back"], result["groups_stay"], result["groups_gone"]) == (["b"], [], ["a"])
        assert asyncio.run(next_of(east, "a")) == before
        asyncio.run(eventually(lambda: _is_back(operator), "the link to carry it"))


async def _is_back(operator: Operator) -> bool:
    async with Cluster(operator.link.target) as west:
        return await _has(west, "a")


async def forget(group: str, *sites: Site) -> None:
    for site in sites:
        async with Cluster(site) as cluster:
            assert await delete_groups(cluster, [group]) == {}


def test_the_plan_of_a_second_wave_does_not_call_what_came_back_only_at_the_source(operator: Operator) -> None:
    """A real run printed "exact", and as many records as the link back had brought, where a dry run said 0."""
    with command(operator, "mirror", "run"):
        asyncio.run(begin(operator))
        operator.run("switchover --link east-west --group a --yes")
        asyncio.run(write_at_west(operator))
        line = "switchover --link east-west --group b"
        refused = operator.run(f"{line} -o json", ExitCode.REFUSED)  # nobody consented: what would be done is printed
        told = [json.loads(operator.run(f"{line} --dry-run -o json").stdout), json.loads(refused.stdout)]
        assert [(plan["loss"]["records"], plan["loss"]["certainty"]) for plan in told] == [(0, "exact")] * 2
