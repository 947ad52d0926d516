"""Loops between sites, with links that do not know of each other: no record goes round, and none is held back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.client.topics import delete_records, delete_topics, list_topics
from broker.wire.vocabulary import TopicPartition
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.state import read_entries
from mirror.worker import watching
from mirror.worker.events import Event
from tests.mirror.harness import eventually, make_topic, read_all, running
from tests.mirror.worker.several_sites import FLIGHTS, alone, declared, expected, settled, values, write_values


async def test_two_links_from_two_files_do_not_loop(sites: Mapping[str, Cluster]) -> None:
    """Each knows only itself. 100 records became 622,601 in 25 s while each asked only if its file said so."""
    east, west = sites["east"], sites["west"]
    await make_topic(east, "flights")
    await write_values(east, "first", 100)
    async with running(alone(sites, "east", "west")) as told, running(alone(sites, "west", "east"), told=told):
        await settled(west, expected("first"))
        # Writers at both sites are legal as soon as both links are there, whoever declared them.
        await write_values(west, "west", 100)
        await write_values(east, "east", 100)
        everything = expected("first", "west", "east")
        await settled(east, everything)
        await settled(west, everything)
        links = [(alone(sites, *way), sites[way[1]]) for way in (("east", "west"), ("west", "east"))]

        async def open_gaps() -> bool:
            return not [gap for link, target in links for gap in (await read_entries(link, target)).open_gaps()]

        await eventually(open_gaps, "no partition to stand still")
    async with running(*(link for link, _ in links)) as told:
        await told.wait_for(Event.STARTED, 2)
        await write_values(west, "later", 10)
        await settled(east, everything + expected("later", count=10))
    assert await values(west) == everything + expected("later", count=10)


async def test_the_other_file_may_call_the_sites_otherwise(sites: Mapping[str, Cluster]) -> None:
    east, west = sites["east"], sites["west"]
    await make_topic(east, "flights")
    await write_values(east, "first", 100)
    orient, occident = (
        Site(name, site.site.bootstrap_servers) for name, site in (("orient", east), ("occident", west))
    )
    async with running(alone(sites, "east", "west"), Link("back", occident, orient, ("flights",))):
        await settled(west, expected("first"))
        await write_values(west, "west", 100)
        await settled(east, expected("first", "west"))
    assert await values(west) == expected("first", "west")


RING = (("east", "north"), ("north", "west"), ("west", "east"))


@pytest.mark.parametrize("files", ["one file", "three files"])
async def test_a_ring_of_three_brings_each_record_once(sites: Mapping[str, Cluster], files: str) -> None:
    """Each link carries on what the one before it brought, but for what its own target wrote."""
    ring = [alone(sites, *way, topics="flights") for way in RING]
    if files == "one file":
        ring = declared(ring)
    for name, site in sites.items():
        await make_topic(site, "flights")
        await write_values(site, name, 100)
    everything = expected(*sites)
    async with running(*ring):
        for site in sites.values():
            await settled(site, everything)
    for name, site in sites.items():
        await write_values(site, f"{name}-later", 100)
        everything += expected(f"{name}-later")
    for _ in range(3):  # restarts in the middle
        async with running(*ring) as told:
            await told.wait_for(Event.STARTED, 3)
    async with running(*ring):
        for site in sites.values():
            await settled(site, everything)
    for name, site in sites.items():
        assert await values(site) == everything, name
        for origin in sites:
            found = [record.value or b"" for record in await read_all(site, FLIGHTS)]
            came = [value for value in found if value.startswith(origin.encode())]
            assert came == sorted(came, key=lambda value: (b"later" in value, int(value.rsplit(b"-")[-1])))


async def test_a_session_ends_before_its_sequences_come_again(
    sites: Mapping[str, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say which way a batch came: the same again would say it of another."""
    monkeypatch.setattr(watching, "SEQUENCES_MAX", 60)
    ring = declared([alone(sites, *way, topics="flights") for way in RING])
    for site in sites.values():
        await make_topic(site, "flights")
    everything: Counter[bytes | None] = Counter()
    async with running(*ring) as told:
        for name, site in sites.items():
            await write_values(site, name, 200)
            everything += expected(name, count=200)
        for site in sites.values():
            await settled(site, everything)
        reasons = [str(renewed["reason"]) for renewed in told.of(Event.RENEWED)]
    assert any("flights-0 are used up" in reason for reason in reasons), reasons


async def test_ways_go_with_the_records_that_retention_took(sites: Mapping[str, Cluster]) -> None:
    ring = declared([alone(sites, *way, topics="flights") for way in RING])
    for site in sites.values():
        await make_topic(site, "flights")
    everything: Counter[bytes | None] = Counter()
    async with running(*ring):
        for at in range(4):
            for name, site in sites.items():
                await write_values(site, f"{name}-{at}", 10)
                everything += expected(f"{name}-{at}", count=10)
            for site in sites.values():
                await settled(site, everything)
    north = sites["north"]
    before = (await read_entries(ring[0], north)).origins["flights", 0]
    end = (await log_end_offsets(north, [FLIGHTS]))[FLIGHTS]
    await delete_records(north, {FLIGHTS: end})
    async with running(*ring) as told:
        await told.wait_for(Event.STARTED, 3)
    assert len(before) > 3
    assert len((await read_entries(ring[0], north)).origins["flights", 0]) == 1


async def test_ways_go_while_a_session_runs(sites: Mapping[str, Cluster]) -> None:
    """They stayed until the next one began: a link that runs for months keeps no more than its target does."""
    ring = declared([alone(sites, *way, topics="flights") for way in RING])
    for site in sites.values():
        await make_topic(site, "flights")
    north, everything = sites["north"], expected()
    async with running(*ring) as told:
        for at in range(4):
            for name, site in sites.items():
                await write_values(site, f"{name}-{at}", 10)
                everything += expected(f"{name}-{at}", count=10)
            for site in sites.values():
                await settled(site, everything)
        before, started = (await read_entries(ring[0], north)).origins["flights", 0], told.count(Event.STARTED)
        await delete_records(north, {FLIGHTS: (await log_end_offsets(north, [FLIGHTS]))[FLIGHTS]})

        async def are_gone() -> bool:
            return len((await read_entries(ring[0], north)).origins["flights", 0]) == 1

        await eventually(are_gone, "the entries of what is gone")
        assert len(before) > 3
        for name, site in sites.items():
            await write_values(site, f"{name}-later", 10)
        later = expected(*(f"{name}-later" for name in sites), count=10)
        await settled(north, later)
        await settled(sites["west"], everything + later)
        assert told.count(Event.STARTED) == started


async def test_a_registry_that_a_hand_deletes_is_written_anew_by_who_writes_there(sites: Mapping[str, Cluster]) -> None:
    """Else the next session of the link back takes mirrored records for local ones, and they go round."""
    east, west = sites["east"], sites["west"]
    for site in (east, west):
        await make_topic(site, "flights")
    pair = declared([alone(sites, "east", "west", "flights"), alone(sites, "west", "east", "flights")])
    async with running(*pair):
        await write_values(east, "east", 100)
        await write_values(west, "west", 100)
        everything = expected("east", "west")
        for site in (east, west):
            await settled(site, everything)
        await delete_topics(west, [PRODUCERS_TOPIC])

        async def is_back() -> bool:
            there = PRODUCERS_TOPIC in await list_topics(west)
            return there and bool(await read_all(west, TopicPartition(PRODUCERS_TOPIC, 0)))

        await eventually(is_back, "the registration")
        for site in (east, west):
            await write_values(site, f"{site.site.name}-later", 100)
        everything += expected("east-later", "west-later")
        for site in (east, west):
            await settled(site, everything)
    async with running(*pair):
        await write_values(west, "last", 10)
        everything += expected("last", count=10)
        await settled(east, everything)
    for site in (east, west):
        assert await values(site) == everything


async def test_a_link_waits_where_the_registry_of_its_source_is_lost(sites: Mapping[str, Cluster]) -> None:
    """The link that writes there does not run: nobody can say which records are mirrored, but that some are."""
    east, west = sites["east"], sites["west"]
    for site in (east, west):
        await make_topic(site, "flights")
    there, back = declared([alone(sites, "east", "west", "flights"), alone(sites, "west", "east", "flights")])
    await write_values(east, "east", 100)
    async with running(there):
        await settled(west, expected("east"))
    await delete_topics(west, [PRODUCERS_TOPIC])
    await write_values(west, "west", 100)
    async with running(back) as told:
        (said, *_) = await told.wait_for(Event.RESTARTING)
        assert said["error"] == "RegistryLost"
        assert "link east-west" in str(said["detail"])
        async with running(there):
            await settled(east, expected("east", "west"))
    assert await values(west) == expected("east", "west")


async def test_a_link_that_is_gone_for_good_is_forgotten_with_its_state_topic(sites: Mapping[str, Cluster]) -> None:
    """As the waiting link's hint says: what it brought then counts as written there."""
    east, west, north = (sites[name] for name in ("east", "west", "north"))
    for site in sites.values():
        await make_topic(site, "flights")
    (gone,) = declared([alone(sites, "east", "west", "flights")])
    await write_values(east, "east", 100)
    async with running(gone):
        await settled(west, expected("east"))
    await delete_topics(west, [PRODUCERS_TOPIC])
    (onward,) = declared([alone(sites, "west", "north", "flights")])
    async with running(onward) as told:
        (said, *_) = await told.wait_for(Event.RESTARTING)
        assert said["error"] == "RegistryLost"
        await delete_topics(west, [gone.state_topic])
        await settled(north, expected("east"))


async def test_a_full_mesh_of_three_brings_each_record_once(sites: Mapping[str, Cluster]) -> None:
    ways = [(a, b) for a in sites for b in sites if a != b]
    links = declared([alone(sites, *way, topics="flights") for way in ways])
    for name, site in sites.items():
        await make_topic(site, "flights")
        await write_values(site, name, 100)
    everything = expected(*sites)
    async with running(*links):
        for site in sites.values():
            await settled(site, everything)
    for name, site in sites.items():
        await write_values(site, f"{name}-later", 100)
        everything += expected(f"{name}-later")
    for _ in range(3):  # restarts in the middle
        async with running(*links) as told:
            await told.wait_for(Event.STARTED, 3)
    async with running(*links):
        for site in sites.values():
            await settled(site, everything)
    for site in sites.values():
        assert await values(site) == everything
