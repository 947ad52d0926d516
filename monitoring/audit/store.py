"""What a run leaves behind: Parquet tables by run id, an HTML report, and the summary of each link's last run.

    DIR/runs/run_id=R/       one row: what was frozen, verdict, versions
    DIR/digests/run_id=R/site=S/topic=T/partition=P/   phase one: one row for each range of source offsets
    DIR/ranges/run_id=R/     phase two: both sites' digests of every range, and the verdict on it, equal ones too
    DIR/diffs/run_id=R/      every record that differs; of keys and values the first bytes, and how many there are
    DIR/reports/R.html       the report
    DIR/last/LINK.json       summary of the link's newest run, for metrics
    DIR/proofs/LINK.json     what is proved of the link, for the next run (`proof.py`)

Writing a run again replaces it: each table's folder belongs to one run id.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitoring import limits
from monitoring.audit.document import as_document
from monitoring.audit.files import replace_file
from monitoring.audit.model import AuditVerdict
from monitoring.audit.outcome import AuditResult
from monitoring.errors import AuditResultDamaged

# Summaries of version 1 said "equal" also over what was not compared, those of version 2 counted windows of event time.
SUMMARY_VERSION = 3


@dataclass(frozen=True, slots=True)
class Tables:
    """DataFrames: both sites' digests, by the site's name; all ranges with their verdicts; all records that differ."""

    digests: Mapping[str, Any]
    ranges: Any
    differences: Any


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """The last audit of a link, as metrics show it. `finished_at_ms` is in milliseconds since 1970.

    The last three are as in `Coverage`.
    """

    link: str
    run_id: str
    verdict: AuditVerdict
    finished_at_ms: int
    source_records: int
    target_records: int
    records_missing: int
    records_surplus: int
    ranges_differing: int
    coverage_percent: float
    is_full_but_in_flight: bool
    records_earlier: int
    oldest_ms: int | None


def write_tables(tables: Tables, directory: Path, run_id: str) -> int:
    """Store what phases one and two found; how many bytes the digests take. Raises what Spark raises, and OSError."""
    for site, digests in tables.digests.items():
        placed = digests.repartition("topic", "partition").sortWithinPartitions("range_start")
        parted = placed.write.partitionBy("topic", "partition").mode("overwrite")
        parted.parquet(str(_digests(directory, run_id) / f"site={site}"))
    _folder(tables.ranges, directory, "ranges", run_id)
    _folder(tables.differences, directory, "diffs", run_id)
    return sum(path.stat().st_size for path in _digests(directory, run_id).rglob("*.parquet"))


def _digests(directory: Path, run_id: str) -> Path:
    return directory / "digests" / f"run_id={run_id}"


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
    runs = spark.createDataFrame(
        [tuple(run.values())],
        "link string, verdict string, frozen_at_ms bigint, finished_at_ms bigint, range_offsets bigint, "
        "coverage_percent double, records_missing bigint, records_surplus bigint, document string",
    )
    _folder(runs.coalesce(1), directory, "runs", result.run_id)


def _folder(frame: Any, directory: Path, table: str, run_id: str) -> None:
    frame.write.mode("overwrite").parquet(str(directory / table / f"run_id={run_id}"))


def write_report(html: str, directory: Path, run_id: str) -> Path:
    """Store the report, and say where."""
    return replace_file(directory / "reports" / f"{run_id}.html", html)


def write_summary(result: AuditResult, directory: Path) -> Path:
    """Store the newest result of a link for `read_summaries`."""
    summary = AuditSummary(
        result.frozen.link,
        result.run_id,
        result.verdict,
        result.finished_at_ms,
        result.source_records,
        result.target_records,
        result.records_missing,
        result.records_surplus,
        sum(partition.ranges_differing for partition in result.partitions),
        result.coverage.percent,
        result.coverage.is_full_but_in_flight,
        result.coverage.records_earlier,
        result.coverage.oldest_ms,
    )
    text = json.dumps({"schema_version": SUMMARY_VERSION, **dataclasses.asdict(summary)}, indent=2)
    return replace_file(directory / "last" / f"{result.frozen.link}.json", text)


def read_summaries(directory: Path) -> tuple[AuditSummary, ...]:
    """The newest result of each link that was audited, by link. Raises AuditResultDamaged."""
    return tuple(_summary(path) for path in sorted((directory / "last").glob("*.json")))


def _summary(path: Path) -> AuditSummary:
    try:
        fields = json.loads(path.read_text())
        version = fields.pop("schema_version")
        if version != SUMMARY_VERSION:
            raise ValueError(f"its version is {version}, this program reads {SUMMARY_VERSION}")
        return AuditSummary(**{**fields, "verdict": AuditVerdict(fields["verdict"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise AuditResultDamaged(
            f"{path} is not the summary of an audit: {error}", "run the audit again: farshore audit run"
        ) from error
