"""What a link left to another that brings it directly, when that one is no more: said, and never lost silently."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.topics import delete_topics
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.link_finding import LinkFindingKind
from mirror.looking import look_at_link
from mirror.offsets.entries import Checkpoint, GapKind, GapStatus, Writer
from mirror.offsets.intervals import End
from mirror.offsets.left_out import LeftOut, join_left_out
from mirror.offsets.paged import Intervals
from mirror.offsets.recovery import Recovered
from mirror.offsets.state import load_partial_state, read_entries
from mirror.offsets.tail import Tail
from mirror.outlook import look_ahead
from mirror.status import summarise
from mirror.worker.carried_counter import CarriedCounter
from mirror.worker.events import Event
from mirror.worker.resume import Evidence, SourceLog, find_gaps
from tests.mirror.harness import Told, accept_all, eventually, make_topic, read_all, running
from tests.mirror.worker.several_sites import FLIGHTS, alone, declared, expected, settled, write_values

LATER_MS = 3_600_000


class LaterClock(SystemClock):
    """By which every heartbeat that is there stopped an hour ago."""

    def now_ms(self) -> int:
        return super().now_ms() + LATER_MS


class Mesh:
    """East's records come to north, and from there, or directly, to west. The relay's file knows of no other link."""

    def __init__(self, sites: Mapping[str, Cluster]) -> None:
        self.sites = sites
        ways = (("east", "north"), ("west", "north"))
        self.into = declared([alone(sites, *way, topics="flights") for way in ways])
        self.relay = alone(sites, "north", "west", topics="flights")
        self.direct, _ = declared([alone(sites, "east", "west", topics="flights"), self.relay])
        self.everything = expected("east", "north")

    async def begin(self) -> None:
        """All records are everywhere, and of "late" the relay left out what the direct link never brought."""
        for site in self.sites.values():
            await make_topic(site, "flights")
        await write_values(self.sites["east"], "east", 100)
        await write_values(self.sites["north"], "north", 100)
        async with running(*self.into, self.direct):
            await settled(self.sites["west"], expected("east"))
            async with running(self.relay):
                await settled(self.sites["west"], self.everything)
        await write_values(self.sites["east"], "late", 10)
        async with running(*self.into):
            await settled(self.sites["north"], self.everything + expected("late", count=10))
            async with running(self.relay):
                await self.passed_all()

    async def passed_all(self) -> None:
        """The relay's position is north's end."""
        end = (await log_end_offsets(self.sites["north"], [FLIGHTS]))[FLIGHTS]

        async def is_there() -> bool:
            known = (await read_entries(self.relay, self.sites["west"])).checkpoints.get(FLIGHTS)
            return known is not None and known.position == end

        await eventually(is_there, "the relay's position")

    @asynccontextmanager
    async def relaying_later(self) -> AsyncIterator[Told]:
        async with running(self.relay, clock=LaterClock()) as told:
            yield told

    async def write_last(self) -> None:
        """One more of each site, which the relay meets."""
        await write_values(self.sites["east"], "last", 10)
        await write_values(self.sites["north"], "mine", 10)
        async with running(*self.into):
            await settled(self.sites["north"], self.everything + expected("late", "last", "mine", count=10))


async def test_what_was_left_to_a_link_that_is_silent_stays_its_own_and_is_said(sites: Mapping[str, Cluster]) -> None:
    """It brought "late" to nobody, and the relay went on behind it with "last", saying nothing."""
    mesh = Mesh(sites)
    await mesh.begin()
    await mesh.write_last()
    async with mesh.relaying_later():
        await settled(sites["west"], mesh.everything + expected("mine", count=10))
        await mesh.passed_all()
        async with Cluster(sites["west"].site, clock=LaterClock()) as west:
            findings = await found(mesh.relay, sites["north"], west)
        (finding,) = [one for one in findings if one[0] is LinkFindingKind.LEFT_TO_SILENT]
        assert "records of east are left to link east-west" in finding[1]
        assert "run link east-west" in finding[2]
    async with running(mesh.direct), running(mesh.relay):  # it goes on where it ended
        await settled(sites["west"], mesh.everything + expected("mine", "late", "last", count=10))
        await mesh.passed_all()
        assert not [one for one in await found(mesh.relay, *ends(sites)) if one[0] is LinkFindingKind.LEFT_TO_SILENT]


async def test_what_was_left_to_a_link_that_is_gone_stops_the_partition_and_names_it(
    sites: Mapping[str, Cluster],
) -> None:
    mesh = Mesh(sites)
    await mesh.begin()
    await delete_topics(sites["west"], [mesh.direct.state_topic])
    await mesh.write_last()
    async with running(mesh.relay) as told:
        (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
        assert stopped["reason"] == GapKind.LEFT_OUT.value
        entries = await read_entries(mesh.relay, sites["west"])
        (gap,) = entries.open_gaps().values()
        assert "records of east were left to a link" in gap.detail
        late = [at for at, value in await north_values(sites) if value.startswith(b"late")]
        assert gap.source_from <= late[0] <= late[-1] < gap.source_to
        (outlook,) = await look_ahead(mesh.relay, ends(sites), entries, [gap])
        assert f"source offsets {gap.source_from} to {gap.source_to - 1}" in outlook.meaning
        await accept_all(mesh.relay, sites["west"], "taken-over")
        await settled(sites["west"], mesh.everything + expected("last", "mine", count=10))
    after = await read_entries(mesh.relay, sites["west"])
    assert [known.status for known in after.gaps.values()] == [GapStatus.PASSED]
    assert after.left_to() == frozenset()
    async with running(mesh.relay) as told:
        await told.wait_for(Event.STARTED)
    assert (await read_entries(mesh.relay, sites["west"])).open_gaps() == {}


async def test_a_link_that_is_gone_while_the_relay_runs_is_noticed(sites: Mapping[str, Cluster]) -> None:
    mesh = Mesh(sites)
    await mesh.begin()
    async with mesh.relaying_later() as told:
        await told.wait_for(Event.STARTED)
        await delete_topics(sites["west"], [mesh.direct.state_topic])
        (renewed, *_) = await told.wait_for(Event.RENEWED)
        assert "the state of link east-west is gone" in str(renewed["reason"])
        await told.wait_for(Event.PARTITION_STOPPED)


async def test_what_is_left_to_the_link_of_a_third_site_is_not_counted_as_the_targets_own(
    sites: Mapping[str, Cluster],
) -> None:
    """A failover to west said that west had lost all of it."""
    mesh = Mesh(sites)
    for site in sites.values():
        await make_topic(site, "flights")
    await write_values(sites["east"], "east", 100)
    await write_values(sites["north"], "north", 100)
    async with running(mesh.into[0], mesh.direct):
        await settled(sites["west"], expected("east"))
        await settled(sites["north"], mesh.everything)
    counter = await CarriedCounter.look(mesh.relay, sites["north"], sites["west"])
    end = (await log_end_offsets(sites["north"], [FLIGHTS]))[FLIGHTS]
    assert await counter.count(FLIGHTS, 0, end) == 100
    assert await counter.count_left_out(FLIGHTS, 0, end) == 0


def test_what_was_left_out_is_one_range_for_a_site() -> None:
    known = (LeftOut("east", 5, 9), LeftOut("south", 0, 3))
    assert join_left_out(known, [LeftOut("east", 12, 14)]) == (LeftOut("east", 5, 14), LeftOut("south", 0, 3))
    assert join_left_out((), [LeftOut("west", 1, 2), LeftOut("east", 1, 2)])[0].site == "east"


def test_behind_the_checkpoint_more_may_have_been_left_out() -> None:
    left = (LeftOut("east", 5, 9),)
    checkpoint = Checkpoint("flights", 0, End(20, 20), 20, Writer(7, 1), 0, 20, -1, 0, left_out=left)
    evidence = Evidence(
        FLIGHTS, True, SourceLog(0, 40, "", ""), Tail(0, 40), Intervals(), (), checkpoint, 0, left_behind=left
    )
    for position, source_to in ((20, 9), (30, 30)):
        found = Recovered(End(position, position), position, Intervals(), (), 0)
        (gap,) = find_gaps(evidence, checkpoint, found)
        assert (gap.kind, gap.source_from, gap.source_to) == (GapKind.LEFT_OUT, 5, source_to)


def ends(sites: Mapping[str, Cluster]) -> tuple[Cluster, Cluster]:
    return sites["north"], sites["west"]


async def north_values(sites: Mapping[str, Cluster]) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value or b"") for record in await read_all(sites["north"], FLIGHTS)]


async def found(link: Link, source: Cluster, target: Cluster) -> list[tuple[LinkFindingKind, str, str]]:
    """The link's findings by the target's clock."""
    state = await load_partial_state(link, target)
    look = await look_at_link(link, source, target, state)
    heartbeat = HeartbeatWatch(target.clock).judge(link.name, state.entries.owner)
    status = summarise(link, (True, True), state.entries, look, heartbeat, "")
    return [(one.kind, one.detail, one.next_step) for one in status.findings]
