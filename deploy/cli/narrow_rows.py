"""Rows of wide tables as eighty columns take them: else each would be a screen of lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from broker.base.documents import to_document

WIDE: frozenset[str] = frozenset({"seen_at", "synced_at"})
"""Tables with one of these columns have nine, or more."""
TOLD_BY_SOURCE: frozenset[str] = frozenset({"first_timestamp", "source_offset"})
"""Of a source that is gone nobody tells them."""


def narrow_rows(rows: Iterable[Any], columns: Sequence[str]) -> tuple[list[dict[str, Any]], Sequence[str]]:
    """The rows as documents, and what is shown of them. In a wide table a partition stands with its topic in one
    column, and what the source does not tell of any row has none.
    """
    told: list[dict[str, Any]] = to_document(list(rows))
    if not WIDE & set(columns):
        return told, columns
    told = [{**row, "partition": f"{row['topic']}-{row['partition']}"} for row in told]
    untold = {name for name in TOLD_BY_SOURCE if all(row.get(name) is None for row in told)}
    return told, [name for name in columns if name != "topic" and name not in untold]
