"""The partitions that should be mirrored and are not, as somebody sees them who is not the worker. Pure."""

from __future__ import annotations

from dataclasses import replace

from broker.wire.vocabulary import NO_LEADER
from mirror.looking import merge_holds
from mirror.offsets.entries import (
    OPERATION_PREFIX,
    Checkpoint,
    Gap,
    GapKind,
    GapStatus,
    LinkRun,
    Owner,
    RunState,
    Writer,
)
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.intervals import End
from mirror.offsets.state_entries import StateEntries
from tests.mirror.topics.test_seen import BOTH, LINK, seen, topic

WRITER = Writer(7, 3)
NOW_MS, THEN_MS = 9, 5


def checkpoint(partition: int) -> Checkpoint:
    return Checkpoint("a", partition, End(5, 5), 5, WRITER, 0, 5, 1, 1)


MIRRORED = StateEntries(
    LINK,
    exists=True,
    owner=Owner(WRITER, "host:1", 1),
    checkpoints={("a", partition): checkpoint(partition) for partition in (0, 1)},
)


def test_what_is_mirrored_is_not_named() -> None:
    assert merge_holds(LINK, BOTH, MIRRORED, NOW_MS) == ()


def test_what_no_worker_has_begun_with_is_named() -> None:
    entries = replace(MIRRORED, checkpoints={("a", 1): checkpoint(1)})
    assert merge_holds(LINK, BOTH, entries, NOW_MS) == (Hold("a", 0, HoldReason.NOT_TAKEN_IN, "", NOW_MS),)


def test_what_an_earlier_worker_found_is_not_yet_so_for_one_that_begins() -> None:
    later = Writer(WRITER.producer_id, WRITER.epoch + 1)
    entries = replace(MIRRORED, owner=Owner(later, "host:2", 1))
    begun = Hold("a", 0, HoldReason.NOT_TAKEN_IN, "", NOW_MS)
    assert merge_holds(LINK, BOTH, entries, NOW_MS) == (begun, replace(begun, partition=1))
    taken = replace(entries, checkpoints={**entries.checkpoints, ("a", 0): replace(checkpoint(0), writer=later)})
    assert merge_holds(LINK, BOTH, taken, NOW_MS) == (replace(begun, partition=1),)
    command = replace(MIRRORED, owner=Owner(later, f"{OPERATION_PREFIX}resume-1", 1))
    assert merge_holds(LINK, BOTH, command, NOW_MS) == (), "a command takes nothing in: it is silent, which is found"


def test_where_nobody_may_mirror_or_ever_did_there_is_nothing_to_name() -> None:
    missing = seen([topic("a", [1])], [])
    assert merge_holds(LINK, missing, StateEntries(LINK), NOW_MS) == ()
    promoted = replace(MIRRORED, run=LinkRun(RunState.PROMOTED, "op", 1))
    assert merge_holds(LINK, missing, promoted, NOW_MS) == ()


def test_the_worker_says_why_and_since_when() -> None:
    said = Hold("a", None, HoldReason.TOPIC_NOT_CREATED, "POLICY_VIOLATION", THEN_MS)
    entries = replace(MIRRORED, holds={("a", None): said})
    assert merge_holds(LINK, seen([topic("a", [1, 2])], []), entries, NOW_MS) == (said,)


def test_what_a_look_shows_goes_before_what_the_worker_said() -> None:
    said = Hold("a", 0, HoldReason.ERROR_AT_TARGET, "KAFKA_STORAGE_ERROR", THEN_MS)
    entries = replace(MIRRORED, holds={("a", 0): said})
    unled = seen([topic("a", [NO_LEADER, 2])], [topic("east.a", [1, 2])])
    (found,) = merge_holds(LINK, unled, entries, NOW_MS)
    assert (found.reason, found.at_ms) == (HoldReason.NO_LEADER_AT_SOURCE, NOW_MS)
    assert merge_holds(LINK, BOTH, entries, NOW_MS) == (said,), "only the worker can know of an answer to a write"


def test_a_partition_at_a_gap_waits_for_a_decision_and_is_no_hold() -> None:
    gap = Gap("a", 0, GapKind.TRUNCATED_START, 5, 9, 4, GapStatus.STOPPED, 1, "")
    entries = replace(MIRRORED, gaps={("a", 0, 5, gap.kind): gap})
    unled = seen([topic("a", [NO_LEADER, 2])], [topic("east.a", [1, 2])])
    assert merge_holds(LINK, unled, entries, NOW_MS) == ()
