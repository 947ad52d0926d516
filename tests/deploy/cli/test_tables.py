"""Tables fit the terminal; numbers never break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.cli.failover_tables import show_plan, show_result
from deploy.cli.operation import LIST_COLUMNS
from deploy.cli.table_layout import NAME_CHARS, column_widths
from deploy.cli.tables import print_table
from failover.observing.contact import BrokerAnswer, SiteFinding
from failover.observing.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from failover.planning.plan import OperationPlan, plan_failover, plan_switchover
from failover.running.result import OperationResult
from failover.running.verification import DifferenceKind, VerificationDifference

LINK: dict[str, Any] = {
    "link": "east-west",
    "condition": "running",
    "lag_records": 1_234_567,
    "last_seen_at": "2013-01-01T05:15:00.000Z",
}
TEXTS = st.text("ab ", min_size=1, max_size=30)


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int | None) -> list[str]:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", str(columns))
    print_table([LINK, LINK])
    return capsys.readouterr().out.splitlines()


def test_what_a_row_does_not_say_has_no_line_below_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`link resume --gap --dry-run` had a line of `-` for each range and time that there was not."""
    monkeypatch.setenv("COLUMNS", "20")
    rows = [{"meaning": "it goes on " * 9, "skipped_from": None, "oldest_timestamp": "", "skipped_to": 7}]
    print_table({"link": "east-west", "operation_id": "", "outlooks": rows})
    out = capsys.readouterr().out
    assert "oldest" not in out
    assert "skipped to" in out
    assert "skipped from" not in out
    assert "operation id" in out, "what a record is about stays"


def test_heads_fold_before_cells_do() -> None:
    heads, rows = ["topic", "source end offset"], [["flights", "145,271"]]
    assert column_widths(heads, rows, 40) == (7, 17)
    assert column_widths(heads, rows, 20) == (7, 13)
    assert column_widths(heads, rows, 14) == (7, 7)
    assert column_widths(heads, rows, 13) is None
    moment = [["flights", "2013-01-01 05:15:00Z"]]
    assert column_widths(heads, moment, 26) == (7, 19)
    assert column_widths(heads, moment, 17) == (7, 10)
    assert column_widths(heads, moment, 16) is None
    name = [["__farshore-canary-east-west", "145,271"]]
    assert column_widths(heads, name, 34) == (27, 7)
    assert column_widths(heads, name, 23) == (16, 7)
    assert column_widths(heads, name, 22) is None


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5), st.integers(0, 120))
def test_widths_fit_or_cannot(columns: list[tuple[str, str]], room_chars: int) -> None:
    heads, row = [head for head, _ in columns], [text for _, text in columns]
    widths = column_widths(heads, [row], room_chars)
    longest = [
        max(*(len(word) for word in head.split(" ")), *(min(len(word), NAME_CHARS) for word in text.split(" ")))
        for head, text in columns
    ]
    if widths is None:
        assert sum(max(len(head), len(text)) for head, text in columns) > room_chars
    else:
        assert sum(widths) <= room_chars
        assert all(width >= least for width, least in zip(widths, longest, strict=True))


@pytest.mark.parametrize("columns", [38, 50, 80, None])
def test_every_line_fits_and_no_number_breaks(
    columns: int | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(capsys, monkeypatch, columns)
    assert all(len(line) <= (columns or 100) for line in lines)
    assert sum("1,234,567" in line for line in lines) == 2
    assert sum("east-west" in line for line in lines) == 2


@pytest.mark.parametrize("columns", [74, 80, 100])
@pytest.mark.parametrize("link", ["east-west", "frankfurt-warehouse-dublin"])
def test_an_operations_id_never_breaks(
    columns: int, link: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ids = [f"switchover-{link}-20261126T11302377163{n}" for n in range(3)]
    row = {"state": "under_way", "started_at": "2026-11-26T11:30:23.771Z", "who": "operator on machine, process 123456"}
    print_table([{"operation_id": one, **row} for one in ids], LIST_COLUMNS)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= columns for line in lines)
    assert [one for one in ids if not any(one in line.split() for line in lines)] == []


def test_rows_too_wide_are_printed_as_fields(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line.rstrip() for line in printed(capsys, monkeypatch, 38)]
    assert lines.count("condition     running") == 2


def _plan(groups: int) -> OperationPlan:
    at = GroupPartitionView("flights", 0, "flights", 40, 43, None, "")
    odd = replace(at, target_offset=50)
    views = [GroupView(f"group-{n}", "Empty", "Dead", 0, 0, 1, (odd if n == 7 else at,)) for n in range(groups)]
    partition = PartitionView("flights", 0, "flights", 100, 100, 1, 1, 100, 103, 0, mirrored_target_next=102)
    finding = SiteFinding.ALIVE
    return plan_switchover(Snapshot("east-west", "east", "west", 9, finding, "running", "", (partition,), tuple(views)))


def test_a_plans_moves_are_a_table_in_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were nine lines each, which pushed the question off the loss."""
    monkeypatch.setenv("COLUMNS", "80")
    show_plan(_plan(3))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines if "translated" in line] == ["group-0", "group-1", "group-2"]
    assert max(map(len, lines)) <= 80


def _plan_without_source(names: Sequence[str]) -> OperationPlan:
    """These groups in two partitions each, of which a lost source cannot tell."""
    synced_at_ms = 1_700_000_000_000
    at = [GroupPartitionView("flights", n, "flights", None, None, 1_234_567 + n, "") for n in range(2)]
    seen = PartitionView("flights", 0, "flights", None, 2_345_678, None, synced_at_ms, 1_234_569, 1_300_000, 0)
    snapshot = Snapshot(
        *("east-west", "east", "west", synced_at_ms + 5_000, SiteFinding.DEAD, "running", ""),
        (seen, replace(seen, partition=1)),
        tuple(GroupView(name, None, "Dead", 0, 0, synced_at_ms, tuple(at)) for name in names),
    )
    return plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=False)


def test_a_failovers_losses_and_kept_groups_are_tables_in_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine lines each again: two groups on two partitions filled the screen."""
    monkeypatch.setenv("COLUMNS", "80")
    names = ("analysts", "orders-warehouse")
    plan = _plan_without_source(names)
    show_plan(plan)
    lines = capsys.readouterr().err.splitlines()
    rows = [line.split() for line in lines if "flights-" in line]
    assert [row[0] for row in rows] == ["flights-0", "flights-1", *(name for name in names for _ in range(2))]
    assert [row[2] for row in rows[2:]] == ["kept"] * 4
    assert {"1,234,567", "1,234,568"} == {row[3] for row in rows[2:]}
    assert all(len(line) <= 80 for line in lines)
    show_result(
        OperationResult(
            *("one", plan.operation, "east-west", "east", "west", True, 2.0),
            *(plan.losses, plan.moves, (), plan.loss, plan.group_totals),
        )
    )
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "flights-" in line]) == 6


def test_a_plan_of_very_many_moves_is_told_in_short_before_the_question_and_whole_in_a_dry_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1,000 groups were 5,000 lines and five seconds, in which nothing was moved."""
    show_plan(_plan(1_000))
    told = capsys.readouterr().err
    assert "group-7: 0 records read again, at most 7 records skipped" in told
    assert "999 groups: 0 records read again, 0 records skipped" in told
    assert "moves: 1 ahead, 999 translated; --dry-run shows each" in told
    assert len(told.splitlines()) < 12
    show_plan(_plan(1_000), to_stderr=False)
    whole = capsys.readouterr().out
    assert all(f"group-{n} " in whole for n in range(1_000))
    show_plan(_plan(20))
    assert "group-19" in capsys.readouterr().err


def test_very_many_groups_of_a_lost_source_are_told_in_few_lines_before_they_are_moved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """None of them can be told exactly: two thousand lines, before the fence, of a datacenter that is gone."""
    show_plan(_plan_without_source([f"group-{n}" for n in range(1_000)]))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 30
    told = " ".join(line.strip() for line in lines)
    assert "1,000 groups (group-0, group-1, " in told
    assert "and others): an unknown number of records read again" in told
    assert "and others (1,000 groups): they stay where they stand" in told


def test_a_dead_source_that_takes_connections_is_said_to_before_it_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    plan = _plan_without_source(["analysts"])
    took = BrokerAnswer("east:1", 0, 4.5, "closed by the broker", taken=True)
    show_plan(replace(plan, snapshot=replace(plan.snapshot, evidence=(took,))))
    told = " ".join(line.strip() for line in capsys.readouterr().err.splitlines())
    assert "something takes connections at east:1 and closes them" in told


def test_a_result_of_very_many_moves_says_how_many_and_shows_what_is_unlike_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def told(groups: int, differences: int) -> str:
        plan = _plan(groups)
        kind = DifferenceKind.GROUP_OFFSET
        found = tuple(VerificationDifference(kind, f"wrong-{n} on flights", 0, 43, 41) for n in range(differences))
        show_result(
            OperationResult(
                "one", plan.operation, "east-west", "east", "west", not found, 2.0, (), plan.moves, found, plan.loss
            )
        )
        return capsys.readouterr().out

    short = told(1_000, 100)
    assert "moves: 1 ahead, 999 translated; -o json shows each" in short
    assert [n for n in range(1_000) if f"group-{n} " in short] == [7]
    assert "wrong-59 " in short
    assert "wrong-60 " not in short
    assert "and 40 more: -o json shows each" in short
    whole = told(20, 0)
    assert all(f"group-{n} " in whole for n in range(20))
    assert "more" not in whole
