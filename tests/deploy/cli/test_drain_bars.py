"""What is told of a drain while it waits."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from deploy.cli.drain_bars import drain_bars, drain_line
from failover.observing.sites import DrainStands

BEHIND = DrainStands("west-east", 79, 3, 45.2)


def test_a_terminal_shows_what_each_link_waits_for_until_that_is_over() -> None:
    told = StringIO()
    with drain_bars(Console(file=told, force_terminal=True, width=120)) as tell:
        tell(BEHIND)
        tell(DrainStands("orders", 0, 0, 9.6))
        tell(DrainStands("orders", is_over=True))
        tell(DrainStands("west-east", is_over=True))
        tell(DrainStands("west-east", is_over=True))
        tell(DrainStands("west-east", 5, 1, 3.0))  # taken up by another run
    said = told.getvalue()
    assert "draining west-east: 79 offsets in 3 partitions to come; given up in 45 s" in said
    assert "draining west-east: 5 offsets in 1 partition to come; given up in 3 s" in said
    assert said.endswith("\x1b[2K") or "\x1b[?25h" in said, "the cursor is shown again"


def test_a_log_gets_one_line_for_each_link() -> None:
    """It got none, and said nothing for as long as the drain took."""
    told = StringIO()
    with drain_bars(Console(file=told, force_terminal=False, width=40)) as tell:
        for _ in range(3):
            tell(BEHIND)
        tell(DrainStands("orders", 0, 0, 9.6))
        tell(DrainStands("west-east", is_over=True))
        tell(DrainStands("orders", is_over=True))
    assert told.getvalue().splitlines() == [drain_line(BEHIND), drain_line(DrainStands("orders", 0, 0, 9.6))]


def test_where_all_is_there_it_says_that_it_waits_for_quiet() -> None:
    assert drain_line(DrainStands("l", 0, 0, 9.6)) == (
        "draining l: all is there; until nothing more comes; given up in 10 s"
    )


@pytest.mark.parametrize(
    ("offsets", "waits"),
    [(8, "8 offsets in 1 partition are in transactions that have not ended"), (0, "offsets of groups are pending")],
)
def test_of_a_link_that_was_moved_before_nothing_is_to_come(offsets: int, waits: str) -> None:
    stands = DrainStands("l", offsets, int(offsets > 0), 9.6, is_moved=True)
    assert drain_line(stands) == f"settling l, which was moved before: {waits}; given up in 10 s"
