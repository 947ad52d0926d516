"""Files that call a third site differently, or two sites alike: what decides is which cluster it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.site import Site
from broker.wire.records import Record, encode_batch
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Writer
from mirror.offsets.intervals import End
from mirror.offsets.left_out import LeftOut
from mirror.offsets.state_writer import ensure_own_topics
from mirror.origins import Registration, SiteIdentity, call_sites, decode_registration, encode_registration
from mirror.worker.events import Event
from mirror.worker.origins import Passage
from mirror.worker.registry import REGISTRY
from tests.broker.running import running_broker
from tests.mirror.harness import make_topic, running
from tests.mirror.worker.several_sites import alone, declared, expected, settled, values, write_values

EAST = SiteIdentity("east", "c1", frozenset({"a:1", "b:1"}))
ORIENT = SiteIdentity("orient", "c1", frozenset({"b:1", "c:1"}))
OTHER = SiteIdentity("east", "c9", frozenset({"x:1"}))


def registered(*sites: SiteIdentity) -> Registration:
    names = frozenset(site.name for site in sites)
    return Registration(7, "l", sites[0], names, ("f",), named_from=0, sites=frozenset(sites[1:]))


def test_one_cluster_has_one_name_and_one_name_is_one_cluster() -> None:
    known = call_sites([EAST, ORIENT, OTHER, SiteIdentity("north")])
    assert known == (EAST,)
    seen = registered(SiteIdentity("north"), ORIENT).as_seen_by(known)
    assert seen.origins == {"north", "east"}
    assert (seen.called("orient"), seen.called("south")) == ("east", "south")
    other = registered(OTHER).as_seen_by(known)
    assert other.source.name == "east (c9)"
    assert other.origins == {"east (c9)"}
    assert registered(OTHER).as_seen_by(call_sites([OTHER, EAST])).source.name == "east"


def test_where_the_cluster_is_not_known_its_name_counts() -> None:
    """As earlier versions wrote it."""
    (east,) = call_sites([SiteIdentity("east"), EAST])
    assert east == EAST
    assert registered(SiteIdentity("east")).as_seen_by([EAST]).origins == {"east"}
    early = decode_registration(7, b'{"v":1,"link":"l","origin":"orient","origins":["orient","south"],"topics":["f"]}')
    assert early.as_seen_by([EAST]) == early


def test_a_cluster_whose_addresses_all_changed_is_still_the_one_of_its_name() -> None:
    moved = SiteIdentity("east", "c1", frozenset({"new:1"}))
    assert registered(moved).as_seen_by([EAST]).source.name == "east"
    read = decode_registration(7, encode_registration(registered(moved, OTHER))[1])
    assert read.source == moved
    assert read.sites == {OTHER}


class Mesh:
    """East's records come to north, and from there to west; a third file has a link to west, too."""

    def __init__(self, sites: Mapping[str, Cluster], third: Site, called: str) -> None:
        self.sites = sites
        north, west = (sites[name].site for name in ("north", "west"))
        east = Site(called, sites["east"].site.bootstrap_servers)
        into = Link(f"{called}-north", east, north, ("flights",))
        self.to_north = declared([into, alone(sites, "west", "north", topics="flights")])
        self.relay = alone(sites, "north", "west", topics="flights")
        self.third, _ = declared([Link("third-west", third, west, ("flights",)), self.relay])

    async def check(self, writers: Mapping[str, Cluster]) -> None:
        """Each record of each writer comes to north and to west, once."""
        everything: Counter[bytes | None] = Counter()
        for site in {*self.sites.values(), *writers.values()}:
            await make_topic(site, "flights")
        for link in (self.to_north[0], self.third):  # what is declared is known when it has registered
            async with running(link) as told:
                await told.wait_for(Event.STARTED)
        for _ in range(2):
            for name, site in writers.items():
                await write_values(site, f"{name}-{everything.total()}", 20)
            everything += expected(*(f"{name}-{everything.total()}" for name in writers), count=20)
            async with running(*self.to_north, self.third):
                await settled(self.sites["north"], everything)
                async with running(self.relay):
                    await settled(self.sites["west"], everything)
        for name in ("north", "west"):
            assert await values(self.sites[name]) == everything


async def test_one_cluster_that_two_files_call_differently_is_one(
    sites: Mapping[str, Cluster],
) -> None:
    """By their names they were two sites, and what one of them wrote came directly, and once more by way of north."""
    mesh = Mesh(sites, sites["east"].site, "orient")
    await mesh.check({"east": sites["east"], "north": sites["north"]})


async def test_a_name_that_turns_out_to_be_another_s_renews_the_session(sites: Mapping[str, Cluster]) -> None:
    west = sites["west"]
    direct = Link("direct", Site("east", "127.0.0.1:1"), west.site, ("flights",))
    link = Link("north-west", sites["north"].site, west.site, ("flights",), side_links=(direct,))
    await ensure_own_topics(west, direct)

    async def register(one: Registration) -> None:
        await append(west, REGISTRY, encode_batch([Record(0, 1, *encode_registration(one))]))

    await register(replace(registered(SiteIdentity("south"), ORIENT), link="south-west"))
    passage = Passage(link, sites["north"], west)
    await passage.look(west)
    assert passage.find_change() is None
    assert [one.origins for one in passage.at_target.registered()] == [{"south", "orient"}]
    await register(replace(registered(EAST), link="direct", producer_id=9))
    await passage.at_target.refresh()
    assert passage.find_change() == "link south-west calls a cluster otherwise than this one's file"
    await passage.look(west)
    assert passage.find_change() is None
    assert passage.at_target.registered()[0].origins == {"south", "east"}


async def test_what_was_left_to_a_site_stays_left_to_it_when_it_is_called_otherwise(
    sites: Mapping[str, Cluster],
) -> None:
    """Another link registers, whose file calls it differently: what was left out would be taken for nobody's."""
    west = sites["west"]
    link = Link("north-west", sites["north"].site, west.site, ("flights",))
    await ensure_own_topics(west, link)
    for at, (name, site) in enumerate({"a-direct": EAST, "b-direct": ORIENT, "c-direct": OTHER}.items()):
        one = replace(registered(site), link=name, producer_id=at)
        await append(west, REGISTRY, encode_batch([Record(0, 1, *encode_registration(one))]))
    passage = Passage(link, sites["north"], west)
    await passage.look(west)
    assert [passage.called(name) for name in ("orient", "east", "south")] == ["east", "east", "south"]
    left = (LeftOut("orient", 5, 9), LeftOut("south", 1, 2))
    checkpoint = Checkpoint("flights", 0, End(20, 20), 20, Writer(7, 1), 0, 20, -1, 0, left_out=left)
    direct = Link("a-direct", Site("east", "127.0.0.1:1"), west.site, ("flights",))
    passage.link = replace(link, side_links=(direct,))
    assert passage.left_behind(checkpoint) == (LeftOut("south", 1, 2),)


async def test_of_two_clusters_that_two_files_call_alike_all_records_come(
    sites: Mapping[str, Cluster], tmp_path: Path
) -> None:
    """What one of them wrote was taken for the other's, and left to its direct link, which brings none of it."""
    async with running_broker(tmp_path / "other") as address, Cluster(Site("east", address)) as other:
        mesh = Mesh(sites, other.site, "east")
        await mesh.check({"east": sites["east"], "north": sites["north"], "other": other})
