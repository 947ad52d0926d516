"""The journal finds what was changed after it was written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from deploy.cli.terminal import exit_code_of
from failover.errors import JournalDamaged, OperationUnderWay
from failover.journal import FINISHED, Journal, is_unfinished, read_journal, sole_operation


@pytest.fixture
def now() -> Callable[[], str]:
    ticks = iter(range(1000))
    return lambda: f"2026-01-01T00:00:{next(ticks):02d}Z"


def written(directory: Path, now: Callable[[], str]) -> Path:
    journal = Journal(directory, "op-1", now)
    for step in range(4):
        journal.record("step", {"number": step})
    journal.close()
    return journal.path


def test_reads_back_what_was_recorded(tmp_path: Path, now: Callable[[], str]) -> None:
    entries = read_journal(written(tmp_path, now))
    assert [entry.detail["number"] for entry in entries] == [0, 1, 2, 3]
    assert entries[3].at == "2026-01-01T00:00:03Z"


def test_an_operation_id_is_used_once(tmp_path: Path, now: Callable[[], str]) -> None:
    written(tmp_path, now)
    with pytest.raises(FileExistsError):
        Journal(tmp_path, "op-1", now)


def test_an_edited_line_is_found(tmp_path: Path, now: Callable[[], str]) -> None:
    path = written(tmp_path, now)
    path.write_text(path.read_text().replace('"number":1', '"number":7'))
    with pytest.raises(JournalDamaged, match="line 3"):
        read_journal(path)


def test_a_dropped_line_is_found(tmp_path: Path, now: Callable[[], str]) -> None:
    path = written(tmp_path, now)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1] + lines[2:]))
    with pytest.raises(JournalDamaged):
        read_journal(path)


def test_a_torn_last_line_is_left_out(tmp_path: Path, now: Callable[[], str]) -> None:
    path = written(tmp_path, now)
    path.write_bytes(path.read_bytes()[:-9])
    assert len(read_journal(path)) == 3


def test_an_operation_is_unfinished_while_its_journal_is_here_without_an_end(
    tmp_path: Path, now: Callable[[], str]
) -> None:
    assert not is_unfinished(tmp_path, "op-1")
    journal = Journal(tmp_path / "new" / "folder", "op-1", now)
    assert is_unfinished(journal.path.parent, "op-1")
    journal.record("started", {})
    assert is_unfinished(journal.path.parent, "op-1")
    journal.record(FINISHED, {"verified": False})
    assert is_unfinished(journal.path.parent, "op-1")
    journal.record(FINISHED, {"verified": True})
    journal.close()
    assert not is_unfinished(journal.path.parent, "op-1")


def test_the_other_operator_is_told_who_moves_the_link(tmp_path: Path) -> None:
    with sole_operation(tmp_path / "new", "east-west", "process 7 on hill"):
        with (
            pytest.raises(OperationUnderWay, match="east-west is under way: process 7 on hill"),
            sole_operation(tmp_path / "new", "east-west", "process 8"),
        ):
            raise AssertionError("both run")
        with sole_operation(tmp_path / "new", "west-east", "process 9"):
            pass
    with sole_operation(tmp_path / "new", "east-west", "p"):
        pass
    assert exit_code_of(OperationUnderWay("")) == 3


def test_each_line_is_what_was_recorded_and_follows_the_one_before(tmp_path: Path, now: Callable[[], str]) -> None:
    entries = read_journal(written(tmp_path, now))
    assert [(entry.sequence, entry.operation_id, entry.event) for entry in entries] == [
        (number, "op-1", "step") for number in range(4)
    ]
    assert entries[0].previous_hash == "0" * 64
    for before, entry in pairwise(entries):
        assert entry.previous_hash == hashlib.sha256(before.line().encode()).hexdigest()


def test_damage_is_told_with_its_line(tmp_path: Path, now: Callable[[], str]) -> None:
    path = written(tmp_path, now)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "{}\n", *lines[2:]]))
    with pytest.raises(JournalDamaged, match=f"{path}: line 2 is not a journal entry"):
        read_journal(path)
    path.write_text("".join([lines[0], lines[2]]))
    with pytest.raises(JournalDamaged, match=f"{path}: line 2 does not follow line 1") as damaged:
        read_journal(path)
    assert "compare it with a copy" in damaged.value.hint
