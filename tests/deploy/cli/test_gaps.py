"""Stopped partitions and the command that lets each go on, as an operator uses it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import delete_records, delete_topics
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.cli.adopting import adopt
from deploy.cli.resuming import Resuming
from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode
from failover.errors import WorldChanged
from mirror.link import Link
from mirror.offsets.adoption import Adoption
from mirror.offsets.entries import LinkRun, RunState
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.operations import promote_link
from mirror.offsets.state import read_entries
from mirror.offsets.state_writer import ensure_own_topics
from mirror.offsets.taking_over import claim_link
from mirror.worker.adopting import compare_for_adoption
from mirror.worker.events import Event
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import (
    contents,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)

FIRST, SECOND = TopicPartition("flights", 0), TopicPartition("flights", 1)

CONFIG = """
[sites.east]
bootstrap_servers = "{east}"
[sites.west]
bootstrap_servers = "{west}"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["flights"]
topic_names = "same"
groups = []
"""


class Operator:
    """Runs `farshore --config FILE ...` against two brokers."""

    def __init__(self, east: FarshoreBroker, west: FarshoreBroker, config: Path) -> None:
        self.link = Link("east-west", Site("east", east.bootstrap), Site("west", west.bootstrap), ("flights",))
        self.config = config
        config.write_text(CONFIG.format(east=east.bootstrap, west=west.bootstrap))

    def run(self, line: str, code: int = ExitCode.DONE) -> Result:
        result = CliRunner().invoke(cli, ["--config", str(self.config), *line.split()])
        assert result.exit_code == code, result.output
        return result


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        yield Operator(east, west, tmp_path / "farshore.toml")


async def stop_both(link: Link) -> None:
    """Ten records mirrored in each of two partitions; then ten others are deleted before they are mirrored."""
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, "flights", 2)
        for where in (FIRST, SECOND):
            await write(source, where, some_records(0, 10))
        async with running(link):
            for where in (FIRST, SECOND):
                await wait_for_records(target, where, 10)
        for where in (FIRST, SECOND):
            await write(source, where, some_records(10, 10))
            await write(source, where, some_records(20, 5))
        await delete_records(source, {FIRST: 20, SECOND: 20})
        async with running(link) as told:
            await told.wait_for(Event.PARTITION_STOPPED, 2)
            await told.wait_for(Event.STARTED)


async def mirrored(link: Link, where: TopicPartition, count: int) -> list[tuple[object, ...]]:
    async with Cluster(link.target) as target, running(link) as told:
        await told.wait_for(Event.STARTED)
        await wait_for_records(target, where, count)
        return contents(await read_all(target, where))


async def at_target(link: Link, where: TopicPartition) -> int:
    async with Cluster(link.target) as target:
        return len(await read_all(target, where))


def test_one_gap_is_accepted_and_the_other_partition_stays_where_it_is(operator: Operator) -> None:
    asyncio.run(stop_both(operator.link))
    assert "farshore link resume --link east-west --gap flights:0" in operator.run("status", ExitCode.FINDINGS).stdout
    refused = operator.run("link resume --yes", ExitCode.REFUSED).stderr
    assert "stands still at 2 gaps" in refused
    assert "--gap flights:" in refused
    assert "flights:7 does not stand" in operator.run("link resume --gap flights:7 --yes", ExitCode.USAGE).stderr
    assert "flights:0@10 is" in operator.run("link resume --gap flights:0@11 --yes", ExitCode.USAGE).stderr
    operator.run("link resume --gap flights --yes", ExitCode.USAGE)
    both = operator.run("link resume --gap flights:0 --gap flights:1 --start-at 3 --yes", ExitCode.ERROR).stderr
    assert "offset 3 is one of one partition, and 2 gaps are named" in " ".join(both.split())
    shown = operator.run("link resume --gap flights:0 --dry-run").stdout
    assert "source offsets 10 to 19 are never mirrored" in " ".join(shown.split())
    operator.run("link resume --gap flights:1@10 --yes")
    assert asyncio.run(mirrored(operator.link, SECOND, 15)) == contents([*some_records(0, 10), *some_records(20, 5)])
    assert asyncio.run(at_target(operator.link, FIRST)) == 10
    described = json.loads(operator.run("link describe -o json").stdout)
    assert {(gap["partition"], gap["status"]) for gap in described["gaps"]} == {(0, "stopped"), (1, "passed")}


def test_what_a_gap_means_is_looked_up_when_it_is_asked(operator: Operator) -> None:
    """The source goes on deleting while the partition stands still: what is shown is the gap as it has grown."""
    asyncio.run(stop_both(operator.link))

    async def grow() -> None:
        async with Cluster(operator.link.source) as source:
            await delete_records(source, {FIRST: 22})

    asyncio.run(grow())
    shown = " ".join(operator.run("link resume --gap flights:0 --dry-run").stdout.split())
    assert "source offsets 10 to 21 are never mirrored" in shown
    operator.run("link resume --gap flights:0 --gap flights:1 --yes")
    assert asyncio.run(mirrored(operator.link, FIRST, 13)) == contents([*some_records(0, 10), *some_records(20, 5)[2:]])
    assert asyncio.run(mirrored(operator.link, SECOND, 15)) == contents([*some_records(0, 10), *some_records(20, 5)])


async def occupy(link: Link) -> None:
    """The target has a record of somebody else; of the source's ten, five are from a second later than the others."""
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        for site in (source, target):
            await make_topic(site, "flights")
        await write(target, FIRST, [Record(0, 1, b"local", b"record")])
        await write(source, FIRST, [Record(at, 1_700_000_000_000, None, b"%d" % at) for at in range(5)])
        await write(source, FIRST, [Record(at, 1_700_000_001_000, None, b"%d" % at) for at in range(5)])
        async with running(link) as told:
            await told.wait_for(Event.PARTITION_STOPPED)
            await told.wait_for(Event.STARTED)


def test_a_partition_with_records_at_the_target_may_begin_at_a_time(operator: Operator) -> None:
    asyncio.run(occupy(operator.link))
    resume = "link resume --gap flights:0 --start-at"
    assert "names no time zone" in operator.run(f"{resume} 2023-11-14T22:13:21 --dry-run", ExitCode.USAGE).stderr
    for time, begins in (
        ("2023-11-14T22:13:20Z", "offset 0 on"),
        ("2023-11-14T23:13:20.001+01:00", "offset 5 on"),
        ("2023-11-14T22:13:21Z", "offset 5 on"),
        ("2023-11-14T22:13:22Z", "offset 10 on"),
        ("3", "offset 3 on"),
    ):
        assert begins in " ".join(operator.run(f"{resume} {time} --dry-run").stdout.split())
    assert "--start-at" not in operator.run(f"{resume} 10 --dry-run").stderr
    beyond = operator.run(f"{resume} 11 --yes", ExitCode.ERROR).stderr
    assert "offset 11 lies beyond the end of flights-0 at east, which is 10" in " ".join(beyond.split())
    operator.run("link resume --gap flights:3 --start-at 2023-11-14T22:13:21Z --yes", ExitCode.USAGE)
    operator.run(f"{resume} 2023-11-14T22:13:21Z --yes")
    assert len(asyncio.run(mirrored(operator.link, FIRST, 6))) == 6


async def forget(link: Link) -> None:
    """Ten records are mirrored; then the link's state is deleted, and its next start stops."""
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, "flights")
        await write(source, FIRST, some_records(0, 10))
        async with running(link):
            await wait_for_records(target, FIRST, 10)
        await delete_topics(target, [link.state_topic])
        async with running(link) as told:
            await told.wait_for(Event.PARTITION_STOPPED)
            await told.wait_for(Event.STARTED)
        await write(source, FIRST, some_records(10, 5))


def test_a_link_that_lost_its_state_takes_its_records_back(operator: Operator) -> None:
    asyncio.run(forget(operator.link))
    status = operator.run("status", ExitCode.FINDINGS).stdout
    assert "next: farshore link resume --link east-west --gap flights:0 --adopt" in status
    shown = " ".join(operator.run("link resume --gap flights:0 --adopt --dry-run").stdout.split())
    assert "the target's records are the source's from offset 0 to 9 (10 copies found)" in shown
    operator.run("link resume --gap flights:0 --adopt --start-at 3 --yes", ExitCode.USAGE)
    operator.run("link resume --adopt --yes", ExitCode.USAGE)
    operator.run("link resume --gap flights:0 --adopt --yes")
    assert asyncio.run(mirrored(operator.link, FIRST, 15)) == contents(some_records(0, 15))
    translated = operator.run("offsets translate --topic flights --partition 0 --offset 7 -o json").stdout
    assert json.loads(translated)["target_offset"] == 7 + 1  # behind the first fence's marker


def test_records_of_a_link_that_was_promoted_are_not_adopted(operator: Operator) -> None:
    """It let the link run, and so undid a failover, and asked nobody what becomes of what its source alone has."""
    asyncio.run(forget(operator.link))
    asyncio.run(promoted(operator.link))
    refused = " ".join(operator.run("link resume --gap flights:0 --adopt --yes", ExitCode.REFUSED).stderr.split())
    assert "link east-west was promoted, and adopting would let it run. Nothing was changed" in refused
    assert "promoted" in operator.run("status", ExitCode.FINDINGS).stdout


def test_nor_where_it_was_promoted_while_its_logs_were_compared(operator: Operator) -> None:
    """That takes as long as reading both of them."""
    asyncio.run(forget(operator.link))
    asyncio.run(adopt_late(operator.link))
    assert "promoted" in operator.run("status", ExitCode.FINDINGS).stdout


async def promoted(link: Link) -> None:
    async with Cluster(link.target) as target:
        await promote_link(link, target, "failover-1")


async def adopt_late(link: Link) -> None:
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        entries = await read_entries(link, target)
        (gap,) = entries.open_gaps().values()
        found = await compare_for_adoption(link, source, target, gap, lambda _read, _there: None)
        assert isinstance(found, Adoption)
        await promote_link(link, target, "failover-1")
        with pytest.raises(WorldChanged, match="running -> promoted by failover-1"):
            await adopt(Resuming(link, entries.run, "adopt-1"), [found], source, target)


def test_what_is_not_the_sources_is_not_adopted(operator: Operator) -> None:
    asyncio.run(occupy(operator.link))
    refused = operator.run("link resume --gap flights:0 --adopt --yes", ExitCode.REFUSED).stderr
    assert "flights:0@0 cannot be adopted: the target begins with a record, at offset 0, that the source" in refused
    assert "to mirror behind what is there: farshore link resume --link east-west --gap flights:0;" in refused


def test_only_what_was_never_mirrored_is_adopted(operator: Operator) -> None:
    asyncio.run(stop_both(operator.link))
    refused = operator.run("link resume --gap flights:0 --adopt --yes", ExitCode.ERROR).stderr
    assert "there is nothing to adopt" in refused


async def hold(link: Link) -> None:
    """As a worker that was refused, and has ended."""
    async with Cluster(link.target) as target:
        await ensure_own_topics(target, link)
        claim = await claim_link(target, link, "host:1")
        held = Hold(*FIRST, HoldReason.ERROR_AT_TARGET, "may not be written", 5, 60_005)
        await claim.log.append([LinkRun(RunState.RUNNING, "op", 1), held])


def test_what_is_held_is_tried_again_on_request(operator: Operator) -> None:
    assert "never ran" in operator.run("link retry --yes", ExitCode.ERROR).stderr
    asyncio.run(hold(operator.link))
    shown = operator.run("link retry", ExitCode.REFUSED).stderr
    assert "may not be written" in shown
    assert "nothing was changed" in shown

    async def owner() -> str:
        async with Cluster(operator.link.target) as target:
            found = (await read_entries(operator.link, target)).owner
        assert found is not None
        return found.worker

    for yes in ("", " --yes"):
        assert "may not be written" in operator.run(f"link retry --dry-run{yes}").stdout
        assert asyncio.run(owner()) == "host:1", "nothing was fenced for a look"
    operator.run("link retry --yes")
    assert asyncio.run(owner()).startswith("operation retry-"), "a worker that runs begins anew for it"
