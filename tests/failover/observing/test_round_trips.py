"""What a move costs over a distance: a command that looks again reads on from where it stood, and asks side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import TopicPartition
from failover.freezing.choice import read_roles
from failover.freezing.freeze import Freeze
from failover.journal.log import OperationJournal, OperationsReader, claim, load_operations
from failover.journal.values import Event
from failover.observing.readers import Readers
from failover.observing.sites import Sites
from failover.observing.snapshot import Snapshot
from failover.planning.moves import GroupMove, MoveKind
from failover.running.moving import FencedCommits, MadeMoves, move_groups
from mirror.api import Change, GroupSyncs, Link, fence_groups, promote_link, read_entries
from mirror.offsets.entries import RunState
from tests.broker.client.group_site import GroupSite, serving
from tests.failover.observing.test_contact import Far, served
from tests.failover.stage import Stage, mirrored, now_ms, two_sites

LOOK_MAX = 6
"""Round trips of a look that is not the first: at 100 ms each it takes less than a second."""
LOOK_ALONE_MAX = 6
PROMOTION_MAX = 14
"""With two renewals of the operation's lease; in the last two it keeps where the fenced logs end."""
RENEWALS = 5
FREEZE_MAX = 1
"""At the target: a renewal. The freeze itself is at the source."""
HAND_OVER_MAX = 6
"""At the target: a renewal for each site, two looks (one beside the source's change), a change, and its word."""
MOVE_MAX = 7
"""Round trips of the move of many groups, what is written into the link's state apart."""
GROUPS = 1_000
GROUP_PARTITIONS = 200
BEGIN_FIRST_MAX = 11
"""With one in which a site of a single broker refuses to make the journal's topic with three replicas."""
BEGIN_MAX = 10


def untimed(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, taken_at_ms=0)


@asynccontextmanager
async def far_target(stage: Stage) -> AsyncIterator[tuple[Far, Cluster]]:
    """The target, and the way to it that counts the round trips."""
    bootstrap = stage.link.target.bootstrap_servers
    far = Far(bootstrap)
    async with served(far) as address, Cluster(Site("west", address, {bootstrap: address})) as target:
        yield far, target


async def test_a_look_that_is_not_the_first_takes_few_round_trips_and_sees_the_same(tmp_path: Path) -> None:
    """It read the link's state twice from its beginning, one request after the other: 17."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        async with far_target(stage) as (far, target):
            sites = Sites(stage.link, stage.source, target, (), now_ms)
            first = await sites.look()
            far.round_trips = 0
            second = await sites.look()
            of_second = far.round_trips
        fresh = await Sites(stage.link, stage.source, stage.target, (), now_ms).look()
    assert of_second <= LOOK_MAX
    assert untimed(first) == untimed(second) == untimed(fresh)
    assert len(second.groups) == 1


async def test_a_look_at_the_target_alone_asks_for_what_is_kept_there_beside_the_rest(tmp_path: Path) -> None:
    """What is kept of the source's ends was asked for behind the groups: two round trips more, in each look."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        async with far_target(stage) as (far, target):
            sites = Sites(stage.link, None, target, (), now_ms)
            first = await sites.look_past_source()
            far.round_trips = 0
            second = await sites.look_past_source()
            of_second = far.round_trips
        fresh = await Sites(stage.link, None, stage.target, (), now_ms).look_past_source()
    assert of_second <= LOOK_ALONE_MAX
    assert untimed(first) == untimed(second) == untimed(fresh)
    assert second.last_look is not None


async def test_a_promotion_takes_few_round_trips(tmp_path: Path) -> None:
    """It saw to topics that are there, and asked about no partitions: 16."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        async with far_target(stage) as (far, target):
            readers = Readers()
            await readers.begin(stage.link, target)
            writer, _ = await claim(target, ("east", "west"), lambda _: None)
            journal = OperationJournal(target, "failover-1", "ann", writer, ("east", "west"))
            await journal.renew()
            reader = readers.states.of(stage.link)
            far.round_trips = 0
            fence = await promote_link(stage.link, target, "failover-1", reader=reader, check=journal.renew)
            taken = far.round_trips
        run = (await read_entries(stage.link, stage.target)).run
    assert taken <= PROMOTION_MAX
    assert not fence.left_out
    assert run is not None
    assert run.state is RunState.PROMOTED


async def test_roles_are_changed_in_few_round_trips(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, far_target(stage) as (far, target):
        await set_site_role(stage.target, SiteRole.STANDBY, "a test", await site_standing(stage.target))
        writer, _ = await claim(target, ("east", "west"), lambda _: None)
        journal = OperationJournal(target, "failover-1", "ann", writer, ("east", "west"))
        await journal.renew()
        plan = replace(await read_roles(stage.link, stage.source, target), freezes=True)
        freeze = Freeze(plan, stage.link, (stage.source, target), "failover-1", journal.renew)
        far.round_trips = 0
        await freeze.refuse_writes()
        of_freeze = far.round_trips
        await freeze.hand_over(plan, even_without_source=False)
        of_hand_over = far.round_trips - of_freeze
    assert of_freeze <= FREEZE_MAX
    assert of_hand_over <= HAND_OVER_MAX


async def test_renewals_that_are_asked_for_at_once_share_their_round_trips(tmp_path: Path) -> None:
    """A site's links ask side by side. Whoever comes amid an append waits for one that begins behind him."""
    async with two_sites(tmp_path) as stage, far_target(stage) as (far, target):
        writer, _ = await claim(target, ("east", "west"), lambda _: None)
        journal = OperationJournal(target, "failover-1", "ann", writer, ("east", "west"))
        await journal.renew()
        far.round_trips = 0
        await asyncio.gather(*(journal.renew() for _ in range(RENEWALS)))
        together = far.round_trips
        await journal.renew()
    assert (together, far.round_trips) == (1, 2)


async def test_a_thousand_groups_are_moved_in_a_few_round_trips() -> None:
    places = [TopicPartition("t", number % GROUP_PARTITIONS) for number in range(GROUPS)]
    moves = tuple(
        GroupMove(f"g{number}", *where, where.topic, MoveKind.TRANSLATED, 5, 6, "")
        for number, where in enumerate(places)
    )
    west = GroupSite(leaders=[0, 1] * 25)
    written: list[Sequence[Change]] = []

    async def read() -> GroupSyncs:
        return GroupSyncs()

    async def write(changes: Sequence[Change]) -> None:
        written.append(changes)

    async with serving(west, "west") as site, Cluster(site) as target:
        await target.coordinators("group", [move.group for move in moves])  # as the looks before have asked
        link = Link("l", replace(site, name="east"), site, ("t",), groups=(".*",))
        writer = await fence_groups(target, link)  # as the promotion did
        west.waves = 0
        made = await move_groups(target, moves, read, write, FencedCommits(target, link, writer), 0)
        assert made == MadeMoves(moves, frozenset())
    assert [len(changes) for changes in written] == [GROUPS, 1]
    assert west.offsets == {f"g{number}": {where: CommittedOffset(6)} for number, where in enumerate(places)}
    assert west.waves <= MOVE_MAX


async def test_an_operation_begins_in_few_round_trips(tmp_path: Path) -> None:
    """It asked for the topic, its configs, the topic again, and its end, one after the other, and wrote who carries it
    on before what it is: 15, then 14.
    """
    taken = []
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        async with far_target(stage) as (far, target):
            await Readers().begin(stage.link, target)
            for name in ("first", "second"):
                far.round_trips = 0
                writer, _ = await claim(target, ("east", "west"), lambda _: None, OperationsReader())
                journal = OperationJournal(target, name, "ann", writer, ("east", "west"))
                async with journal.kept((Event.PLANNED, {})):
                    taken.append(far.round_trips)
        logs = await load_operations(stage.target)
    assert taken[0] <= BEGIN_FIRST_MAX
    assert taken[1] <= BEGIN_MAX
    assert [entry.event for entry in logs["first"].entries] == [Event.PLANNED]
    assert {log.lease.who for log in logs.values() if log.lease is not None} == {"ann"}
    assert logs.keys() == {"first", "second"}


async def test_many_who_ask_for_operations_at_once_wait_for_two_reads_at_the_most(tmp_path: Path) -> None:
    """One behind the other: of twenty links each its round trip."""
    async with two_sites(tmp_path) as stage, far_target(stage) as (far, target):
        writer, _ = await claim(stage.target, ("east", "west"), lambda _: None)
        await OperationJournal(stage.target, "first", "ann", writer, ("east", "west")).record(Event.PLANNED, {})
        reader = OperationsReader()
        await reader.read(target)
        far.round_trips = 0
        found = await asyncio.gather(*(reader.read(target) for _ in range(20)))
        assert far.round_trips <= 2
    assert [list(one) for one in found] == [["first"]] * 20
