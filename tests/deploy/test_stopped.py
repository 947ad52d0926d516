"""`docs/stopped.md` has each reason for which a partition is not mirrored, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from mirror.offsets.entries import GapKind
from mirror.offsets.hold_entries import HoldReason

TEXT = (Path(__file__).parents[2] / "docs" / "stopped.md").read_text()
STOPPED, HELD = TEXT.split("## Stopped")[1].split("## Held")


def named(part: str) -> list[str]:
    """What the first columns of its table name, in order."""
    return [name for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]


def test_each_kind_of_gap_is_explained_once() -> None:
    assert sorted(named(STOPPED)) == sorted(GapKind)


def test_each_reason_for_a_hold_is_explained_once() -> None:
    assert sorted(named(HELD)) == sorted(HoldReason)
