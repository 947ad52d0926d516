"""The Parquet tables of a run (`store.py` says where they are), written by Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from monitoring import limits
from monitoring.audit.document import as_document
from monitoring.audit.groups import GroupOffset
from monitoring.audit.kept import digests_folder, write_digests
from monitoring.audit.outcome import AuditResult
from monitoring.audit.rows import frame_of

RUNS_SCHEMA: Final = (
    "link string, verdict string, frozen_at_ms bigint, finished_at_ms bigint, range_offsets bigint, "
    "coverage_percent double, records_missing bigint, records_surplus bigint, document string"
)
GROUPS_SCHEMA: Final = (
    "`group` string, topic string, partition int, target_topic string, source_offset bigint, target_offset bigint, "
    "expected_offset bigint, verdict string, reason string, in_flight boolean, differs boolean, source_digest string, "
    "target_digest string"
)


@dataclass(frozen=True, slots=True)
class Tables:
    """DataFrames: both sites' digests, by the site's name; all ranges with their verdicts; all records that differ."""

    digests: Mapping[str, Any]
    ranges: Any
    differences: Any


def write_tables(tables: Tables, directory: Path, run_id: str) -> int:
    """Store what phases one and two found; how many bytes the digests take. Raises what Spark raises, and OSError."""
    for site, digests in tables.digests.items():
        write_digests(digests, str(directory), run_id, site)
    write_found(tables, directory, run_id)
    return sum(path.stat().st_size for path in Path(digests_folder(str(directory), run_id)).rglob("*.parquet"))


def write_found(tables: Tables, directory: Path, run_id: str) -> None:
    """Store what phase two found."""
    _folder(tables.ranges, directory, "ranges", run_id)
    _folder(tables.differences, directory, "diffs", run_id)


def write_result(spark: Any, result: AuditResult, directory: Path) -> None:
    """Store the run as Parquet."""
    document = as_document(result)
    run = {
        "link": result.frozen.link,
        "verdict": result.verdict.value,
        "frozen_at_ms": result.frozen.frozen_at_ms,
        "finished_at_ms": result.finished_at_ms,
        "range_offsets": limits.AUDIT_RANGE_OFFSETS,
        "coverage_percent": result.coverage.percent,
        "records_missing": result.records_missing,
        "records_surplus": result.records_surplus,
        "document": json.dumps(document),
    }
    runs = frame_of(spark, [run], RUNS_SCHEMA)
    _folder(runs.coalesce(1), directory, "runs", result.run_id)
    groups = [] if result.groups is None else map(_group, result.groups.offsets)
    _folder(frame_of(spark, groups, GROUPS_SCHEMA).coalesce(1), directory, "groups", result.run_id)


def _group(item: GroupOffset) -> dict[str, Any]:
    return {
        "group": item.group,
        "topic": item.topic,
        "partition": item.partition,
        "target_topic": item.target_topic,
        "source_offset": item.source_offset,
        "target_offset": item.target_offset,
        "expected_offset": item.expected_offset,
        "verdict": item.verdict.value,
        "reason": None if item.reason is None else item.reason.value,
        "in_flight": item.is_in_flight,
        "differs": item.is_finding,
        "source_digest": item.source_digest,
        "target_digest": item.target_digest,
    }


def _folder(frame: Any, directory: Path, table: str, run_id: str) -> None:
    frame.write.mode("overwrite").parquet(str(directory / table / f"run_id={run_id}"))
