"""How a link's status is printed, and what `farshore status --until` waits for. Pure."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import click
import pytest

from broker.client.errors import KafkaError
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from deploy.cli.status import show
from deploy.cli.until import Goal, GoalOption
from mirror.heartbeat import judge_heartbeat
from mirror.lag import LagReport, PartitionLag
from mirror.link import Link
from mirror.link_finding import LinkFinding, LinkFindingKind
from mirror.looking import LinkLook
from mirror.offsets.acceptance import gap_key
from mirror.offsets.entries import Gap, GapKind, GapStatus, LinkRun, Owner, RunState, Writer
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.state_entries import StateEntries
from mirror.status import LinkStatus, summarise

LINK = Link("frankfurt-virginia", Site("frankfurt", "f:1"), Site("virginia", "v:1"), (".*",))
AT_MS = 1_700_000_000_000
LAGGING = PartitionLag(
    "bookings-confirmed-v2", 11, "bookings-confirmed-v2", 12_345_678_901, 12_345_978_901, 1, 300_000, 300_000, True,
    987_654_321, True, 7_265.0, 1.0, AT_MS,
)  # fmt: skip
EVEN = PartitionLag("flights", 0, "flights", 9, 9, 9, 0, 0, False, 0, False, 0.0, 0.0, None)
BLIND = PartitionLag("orders", 1, "orders", 9, 19, 9, 10, 10, True, None, True, None, None, None)
OWNER = Owner(Writer(7, 3), "worker", AT_MS)
NOT_YET = Hold("flights", 0, HoldReason.NOT_TAKEN_IN, "", AT_MS)
GAP = Gap(
    "bookings-confirmed-v2", 11, GapKind.TARGET_TRUNCATED, 12_345_678_901, 5, 4, GapStatus.STOPPED, AT_MS,
    "the target's log ends at 123456, up to 12345678901 was acknowledged",
)  # fmt: skip


def status(
    *lags: PartitionLag,
    gaps: tuple[Gap, ...] = (),
    age_ms: int = 0,
    restarts: int = 0,
    holds: tuple[Hold, ...] = (),
    link: Link = LINK,
) -> LinkStatus:
    owner = Owner(Writer(7, 3), "mirror-0.frankfurt.example.com:4711", AT_MS, restarts, "KafkaError: no leader")
    recorded = {gap_key(gap): gap for gap in gaps}
    entries = StateEntries(link, exists=True, owner=owner, gaps=recorded)
    return summarise(
        link, (True, True), entries, LinkLook(LagReport(lags, {}), holds), judge_heartbeat(owner, AT_MS + age_ms), ""
    )


def shown(capsys: pytest.CaptureFixture[str], *statuses: LinkStatus, every_partition: bool = False) -> str:
    show(statuses, "table", every_partition)
    return capsys.readouterr().out


def test_tables_fit_a_hundred_columns_as_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = shown(capsys, status(LAGGING, EVEN, BLIND, gaps=(GAP,), restarts=7), every_partition=True)
    tables = [line for line in text.splitlines() if not line.startswith("next: ")]
    assert max(map(len, tables)) <= 100
    assert sum("─" * 20 in line for line in tables) == 4, "links, findings, gaps, partitions: each as a table"
    assert "12,345,678,901" in text


def test_why_a_site_does_not_answer_fits_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "site frankfurt does not answer at 127.0.0.1:19092: 127.0.0.1:19092 cannot be reached: Connection refused"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show((replace(status(EVEN), trouble=why),), "table", every_partition=False)
    told = capsys.readouterr().err
    assert max(map(len, told.splitlines())) <= 100
    assert " ".join(told.split()) == f"frankfurt-virginia: {why}"


def test_partitions_without_a_finding_are_shown_on_request_and_stopped_ones_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = status(EVEN, BLIND, LAGGING, gaps=(GAP,))
    brief = shown(capsys, found)
    assert "flights" not in brief
    assert brief.index("bookings-confirmed-v2") < brief.index("orders")
    assert "next: farshore link resume --link frankfurt-virginia" in brief
    whole = shown(capsys, found, every_partition=True)
    assert "flights" in whole
    partitions = whole[whole.index("partitions of") :]
    assert partitions.index("bookings-confirmed") < partitions.index("flights")


def test_a_partition_of_which_nobody_can_tell_the_lag_is_among_the_partitions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One that is held, say: the table of all partitions left it out."""
    held = TopicPartition("orders", 7)
    owner = Owner(Writer(7, 3), "worker", AT_MS)
    entries, pulse = StateEntries(LINK, exists=True, owner=owner), judge_heartbeat(owner, AT_MS)
    look = LinkLook(LagReport((EVEN,), {held: KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "orders-7")}), ())
    found = summarise(LINK, (True, True), entries, look, pulse, "")
    shown(capsys, found)
    whole = shown(capsys, found, every_partition=True)
    (row,) = [line.split() for line in whole[whole.index("partitions of") :].splitlines() if "orders" in line]
    assert row == ["orders", "7", "-", "-", "unknown", "unknown", "unknown"]


def test_what_should_be_mirrored_and_is_not_is_named_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    holds = (
        Hold("gates", None, HoldReason.TOPIC_NOT_CREATED, "topic gates at virginia: POLICY_VIOLATION", AT_MS),
        Hold("orders", 7, HoldReason.NO_LEADER_AT_SOURCE, "", AT_MS),
    )
    text = " ".join(shown(capsys, status(EVEN, holds=holds)).split())
    assert "partition_held" in text
    assert "no_leader_at_source" in text
    assert "POLICY_VIOLATION" in text
    assert "next: bring back a broker of the source" in text
    show([status(EVEN, holds=holds)], "json", False)
    (found,) = json.loads(capsys.readouterr().out)["items"]
    named = [(hold["topic"], hold["partition"], hold["reason"]) for hold in found["holds"]]
    assert named == [("gates", None, "topic_not_created"), ("orders", 7, "no_leader_at_source")]
    assert found["partitions_held"] == 2


def test_what_is_unknown_is_said_in_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown" in shown(capsys, status(BLIND))
    show([status(BLIND)], "json", False)
    (found,) = json.loads(capsys.readouterr().out)["items"]
    assert (found["lag_seconds"], found["lag_bytes"], found["lag_records"]) == (None, None, 10)
    assert [finding["kind"] for finding in found["findings"]] == ["lag_unknown"]


@pytest.mark.parametrize(
    ("goal", "found", "reached"),
    [
        ("healthy", status(EVEN, LAGGING), True),
        ("healthy", status(EVEN, gaps=(GAP,)), False),
        ("healthy", status(EVEN, age_ms=600_000), False),
        ("healthy", status(BLIND), False),
        ("lag<5s", status(EVEN), True),
        ("lag<5s", status(), False),
        ("lag<5s", status(replace(EVEN, topic=LINK.canary_topic)), False),
        ("lag<5s", status(LAGGING), False),
        ("lag < 3h", status(LAGGING), True),
        ("lag<5s", status(BLIND), False),
        ("lag<5s", status(EVEN, gaps=(GAP,)), False),
        ("lag<5s", status(EVEN, age_ms=600_000), False),
        ("lag<5s", status(EVEN, restarts=7), True),
        ("healthy", status(EVEN, holds=(NOT_YET,)), False),
        ("lag<5s", status(EVEN, holds=(NOT_YET,)), False),
        ("healthy", status(EVEN, link=replace(LINK, groups=(".*",))), False),
    ],
)
def test_a_goal_is_reached_by_what_is_known(goal: str, found: LinkStatus, reached: bool) -> None:
    wanted = GoalOption().convert(goal, None, None)
    assert wanted.reached([found]) is reached
    assert (wanted.missing([found]) == "") is reached


def test_every_link_must_be_there_and_the_limit_itself_is_not_below_it() -> None:
    lagging = status(LAGGING)
    assert not Goal("lag", 10_000_000).reached([lagging, status(BLIND)])
    assert Goal("lag", 7_265_001).reached([lagging])
    assert not Goal("lag", 7_265_000).reached([lagging])


def test_where_waiting_helps_nobody_it_is_said_what_does() -> None:
    """Behind a switchover it said to wait longer, and no time is long enough: a promoted link mirrors nothing."""
    back = replace(LINK, name="back", source=LINK.target, target=LINK.source)
    lag = Goal("lag<5s", 5_000)

    def standing(state: RunState, *findings: LinkFinding) -> LinkStatus:
        entries = StateEntries(LINK, exists=True, owner=OWNER, run=LinkRun(state, "op", 1))
        look = LinkLook(LagReport((EVEN,), {}), ())
        found = summarise(LINK, (True, True), entries, look, judge_heartbeat(OWNER, AT_MS), "")
        return replace(found, findings=(*found.findings, *findings))

    moved = standing(RunState.PROMOTED)
    assert "farshore status --link back --until 'lag<5s'" in lag.hint([moved, status(EVEN)], (LINK, back))
    assert "farshore link list" in lag.hint([moved], (LINK,))
    assert "farshore link resume --link frankfurt-virginia" in lag.hint([standing(RunState.PAUSED)], (LINK, back))
    both = LinkFinding(LinkFindingKind.BOTH_PROMOTED, None, None, "neither mirrors", "farshore link resume --link x")
    for goal in (lag, Goal("healthy")):
        told = goal.hint([standing(RunState.PROMOTED, both)], (LINK, back))
        assert told == "waiting does not end that: farshore link resume --link x"
    assert lag.hint([status(LAGGING)], (LINK, back)) == "wait longer with --timeout"


def test_where_a_link_never_ran_it_is_said_how_to_start_it() -> None:
    """With a link back in the file, for later, the wait for all links ended with `wait longer with --timeout`."""
    back = replace(LINK, name="back", source=LINK.target, target=LINK.source)
    entries, look = StateEntries(back, exists=False), LinkLook(LagReport((), {}), ())
    never = summarise(back, (True, True), entries, look, judge_heartbeat(None, AT_MS), "")
    healthy = Goal("healthy")
    hint = healthy.hint([status(EVEN), never], (LINK, back))
    assert hint == (
        "no worker ever ran back, and no wait starts one: farshore mirror run --link back; or wait for those alone "
        "that are to run: farshore status --link frankfurt-virginia --until healthy"
    )
    assert healthy.hint([never], (LINK, back)).endswith("no wait starts one: farshore mirror run --link back")


def test_whoever_waits_for_a_link_that_nobody_ran_is_told_while_he_waits() -> None:
    """It was said when the time was over, and known at the first look."""
    back = replace(LINK, name="back", source=LINK.target, target=LINK.source)
    entries, look = StateEntries(back, exists=False), LinkLook(LagReport((), {}), ())
    never = summarise(back, (True, True), entries, look, judge_heartbeat(None, AT_MS), "")
    told = Goal("healthy").waiting([status(EVEN), never])
    assert told.startswith("waiting until healthy: back: never_ran")
    assert told.endswith("no worker ever ran back, and no wait starts one: farshore mirror run --link back")
    assert "no worker ever ran" not in Goal("lag<5s").waiting([status(LAGGING)])


@pytest.mark.parametrize("text", ["", "health", "lag", "lag<", "lag<5", "lag>5s", "lag<fast", "lag<0s"])
def test_what_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        GoalOption().convert(text, None, None)
