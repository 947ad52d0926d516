"""Groups that come to what only the old source has on their way."""

from __future__ import annotations

from failover.failback.through import ReadsTail, reads_through
from failover.snapshot import GroupPartitionView, GroupView
from mirror.api import StrandedTail

TAIL = StrandedTail(
    "flights", 0, "flights", 30, 35, 5, None, None, left=False, target_wrote=True, mirrored_target_next=40
)


def group(name: str, offset: int | None, partition: int = 0) -> GroupView:
    at = GroupPartitionView("flights", partition, "flights", offset, None, None, "")
    return GroupView(name, None, None, 0, 0, None, (at,))


def test_who_stands_before_the_end_of_what_both_have_comes_to_it_and_nobody_else() -> None:
    groups = [
        group("before", 39),
        group("behind", 40),
        group("elsewhere", 0, 1),
        group("nowhere", None),
        group("stays", 0),
    ]
    coming = {"before", "behind", "elsewhere", "nowhere"}
    assert reads_through([TAIL], groups, coming) == (ReadsTail("before", "flights", 0, 5),)
