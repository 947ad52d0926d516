"""`docs/stopped.md` has each finding, and each reason why a partition is not mirrored; its sample is what comes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.site import Site
from deploy.cli.status import show
from mirror.heartbeat import judge_heartbeat
from mirror.lag import LagReport, PartitionLag
from mirror.link import Link
from mirror.link_finding import LinkFindingKind
from mirror.looking import LinkLook
from mirror.offsets.entries import Gap, GapKind, GapStatus, Owner, Writer
from mirror.offsets.group_entries import GroupSync, GroupSyncs, GroupSyncTimes
from mirror.offsets.hold_entries import HoldReason
from mirror.offsets.state_entries import StateEntries
from mirror.status import summarise

TEXT = (Path(__file__).parents[2] / "docs" / "stopped.md").read_text()
NIGHT, REST = TEXT.split("\n## Stopped")
STOPPED, HELD = REST.split("\n## Held")
SAMPLE = NIGHT.split("<!-- sample: status -->\n```text\n")[1].split("```")[0]
AT_MS = 1_700_000_000_000
LINK = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), ("flights",), groups=(".*",))
EVEN = PartitionLag("flights", 0, "flights", 9, 9, 9, 0, 0, False, 0, False, 0.0, 0.0, None)
BEHIND = PartitionLag(
    "flights", 3, "flights", 120_000, 131_000, 118_002, 6_500, 6_500, True, 812_000, True, 312.4, 300.0, AT_MS
)
GAP = Gap(
    "flights", 3, GapKind.TRUNCATED_START, 120_000, 124_500, 118_002, GapStatus.STOPPED, AT_MS,
    "the source's log starts at 124500",
)  # fmt: skip


def named(part: str) -> list[str]:
    """What the first columns of its table name, in order."""
    return [name for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]


def test_each_finding_is_explained_once() -> None:
    assert sorted(named(NIGHT)) == sorted(LinkFindingKind)


def test_each_kind_of_gap_is_explained_once() -> None:
    assert sorted(named(STOPPED)) == sorted(GapKind)


def test_each_reason_for_a_hold_is_explained_once() -> None:
    assert sorted(named(HELD)) == sorted(HoldReason)


def test_the_sample_is_what_status_prints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    owner = Owner(Writer(7, 3), "mirror-0:4711", AT_MS)
    groups = GroupSyncs({"analysts": GroupSync("analysts", AT_MS)}, GroupSyncTimes(looked_at_ms=AT_MS))
    entries = StateEntries(LINK, exists=True, owner=owner, gaps={("flights", 3, 120_000, GAP.kind): GAP}, groups=groups)
    lags = (*(replace(EVEN, partition=number) for number in range(3)), BEHIND)
    look = LinkLook(LagReport(lags, {}), ())
    show([summarise(LINK, (True, True), entries, look, judge_heartbeat(owner, AT_MS + 2_100), "")], "table", False)
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.strip().splitlines()] == SAMPLE.splitlines()
