"""Slow is not dead: what is found of a source that is far, slow, mute or gone, and how often it is asked."""

from __future__ import annotations

import asyncio
import math
import re
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from broker.base.address import AddressInvalid, parse_address
from broker.client.cluster import Cluster
from broker.client.errors import SiteInvalid
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.security.settings import Access
from broker.client.site import Site
from broker.wire.api import ApiKey
from broker.wire.vocabulary import TopicPartition
from failover.limits import REFUSED_MS
from failover.observing import contact
from failover.observing.contact import BrokerAnswer, Patience, SiteFinding, call_brokers, reach
from failover.observing.sites import Sites
from failover.observing.snapshot import Snapshot
from failover.planning.links import enter_sites
from mirror.link import Link
from mirror.offsets.source_ends import SourceBrokers, load_observation
from tests.broker.running import running_broker
from tests.failover.observing.test_half_gone_source import deaf_to
from tests.mirror.harness import eventually, make_topic, running

TOPIC = "flights"
PARTITIONS = 20
GROUPS = 250
ROUND_TRIPS_MAX = 22
"""At 100 ms each that is 2.2 s."""
QUIET_S = 0.15
WORKS_S = 0.02
"""Who used a processor for so long meanwhile was not quiet: on a busy machine the next requests are on their way."""
MUTE_MS = 700


def now_ms() -> int:
    return round(time.time() * 1000)


@dataclass
class Far:
    """A way to a broker on which requests wait until no more come for `quiet_s`: together they take one round trip."""

    bootstrap: str
    quiet_s: float = QUIET_S
    delay_s: float = 0.0
    round_trips: int = 0
    _waiting: list[tuple[asyncio.StreamWriter, bytes]] = field(default_factory=list)
    _flush: asyncio.TimerHandle | None = None
    _worked_s: float = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.bootstrap.rsplit(":", 1)
        behind, before = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._ask(reader, before))
                tasks.create_task(self._answer(behind, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # one of the two ends left: so does the other
        finally:
            before.close()
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, before: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            size += await reader.readexactly(4 - len(size))
            self._waiting.append((before, size + await reader.readexactly(struct.unpack(">i", size)[0])))
            self._wait()
        before.close()

    def _wait(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
        self._worked_s = time.process_time()
        self._flush = asyncio.get_running_loop().call_later(self.quiet_s, self._send)

    def _send(self) -> None:
        if time.process_time() - self._worked_s > WORKS_S:
            self._wait()
            return
        self.round_trips += 1
        for before, frame in self._waiting:
            before.write(frame)
        self._waiting.clear()

    async def _answer(self, behind: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answered := await behind.read(1 << 20):
            await asyncio.sleep(self.delay_s)
            writer.write(answered)
        writer.close()


@dataclass
class Gated(Far):
    """Lets nothing through before it `opens`."""

    opens: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.opens.wait()
        await super().serve(reader, writer)


@asynccontextmanager
async def served(way: Far) -> AsyncIterator[str]:
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def mute(on_call: Callable[[], None] = lambda: None) -> AsyncIterator[str]:
    """An address where connections are taken and nothing is ever said."""
    over = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        on_call()
        await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        over.set()


@asynccontextmanager
async def link_with_groups(folder: Path) -> AsyncIterator[Link]:
    """Groups that read many partitions at the source; nothing is mirrored."""
    async with running_broker(folder / "east") as east, running_broker(folder / "west") as west:
        link = Link("east-west", Site("east", east), Site("west", west), (TOPIC,), groups=(".*",))
        async with Cluster(link.source) as source:
            await make_topic(source, TOPIC, PARTITIONS)
            async with asyncio.TaskGroup() as tasks:
                for number in range(GROUPS):
                    where = TopicPartition(TOPIC, number % PARTITIONS)
                    tasks.create_task(commit_offsets(source, f"g{number}", {where: CommittedOffset(0)}))
        yield link


async def looked(link: Link, site: Site, groups: tuple[str, ...] = ()) -> Snapshot:
    """As the commands look."""
    async with AsyncExitStack() as stack, Cluster(link.target) as target:
        source, answers, _ = await reach(stack, site, now_ms)
        return await Sites(replace(link, source=site), source, target, groups, now_ms, answers).look_past_source()


async def test_many_groups_take_as_few_round_trips_as_one(tmp_path: Path) -> None:
    async with link_with_groups(tmp_path) as link:
        bootstrap = link.source.bootstrap_servers
        far = Far(bootstrap)
        async with served(far) as address:
            site = Site("east", address, {bootstrap: address})
            one = await looked(link, site, ("g0",))
            for_one, far.round_trips = far.round_trips, 0
            everyone = await looked(link, site)
    assert (len(one.groups), len(everyone.groups), len(everyone.partitions)) == (1, GROUPS, PARTITIONS)
    assert far.round_trips <= for_one + 1
    assert far.round_trips <= ROUND_TRIPS_MAX
    assert everyone.source_finding is SiteFinding.ALIVE


@pytest.mark.slow
async def test_a_source_that_takes_two_seconds_for_each_answer_is_alive(tmp_path: Path) -> None:
    async with link_with_groups(tmp_path) as link:
        bootstrap = link.source.bootstrap_servers
        async with served(Far(bootstrap, quiet_s=0.0, delay_s=2.0)) as address:
            seen = await looked(link, Site("east", address, {bootstrap: address}))
    assert (seen.source_finding, len(seen.groups)) == (SiteFinding.ALIVE, GROUPS)


async def test_a_source_is_dead_only_where_no_broker_says_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", MUTE_MS)
    monkeypatch.setattr(contact, "REFUSED_MS", 0)
    nobody = f"127.0.0.1:{unused_tcp_port}"
    async with link_with_groups(tmp_path) as link, mute() as silent:
        living = link.source.bootstrap_servers
        dead = await looked(link, Site("east", f"{silent},{nobody}"))
        assert (dead.source_finding, dead.source_answers) == (SiteFinding.DEAD, False)
        assert {answer.address: answer.answered for answer in dead.evidence} == {silent: False, nobody: False}
        assert all(answer.error and abs(answer.asked_at_ms - now_ms()) < 60_000 for answer in dead.evidence)
        alive = await looked(link, Site("east", f"{silent},{nobody},{living}"))
        assert alive.source_finding is SiteFinding.ALIVE
        assert {answer.address for answer in alive.evidence if answer.answered} == {living}
        both = {living, link.target.bootstrap_servers}
        async with AsyncExitStack() as stack:
            reached, _, _ = await reach(stack, Site("east", ",".join([silent, *both])), now_ms)
            assert reached is not None
            assert {str(address) for address in reached.site.bootstrap()} == both


async def test_a_site_whose_brokers_in_the_file_are_gone_is_found_by_those_that_its_mirror_knew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """It was said to be dead while it served: kafka-1 alone stood in the file, and was down for maintenance."""
    monkeypatch.setattr(contact, "REFUSED_MS", 0)
    nobody = f"127.0.0.1:{unused_tcp_port}"
    async with link_with_groups(tmp_path) as link:
        async with Cluster(link.target) as target, running(link):

            async def kept() -> bool:
                return bool((await load_observation(link, target)).brokers.addresses)

            await eventually(kept, "the worker to keep where the source's brokers are")
        gone = replace(link, source=Site("east", nobody))
        async with AsyncExitStack() as stack:
            snapshot = await (await enter_sites(stack, gone, (), now_ms)).look_past_source()
        assert (snapshot.source_finding, len(snapshot.groups)) == (SiteFinding.ALIVE, GROUPS)
        assert {answer.address for answer in snapshot.evidence if answer.answered} == {link.source.bootstrap_servers}
        elsewhere = {link.source.bootstrap_servers: link.target.bootstrap_servers}
        other = replace(gone, source=Site("east", nobody, elsewhere))
        async with AsyncExitStack() as stack:
            snapshot = await (await enter_sites(stack, other, (), now_ms)).look_past_source()
        assert snapshot.source_finding is SiteFinding.DEAD, "where its broker was is another cluster's"


async def test_a_broker_that_cannot_be_entered_and_one_of_another_cluster_stand_in_no_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """One that starts, or ends, takes the call and tells nothing of its cluster: the source was given up at it."""
    monkeypatch.setattr(contact, "REFUSED_MS", 0)
    monkeypatch.setattr(contact, "SOURCE_LIMITS", replace(contact.SOURCE_LIMITS, bootstrap_timeout_ms=300))
    nobody = f"127.0.0.1:{unused_tcp_port}"
    async with (
        running_broker(tmp_path / "east") as east,
        running_broker(tmp_path / "west") as west,
        deaf_to(ApiKey.METADATA, east) as starting,
        deaf_to(ApiKey.METADATA, east) as ending,
        Cluster(Site("east", east)) as source,
    ):

        async def found(named: str, *addresses: str) -> tuple[bool, set[str]]:
            """Whether it is entered, and who is said to live."""

            async def kept() -> SourceBrokers:
                return SourceBrokers(source.cluster_id or "", addresses)

            async with AsyncExitStack() as stack:
                cluster, answers, _ = await reach(stack, Site("east", named), now_ms, kept)
                assert cluster is None or cluster.cluster_id == source.cluster_id
                return cluster is not None, {answer.address for answer in answers if answer.may_live}

        assert await found(nobody, starting, east) == (True, {starting, east})
        assert await found(nobody, west, starting, east) == (True, {starting, east})
        assert await found(starting, east) == (True, {starting, east}), "nor one that the file names"
        assert await found(nobody, starting, ending) == (False, {starting, ending})
        assert await found(nobody, west, starting) == (False, {starting})
        assert await found(nobody, west) == (False, set())


async def test_while_a_dead_source_is_called_the_target_is_looked_at_and_only_the_first_look_is_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """Over a distance the look behind the call was a second more of an outage."""
    monkeypatch.setattr(contact, "REFUSED_MS", 3_000)
    async with link_with_groups(tmp_path) as link:
        gone = replace(link, source=Site("east", f"127.0.0.1:{unused_tcp_port}"))
        async with AsyncExitStack() as stack:
            sites = await enter_sites(stack, gone, (), now_ms, looks_ahead=True)
            called_ms = now_ms()
            first = await sites.look_past_source()
            assert (first.source_finding, len(first.evidence)) == (SiteFinding.DEAD, 1)
            second = await sites.as_found(first).look_past_source()
            assert first.taken_at_ms < called_ms <= second.taken_at_ms
        async with AsyncExitStack() as stack:
            assert (await enter_sites(stack, link, (), now_ms, looks_ahead=True)).ahead is None


async def test_a_source_is_called_before_its_target_has_answered_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the way to the target takes came in front of the wait for a source that hangs, and both added up."""
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", MUTE_MS)
    called = asyncio.Event()
    async with running_broker(tmp_path) as west, mute(called.set) as silent:
        far = Gated(west, quiet_s=0.0, opens=called)
        async with served(far) as address, AsyncExitStack() as stack:
            link = Link("east-west", Site("east", silent), Site("west", address, {west: address}), (TOPIC,))
            async with asyncio.timeout(5):
                sites = await enter_sites(stack, link, (), now_ms, looks_ahead=True)
    assert (sites.source, [answer.answered for answer in sites.answers]) == (None, [False])
    assert far.round_trips > 0


async def test_a_target_that_cannot_be_called_is_told_while_the_source_is_called() -> None:
    async with mute() as silent, AsyncExitStack() as stack:
        link = Link("east-west", Site("east", silent), Site("west", "nonsense"), (TOPIC,))
        with pytest.raises(AddressInvalid):
            await enter_sites(stack, link, (), now_ms)


@pytest.mark.parametrize(("servers", "error"), [("", SiteInvalid), ("nonsense", AddressInvalid)])
async def test_a_site_that_cannot_be_called_is_refused_by_its_own_error(servers: str, error: type[Exception]) -> None:
    async def kept() -> SourceBrokers:
        return SourceBrokers()

    async with AsyncExitStack() as stack:
        with pytest.raises(error):
            await reach(stack, Site("east", servers), now_ms, kept)


async def test_who_says_nothing_is_waited_for_no_longer_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client itself would wait longer."""
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", 300)
    async with mute() as silent:
        (answer,) = await call_brokers({parse_address(silent): Access()}, now_ms)
    assert re.fullmatch(r"no answer within \d+(\.\d)? s", answer.error)
    assert answer.seconds > 0.299  # the loop counts in whole ms


async def test_where_all_are_silent_they_are_called_on_behind_the_answer(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "east") as east, AsyncExitStack() as stack:
        late = Gated(east, quiet_s=0.001)
        address = await stack.enter_async_context(served(late))
        source, (answer,), calls = await reach(
            stack, Site("east", address), now_ms, patience=Patience(MUTE_MS, math.inf)
        )
        assert (source, answer.may_live) == (None, False)
        assert answer.error.startswith("no answer within")
        assert round(answer.seconds * 1000) >= MUTE_MS
        late.opens.set()
        assert [one.address for one in await calls.heard_since()] == [address]


async def test_where_all_refuse_it_is_gone_on_and_who_listens_before_they_are_dead_is_heard(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    """A broker that is started anew refuses for as long."""
    async with AsyncExitStack() as stack:
        address, patience = f"127.0.0.1:{unused_tcp_port}", Patience(math.inf, 300)
        source, (answer,), calls = await reach(stack, Site("east", address), now_ms, patience=patience)
        assert (source, answer.refused, answer.may_live) == (None, True, False)
        assert 300 <= round(answer.seconds * 1000) < REFUSED_MS
        async with running_broker(tmp_path, listen_port=unused_tcp_port):
            assert [one.address for one in await calls.heard_since()] == [address]


async def test_one_that_refuses_beside_one_that_is_silent_is_waited_for_like_that(unused_tcp_port: int) -> None:
    async with mute() as silent, AsyncExitStack() as stack:
        site = Site("east", f"127.0.0.1:{unused_tcp_port},{silent}")
        _, answers, _ = await reach(stack, site, now_ms, patience=Patience(MUTE_MS, 1))
        assert [answer.refused for answer in answers if answer.address != silent] == [True]
        assert min(round(answer.seconds * 1000) for answer in answers) >= MUTE_MS


def test_what_was_found_of_the_source_is_gone_by_from_then_on() -> None:
    """It answered when it was entered, and that word made one that is dead by now partly there in each later look."""
    link = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2"), (TOPIC,))
    entered, called = (BrokerAnswer("127.0.0.1:1", 0, 0.1),), (BrokerAnswer("127.0.0.1:1", 9, 4.5, "no answer"),)
    sites = Sites(link, Cluster(link.source), Cluster(link.target), (), now_ms, entered)
    snapshot = Snapshot(link.name, "east", "west", 0, SiteFinding.ALIVE, "running", "", (), (), evidence=called)
    found = {each: sites.as_found(replace(snapshot, source_finding=each)) for each in SiteFinding}
    assert found == {
        SiteFinding.ALIVE: sites,
        SiteFinding.PARTLY_THERE: replace(sites, in_part=True, answers=called),
        SiteFinding.DEAD: replace(sites, source=None, answers=called),
        SiteFinding.UNREACHABLE: replace(sites, source=None, answers=called),
        SiteFinding.REPLACED: replace(sites, source=None, answers=()),
    }
    in_part = found[SiteFinding.PARTLY_THERE]
    assert in_part.as_found(replace(snapshot, evidence=entered)) == replace(sites, answers=called), "it is there again"


async def test_a_first_word_and_nothing_more_is_not_death(tmp_path: Path) -> None:
    async with link_with_groups(tmp_path) as link, AsyncExitStack() as stack, Cluster(link.target) as target:
        _, answers, _ = await reach(stack, link.source, now_ms)
        seen = await Sites(link, None, target, (), now_ms, answers).look_past_source()
    assert (seen.source_finding, seen.source_answers) == (SiteFinding.PARTLY_THERE, False)
