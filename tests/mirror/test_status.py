"""A link at a glance: it says what it does not know, and never that all is well when it is not. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.errors import KafkaError
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.errors import OffsetDeclined, OffsetHeld
from mirror.findings import link_findings
from mirror.heartbeat import judge_heartbeat
from mirror.lag import LagReport, PartitionLag
from mirror.limits import CLOCK_DIFFERENCE_MAX_MS, HEARTBEAT_MAX_AGE_MS, RESTARTS_IN_A_LOOP
from mirror.link import Link
from mirror.link_finding import LinkFindingKind, start_step
from mirror.looking import LinkLook
from mirror.offsets.entries import (
    Checkpoint,
    Gap,
    GapKind,
    GapStatus,
    LinkRun,
    Owner,
    RunState,
    Writer,
)
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncs, GroupSyncTimes
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.intervals import End
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.topic_entries import TopicPause
from mirror.status import LinkCondition, LinkStatus, condition_of, summarise

LINK = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), (".*",))
WRITER = Writer(7, 3)


def state(*gaps: Gap, run: RunState | None = None, owned: bool = True, exists: bool = True) -> StateEntries:
    return StateEntries(
        LINK,
        exists,
        gaps={(gap.topic, gap.partition, gap.source_from, gap.kind): gap for gap in gaps},
        run=None if run is None else LinkRun(run, "op", 1),
        owner=Owner(WRITER, "host:1", 1) if owned else None,
    )


def gap(status: GapStatus, partition: int = 0) -> Gap:
    return Gap("flights", partition, GapKind.TRUNCATED_START, 5, 9, 4, status, 1, "")


def lag(topic: str, partition: int, records: int, seconds: float, *, estimated: str = "") -> PartitionLag:
    return PartitionLag(
        topic, partition, topic, 0, records, 0, records, records, estimated == "records", records * 10,
        estimated == "bytes", seconds, 0.0, None,
    )  # fmt: skip


def unseen(lag: PartitionLag) -> PartitionLag:
    """The lag where no unmirrored batch could be looked at."""
    return replace(lag, lag_bytes=None, lag_seconds=None, lag_span_seconds=None, lag_records_estimated=True)


def seen(found: StateEntries | None, lags: list[PartitionLag] | None, trouble: str = "", now_ms: int = 2) -> LinkStatus:
    heartbeat = judge_heartbeat(found.owner if found is not None else None, now_ms)
    look = None if lags is None else LinkLook(LagReport(tuple(lags), {}), ())
    return summarise(LINK, (look is not None, found is not None), found, look, heartbeat, trouble)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, LinkCondition.UNKNOWN),
        (state(owned=False, exists=False), LinkCondition.NEVER_RAN),
        (state(owned=False), LinkCondition.NEVER_RAN),
        (state(), LinkCondition.RUNNING),
        (state(run=RunState.RUNNING), LinkCondition.RUNNING),
        (state(gap(GapStatus.STOPPED)), LinkCondition.STOPPED_PARTITIONS),
        (state(gap(GapStatus.ACCEPTED), gap(GapStatus.STOPPED, 1)), LinkCondition.STOPPED_PARTITIONS),
        (state(gap(GapStatus.ACCEPTED)), LinkCondition.RUNNING),
        (state(gap(GapStatus.PASSED)), LinkCondition.RUNNING),
        (state(run=RunState.PROMOTED), LinkCondition.PROMOTED),
        (state(gap(GapStatus.STOPPED), run=RunState.PROMOTED), LinkCondition.PROMOTED),
        (state(gap(GapStatus.STOPPED), run=RunState.PAUSED), LinkCondition.PAUSED),
    ],
)
def test_the_one_word(found: StateEntries | None, expected: LinkCondition) -> None:
    assert condition_of(found) is expected


def test_a_site_that_does_not_answer_has_no_lag_rather_than_none_of_it() -> None:
    status = seen(state(), None, "east does not answer")
    assert (status.source_answers, status.target_answers) == (False, True)
    assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (None, None, None)
    assert (status.topics, status.partitions, status.partitions_held, status.holds) == (None, None, None, None)
    assert status.partition_lags == ()
    assert status.condition is LinkCondition.RUNNING
    assert status.trouble == "east does not answer"


def test_a_partition_whose_lag_is_unknown_makes_the_sums_unknown_and_hides_no_other() -> None:
    blind, held = TopicPartition("flights", 1), Hold("flights", 1, HoldReason.NO_LEADER_AT_SOURCE, "", 1)
    error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "offsets of flights-1 at east")
    look = LinkLook(LagReport((lag("flights", 0, 3, 1.5),), {blind: error}), (held,))
    status = summarise(LINK, (True, True), state(), look, judge_heartbeat(state().owner, 2), "")
    assert (status.topics, status.partitions, status.partitions_held, len(status.partition_lags)) == (1, 2, 1, 1)
    assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (None, None, None)
    found = {(finding.kind, finding.topic, finding.partition) for finding in status.findings}
    assert found == {(kind, *blind) for kind in (LinkFindingKind.PARTITION_HELD, LinkFindingKind.LAG_UNKNOWN)}
    assert status.holds == (held,)


def test_a_link_without_a_topic_has_a_lag_of_zero() -> None:
    status = seen(state(), [])
    assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (0, 0, 0.0)
    assert (status.topics, status.partitions, status.lag_is_estimated) == (0, 0, False)


def test_amounts_are_summed_and_the_time_is_that_of_the_slowest_partition() -> None:
    lags = [lag("flights", 0, 3, 1.5), lag("flights", 1, 4, 60.0), lag("orders", 0, 0, 0.0)]
    status = seen(state(), lags)
    assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (7, 70, 60.0)
    assert (status.topics, status.partitions) == (2, 3)
    assert not status.lag_is_estimated
    assert status.partition_lags == tuple(lags)


def test_the_lag_of_a_promoted_link_is_what_only_the_source_has_without_the_canarys_records() -> None:
    canary = lag(LINK.canary_topic, 0, 59, 60.0, estimated="records")
    promoted, running = state(run=RunState.PROMOTED), state()
    status = seen(promoted, [lag("flights", 0, 40, 1.5), canary])
    assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (40, 400, 1.5)
    assert (status.lag_is_estimated, len(status.partition_lags)) == (False, 2)
    assert seen(running, [lag("flights", 0, 40, 1.5), canary]).lag_records == 99
    blind = {TopicPartition(LINK.canary_topic, 0): KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "at east")}
    for found, expected in ((promoted, 40), (running, None)):
        look = LinkLook(LagReport((lag("flights", 0, 40, 1.5),), blind), ())
        judged = judge_heartbeat(found.owner, 2)
        assert summarise(LINK, (True, True), found, look, judged, "").lag_records == expected


@given(st.lists(st.sampled_from(["", "records", "bytes"]), max_size=5))
def test_one_estimate_makes_the_sum_an_estimate(kinds: list[str]) -> None:
    lags = [lag("flights", at, 1, 1.0, estimated=kind) for at, kind in enumerate(kinds)]
    assert seen(state(), lags).lag_is_estimated == any(kinds)


def test_it_was_last_seen_by_its_newest_checkpoint_and_is_as_synced_as_its_oldest_group() -> None:
    found = replace(
        state(),
        checkpoints={
            ("flights", partition): Checkpoint("flights", partition, End(0, 0), 0, WRITER, 0, 0, 0, at_ms)
            for partition, at_ms in enumerate((300, 900, 500))
        },
        groups=GroupSyncs(times=GroupSyncTimes({"app-1": 800, "app-2": 200, "app-3": 700})),
    )
    status = seen(found, [])
    assert status.last_seen_at_ms == 900
    assert (status.groups, status.groups_never_synced, status.oldest_group_sync_at_ms) == (3, 0, 200)
    waiting = {"app-4": GroupSync("app-4", 900, waiting={("flights", 0): GroupAction.SKIP_ACTIVE})}
    never = seen(replace(found, groups=replace(found.groups, by_group=waiting)), [])
    assert (never.groups, never.groups_never_synced, never.oldest_group_sync_at_ms) == (4, 1, None)


def test_groups_that_wait_are_counted_and_those_that_fail_are_findings() -> None:
    waiting = {("flights", 0): GroupAction.SKIP_ACTIVE}
    groups = {
        "carried": GroupSync("carried", 5),
        "active": GroupSync("active", 5, waiting=waiting),
        "failed": GroupSync("failed", 5, failure="GROUP_AUTHORIZATION_FAILED"),
    }
    status = seen(replace(state(), groups=GroupSyncs(groups, GroupSyncTimes(looked_at_ms=7))), [])
    assert (status.groups, status.groups_waiting, status.groups_failed, status.groups_looked_at_ms) == (3, 2, 1, 7)
    found = [finding for finding in status.findings if finding.kind is LinkFindingKind.GROUP_FAILED]
    assert [finding.detail for finding in found] == ["group failed: GROUP_AUTHORIZATION_FAILED"]
    assert "group describe --link east-west --group failed" in found[0].next_step


@pytest.mark.parametrize(("age_ms", "told"), [(60_000, False), (60_001, True), (-20_000, False), (-20_001, True)])
def test_groups_that_nobody_looks_at_are_a_finding(age_ms: int, told: bool) -> None:
    """Records flow while no pass over the groups succeeds: the heartbeat alone would hide it. A look of the future was
    one by a worker before this one, whose clock was ahead: it hid that for as long.
    """
    owner = Owner(WRITER, "host:1", 500_000)
    groups = GroupSyncs(times=GroupSyncTimes(looked_at_ms=owner.at_ms - age_ms))
    for link, expected in ((replace(LINK, groups=("app",)), told), (LINK, False)):
        entries = replace(state(), owner=owner, groups=groups)
        found = link_findings(
            link, (True, True), entries, LinkLook(LagReport((), {}), ()), judge_heartbeat(owner, owner.at_ms), "", {}
        )
        assert (LinkFindingKind.GROUPS_NOT_SEEN in {finding.kind for finding in found}) == expected


def test_groups_that_nobody_looked_at_yet_are_unknown_and_a_finding() -> None:
    """A worker has just begun: 0 groups would be said of a site that has a hundred."""
    link = replace(LINK, groups=("app",))

    def found(of: Link, groups: GroupSyncs) -> tuple[int | None, int | None, set[LinkFindingKind]]:
        entries = replace(state(), groups=groups)
        look = LinkLook(LagReport((), {}), ())
        status = summarise(of, (True, True), entries, look, judge_heartbeat(entries.owner, 2), "")
        return status.groups, status.groups_waiting, {finding.kind for finding in status.findings}

    assert found(link, GroupSyncs()) == (None, None, {LinkFindingKind.GROUPS_NOT_SEEN})
    assert found(link, GroupSyncs(times=GroupSyncTimes(looked_at_ms=1))) == (0, 0, set())
    assert found(LINK, GroupSyncs()) == (0, 0, set()), "it carries none"


def test_many_partitions_that_are_not_taken_in_yet_are_one_finding() -> None:
    waiting = [Hold("flights", at, HoldReason.NOT_TAKEN_IN, "", 1) for at in range(1_000)]
    held = Hold("orders", 0, HoldReason.NO_LEADER_AT_SOURCE, "", 1)
    status = summarise(
        LINK,
        (True, True),
        state(),
        LinkLook(LagReport((), {}), (*waiting, held)),
        judge_heartbeat(state().owner, 2),
        "",
    )
    assert [finding.topic for finding in status.findings] == ["orders", None]
    assert "not_taken_in: 1000 partitions, the first flights-0" in status.findings[1].detail
    assert status.partitions_held == 1_001


def test_what_waits_for_a_leader_is_not_said_to_be_tried_at_a_time_that_is_over() -> None:
    """Nothing is tried while there is none, so the time that was written first stood there for as long as that took."""
    for reason in (HoldReason.NO_LEADER_AT_SOURCE, HoldReason.NO_LEADER_AT_TARGET):
        look = LinkLook(LagReport((), {}), (Hold("flights", 0, reason, "", 1, next_try_at_ms=1_000),))
        told = summarise(LINK, (True, True), state(), look, judge_heartbeat(state().owner, 2), "")
        (held,) = told.findings
        assert held.detail == f"{reason.value} (goes on when it has one)"
    look = LinkLook(LagReport((), {}), (Hold("flights", 0, HoldReason.ERROR_AT_SOURCE, "no", 1, next_try_at_ms=1_000),))
    (held,) = summarise(LINK, (True, True), state(), look, judge_heartbeat(state().owner, 2), "").findings
    assert "next try: 1970-01-01T00:00:01" in held.detail


def test_a_lost_source_has_the_command_that_says_what_that_costs_until_it_was_left() -> None:
    (lost,) = seen(state(), None, "east does not answer").findings
    assert lost.next_step.endswith(": farshore failover --link east-west --dry-run --allow-data-loss")
    assert [one.next_step for one in seen(state(run=RunState.PROMOTED), None, "no answer").findings] == [""]


def test_a_link_that_never_proved_anything_was_never_seen() -> None:
    for found, none in ((None, None), (state(), 0)):
        status = seen(found, None)
        assert (status.last_seen_at_ms, status.oldest_group_sync_at_ms) == (None, None)
        assert (status.groups, status.groups_waiting, status.partitions_stopped) == (none, none, none)


def test_every_gap_is_told_also_those_that_are_decided() -> None:
    gaps = (gap(GapStatus.PASSED), gap(GapStatus.STOPPED, 1), gap(GapStatus.ACCEPTED, 2))
    assert seen(state(*gaps), []).gaps == gaps


def test_it_says_which_way_it_goes() -> None:
    status = seen(None, None)
    assert (status.link, status.source, status.target) == ("east-west", "east", "west")
    assert (status.condition, status.target_answers) == (LinkCondition.UNKNOWN, False)


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        (None, LinkCondition.UNKNOWN),
        (state(owned=False), LinkCondition.NEVER_RAN),
        (state(), LinkCondition.SILENT),
        (state(gap(GapStatus.STOPPED)), LinkCondition.SILENT),
        (state(run=RunState.PROMOTED), LinkCondition.PROMOTED),
    ],
)
def test_ten_minutes_after_the_last_heartbeat_nothing_is_running(
    found: StateEntries | None, allowed: LinkCondition
) -> None:
    assert seen(found, [], now_ms=600_000).condition is allowed


def test_silence_is_a_finding_with_the_command_that_ends_it() -> None:
    (finding,) = seen(state(), [], now_ms=600_000).findings
    assert (finding.kind, finding.next_step) == (LinkFindingKind.SILENT, start_step("east-west"))
    assert finding.next_step.startswith("farshore mirror run --link east-west; ")
    assert "fences such a one" in finding.next_step, "whoever runs it all the same, or is about to"
    assert "no heartbeat of host:1 for 10 min 0 s" in finding.detail


def test_a_link_that_was_just_resumed_awaits_its_worker_and_no_rival_is_told_to_start() -> None:
    resumed = replace(state(), owner=Owner(WRITER, "operation resume-1", 0))
    status = seen(resumed, [], now_ms=4_000)
    assert status.condition is LinkCondition.AWAITED
    (finding,) = status.findings
    assert (finding.kind, finding.detail[:18]) == (LinkFindingKind.AWAITED, "operation resume-1")
    assert "4.0 s ago" in finding.detail
    assert "mirror run" not in finding.next_step
    late = seen(resumed, [], now_ms=600_000)
    assert (late.condition, late.findings[0].kind) == (LinkCondition.SILENT, LinkFindingKind.SILENT)


def test_a_heartbeat_of_tomorrow_says_nothing() -> None:
    found = replace(state(), owner=Owner(WRITER, "host:1", 600_000))
    status = seen(found, [], now_ms=0)
    assert status.condition is LinkCondition.UNKNOWN
    assert [finding.kind for finding in status.findings] == [LinkFindingKind.CLOCKS_DIFFER]
    assert status.heartbeat_age_ms == -600_000
    near = replace(state(), owner=Owner(WRITER, "host:1", CLOCK_DIFFERENCE_MAX_MS))
    assert seen(near, [], now_ms=0).condition is LinkCondition.RUNNING


def test_the_limit_has_room_for_clocks_that_differ_a_little() -> None:
    oldest_ms = 1 + HEARTBEAT_MAX_AGE_MS + CLOCK_DIFFERENCE_MAX_MS
    assert seen(state(), [], now_ms=oldest_ms).condition is LinkCondition.RUNNING
    assert seen(state(), [], now_ms=oldest_ms + 1).condition is LinkCondition.SILENT


@pytest.mark.parametrize("restarts", range(RESTARTS_IN_A_LOOP + 2))
def test_a_link_that_restarts_in_a_loop_is_not_running(restarts: int) -> None:
    found = replace(state(), owner=Owner(WRITER, "host:1", 1, restarts, "KafkaError: LEADER_NOT_AVAILABLE"))
    status = seen(found, [])
    loops = restarts >= RESTARTS_IN_A_LOOP
    assert status.condition is (LinkCondition.RESTARTING if loops else LinkCondition.RUNNING)
    assert [finding.kind for finding in status.findings] == ([LinkFindingKind.RESTARTING] if loops else [])
    assert all("LEADER_NOT_AVAILABLE" in finding.detail for finding in status.findings)


def test_one_partition_that_could_not_be_looked_at_makes_the_whole_unknown_and_is_named() -> None:
    blind = unseen(lag("orders", 3, 7, 0.0))
    status = seen(state(), [lag("flights", 0, 3, 1.5), blind])
    assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (10, None, None)
    (finding,) = status.findings
    assert (finding.kind, finding.topic, finding.partition) == (LinkFindingKind.LAG_UNKNOWN, "orders", 3)


def test_stopped_partitions_come_first_with_the_command_that_goes_on() -> None:
    status = seen(state(gap(GapStatus.STOPPED, 2)), [lag("flights", at, 0, 0.0) for at in range(3)])
    assert [lag.partition for lag in status.partition_lags] == [2, 0, 1]
    assert status.partitions_stopped == 1
    (finding,) = status.findings
    assert (finding.kind, finding.topic, finding.partition) == (LinkFindingKind.PARTITION_STOPPED, "flights", 2)
    assert finding.next_step.startswith("farshore link resume --link east-west")


def test_a_paused_topic_is_one_finding_whatever_the_worker_says_of_its_partitions() -> None:
    pauses = {"flights": TopicPause("flights", "pause-1", 0)}
    found = replace(state(), paused=pauses)
    heartbeat = judge_heartbeat(found.owner, 2)
    held = tuple(Hold("flights", number, HoldReason.PAUSED, "", 0) for number in range(3))
    other = Hold("gates", 0, HoldReason.PAUSED, "", 0)
    look = LinkLook(LagReport((lag("flights", 0, 3, 1.5),), {}), (*held, other))
    status = summarise(LINK, (True, True), found, look, heartbeat, "")
    assert status.topics_paused == ("flights",)
    assert [(one.kind, one.topic, one.partition) for one in status.findings] == [
        (LinkFindingKind.TOPIC_PAUSED, "flights", None),
        (LinkFindingKind.PARTITION_HELD, "gates", 0),
    ], "of one that was resumed the worker has not taken in all"
    promoted = replace(state(run=RunState.PROMOTED), paused=pauses)
    assert seen(promoted, [], now_ms=600_000).findings == ()
    assert [one.kind for one in seen(found, None).findings] == [LinkFindingKind.SITE_LOST, LinkFindingKind.TOPIC_PAUSED]


def test_a_site_that_lets_nobody_in_is_not_said_to_be_lost() -> None:
    heartbeat = judge_heartbeat(state().owner, 2)
    status = summarise(LINK, (False, False), None, None, heartbeat, "both", {"east": "the broker refuses the login"})
    assert [(one.kind, one.detail) for one in status.findings] == [
        (LinkFindingKind.SITE_LOCKED, "the broker refuses the login"),
        (LinkFindingKind.SITE_LOST, "site west does not answer"),
    ]


def test_a_running_link_that_lags_has_no_finding_and_a_lost_site_has() -> None:
    assert seen(state(), [lag("flights", 0, 3, 1_000.0)]).findings == ()
    assert seen(state(run=RunState.PROMOTED), [], now_ms=600_000).findings == ()
    (paused,) = seen(state(run=RunState.PAUSED), [lag("flights", 0, 3, 1_000.0)], now_ms=600_000).findings
    assert (paused.kind, paused.next_step) == (LinkFindingKind.PAUSED, "farshore link resume --link east-west")
    kinds = [finding.kind for finding in seen(state(), None, "east does not answer").findings]
    assert kinds == [LinkFindingKind.SITE_LOST]
    (never,) = seen(state(owned=False, exists=False), []).findings
    assert (never.kind, never.next_step) == (LinkFindingKind.NEVER_RAN, start_step("east-west"))


@pytest.mark.parametrize(("run", "kinds"), [(RunState.PROMOTED, []), (None, [LinkFindingKind.LAG_UNKNOWN])])
def test_a_hold_that_nobody_maintains_any_more_is_no_finding_of_a_promoted_link(
    run: RunState | None, kinds: list[LinkFindingKind]
) -> None:
    """Its leader was back, and it stayed for ever: only a worker takes a hold away, and none runs such a link."""
    held = OffsetHeld("flights-0: it is held (no_leader_at_source)")
    found, heartbeat = state(run=run), judge_heartbeat(state().owner, 2)
    for error, more in ((held, kinds), (OffsetDeclined("it was cut"), [LinkFindingKind.LAG_UNKNOWN])):
        look = LinkLook(LagReport((), {TopicPartition("flights", 0): error}), ())
        told = summarise(LINK, (True, True), found, look, heartbeat, "")
        assert [finding.kind for finding in told.findings] == more
        assert told.lag_records is None, "how much is at the source alone is not known all the same"
