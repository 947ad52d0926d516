"""A target that lost the end of the journal between two looks, and took other entries since: that is seen, and said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.broker import Broker
from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.records import Record, encode_batch
from failover.errors import JournalDamaged
from failover.freezing.hooks import Hooks
from failover.journal.hearing import Hearing, is_heard
from failover.journal.log import OperationsReader, load_operations
from failover.journal.standing import OperationState
from failover.journal.topic import WHERE
from failover.journal.values import Event, JournalEntry, Lease, OperationLog, read_operations
from failover.limits import UNHEARD_S
from failover.running.taking_up import resume
from tests.broker.running import running_server
from tests.failover.journal.test_log import INTENT, begun
from tests.failover.journal.test_values import NOW_MS
from tests.failover.machines import HEIR, machine, quick
from tests.failover.stage import Stage, mirrored
from tests.failover.stage import two_sites as stage_of_two

KEY = b'["nobody\'s"]'


@dataclass
class Target:
    cluster: Cluster
    broker: Broker

    async def end(self) -> int:
        return (await log_end_offsets(self.cluster, [WHERE]))[WHERE]

    def cut(self, end: int) -> None:
        """As an election does that takes a leader without the rest."""
        partition = self.broker.partition(*WHERE)
        assert partition is not None
        partition.log.truncate_to(end)

    async def fill(self, count: int) -> None:
        for number in range(count):
            await append(self.cluster, WHERE, encode_batch([Record(0, NOW_MS + number, KEY, b"{}")]))


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Target]:
    async with running_server(tmp_path / "west") as west, Cluster(Site("west", west.address)) as cluster:
        yield Target(cluster, west.broker)


@pytest.mark.parametrize("more", [0, 1, 5])
async def test_a_log_that_was_cut_and_has_grown_over_that_is_read_anew(target: Target, more: int) -> None:
    """It was read on in the middle: entries stood that were gone, and those that came instead were passed over."""
    journal = await begun(target.cluster)
    kept_to = await target.end()
    await journal.record(Event.STARTED, {"step": "fence"})
    reader = OperationsReader()
    before = await reader.read(target.cluster)
    target.cut(kept_to)
    await target.fill(1)
    await begun(target.cluster, "two")
    await target.fill(more)
    after = await reader.read(target.cluster)
    assert after == await load_operations(target.cluster)
    assert (list(before), list(after)) == (["one"], ["one", "two"])
    assert [entry.event for entry in after["one"].entries] == [Event.PLANNED]
    assert await reader.read(target.cluster) == after


async def test_a_log_that_lost_its_beginning_is_read_anew(target: Target) -> None:
    await begun(target.cluster)
    reader = OperationsReader()
    await reader.read(target.cluster)
    partition = target.broker.partition(*WHERE)
    assert partition is not None
    partition.log.delete_records_before(await target.end())
    assert await reader.read(target.cluster) == await load_operations(target.cluster) == {}


def logs() -> list[OperationLog]:
    """One operation's, as it grows."""
    found, records = [], [Lease("ann", NOW_MS).record("one")]
    entry = JournalEntry(0, NOW_MS, "one", Event.PLANNED, {"intent": INTENT.document(), "who": "ann"}, "0" * 64)
    for number in range(3):
        records += [*entry.records(), Lease("ann", NOW_MS + number).record("one")]
        found.append(read_operations(records)["one"])
        entry = JournalEntry(number + 1, NOW_MS, "one", Event.STARTED, {"step": "drain"}, entry.hash())
    return found


def test_one_that_went_back_is_not_one_that_somebody_was_heard_of() -> None:
    first, second, third = logs()
    forward = [(first, second), (second, third), (first, replace(first, lease=Lease("ben", NOW_MS - 9)))]
    back = [(second, first), (third, first), (second, replace(second, lease=Lease("ann", NOW_MS - 1)))]
    assert [is_heard(*both) for both in forward + back] == [True] * 3 + [False] * 3
    hour_later_ms = NOW_MS + 3_600_000
    for before, now in forward + back:
        hearing = Hearing()
        assert hearing.look(before, hour_later_ms, 0.0) is None
        assert hearing.look(now, hour_later_ms, 10.0) is None
        was_heard = (before, now) in forward
        told = hearing.look(now, hour_later_ms, 10.0 + UNHEARD_S - 1)
        assert told is (None if was_heard else OperationState.CUT_SHORT)


@pytest.mark.parametrize("is_gone", [False, True])
async def test_nobody_takes_up_what_the_target_has_lost_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_gone: bool
) -> None:
    """The heir wrote behind entries that were not there any more: a damaged journal, and the groups were moved."""
    quick(monkeypatch)
    async with stage_of_two(tmp_path) as stage, mirrored(stage):
        target = Target(stage.target, stage.brokers[1])
        log = await _cut_short(stage, target)
        target.cut(0 if is_gone else await target.end() - 1)
        async with machine(HEIR, stage.link) as sites:
            with pytest.raises(JournalDamaged, match=r"operation-1 .* lost") as told:
                await resume(log, sites, Hooks(), "an heir")
        way_on = "farshore switchover" if is_gone else "farshore operation show operation-1"
        assert way_on in told.value.hint
        assert (await stage.sites.look()).link_state == "running"


async def test_a_clock_that_went_back_is_not_told_as_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machine, the same entries, an earlier time: nobody can tell from it that the target lost anything."""
    quick(monkeypatch)
    async with stage_of_two(tmp_path) as stage, mirrored(stage):
        log = await _cut_short(stage, Target(stage.target, stage.brokers[1]))
        lease = Lease("ann", NOW_MS)
        await append(stage.target, WHERE, encode_batch([Record(0, NOW_MS, *lease.record(log.operation_id))]))
        async with machine(HEIR, stage.link) as sites:
            with pytest.raises(JournalDamaged, match=r"operation-1 .* lost .*, or that machine's clock") as told:
                await resume(replace(log, lease=replace(lease, at_ms=NOW_MS + 1)), sites, Hooks(), "an heir")
        assert "farshore operation wait operation-1" in told.value.hint
        assert (await stage.sites.look()).link_state == "running"


async def _cut_short(stage: Stage, target: Target) -> OperationLog:
    journal = await stage.journal()
    await journal.record(Event.PLANNED, {"intent": INTENT.document(), "who": "ann"})
    await journal.record(Event.STARTED, {"step": "drain"})
    await journal.record(Event.CUT_SHORT, {"step": "drain", "error": "gone"})
    assert await target.end() > 0
    return await stage.log("operation-1")
