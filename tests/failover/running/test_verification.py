"""The check after an operation finds what is not as it was promised, and steps over what holds no record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.client.topics import delete_records
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from failover.planning.moves import GroupMove, MoveKind
from failover.running.read_on import ReadOn, who_read_on
from failover.running.verification import (
    Compared,
    DifferenceKind,
    VerificationDifference,
    same_content,
    verify_ends,
    verify_groups,
)
from tests.broker.running import running_broker
from tests.mirror.harness import make_topic, write

HERE = TopicPartition("flights", 1)
THERE = TopicPartition("east.flights", 1)
RECORDS = [Record(at, 1_000 + at, b"k%d" % at, b"v%d" % at) for at in range(5)]


def snapshot(*views: PartitionView, groups: tuple[GroupView, ...] = ()) -> Snapshot:
    return Snapshot("east-west", "east", "west", 0, SiteFinding.ALIVE, "promoted", "op-1", views, groups)


def view(source_end: int | None, mirrored: int | None, target_end: int | None) -> PartitionView:
    return PartitionView(*HERE, THERE.topic, source_end, None, None, None, mirrored, target_end)


@dataclass
class Sites:
    source: Cluster
    target: Cluster

    async def verify(self, fenced: Snapshot, after: Snapshot) -> list[VerificationDifference]:
        return (await verify_ends(self.source, self.target, fenced, after)).differences


@asynccontextmanager
async def two_sites(folder: Path) -> AsyncIterator[Sites]:
    """The source has RECORDS, the target a topic of another name, and empty."""
    async with (
        running_broker(folder / "east") as east,
        running_broker(folder / "west") as west,
        Cluster(Site("east", east)) as source,
        Cluster(Site("west", west)) as target,
    ):
        await make_topic(source, HERE.topic, 2)
        await make_topic(target, THERE.topic, 2)
        await write(source, HERE, RECORDS)
        yield Sites(source, target)


def move(target_offset: int | None, topic: str = "flights", partition: int = 0, group: str = "analysts") -> GroupMove:
    return GroupMove(group, topic, partition, "east.flights", MoveKind.TRANSLATED, 1, target_offset, "")


def test_every_offset_that_was_promised_is_there() -> None:
    at = GroupPartitionView("flights", 0, "east.flights", 40, 43, 43, "")
    there = snapshot(groups=(GroupView("analysts", None, "Empty", 0, 0, None, (at, replace(at, partition=1))),))
    assert list(verify_groups(there, [move(43), move(43, partition=1), move(None, "cargo")])) == []
    kind = DifferenceKind.GROUP_OFFSET
    wrong = [move(42), move(43, "cargo"), move(43, partition=2), move(0, group="others")]
    assert list(verify_groups(there, wrong)) == [
        VerificationDifference(kind, "analysts on flights", 0, 42, 43),
        VerificationDifference(kind, "analysts on cargo", 0, 43, None),
        VerificationDifference(kind, "analysts on flights", 2, 43, None),
        VerificationDifference(kind, "others on flights", 0, 0, None),
    ]


@pytest.mark.parametrize("changed", [{"key": b"x"}, {"value": None}, {"timestamp": 1}, {"headers": (("h", b""),)}])
def test_content_is_all_but_the_offset(changed: dict[str, Any]) -> None:
    one = RECORDS[0]
    assert same_content(one, one._replace(offset=99))
    assert not same_content(one, one._replace(**changed))


async def test_the_last_records_are_compared_by_content(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as sites:
        await write(sites.target, THERE, RECORDS)
        as_mirrored = snapshot(view(5, 5, 5))
        assert await sites.verify(as_mirrored, as_mirrored) == []

        await write(sites.target, THERE, [RECORDS[0]])
        with_another = snapshot(view(5, 5, 6))
        found = [VerificationDifference(DifferenceKind.LAST_RECORD, *HERE, 4, 5)]
        assert await sites.verify(with_another, with_another) == found
        shared = snapshot(replace(view(5, 5, 6), has_local_writers=True))
        assert await sites.verify(shared, shared) == []


async def test_a_target_without_the_last_record_is_told(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as sites:
        for missing in (view(5, 5, 0), view(5, 5, None)):
            found = await sites.verify(snapshot(missing), snapshot(missing))
            assert found == [VerificationDifference(DifferenceKind.LAST_RECORD, *HERE, 4, None)]
        nothing = replace(view(0, None, None), partition=0)
        assert await sites.verify(snapshot(nothing), snapshot(nothing)) == []


async def test_a_source_that_has_less_than_was_mirrored_is_told(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as sites:
        cut = VerificationDifference(DifferenceKind.LEFT_BEHIND, *HERE, 4, 5)
        assert await sites.verify(snapshot(view(5, 5, 5)), snapshot(view(4, 5, 5))) == [cut]


async def test_what_clients_wrote_to_the_target_since_it_was_opened_is_not_compared(tmp_path: Path) -> None:
    """It was taken for a mirror's mistake: not verified, exit code 1."""
    async with two_sites(tmp_path) as sites:
        await write(sites.target, THERE, [*RECORDS, RECORDS[0]])
        assert await sites.verify(snapshot(view(5, 5, 5)), snapshot(view(5, 5, 6))) == []


async def test_what_retention_has_emptied_is_no_difference_and_no_error(tmp_path: Path) -> None:
    """A log without a record ended each attempt with OFFSET_OUT_OF_RANGE, and the operation could never end."""
    async with two_sites(tmp_path) as sites:
        await write(sites.target, THERE, RECORDS)
        seen = snapshot(view(5, 5, 5))
        for site, where in (sites.source, HERE), (sites.target, THERE):
            await delete_records(site, {where: 5})
            assert await sites.verify(seen, seen) == []


async def test_what_cannot_be_read_is_said_and_the_others_are_compared(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as sites:
        await write(sites.target, THERE, RECORDS[:4])
        gone = replace(view(5, 5, 5), topic="gone", target_topic="east.gone")
        seen = snapshot(gone, view(5, 5, 4))
        assert await sites.verify(seen, seen) == [
            VerificationDifference(DifferenceKind.NOT_COMPARED, "gone", 1, None, None),
            VerificationDifference(DifferenceKind.LAST_RECORD, *HERE, 4, 3),
        ]


async def test_beside_writers_of_the_targets_own_the_last_mirrored_record_is_compared_where_the_map_has_it(
    tmp_path: Path,
) -> None:
    async with two_sites(tmp_path) as sites:
        await write(sites.target, THERE, [RECORDS[0], *RECORDS[:2], RECORDS[3]])

        async def compared(last: tuple[int, int] | None, target_end: int = 4) -> Compared:
            shared = replace(view(5, 5, target_end), has_local_writers=True, last_mirrored=last)
            return await verify_ends(sites.source, sites.target, snapshot(shared), snapshot(shared))

        assert await compared((1, 2)) == Compared([], [])
        other = VerificationDifference(DifferenceKind.LAST_RECORD, *HERE, 2, 2)
        assert await compared((2, 2)) == Compared([other], [])
        cut = VerificationDifference(DifferenceKind.LAST_RECORD, *HERE, 4, None)
        assert await compared((4, 4)) == Compared([cut], [])
        assert await compared(None) == Compared([], ["flights:1"])
        await delete_records(sites.target, {THERE: 3})
        assert await compared((1, 2)) == Compared([], ["flights:1"])
        assert await compared((3, 3)) == Compared([], [])
        await delete_records(sites.source, {HERE: 5})
        assert await compared((3, 3)) == Compared([], ["flights:1"])


async def test_what_came_later_is_not_compared(tmp_path: Path) -> None:
    """The last record that was mirrored still is."""
    async with two_sites(tmp_path) as sites:
        await write(sites.target, THERE, RECORDS[:4])
        assert await sites.verify(snapshot(view(4, 4, 4)), snapshot(view(5, 4, 4))) == []
        other = VerificationDifference(DifferenceKind.LAST_RECORD, *HERE, 2, 3)
        assert await sites.verify(snapshot(view(3, 3, 4)), snapshot(view(5, 3, 4))) == [other]
        shared = snapshot(replace(view(5, 4, 4), has_local_writers=True))
        assert await sites.verify(snapshot(view(4, 4, 4)), shared) == []


@pytest.mark.parametrize("aborted", [1, 9])
async def test_aborted_records_behind_the_last_one_are_stepped_over(tmp_path: Path, aborted: int) -> None:
    """The mirror leaves them out, and so do those who read what is committed."""
    async with two_sites(tmp_path) as sites:
        await write(sites.target, THERE, RECORDS)
        producer = AIOKafkaProducer(bootstrap_servers=sites.source.site.bootstrap_servers, transactional_id="t")
        await producer.start()
        try:
            await producer.begin_transaction()
            for number in range(aborted):
                await producer.send_and_wait(HERE.topic, b"%d" % number, partition=HERE.partition)
            await producer.abort_transaction()
        finally:
            await producer.stop()
        end = 5 + aborted + 1
        assert (await log_end_offsets(sites.source, [HERE]))[HERE] == end
        as_mirrored = snapshot(view(end, end, 5))
        assert await sites.verify(as_mirrored, as_mirrored) == []


def test_only_who_was_verified_or_stays_and_stands_beyond_that_is_taken_to_have_read_on() -> None:
    at = GroupPartitionView("flights", 0, "east.flights", 40, 43, 43, "")
    there = snapshot(groups=(GroupView("analysts", None, "Empty", 0, 0, None, (at, replace(at, partition=1))),))
    place = ("analysts", "flights", 0)
    for promised, verified, is_accepted in [(41, 41, True), (43, 43, False), (44, 44, False), (41, 40, False)]:
        moved = move(promised)
        expected = ((ReadOn(*place, promised, 43),), ()) if is_accepted else ((), (moved,))
        assert who_read_on(there, [moved], {place: verified}) == expected
    assert who_read_on(there, [move(41)], {}) == ((), (move(41),))
    for kind in (MoveKind.KEPT, MoveKind.AHEAD, MoveKind.ALREADY_THERE):
        for stood, is_accepted in ((41, True), (43, False), (44, False)):
            stays = replace(move(stood), kind=kind)
            expected = ((ReadOn(*place, stood, 43),), ()) if is_accepted else ((), (stays,))
            assert who_read_on(there, [stays], {}) == expected
    gone = move(41, partition=2)
    assert who_read_on(there, [gone], {("analysts", "flights", 2): 41}) == ((), (gone,))
