"""The first record of a time or later, and where each group goes on by it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.records import Record
from broker.wire.vocabulary import NO_OFFSET, TopicPartition
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from failover.planning.moves import GroupMove, MoveKind
from failover.planning.to_datetime import first_record_at, moves_to
from tests.broker.running import running_broker
from tests.failover.machines import VICTIM, Death, mortal
from tests.mirror.harness import make_topic, write

TOPIC = "flights"
FIRST, EMPTY = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
BATCHES = ((10, 20), (20, 15), (40,))
TIMES = tuple(time for batch in BATCHES for time in batch)


async def filled(target: Cluster) -> None:
    """A partition of these times, in these batches, and an empty one; another topic."""
    await make_topic(target, TOPIC, 2)
    await make_topic(target, "other")
    for times in BATCHES:
        await write(target, FIRST, [Record(n, time, None, b"v") for n, time in enumerate(times)])


async def test_the_first_record_of_a_time_or_later_from_an_offset_on(tmp_path: Path) -> None:
    end = len(TIMES)
    async with running_broker(tmp_path) as address, Cluster(Site("west", address)) as target:
        await filled(target)
        for start in range(end + 1):
            for timestamp_ms in range(8, 43):
                found = await first_record_at(target, FIRST, start, end, timestamp_ms)
                assert found == next((at for at in range(start, end) if TIMES[at] >= timestamp_ms), end)
        assert await first_record_at(target, FIRST, NO_OFFSET, end, 8) == end


async def test_a_record_that_comes_while_the_time_is_looked_for_is_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of that time was there; then one came, and was before the end, which was asked for behind that."""
    end = len(TIMES)
    at = GroupPartitionView(TOPIC, 0, TOPIC, 7, 1, 3, "")
    group = GroupView("analysts", "Empty", "Empty", 0, 0, 9, (at,))
    view = PartitionView(TOPIC, 0, TOPIC, None, None, None, None, end, end)
    snapshot = Snapshot("east-west", "east", "west", 0, SiteFinding.DEAD, "running", "", (view,), (group,))
    async with (
        running_broker(tmp_path) as address,
        Cluster(Site("west", address)) as mirror,
        Cluster(Site("west", address), client_id=VICTIM) as target,
    ):
        await filled(mirror)
        with mortal(monkeypatch, there := Death()):
            await moves_to(snapshot, target, max(TIMES) + 1)
        for number in range(1, there.requests + 1):
            timestamp_ms = max(TIMES) + number
            death = Death(
                arrives_at=number, arrives=partial(write, mirror, FIRST, [Record(0, timestamp_ms, None, b"v")])
            )
            with mortal(monkeypatch, death):
                (move,) = await moves_to(snapshot, target, timestamp_ms)
            assert move.target_offset == end, f"it came before request {number}"
            end += death.arrives is None


async def test_each_group_is_told_what_it_reads_again_and_what_it_skips(tmp_path: Path) -> None:
    """Counted from where it stands by the offset map; what was carried last says nothing of what was read since."""
    end = len(TIMES)
    views = (
        PartitionView(TOPIC, 0, TOPIC, None, None, None, None, end, end),
        PartitionView(TOPIC, 1, TOPIC, None, None, None, None, 0, 0),
        PartitionView(TOPIC, 2, TOPIC, None, None, None, None, None, None),
        PartitionView("other", 0, "other", None, None, None, None, 0, 0),
    )

    def group(name: str, translated: int | None, at_target: int | None, partition: int = 0) -> GroupView:
        at = GroupPartitionView(TOPIC, partition, TOPIC, 7, translated, at_target, "noted")
        return GroupView(name, "Empty", "Empty", 0, 0, 9, (at,))

    groups = (
        group("behind", 1, 3),
        group("ahead", end, None),
        group("synced", None, 2),
        group("new", None, None),
        group("lost", 1, 1, partition=2),
    )
    snapshot = Snapshot("east-west", "east", "west", 0, SiteFinding.DEAD, "running", "", views, groups)

    def move(name: str, to: int | None, again: int | None, skipped: int | None, partition: int = 0) -> GroupMove:
        kind = MoveKind.UNKNOWN if to is None else MoveKind.BY_TIMESTAMP
        stood_at = {"behind": 3, "synced": 2, "lost": 1}.get(name)
        return GroupMove(name, TOPIC, partition, TOPIC, kind, 7, to, "noted", 9, again, skipped, stood_at)

    def bare(name: str, partition: int, to: int) -> GroupMove:
        return GroupMove(name, TOPIC, partition, TOPIC, MoveKind.BY_TIMESTAMP, None, to, "", 9, None, None)

    async with running_broker(tmp_path) as address, Cluster(Site("west", address)) as target:
        await filled(target)
        for timestamp_ms, to in ((9, 0), (16, 1), (21, 4), (41, end)):
            assert await moves_to(snapshot, target, timestamp_ms) == (
                move("behind", to, max(0, 1 - to), max(0, to - 1)),
                bare("behind", 1, 0),
                move("ahead", to, end - to, 0),
                bare("ahead", 1, 0),
                move("synced", to, None, None),
                bare("synced", 1, 0),
                move("new", to, None, None),
                bare("new", 1, 0),
                bare("lost", 0, to),
                bare("lost", 1, 0),
                move("lost", None, None, None, partition=2),
            )
