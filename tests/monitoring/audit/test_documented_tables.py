"""docs/audit.md has each column of each Parquet table, with its type, and no other; and each reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from monitoring.audit import digest
from monitoring.audit.diff import DIFFERENCES_SCHEMA
from monitoring.audit.kept import MANIFEST_SCHEMA
from monitoring.audit.reasons import Reason
from monitoring.audit.tables import GROUPS_SCHEMA, RUNS_SCHEMA

PAGE = (Path(__file__).parents[3] / "docs" / "audit.md").read_text(encoding="utf-8")


def documented(table: str) -> dict[str, str]:
    """Columns and types of the first table of columns behind the name."""
    text = PAGE.split(f"\n`{table}/run_id=RUN", 1)[1].split("\n\n", 2)[1]
    found: dict[str, str] = {}
    for line in text.splitlines()[2:]:
        names, types, _ = (cell.strip() for cell in line.strip("|").split("|", 2))
        columns, told = re.findall(r"`([^`]+)`", names), types.split(", ")
        found |= dict(zip(columns, told * len(columns) if len(told) == 1 else told, strict=False))
    return found


@pytest.mark.parametrize(
    ("table", "schema"),
    [
        ("runs", RUNS_SCHEMA),
        ("diffs", DIFFERENCES_SCHEMA),
        ("groups", GROUPS_SCHEMA),
        ("manifests", MANIFEST_SCHEMA),
    ],
)
def test_each_column_is_described_with_its_type(table: str, schema: str) -> None:
    columns = dict(column.split(" ") for column in schema.replace("`", "").split(", "))
    assert documented(table) == columns


def test_each_digest_is_described() -> None:
    assert documented("digests").keys() == {"range_start", *digest.DIGESTED}


@pytest.mark.parametrize("reason", Reason)
def test_why_something_is_not_compared_stands_there(reason: Reason) -> None:
    """Half of the reasons stood nowhere."""
    assert f"`{reason.value}`" in PAGE
