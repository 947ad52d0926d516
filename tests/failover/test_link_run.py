"""Groups are moved side by side, as they are looked at: what is far takes few round trips, however many they are."""

from __future__ import annotations

import pytest

from broker.client.cluster import Cluster
from broker.client.limits import COMMITTED_AT_ONCE, ClientLimits
from broker.client.model import CommittedOffset
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from failover.link_run import move_groups
from failover.moves import GroupMove, MoveKind
from failover.sites import Sites
from mirror.link import Link
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
LIMITS = ClientLimits(retry_backoff_max_ms=100, retry_timeout_ms=500, partition_patience_ms=300)


async def moved(site: GroupSite, moves: tuple[GroupMove, ...] = MOVES) -> None:
    async with serving(site, "west") as at, Cluster(at, limits=LIMITS) as target:
        link = Link("east-west", at, at, ("flights",))
        await move_groups(Sites(link, None, target, (), now_ms), moves)


async def test_many_groups_are_moved_in_few_round_trips_and_again() -> None:
    """One after the other, 1,000 took 100 s where the target is 100 ms away."""
    site = GroupSite()
    await moved(site)
    assert site.offsets == MOVED
    assert site.commits_at_once <= COMMITTED_AT_ONCE
    assert site.waves <= 3 * GROUPS / COMMITTED_AT_ONCE
    site.ports.clear()
    await moved(site)
    assert site.offsets == MOVED


@pytest.mark.parametrize("kind", [MoveKind.UNKNOWN, MoveKind.KEPT, MoveKind.AHEAD, MoveKind.ALREADY_THERE])
async def test_what_stays_is_not_committed_and_who_is_refused_holds_up_no_other(kind: MoveKind) -> None:
    site = GroupSite(commit_errors={"g5": ErrorCode.UNKNOWN_MEMBER_ID})
    stays = GroupMove("stays", "flights", 0, "east.flights", kind, 7, 8, "")
    await moved(site, (stays, *(move for move in MOVES if move.group in ("g4", "g5", "g6"))))
    assert site.offsets == {group: MOVED[group] for group in ("g4", "g6")}
