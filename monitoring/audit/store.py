"""What a run leaves behind: Parquet tables by run id, an HTML report, and the summary of each link's last run.

    DIR/runs/run_id=R/       one row: what was frozen, verdict, versions
    DIR/digests/run_id=R/site=S/topic=T/partition=P/   phase one: one row for each range of source offsets
    DIR/ranges/run_id=R/     phase two: both sites' digests of every range, and the verdict on it, equal ones too
    DIR/groups/run_id=R/     every partition of every group that the link carries
    DIR/diffs/run_id=R/      every record that differs; of keys and values the first bytes, and how many there are
    DIR/plans/R.json         what was frozen, for the parts of a run that run apart (`plans.py`)
    DIR/manifests/run_id=R/site=S/   of digests that a site's own job wrote: that they are whole, and of which plan
    DIR/documents/R.json     all of it but for the tables, for who lists and shows runs without Spark
    DIR/reports/R.html       the report
    DIR/last/LINK.json       summary of the link's newest run, for metrics
    DIR/proofs/LINK.json     what is proved of the link, for the next run (`proof.py`)
    DIR/repairs/R.json       what was repaired of what the run found: when, by whom, why, and how it ended; added
                             to with DIR/repairs.lock held
    DIR/watch/LINK.json      what a watch of the link has told (`watching.py`); LINK.lock is held while one runs

Writing a run again replaces it: each table's folder belongs to one run id.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from monitoring.audit.files import held, replace_file
from monitoring.audit.model import AuditVerdict
from monitoring.audit.outcome import AuditResult
from monitoring.errors import AuditError, AuditResultDamaged

# Summaries of version 1 said "equal" also over what was not compared, those of version 2 counted windows of event time,
# those of version 3 knew nothing of groups.
SUMMARY_VERSION = 4


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """The last audit of a link, as metrics show it. It says what was when it was frozen (milliseconds since 1970).

    `coverage_percent` and the three behind it are as in `Coverage`, the last three as in `FrozenGroups`.
    """

    link: str
    run_id: str
    verdict: AuditVerdict
    frozen_at_ms: int
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
    group_offsets: int = 0
    group_offsets_compared: int = 0
    group_offsets_differing: int = 0


def write_document(document: Mapping[str, Any], directory: Path) -> Path:
    """Store what `-o json` prints of the run. Raises OSError."""
    return replace_file(directory / "documents" / f"{document['run_id']}.json", json.dumps(document))


def read_documents(directory: Path, link: str | None = None) -> list[dict[str, Any]]:
    """Of all runs that are kept, or of a link's; the newest first. Raises AuditResultDamaged."""
    found = [read_document(directory, path.stem) for path in (directory / "documents").glob("*.json")]
    kept = [document for document in found if link in (None, document["link"])]
    return sorted(kept, key=lambda document: (document["frozen_at"], document["run_id"]), reverse=True)


def read_document(directory: Path, run_id: str) -> dict[str, Any]:
    """Of one run. Raises AuditError where there is none, and AuditResultDamaged."""
    path = directory / "documents" / f"{run_id}.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise AuditError(
            f"there is no run {run_id} in {directory}", "see which there are: farshore audit list"
        ) from error
    except ValueError as error:
        raise AuditResultDamaged(f"{path} is not the document of an audit: {error}", "run the audit again") from error
    return cast("dict[str, Any]", document)


def add_repair(directory: Path, run_id: str, repair: Mapping[str, Any]) -> Path:
    """Keep what was done about the differences of a run, behind what is known already. Raises OSError,
    AuditResultDamaged.
    """
    with held(directory / "repairs.lock"):
        kept = [one for one in read_repairs(directory, run_id) if one["begun_at"] != repair["begun_at"]]
        return replace_file(directory / "repairs" / f"{run_id}.json", json.dumps([*kept, repair]))


def read_repairs(directory: Path, run_id: str) -> list[dict[str, Any]]:
    """All repairs of a run, in their order. Raises AuditResultDamaged."""
    path = directory / "repairs" / f"{run_id}.json"
    try:
        return cast("list[dict[str, Any]]", json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise AuditResultDamaged(f"{path} does not say what was repaired: {error}", "move it away") from error


def write_report(html: str, directory: Path, run_id: str) -> Path:
    """Store the report, and say where."""
    return replace_file(directory / "reports" / f"{run_id}.html", html)


def write_summary(result: AuditResult, directory: Path) -> Path:
    """Store the newest result of a link for `read_summaries`."""
    groups = result.groups
    summary = AuditSummary(
        result.frozen.link,
        result.run_id,
        result.verdict,
        result.frozen.frozen_at_ms,
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
        *((0, 0, 0) if groups is None else (groups.due, groups.compared, groups.findings)),
    )
    text = json.dumps({"schema_version": SUMMARY_VERSION, **dataclasses.asdict(summary)}, indent=2)
    return replace_file(directory / "last" / f"{result.frozen.link}.json", text)


def is_newest(result: AuditResult, directory: Path) -> bool:
    """Whether no run of the link was frozen later: a run in parts may end behind one that began after it."""
    path = directory / "last" / f"{result.frozen.link}.json"
    try:
        return _summary(path).frozen_at_ms <= result.frozen.frozen_at_ms
    except (FileNotFoundError, AuditResultDamaged):
        return True


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
