"""Which way a batch came is read from the writing link's state, and never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.producers import init_producer_id
from broker.client.site import Site
from broker.client.topics import delete_topics, list_topics
from broker.wire.batch import peek
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkFenced, RegistryLost
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.entries import Writer, encode_key, encode_value
from mirror.offsets.fence import fence_link
from mirror.offsets.intervals import End
from mirror.offsets.origin_entries import OriginRun, OriginRuns, Way
from mirror.offsets.state_writer import ensure_own_topics
from mirror.origins import Registration, SiteIdentity, Verdict, encode_registration
from mirror.worker.budget import Budget, Lease
from mirror.worker.origin_runs import OriginReader
from mirror.worker.origins import Passage
from mirror.worker.plan import Cursor, Rules, plan_batches
from mirror.worker.registry import REGISTRY, OriginRegistry
from tests.broker.running import running_broker

FLIGHTS = TopicPartition("flights", 0)
RECORDS_AT = 61
"""Of a batch in its segment, by bytes."""
EAST, NORTH = (frozenset({name}) for name in ("east", "north"))
RUNS = (OriginRun(0, 5, Way(NORTH, NORTH)), OriginRun(5, 9, Way(EAST, EAST | NORTH)))


@pytest.fixture
async def west(tmp_path: Path) -> AsyncIterator[Cluster]:
    """The site where link north-west brings records of north, and of east by way of north."""
    async with running_broker(tmp_path) as address, Cluster(Site("west", address)) as cluster:
        await ensure_own_topics(cluster, into(cluster))
        yield cluster


def into(west: Cluster) -> Link:
    return Link("north-west", Site("north", "127.0.0.1:1"), west.site, ("flights",))


def onward(west: Cluster, target: str) -> Passage:
    """The passage of a link that goes on from there."""
    return Passage(Link("onward", west.site, Site(target, "127.0.0.1:1"), ("flights",)), west, west)


async def register(west: Cluster, writer: Writer, *origins: str) -> Registration:
    """As link north-west does at the start of a session -> what is registered then."""
    passage = Passage(into(west), west, west)
    await passage.at_target.refresh()
    passage.origins = frozenset(origins)
    await passage.register(west, SiteIdentity("north"), writer)
    await passage.at_target.refresh()
    found = passage.at_target.find(writer.producer_id)
    assert found is not None
    return found


async def tell(west: Cluster, *runs: OriginRun, epoch: int = 4) -> None:
    entry = OriginRuns("flights", 0, (7, epoch), runs, 0, 0)
    where = TopicPartition(into(west).state_topic, 0)
    await append(west, where, encode_batch([Record(0, 1, encode_key(entry), encode_value(entry))]))


def batch_of(sequence: int, count: int = 1, epoch: int = 4) -> memoryview:
    records = [Record(at, 1, b"k", b"v") for at in range(count)]
    return memoryview(encode_batch(records, producer_id=7, producer_epoch=epoch, base_sequence=sequence))


async def verdict(passage: Passage, batch: memoryview) -> Verdict:
    await passage.learn(FLIGHTS, batch)
    return passage.judge(FLIGHTS)(peek(batch)).verdict


async def test_each_batch_is_judged_by_its_own_way(west: Cluster) -> None:
    await register(west, Writer(7, 4), "north", "east")
    await tell(west, *RUNS)
    found = {
        target: [await verdict(onward(west, target), batch_of(at)) for at in (0, 4, 5, 8)]
        for target in ("east", "north", "south")
    }
    carry, left_out = [Verdict.CARRY] * 2, [Verdict.LEAVE_OUT] * 2
    assert found == {"east": carry + left_out, "north": left_out + left_out, "south": carry + carry}


async def test_the_way_goes_on_with_the_batch(west: Cluster) -> None:
    await register(west, Writer(7, 4), "north", "east")
    await tell(west, *RUNS)
    passage = onward(west, "south")
    await passage.learn(FLIGHTS, batch_of(5))
    assert passage.judge(FLIGHTS)(peek(batch_of(5))).way == Way(EAST, EAST | NORTH | {"west"})
    local = passage.judge(FLIGHTS)(peek(encode_batch([Record(0, 1, None, b"v")])))
    assert local.way == Way(frozenset({"west"}), frozenset({"west"}))


async def test_what_was_not_told_is_not_clear_until_it_is(west: Cluster) -> None:
    await register(west, Writer(7, 4), "north", "east")
    passage = onward(west, "east")
    assert await verdict(passage, batch_of(0)) is Verdict.UNCLEAR
    await tell(west, *RUNS)
    assert await verdict(passage, batch_of(1)) is Verdict.CARRY
    assert await verdict(passage, batch_of(9)) is Verdict.UNCLEAR, "behind what was told"
    assert await verdict(passage, batch_of(0, epoch=6)) is Verdict.UNCLEAR, "of another session"
    await tell(west, OriginRun(9, 11, Way(EAST, EAST | NORTH)))
    assert await verdict(passage, batch_of(10)) is Verdict.LEAVE_OUT


async def test_a_state_topic_that_was_made_anew_is_read_anew(west: Cluster) -> None:
    await register(west, Writer(7, 4), "north", "east")
    for run in RUNS:
        await tell(west, run)
    passage = onward(west, "east")
    assert await verdict(passage, batch_of(0)) is Verdict.CARRY
    await delete_topics(west, [into(west).state_topic])
    assert await verdict(passage, batch_of(5)) is Verdict.LEAVE_OUT, "what was read stays true"
    assert await verdict(passage, batch_of(9)) is Verdict.UNCLEAR
    await ensure_own_topics(west, into(west))
    for epoch in (6, 8, 10, 12):  # now as long as it was, or longer
        await tell(west, *RUNS, epoch=epoch)
    assert await verdict(passage, batch_of(0, epoch=6)) is Verdict.CARRY


async def test_batches_from_before_ways_were_told_are_judged_by_what_was_said_then(west: Cluster) -> None:
    """A link that brought its source's records alone, and then others: its earlier batches were its source's."""
    assert (await register(west, Writer(7, 2), "north")).named_from is None
    assert await verdict(onward(west, "east"), batch_of(0, epoch=2)) is Verdict.CARRY
    found = await register(west, Writer(7, 4), "north", "east")
    assert (found.named_from, found.unnamed) == (4, NORTH)
    assert await verdict(onward(west, "east"), batch_of(0, epoch=2)) is Verdict.CARRY
    assert await verdict(onward(west, "east"), batch_of(0)) is Verdict.UNCLEAR
    again = await register(west, Writer(7, 6), "north")
    assert again == found, "it tells the ways from then on, whatever it brings"


async def test_of_two_that_start_at_once_the_later_knows_what_the_earlier_said(west: Cluster) -> None:
    """It had looked before that registered, and said that earlier epochs brought nothing: all of that was lost."""
    late = Passage(into(west), west, west)
    await late.at_target.refresh()
    late.origins = NORTH | EAST
    await register(west, Writer(7, 4), "north", "east")
    await tell(west, *RUNS)
    await late.register(west, SiteIdentity("north"), Writer(7, 6))
    found = [await verdict(onward(west, "south"), batch_of(at)) for at in (0, 5)]
    assert found == [Verdict.CARRY, Verdict.CARRY]
    assert (await register(west, Writer(7, 8), "north")).named_from == 4


async def test_a_producer_of_whose_epoch_nothing_was_said_is_not_clear(west: Cluster) -> None:
    """Nothing is not nobody: its batches would be left out, silently."""
    await register(west, Writer(7, 4), "north", "east")
    assert await verdict(onward(west, "south"), batch_of(0, epoch=2)) is Verdict.UNCLEAR


async def test_who_was_fenced_does_not_register(west: Cluster) -> None:
    """Its successor has said more: to take that back would let records go round."""
    slow = await init_producer_id(west, into(west).transactional_id)
    fence = await fence_link(west, into(west), [REGISTRY])
    await register(west, fence.writer, "north", "east")
    with pytest.raises(LinkFenced):
        await register(west, Writer(*slow), "north", "south")


async def test_what_an_earlier_version_mixed_stays_unclear(west: Cluster) -> None:
    mixed = Registration(7, "north-west", SiteIdentity("north"), NORTH | EAST, ("flights",))
    where = TopicPartition(PRODUCERS_TOPIC, 0)
    await append(west, where, encode_batch([Record(0, 1, *encode_registration(mixed))]))
    assert await verdict(onward(west, "east"), batch_of(0, epoch=2)) is Verdict.UNCLEAR
    found = await register(west, Writer(7, 4), "north", "east")
    assert found.unnamed == NORTH | EAST
    await tell(west, *RUNS)
    assert await verdict(onward(west, "east"), batch_of(0, epoch=2)) is Verdict.UNCLEAR
    assert await verdict(onward(west, "east"), batch_of(0)) is Verdict.CARRY


async def test_an_origin_is_known_by_more_than_its_name(west: Cluster) -> None:
    """The file of link north-west calls orient what this one calls east."""
    orient = SiteIdentity("orient", "cluster-1", frozenset({"10.0.0.1:9092"}))
    told = Registration(
        7,
        "north-west",
        SiteIdentity("north"),
        NORTH | {"orient"},
        ("flights",),
        named_from=4,
        sites=frozenset({orient}),
    )
    where = TopicPartition(PRODUCERS_TOPIC, 0)
    await append(west, where, encode_batch([Record(0, 1, *encode_registration(told))]))
    theirs = frozenset({"orient"})
    await tell(west, OriginRun(0, 5, Way(theirs, theirs | NORTH)))
    assert await verdict(onward(west, "east"), batch_of(0)) is Verdict.CARRY, "nothing says that it is the same"
    passage = onward(west, "east")
    passage.at_source.call_sites([replace(orient, name="east")])
    assert await verdict(passage, batch_of(0)) is Verdict.LEAVE_OUT
    assert passage.at_source.registered()[0].origins == EAST | NORTH


async def test_producer_ids_of_earlier_sessions_are_registered_again(west: Cluster) -> None:
    """The registry was deleted while the link did not run, and Kafka has given it another id since."""
    passage = Passage(into(west), west, west)
    await passage.at_target.refresh()
    await passage.register(west, SiteIdentity("north"), Writer(9, 0), {7, 9})
    await passage.at_target.refresh()
    assert {found.producer_id for found in passage.at_target.registered()} == {7, 9}
    assert await verdict(onward(west, "north"), batch_of(0)) is Verdict.LEAVE_OUT


async def test_what_was_not_told_may_have_been_at_the_target(west: Cluster) -> None:
    """Where it was written first is not all: east's own go south directly, and south's links may have brought it on."""
    await register(west, Writer(7, 4), "north", "east")
    assert await verdict(onward(west, "south"), batch_of(0)) is Verdict.UNCLEAR
    direct = replace(onward(west, "south").link, topic_names="prefixed")
    assert await verdict(Passage(direct, west, west), batch_of(0)) is Verdict.CARRY, "its name says where it has been"
    await tell(west, OriginRun(0, 5, Way(EAST, EAST | NORTH | {"south"})))
    assert await verdict(onward(west, "south"), batch_of(0)) is Verdict.LEAVE_OUT


async def test_a_site_on_the_way_is_known_by_more_than_its_name(west: Cluster) -> None:
    """The file of link north-west calls orient what this one calls east, which wrote none of what comes through it."""
    orient = SiteIdentity("orient", "cluster-1", frozenset({"10.0.0.1:9092"}))
    brought = Registration(9, "orient-north", orient, frozenset({"orient", "south"}), ("flights",), named_from=0)
    where = TopicPartition(PRODUCERS_TOPIC, 0)
    await append(west, where, encode_batch([Record(0, 1, *encode_registration(brought))]))
    passage = Passage(into(west), west, west)  # north's registry stands in west's here
    await passage.at_source.refresh()
    await passage.at_target.refresh()
    passage.origins = frozenset({"north", "south"})
    await passage.register(west, SiteIdentity("north"), Writer(7, 4))
    await tell(west, OriginRun(0, 5, Way(frozenset({"south"}), frozenset({"south", "orient", "north"}))))
    onto = onward(west, "east")
    onto.at_source.call_sites([replace(orient, name="east")])
    assert await verdict(onto, batch_of(0)) is Verdict.LEAVE_OUT


async def test_what_is_known_stays_known_while_all_is_read_once_more(west: Cluster) -> None:
    """Another fetch or a comparison meets what is not told, between what this one learned and its planning."""
    await register(west, Writer(7, 4), "north", "east")
    await tell(west, *RUNS)
    passage = onward(west, "east")
    await passage.learn(FLIGHTS, batch_of(0))
    other = asyncio.create_task(passage.learn(FLIGHTS, batch_of(20)))
    while not other.done():
        assert passage.judge(FLIGHTS)(peek(batch_of(0))).verdict is Verdict.CARRY
        await asyncio.sleep(0)
    await passage.learn(FLIGHTS, batch_of(6), is_onward=True)
    await passage.learn(FLIGHTS, batch_of(21))
    assert await verdict(passage, batch_of(0)) is Verdict.CARRY, "what was forgotten is read again"
    assert await verdict(passage, batch_of(8)) is Verdict.LEAVE_OUT


class CountingReader(OriginReader):
    """With how many entries it was given."""

    entries = 0

    def _apply(self, record: Record) -> None:
        self.entries += 1
        super()._apply(record)


async def test_batches_of_which_nothing_is_told_do_not_make_all_be_read_again(west: Cluster) -> None:
    """Each fetch that brought such a batch read the whole state, which may be long, before any other went on."""
    for epoch in range(2, 40, 2):
        await tell(west, *RUNS, epoch=epoch)
    reader = CountingReader(west, "north-west")
    await reader.learn(FLIGHTS, [peek(batch_of(0))])
    written = reader.entries
    for sequence in (20, 30, 40):
        await reader.learn(FLIGHTS, [peek(batch_of(sequence))])
    assert reader.entries == written
    await tell(west, OriginRun(50, 60, Way(EAST, EAST | NORTH)))
    await reader.learn(FLIGHTS, [peek(batch_of(50)), peek(batch_of(70))])
    assert reader.entries == written + 1
    assert reader.find(FLIGHTS, peek(batch_of(55))) is not None
    reader.forget_before(FLIGHTS, peek(batch_of(50)))
    await reader.learn(FLIGHTS, [peek(batch_of(50)), peek(batch_of(71))])
    assert reader.entries == written + 1
    await reader.learn(FLIGHTS, [peek(batch_of(3))])
    assert reader.entries == 2 * (written + 1), "it had been forgotten"
    assert reader.find(FLIGHTS, peek(batch_of(3))) is not None


async def test_an_entry_that_cannot_be_read_stops_nothing_but_its_batches(west: Cluster) -> None:
    """Another link's state is its own: this one is not ended by it."""
    await register(west, Writer(7, 4), "north", "east")
    await tell(west, RUNS[0])
    where = TopicPartition(into(west).state_topic, 0)
    for value in (b"not json", b'{"v":2,"runs":[4,0]}', b'{"v":1,"runs":[4,0]}'):
        await append(west, where, encode_batch([Record(0, 1, b'["origins","flights",0,7,4,5]', value)]))
    passage = onward(west, "east")
    assert await verdict(passage, batch_of(0)) is Verdict.CARRY
    assert await verdict(passage, batch_of(5)) is Verdict.UNCLEAR
    rules = Rules(Writer(1, 0), 1_000_000, passage.judge(FLIGHTS))
    plan = plan_batches(batch_of(5), (), Cursor(0, End(0, 0), 0), rules, Lease(Budget(1_000, 1), 1))
    assert plan.blocker is not None
    assert "the state of link north-west does not say" in plan.blocker.detail


async def test_another_link_s_damaged_state_ends_no_link(west: Cluster) -> None:
    """It may bring the same topics to the target; its worker stops at that state, so it does not run."""
    await register(west, Writer(7, 4), "north")
    where = TopicPartition(into(west).state_topic, 0)
    await append(west, where, encode_batch([Record(0, 1, b'["owner"]', b"not json")]))
    beside = Passage(Link("south-west", Site("south", "127.0.0.1:1"), west.site, ("flights",)), west, west)
    await beside.look(west)
    await beside.refuse_rivals(west)


def make_unreadable(folder: Path, topic: str) -> None:
    """The first record's length lies, on the disk: what is behind it can be read by nobody."""
    (segment,) = folder.rglob(f"{topic}-0/*.log")
    with segment.open("r+b") as file:
        file.seek(RECORDS_AT)
        file.write(b"\x01")


async def test_another_link_s_unreadable_state_ends_no_link(west: Cluster, tmp_path: Path) -> None:
    """Its batches stop their partition, which says so; a link beside it does not wait for it."""
    await register(west, Writer(7, 4), "north", "east")
    await tell(west, *RUNS)
    make_unreadable(tmp_path, into(west).state_topic)
    passage = onward(west, "east")
    assert await verdict(passage, batch_of(0)) is Verdict.UNCLEAR
    assert passage.judge(FLIGHTS)(peek(batch_of(0))).untold == "north-west"
    beside = Passage(Link("south-west", Site("south", "127.0.0.1:1"), west.site, ("flights",)), west, west)
    await beside.look(west)
    await beside.refuse_rivals(west)


async def test_a_damaged_state_that_shows_that_its_link_mirrored_is_not_passed_over(west: Cluster) -> None:
    """The registry does not know the link: to go on would be to take its records for local ones, silently."""
    registry, where = OriginRegistry(west), TopicPartition(into(west).state_topic, 0)
    await append(west, where, encode_batch([Record(0, 1, b"no key of ours", b"not json")]))
    await registry.refuse_unknown_writers(await list_topics(west))  # nothing shows that anything was mirrored
    await append(west, where, encode_batch([Record(0, 1, b'["position","flights",0]', b"not json")]))
    with pytest.raises(RegistryLost, match="link north-west mirrored to west"):
        await registry.refuse_unknown_writers(await list_topics(west))
    await append(west, where, encode_batch([Record(0, 1, b'["position","flights",0]', None)]))
    await registry.refuse_unknown_writers(await list_topics(west))


async def test_of_a_state_that_cannot_be_read_nobody_knows_whether_its_link_mirrored(
    west: Cluster, tmp_path: Path
) -> None:
    await tell(west, *RUNS)
    make_unreadable(tmp_path, into(west).state_topic)
    with pytest.raises(RegistryLost, match="whether link north-west mirrored to west cannot be read") as raised:
        await OriginRegistry(west).refuse_unknown_writers(await list_topics(west))
    assert f"delete {into(west).state_topic}" in raised.value.hint
    await register(west, Writer(7, 4), "north")
    registered = OriginRegistry(west)
    await registered.refresh()
    await registered.refuse_unknown_writers(await list_topics(west))  # whose batches are whose is known
