"""The journal finds what was changed after it was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from failover.errors import JournalDamaged
from failover.journal import Journal, read_journal


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
