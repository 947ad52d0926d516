"""What the parts of several units say together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.site import Site
from mirror.heartbeat import Pulse, judge_heartbeat, weakest
from mirror.link import Link
from mirror.offsets.acceptance import gap_key
from mirror.offsets.entries import Gap, GapKind, GapStatus, LinkRun, Owner, RunState, Writer
from mirror.offsets.group_entries import GroupSyncs, GroupSyncTimes
from mirror.offsets.state_entries import StateEntries, join_units
from mirror.offsets.topic_entries import TopicPause

LINK = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2"), ("flights",), units=3)


def part(number: int, run: LinkRun | None = None, at_ms: int = 1_000) -> StateEntries:
    owner = Owner(Writer(10 + number, 1), f"host:{number}", at_ms)
    return StateEntries(LINK.of_unit(number), exists=True, run=run, owner=owner, units=3)


def test_the_state_says_how_a_link_is_cut_and_not_the_file() -> None:
    parts = {number: part(number) for number in range(3)}
    assert join_units(LINK, parts).link.units == 3
    alone = join_units(LINK, {0: StateEntries(LINK, exists=True), 1: part(1)})
    assert alone.link.units == 1
    assert alone.owner is None, "what somebody's hand put into another partition is not the link's"


def test_a_link_may_run_no_more_than_any_of_its_units() -> None:
    running, paused = LinkRun(RunState.RUNNING, "r", 5), LinkRun(RunState.PAUSED, "p", 4)
    promoted = LinkRun(RunState.PROMOTED, "f", 3)
    assert join_units(LINK, {0: part(0), 1: part(1, running), 2: part(2)}).run == running
    assert join_units(LINK, {0: part(0, running), 1: part(1, running), 2: part(2, paused)}).run == paused
    assert join_units(LINK, {0: part(0, running), 1: part(1, promoted), 2: part(2, paused)}).run == promoted
    again = LinkRun(RunState.PROMOTED, "g", 9)
    assert join_units(LINK, {0: part(0, again), 1: part(1, promoted), 2: part(2)}).run == again, "the newest of equals"


def test_a_topic_that_is_paused_in_some_units_only_is_called_paused() -> None:
    pause = TopicPause("flights", "pause-1", 5)
    joined = join_units(LINK, {0: part(0), 1: replace(part(1), paused={"flights": pause}), 2: part(2)})
    assert joined.paused == {"flights": pause}
    elsewhere = replace(joined, link=replace(LINK, topics=("gates",)))
    assert elsewhere.paused_topics() == (), "what the link does not carry is nobody's concern"


def test_a_link_lives_as_long_as_all_of_its_units_do() -> None:
    now_ms = 100_000
    joined = join_units(LINK, {0: part(0, at_ms=99_000), 1: part(1, at_ms=10_000), 2: part(2, at_ms=98_000)})
    assert joined.owner is not None
    assert joined.owner.worker == "host:1"
    found = weakest({unit: judge_heartbeat(owner, now_ms) for unit, owner in joined.owners().items()})
    assert found.pulse is Pulse.SILENT
    assert found.detail.startswith("unit 1: ")
    lacking = join_units(LINK, {0: part(0, at_ms=99_000), 1: part(1, at_ms=99_000)})
    found = weakest({unit: judge_heartbeat(owner, now_ms) for unit, owner in lacking.owners().items()})
    assert found.pulse is Pulse.SILENT
    assert "unit 2: no worker ever owned" in found.detail


def test_who_owns_a_partition_is_its_units_owner() -> None:
    joined = join_units(LINK, {number: part(number) for number in range(3)})
    for number in range(6):
        owner = joined.owner_of(("flights", number))
        assert owner is not None
        assert owner.worker == f"host:{LINK.unit_of('flights', number)}"


def test_groups_are_what_the_lead_unit_says() -> None:
    parts = {number: part(number) for number in range(3)}
    syncs = GroupSyncs({}, GroupSyncTimes(looked_at_ms=7))
    parts[0] = StateEntries(LINK.of_unit(0), exists=True, groups=syncs, units=3)
    assert join_units(LINK, parts).groups == syncs


def test_units_of_which_an_operation_changed_some_are_apart() -> None:
    promoted, resumed = LinkRun(RunState.PROMOTED, "f", 3), LinkRun(RunState.RUNNING, "r", 5)
    later = LinkRun(RunState.PROMOTED, "f", 4)
    assert not join_units(LINK, {number: part(number) for number in range(3)}).units_apart
    assert not join_units(LINK, {0: part(0, promoted), 1: part(1, later), 2: part(2, promoted)}).units_apart
    assert join_units(LINK, {0: part(0, promoted), 1: part(1, resumed), 2: part(2, promoted)}).units_apart
    assert join_units(LINK, {0: part(0, promoted), 1: part(1), 2: part(2, promoted)}).units_apart


@pytest.mark.parametrize("kind", [GapKind.RECREATED, GapKind.MIRRORED_ANEW])
def test_what_was_left_of_a_topic_that_was_made_anew_since_is_left_no_more(kind: GapKind) -> None:
    """A switchover said of records of the old topic that they stay at the source, and that nobody had replayed them."""

    def gap(kind: GapKind, partition: int, source_from: int, status: GapStatus) -> Gap:
        return Gap("flights", partition, kind, source_from, source_from + 5, 9, status, 1, "")

    old = [gap(GapKind.STRANDED, partition, 7, GapStatus.PASSED) for partition in (0, 1)]
    new = gap(GapKind.STRANDED, 0, 30, GapStatus.ACCEPTED)

    def left(*gaps: Gap) -> list[Gap]:
        return StateEntries(LINK, exists=True, gaps={gap_key(one): one for one in gaps}).left_at_source()

    assert left(*old, gap(kind, 0, 12, GapStatus.ACCEPTED)) == old, "the link has yet to begin with the new one"
    assert left(*old, gap(kind, 0, 12, GapStatus.PASSED)) == old[1:]
    assert left(*old, gap(kind, 0, 12, GapStatus.PASSED), new) == [old[1], new]
