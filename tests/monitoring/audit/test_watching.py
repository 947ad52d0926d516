"""What a watch makes of audit after audit: what it tells, what it keeps, and how far the proof is behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monitoring import limits
from monitoring.audit.document import as_document
from monitoring.audit.groups import FrozenGroups, GroupOffset, GroupReason, GroupVerdict
from monitoring.audit.missing_rights import HINT_TO_GIVE, MissingRight
from monitoring.audit.model import AuditVerdict, FrozenPartition, Kind, NotCompared, ProvedPart, Side, Span, Step
from monitoring.audit.outcome import AuditResult, RecordDifference
from monitoring.audit.reasons import Reason
from monitoring.audit.watching import (
    OTHER_TOPICS,
    WatchState,
    after_run,
    at_ms,
    differences,
    read_state,
    run_id_at,
    runs_to_trim,
    state_path,
    unproved_offsets,
    write_state,
)
from monitoring.errors import AuditResultDamaged
from tests.monitoring.audit.test_report import DIFFERS, EQUAL

CHANGED = "t:0 changed (source offset 3, target offset 3)"


def run(result: AuditResult, run_id: str, frozen_at_ms: int = 1_000) -> dict[str, Any]:
    return as_document(replace(result, run_id=run_id, frozen=replace(result.frozen, frozen_at_ms=frozen_at_ms)))


def lost(offset: int) -> RecordDifference:
    return RecordDifference("t", 0, Kind.LOST, 0, offset, None, 1, None, None, None, None)


def test_each_difference_is_told_once_and_its_end_too() -> None:
    state, lines = after_run(WatchState("east-west"), run(EQUAL, "r1", 5_000))
    assert lines == ["equal, 100 % compared (run r1)"]
    assert (state.proved_at_ms, state.verdict) == (5_000, AuditVerdict.EQUAL)
    state, lines = after_run(state, run(EQUAL, "r2", 6_000))
    assert (lines, state.proved_at_ms) == ([], 6_000)
    state, lines = after_run(state, run(DIFFERS, "r3", 7_000))
    assert lines == [
        "differs, 100 % compared (run r3)",
        f"1 new difference: {CHANGED}; see: farshore audit show r3",
    ]
    assert (state.proved_at_ms, state.told_runs) == (6_000, ("r3",))
    state, lines = after_run(state, run(DIFFERS, "r4", 8_000))
    assert (lines, state.proved_at_ms, state.told_runs) == ([], 6_000, ("r3",))
    more = [lost(offset) for offset in range(4)]
    worse = replace(DIFFERS, differences=(*DIFFERS.differences, *more), found={Kind.CHANGED: 1, Kind.LOST: 4})
    state, lines = after_run(state, run(worse, "r5"))
    (line,) = lines
    assert line.startswith("4 new differences: t:0 lost (source offset 0, target offset none); t:0 lost")
    assert line.endswith("; and 1 more; see: farshore audit show r5")
    assert state.told_runs == ("r3", "r5")
    state, lines = after_run(state, run(EQUAL, "r6", 9_000))
    assert lines == ["equal, 100 % compared (run r6)", "5 differences told before are not there any more"]
    assert (state.proved_at_ms, state.told) == (9_000, ())


def test_a_right_that_is_missing_is_told_once() -> None:
    missing = MissingRight("west", "Read", "topic", "t")
    lacking = replace(EQUAL, frozen=replace(EQUAL.frozen, refused=(missing,)))
    state, lines = after_run(WatchState("east-west", verdict=EQUAL.verdict), run(lacking, "r1"))
    assert lines == [f"farshore lacks Read on the topic t at west: {HINT_TO_GIVE}"]
    state, lines = after_run(state, run(lacking, "r2"))
    assert lines == []
    state, _ = after_run(state, run(EQUAL, "r3"))
    assert after_run(state, run(lacking, "r4"))[1] != []


def test_the_runs_that_told_something_are_remembered_up_to_a_limit() -> None:
    state = WatchState("east-west")
    for number in range(2 * limits.AUDIT_WATCH_TOLD_RUNS_KEPT):
        found = replace(DIFFERS, differences=(lost(number),))
        state, _ = after_run(state, run(found, f"r{number}"))
    assert len(state.told_runs) == limits.AUDIT_WATCH_TOLD_RUNS_KEPT
    assert state.told_runs[-1] == f"r{2 * limits.AUDIT_WATCH_TOLD_RUNS_KEPT - 1}"


def test_all_that_makes_a_verdict_differ_is_a_difference() -> None:
    """Records, and those behind the end of the list; offsets of groups, and what was left out and is a fault itself."""
    behind = GroupOffset("g", "t", 0, "t", 3, 1, 3, GroupVerdict.BEHIND, GroupReason.NOT_CARRIED)
    same = GroupOffset("same", "t", 0, "t", 3, 3, 3, GroupVerdict.SAME)
    groups = FrozenGroups(1, 1, True, 0, "", (same, behind))
    left_out = (
        NotCompared("t", 1, Side.SOURCE, Span(0, 9), Reason.NEVER_MIRRORED, 9),
        NotCompared("t", 2, Side.SOURCE, Span(0, 9), Reason.NOT_MIRRORED_YET, 9),
    )
    found = replace(
        DIFFERS,
        found={Kind.CHANGED: 1_001},
        frozen=replace(DIFFERS.frozen, groups=groups),
        not_compared=left_out,
    )
    assert list(differences(as_document(found))) == [
        CHANGED,
        "1,000 records that are not listed",
        "group g t:0 behind",
        "t:1 source never_mirrored",
    ]
    assert list(differences(as_document(replace(EQUAL, not_compared=left_out[1:])))) == []


def test_a_difference_where_a_later_audit_could_not_look_is_not_gone() -> None:
    """Of a partition that cannot be read, of a group that nobody tells of: there still, and nothing is proved."""
    behind = GroupOffset("my g", "t", 0, "t", 3, 1, 3, GroupVerdict.BEHIND, GroupReason.NOT_CARRIED)
    unknown = replace(behind, verdict=GroupVerdict.UNKNOWN)

    def seen(result: AuditResult, *offsets: GroupOffset, not_listed: str = "") -> AuditResult:
        groups = FrozenGroups(1, 1, True, 0, not_listed, offsets)
        return replace(result, frozen=replace(result.frozen, groups=groups))

    def without(reason: Reason) -> AuditResult:
        return replace(EQUAL, not_compared=(NotCompared("t", 0, Side.TARGET, Span(0, 9), reason, 9),))

    first, _ = after_run(WatchState("east-west", proved_at_ms=1), run(seen(DIFFERS, behind), "r1", 2_000))
    group = "group my g t:0 behind"
    assert first.told == (CHANGED, group)
    for reason in Reason:
        state, lines = after_run(first, run(seen(without(reason)), "r2", 3_000))
        assert (CHANGED in state.unseen) is reason.hides_records
        assert group not in state.unseen
        assert any("could not be looked at again" in line for line in lines) is reason.hides_records
    state, lines = after_run(first, run(seen(without(Reason.NOT_READABLE), unknown), "r2", 3_000))
    assert (state.told, state.unseen, state.proved_at_ms) == ((), (CHANGED, group), 1)
    assert lines[-1] == f"2 differences told before could not be looked at again: {CHANGED}"
    state, lines = after_run(state, run(seen(without(Reason.NOT_READABLE), unknown), "r3", 4_000))
    assert (lines, state.proved_at_ms) == ([], 1)
    again, lines = after_run(state, run(seen(DIFFERS, behind), "r4", 5_000))
    assert (again.told, again.unseen, [line for line in lines if "new" in line]) == ((CHANGED, group), (), [])
    unlisted, _ = after_run(state, run(seen(EQUAL, not_listed="a coordinator is away"), "r4", 5_000))
    assert unlisted.unseen == (group,)
    state, lines = after_run(state, run(seen(EQUAL), "r5", 5_000))
    assert lines[-1] == "2 differences told before are not there any more"
    assert (state.unseen, state.proved_at_ms) == ((), 5_000)


def test_groups_that_only_the_target_has_hide_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand last in a list that is cut: what was told and is not there any more is gone, and equal is proved."""
    monkeypatch.setattr(limits, "AUDIT_GROUPS_LISTED", 2)
    behind = GroupOffset("g", "t", 0, "t", 3, 1, 3, GroupVerdict.BEHIND, GroupReason.NOT_CARRIED)
    own = [replace(behind, group=name, verdict=GroupVerdict.MISSING_AT_SOURCE, reason=None) for name in "xyz"]
    waits = [replace(behind, group=name, is_in_flight=True) for name in "bcd"]

    def seen(*offsets: GroupOffset, not_listed: str = "") -> dict[str, Any]:
        groups = FrozenGroups(1, 1, True, 0, not_listed, offsets)
        return run(replace(EQUAL, frozen=replace(EQUAL.frozen, groups=groups)), "r2", 5_000)

    first, _ = after_run(WatchState("east-west", proved_at_ms=1), seen(behind, *own) | {"verdict": "differs"})
    assert first.told == ("group g t:0 behind",)
    state, _ = after_run(first, seen(*own))
    assert (state.unseen, state.proved_at_ms) == ((), 5_000)
    state, _ = after_run(first, seen(*waits))
    assert (state.unseen, state.proved_at_ms) == (first.told, 1), "it may be one of those that are not listed"
    many = [replace(behind, partition=partition) for partition in range(5)]
    first, _ = after_run(WatchState("east-west"), seen(*many[:4]) | {"verdict": "differs"})
    assert first.told[-1] == "2 offsets of groups that are not listed"
    state, _ = after_run(first, seen(not_listed="a coordinator is away"))
    assert state.unseen == first.told
    state, _ = after_run(first, seen(*many) | {"verdict": "differs"})
    assert (state.told[-1], state.unseen) == ("3 offsets of groups that are not listed", ())


def test_what_is_not_equal_is_no_proof() -> None:
    for verdict in AuditVerdict:
        document = run(EQUAL, "r", 2_000) | {"verdict": verdict.value}
        state, _ = after_run(WatchState("east-west", proved_at_ms=1), document)
        assert state.proved_at_ms == (2_000 if verdict.is_equal else 1)


def test_offsets_that_are_not_proved_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal up to where the mirror was; differing behind what was proved before; left out as a whole."""
    template = EQUAL.partitions[0]

    def place(topic: str, partition: int, end: int) -> FrozenPartition:
        return FrozenPartition(topic, partition, topic, Span(10, end), Span(10, end), (Step(0, 0),), (90, 90))

    part = ProvedPart(Span(10, 60), Span(10, 60), 50, 50, 1, "r0")
    differs = replace(template, partition=1, source=Span(60, 100), verdict=AuditVerdict.DIFFERS)
    nothing = replace(template, topic="u", source=Span(10, 10), verdict=AuditVerdict.NOT_COMPARED)
    found = replace(
        EQUAL,
        frozen=replace(EQUAL.frozen, partitions=(place("t", 0, 100), place("t", 1, 100), place("u", 0, 40))),
        partitions=(replace(template, source=Span(10, 90)), replace(differs, proved=(part,)), nothing),
    )
    assert unproved_offsets(as_document(found)) == {"t": 10 + 40, "u": 30}
    fresh = replace(found, partitions=(found.partitions[0], differs, nothing))
    assert unproved_offsets(as_document(fresh)) == {"t": 10 + 90, "u": 30}
    monkeypatch.setattr(limits, "AUDIT_WATCH_TOPICS", 1)
    assert unproved_offsets(as_document(found)) == {"t": 50, OTHER_TOPICS: 30}


def test_only_runs_of_this_links_watch_are_trimmed() -> None:
    ours = [run_id_at("a", 1_000 * number) for number in range(limits.AUDIT_WATCH_RUNS_KEPT + 5)]
    others = [run_id_at("a-watch-b", 1), run_id_at("b", 1), "a-20261126T220000Z", "mine", "a-watch-mine"]
    assert ours == sorted(ours)
    state = WatchState("a", told_runs=(ours[1], ours[-1]))
    found = [*others, *reversed(ours), *ours]
    assert runs_to_trim(found, found, state) == [ours[0], *ours[2:5]]
    assert runs_to_trim(ours[:3], ours[:3], state) == []
    assert runs_to_trim(found, ours[:-2], state) == [ours[0], *ours[2:3], ours[-2]]


def test_the_state_outlasts_the_process(tmp_path: Path) -> None:
    assert read_state(tmp_path, "east-west") == WatchState("east-west")
    state, _ = after_run(WatchState("east-west", 3), run(DIFFERS, "r3"))
    write_state(state, tmp_path)
    assert read_state(tmp_path, "east-west") == state
    state_path(tmp_path, "east-west").write_text('{"link": 1}')
    with pytest.raises(AuditResultDamaged, match="is not the state of a watch") as caught:
        read_state(tmp_path, "east-west")
    assert "told again" in caught.value.hint


def test_times_are_what_they_were() -> None:
    for moment in (0, 1, 999, 1_795_000_000_123, 1_795_000_000_999):
        assert at_ms(run(EQUAL, "r", moment)["frozen_at"]) == moment
