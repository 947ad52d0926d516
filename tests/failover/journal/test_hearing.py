"""Whether an operation is carried on, by watching its journal; the clocks of the two machines may differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from failover.journal.hearing import Hearing, is_carried_on, is_doubtful, is_heard
from failover.journal.standing import OperationState
from failover.journal.values import GENESIS_HASH, Event, JournalEntry, Lease, OperationLog
from failover.limits import HEARTBEAT_S, LEASE_S, UNHEARD_S
from tests.failover.journal.test_log import INTENT

NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000
PLANNED = JournalEntry(0, NOW_MS, "one", Event.PLANNED, {"intent": INTENT.document(), "who": "ann"}, GENESIS_HASH)
LOG = OperationLog("one", (PLANNED,), Lease("ann", NOW_MS))


def later(seconds: float) -> OperationLog:
    return replace(LOG, lease=Lease("ann", NOW_MS + round(seconds * 1000)))


def watched(off_by_ms: int, *, until_s: float, silent_from_s: float) -> list[tuple[float, OperationState | None]]:
    """Looks each second, by a clock that is off so much, at one that renews its lease until it dies."""
    hearing, told = Hearing(), []
    for at_s in range(round(until_s) + 1):
        beat_s = min(at_s, silent_from_s) // HEARTBEAT_S * HEARTBEAT_S
        told.append((float(at_s), hearing.look(later(beat_s), NOW_MS + off_by_ms + at_s * 1000, float(at_s))))
    return told


@pytest.mark.parametrize("off_by_ms", [-HOUR_MS, 0, HOUR_MS])
def test_one_that_lives_is_waited_for_whatever_the_clocks_say(off_by_ms: int) -> None:
    assert {state for _, state in watched(off_by_ms, until_s=120, silent_from_s=120)} == {None}


@pytest.mark.parametrize("off_by_ms", [-HOUR_MS, 0, HOUR_MS])
def test_one_that_dies_is_told_when_it_was_not_heard_of_for_so_long(off_by_ms: int) -> None:
    told = dict(watched(off_by_ms, until_s=60, silent_from_s=30))
    assert {told[at_s] for at_s in range(50)} == {None}
    assert told[30 + UNHEARD_S] is OperationState.CUT_SHORT


@pytest.mark.parametrize(("off_by_ms", "after_s"), [(-HOUR_MS, UNHEARD_S), (HOUR_MS, LEASE_S)])
def test_one_that_is_silent_from_the_first_look_on(off_by_ms: int, after_s: float) -> None:
    told = [at_s for at_s, state in watched(off_by_ms, until_s=60, silent_from_s=0) if state is not None]
    assert told[0] == after_s


def test_one_that_has_ended_needs_no_watch() -> None:
    for event, detail, state in (
        (Event.CUT_SHORT, {"step": "fence", "error": "gone"}, OperationState.CUT_SHORT),
        (Event.ABORTED, {}, OperationState.ABORTED),
    ):
        entry = JournalEntry(1, NOW_MS, "one", event, detail, PLANNED.hash())
        assert Hearing().look(replace(LOG, entries=(PLANNED, entry)), NOW_MS, 0.0) is state


def test_one_look_by_a_clock_is_relied_on_only_where_it_says_that_somebody_was_heard() -> None:
    seconds = {0: False, 10: False, 30: True, 3_600: True, -1: False, -3_600: True}
    assert {after: is_doubtful(LOG, NOW_MS + after * 1000) for after in seconds} == seconds
    cut_short = JournalEntry(1, NOW_MS, "one", Event.CUT_SHORT, {"step": "fence", "error": "gone"}, PLANNED.hash())
    ended = JournalEntry(1, NOW_MS, "one", Event.ABORTED, {}, PLANNED.hash())
    for entry in (cut_short, ended):
        log = replace(LOG, entries=(PLANNED, entry))
        assert (is_carried_on(log, NOW_MS), is_doubtful(log, NOW_MS + HOUR_MS)) == (False, False)
        assert is_heard(LOG, log)
    assert is_heard(LOG, later(3))
    assert not is_heard(LOG, LOG)


def test_silence_while_the_journal_could_not_be_read_says_nothing() -> None:
    hearing = Hearing()
    assert hearing.look(LOG, NOW_MS, 0.0) is None
    hearing.missed(3_600.0)
    assert hearing.look(LOG, NOW_MS, 3_601.0) is None
    assert hearing.look(LOG, NOW_MS, 3_600.0 + UNHEARD_S) is OperationState.CUT_SHORT
