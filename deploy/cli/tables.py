"""Documents as tables that fit the terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from broker.base.durations import human_seconds
from deploy.cli.table_layout import column_widths

NO_TERMINAL_WIDTH_CHARS = 100
COLUMN_GAP_CHARS = 2
EDGES_CHARS = 2
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def print_table(
    document: Any, columns: Sequence[str] | None = None, title: str = "", *, to_stderr: bool = False
) -> None:
    """Print a list of records as rows, or one record as its plain fields followed by a table per list in it.

    As wide as the terminal, or as COLUMNS says. Rows that do not fit are printed one below the other.
    """
    console = Console(stderr=to_stderr, highlight=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(stderr=to_stderr, highlight=False, width=NO_TERMINAL_WIDTH_CHARS)
    if isinstance(document, list):
        _print_rows(console, document, columns, title)
    elif isinstance(document, dict):
        _print_record(console, document, columns, title)
    else:
        console.print(Text(cell("", document)))


def counted(number: int, noun: str) -> str:
    """`1 topic`, `1,234 topics`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _print_record(console: Console, record: dict[str, Any], columns: Sequence[str] | None, title: str) -> None:
    names = [name for name in (columns or record) if name in record]
    _print_title(console, title)
    _print_fields(console, {name: record[name] for name in names if not _is_rows(record[name])})
    for name in names:
        if _is_rows(record[name]):
            console.print()
            _print_rows(console, record[name], None, heading(name))


def _print_rows(console: Console, rows: list[Any], columns: Sequence[str] | None, title: str) -> None:
    if not rows:
        console.print(f"{title}: none" if title else "none")
        return
    if not isinstance(rows[0], dict):
        for row in rows:
            console.print(Text(cell("", row)))
        return
    names = list(columns) if columns else [name for name in rows[0] if not _is_rows(rows[0][name])]
    _print_title(console, title)
    heads = [heading(name) for name in names]
    cells = [[cell(name, row.get(name)) for name in names] for row in rows]
    widths = column_widths(heads, cells, console.width - EDGES_CHARS - COLUMN_GAP_CHARS * (len(names) - 1))
    if widths is None:
        for row in rows:
            console.print()
            said = {name: row.get(name) for name in names}
            _print_fields(console, said if columns else {name: of for name, of in said.items() if of not in (None, "")})
        console.print()
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name, head, width in zip(names, heads, widths, strict=True):
        numeric = any(_is_number(row.get(name)) for row in rows)
        table.add_column(head, justify="right" if numeric else "left", overflow="fold", width=width)
    for texts in cells:
        table.add_row(*map(Text, texts))
    console.print(table)


def _print_fields(console: Console, fields: dict[str, Any]) -> None:
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields.items():
        grid.add_row(heading(name), Text(cell(name, value)))
    if grid.row_count:
        console.print(grid)


def _print_title(console: Console, title: str) -> None:
    """On a line of its own: rich would fold it to the width of a narrow table."""
    if title:
        console.print(title, style="bold", markup=False)


def heading(name: str) -> str:
    """A field's name as a column's head; the unit of durations is in the cells."""
    if name.endswith("_seconds"):
        name = name.removesuffix("_seconds") + "_time"
    return name.replace("_", " ")


def cell(name: str, value: Any) -> str:
    """A value as text, in units for people where the name has one."""
    if value is None and (name.startswith("lag_") or name == "lacked_records"):
        return "unknown"
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes") and _is_number(value):
        return human_bytes(value)
    if name.endswith("_seconds") and _is_number(value):
        return human_seconds(value)
    if isinstance(value, int):
        return f"{value:,}" if name.endswith(("records", "offset", "lag", "end", "next")) else str(value)
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1 else f"{value:,.2f}"
    if isinstance(value, str) and (name == "at" or name.endswith(("_at", "timestamp"))) and value.endswith("Z"):
        return f"{value[:10]} {value[11:19]}Z"
    if isinstance(value, list):
        return ", ".join(cell("", item) for item in value) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key}={cell('', item)}" for key, item in value.items()) or "-"
    return str(value)


def human_bytes(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_BYTE_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_BYTE_UNITS[unit]}"


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
