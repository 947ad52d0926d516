"""Groups are moved side by side, as they are looked at: what is far takes few round trips, however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from broker.client.cluster import Cluster
from broker.client.limits import COMMITTED_AT_ONCE, ClientLimits
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from failover.errors import TakenOver
from failover.planning.moves import GroupMove, MoveKind
from failover.running.moving import Committing, FencedCommits, Read, UnfencedCommits, move_groups
from mirror.errors import LinkFenced
from mirror.link import Link
from mirror.offsets.group_entries import GroupSync, GroupSyncs, VoidGroup, Written
from mirror.offsets.state_writer import Change
from tests.broker.client.group_site import GroupSite, serving
from tests.failover.stage import now_ms

GROUPS = 400
MOVES = tuple(
    GroupMove(f"g{group}", "flights", partition, "east.flights", MoveKind.TRANSLATED, 7, group + partition, "read")
    for group in range(GROUPS)
    for partition in range(3)
)
MOVED = {
    f"g{group}": {
        TopicPartition("east.flights", partition): CommittedOffset(group + partition, "read") for partition in range(3)
    }
    for group in range(GROUPS)
}
AT = ("flights", 0)
NOTHING = GroupSyncs()
LIMITS = ClientLimits(retry_backoff_max_ms=100, retry_timeout_ms=500, partition_patience_ms=300)


def told(known: GroupSyncs) -> Read:
    """By a state that says this."""

    async def read() -> GroupSyncs:
        return known

    return read


def committing(target: Cluster, *, is_fenced: bool) -> Committing:
    link = Link("l", Site("east", "nowhere:1"), target.site, ("flights",), groups=(".*",))
    return FencedCommits(target, link, None) if is_fenced else UnfencedCommits(target)


async def moved(
    site: GroupSite,
    moves: tuple[GroupMove, ...] = MOVES,
    known: GroupSyncs = NOTHING,
    *,
    is_fenced: bool = True,
) -> list[list[GroupSync | VoidGroup]]:
    """-> what was written of the groups before they were committed, and behind that."""
    written: list[list[GroupSync | VoidGroup]] = []

    async def write(entries: Sequence[Change]) -> None:
        if of_groups := [entry for entry in entries if isinstance(entry, GroupSync | VoidGroup)]:
            written.append(of_groups)

    async with serving(site, "west") as at, Cluster(at, limits=LIMITS) as target:
        made = await move_groups(target, moves, told(known), write, committing(target, is_fenced=is_fenced), now_ms())
    assert made.uncommitted == site.commit_errors.keys()
    return written


def said(entries: Sequence[GroupSync | VoidGroup]) -> dict[str, object]:
    """Of each group the pairs, None where its entry is taken back."""
    return {one.group: one.written if isinstance(one, GroupSync) else None for one in entries}


@pytest.mark.parametrize("is_fenced", [True, False])
async def test_many_groups_are_moved_in_few_round_trips_and_again(*, is_fenced: bool) -> None:
    """One after the other, 1,000 took 100 s where the target is 100 ms away."""
    site = GroupSite()
    await moved(site, is_fenced=is_fenced)
    assert site.offsets == MOVED
    assert site.commits_at_once <= COMMITTED_AT_ONCE
    assert site.waves <= 3 * GROUPS / COMMITTED_AT_ONCE
    site.ports.clear()
    await moved(site, is_fenced=is_fenced)
    assert site.offsets == MOVED


@pytest.mark.parametrize("kind", [MoveKind.UNKNOWN, MoveKind.KEPT, MoveKind.AHEAD, MoveKind.ALREADY_THERE])
@pytest.mark.parametrize("is_fenced", [True, False])
async def test_what_stays_is_not_committed_and_who_is_refused_holds_up_no_other(
    kind: MoveKind, *, is_fenced: bool
) -> None:
    site = GroupSite(commit_errors={"g5": ErrorCode.UNKNOWN_MEMBER_ID})
    stays = GroupMove("stays", "flights", 0, "east.flights", kind, 7, 8, "")
    some = tuple(move for move in MOVES if move.group in ("g4", "g5", "g6"))
    await moved(site, (stays, *some), is_fenced=is_fenced)
    assert site.offsets == {group: MOVED[group] for group in ("g4", "g6")}


async def test_what_is_committed_is_the_links_own_and_written_down_before_that() -> None:
    """Of whom a consumer keeps from it nobody knows yet; who was ahead the link did not bring there."""
    site = GroupSite(commit_errors={"g5": ErrorCode.UNKNOWN_MEMBER_ID})
    ahead = GroupMove("ahead", "flights", 0, "east.flights", MoveKind.AHEAD, 7, 8, "")
    known = GroupSyncs({f"g{group}": GroupSync(f"g{group}", 1, {AT: Written(3, 2)}) for group in (4, 5)})
    site.offsets |= {f"g{group}": {TopicPartition("east.flights", 0): CommittedOffset(2)} for group in (4, 5)}
    before, behind = await moved(site, (ahead, MOVES[12], MOVES[15]), known)
    assert said(before) == {"g4": {AT: Written(7, 4, 2)}, "g5": {AT: Written(7, 5, 2)}}
    assert said(behind) == {"g4": {AT: Written(7, 4)}, "g5": {AT: Written(3, 2)}}


@pytest.mark.parametrize("is_fenced", [True, False])
async def test_what_was_written_of_a_group_that_is_refused_is_taken_back(*, is_fenced: bool) -> None:
    """The next one who moved it took it for set back there, left it, and ended with 0. A plain commit may have been
    taken in part, so of that the state says on where the group stood.
    """
    site = GroupSite(commit_errors={"g5": ErrorCode.UNKNOWN_MEMBER_ID})
    site.offsets["g5"] = {TopicPartition("east.flights", 0): CommittedOffset(2)}
    before, *behind = await moved(site, (MOVES[15],), is_fenced=is_fenced)
    assert said(before) == {"g5": {AT: Written(7, 5, stood=2)}}
    assert [said(entries) for entries in behind] == ([{"g5": None}] if is_fenced else [])


async def test_of_a_link_that_somebody_took_over_no_group_is_moved() -> None:
    async def write(_entries: Sequence[Change]) -> None:
        raise LinkFenced("another owner took over")

    site = GroupSite()
    async with serving(site, "west") as at, Cluster(at, limits=LIMITS) as target:
        with pytest.raises(LinkFenced):
            await move_groups(target, MOVES, told(NOTHING), write, committing(target, is_fenced=True), now_ms())
    assert not site.offsets


@pytest.mark.parametrize("is_taken_over", [False, True])
async def test_the_state_that_is_silent_behind_the_commits_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, *, is_taken_over: bool
) -> None:
    """It was asked again for a minute, while the word that applications may start waited; but who finds there that the
    link is another one's says so, also where there was nothing to note.
    """
    monkeypatch.setattr("failover.running.moving.NOTED_S", 0.05)
    site = GroupSite()

    async def write(_entries: Sequence[Change]) -> None:
        if site.offsets and is_taken_over:
            raise TakenOver("l")
        if site.offsets:
            await asyncio.Event().wait()

    async with serving(site, "west") as at, Cluster(at, limits=LIMITS) as target:
        moving = move_groups(target, MOVES, told(NOTHING), write, committing(target, is_fenced=True), now_ms())
        async with asyncio.timeout(60):
            if is_taken_over:
                with pytest.raises(TakenOver):
                    await moving
            else:
                assert (await moving).moves == MOVES
    assert site.offsets == MOVED


@pytest.mark.parametrize("kind", [MoveKind.KEPT, MoveKind.TRANSLATED])
async def test_where_nothing_is_committed_the_state_is_written_to_once(kind: MoveKind) -> None:
    """That says whose the link is. Over a distance a second time was a round trip more that applications waited."""
    written = 0

    async def write(_entries: Sequence[Change]) -> None:
        nonlocal written
        written += 1

    moves = tuple(replace(move, kind=kind) for move in MOVES)
    async with serving(GroupSite(), "west") as at, Cluster(at, limits=LIMITS) as target:
        await move_groups(target, moves, told(NOTHING), write, committing(target, is_fenced=True), now_ms())
    assert (written == 1) is (kind is MoveKind.KEPT)
