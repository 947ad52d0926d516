"""Tables fit the terminal; numbers never break."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.cli.table_layout import NAME_CHARS, column_widths
from deploy.cli.tables import print_table

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


def test_rows_too_wide_are_printed_as_fields(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line.rstrip() for line in printed(capsys, monkeypatch, 38)]
    assert lines.count("condition     running") == 2
