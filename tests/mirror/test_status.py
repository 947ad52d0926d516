"""A link at a glance: it says what it does not know, and never that all is well when it is not. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.site import Site
from mirror.lag import PartitionLag
from mirror.link import Link
from mirror.offsets.entries import (
    Checkpoint,
    Gap,
    GapKind,
    GapStatus,
    GroupSyncTimes,
    LinkRun,
    Owner,
    RunState,
    Writer,
)
from mirror.offsets.intervals import End
from mirror.offsets.state import StateEntries
from mirror.status import LinkCondition, LinkStatus, condition_of, summarise

LINK = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), (".*",))
WRITER = Writer(7, 3)


def state(*gaps: Gap, run: RunState | None = None, owned: bool = True, exists: bool = True) -> StateEntries:
    return StateEntries(
        LINK,
        exists,
        gaps={(gap.topic, gap.partition, gap.source_from): gap for gap in gaps},
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


def seen(found: StateEntries | None, lags: list[PartitionLag] | None, trouble: str = "") -> LinkStatus:
    return summarise(LINK, lags is not None, found is not None, found, lags, trouble)


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
    ],
)
def test_the_one_word(found: StateEntries | None, expected: LinkCondition) -> None:
    assert condition_of(found) is expected


def test_a_site_that_does_not_answer_has_no_lag_rather_than_none_of_it() -> None:
    status = seen(state(), None, "east does not answer")
    assert (status.source_answers, status.target_answers) == (False, True)
    assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (None, None, None)
    assert (status.topics, status.partitions) == (None, None)
    assert status.partition_lags == ()
    assert status.condition is LinkCondition.RUNNING
    assert status.trouble == "east does not answer"


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
        groups=GroupSyncTimes({"app-1": 800, "app-2": 200, "app-3": 700}),
    )
    status = seen(found, [])
    assert status.last_seen_at_ms == 900
    assert (status.groups, status.oldest_group_sync_at_ms) == (3, 200)


def test_a_link_that_never_proved_anything_was_never_seen() -> None:
    for found in (None, state()):
        status = seen(found, None)
        assert (status.last_seen_at_ms, status.groups, status.oldest_group_sync_at_ms) == (None, 0, None)


def test_every_gap_is_told_also_those_that_are_decided() -> None:
    gaps = (gap(GapStatus.PASSED), gap(GapStatus.STOPPED, 1), gap(GapStatus.ACCEPTED, 2))
    assert seen(state(*gaps), []).gaps == gaps


def test_it_says_which_way_it_goes() -> None:
    status = seen(None, None)
    assert (status.link, status.source, status.target) == ("east-west", "east", "west")
    assert (status.condition, status.target_answers) == (LinkCondition.UNKNOWN, False)
