"""The report and the stored summary, from a result made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.cli.audit import exit_code_of
from monitoring.audit.document import as_document, window_label
from monitoring.audit.model import (
    AuditResult,
    AuditVerdict,
    FrozenLink,
    FrozenPartition,
    FrozenSite,
    Kind,
    NotCompared,
    PartitionResult,
    PlotBar,
    Reason,
    RecordDifference,
    Side,
    Span,
    Step,
    WindowResult,
)
from monitoring.audit.report import as_html
from monitoring.audit.store import read_summaries, write_summary
from monitoring.errors import AuditResultDamaged

SITE = FrozenSite("east", "localhost:9092", "cluster-a")
EQUAL = AuditResult(
    "run-1",
    FrozenLink(
        "east-west",
        SITE,
        replace(SITE, name="west"),
        1_000,
        (FrozenPartition("t", 0, "t", Span(0, 5), Span(0, 5), (Step(0, 0),), (5, 5)),),
    ),
    2_000,
    600_000,
    (PartitionResult("t", 0, "t", Span(0, 5), Span(0, 5), 5, 5, 50, 50, 1, 0, 0, AuditVerdict.EQUAL),),
    (),
    (),
    (),
    0,
    0,
    (PlotBar("t", 0, 5, 5, False),),
    {"t": 600_000},
    {"spark": "4.0.0"},
)
DIFFERS = replace(
    EQUAL,
    partitions=(replace(EQUAL.partitions[0], verdict=AuditVerdict.DIFFERS, windows_differing=1),),
    windows=(WindowResult("t", 0, 0, True, 5, 5, 50, 51, "A", "B", AuditVerdict.DIFFERS),),
    differences=(RecordDifference("t", 0, Kind.CHANGED, 0, 3, 3, 1, 1, "<b>key</b>", "old", "<script>"),),
    records_missing=1,
    records_surplus=1,
)


def left_out(reason: Reason) -> AuditResult:
    return replace(EQUAL, not_compared=(NotCompared("t", 1, Side.SOURCE, Span(0, 9), reason),))


def test_verdict_and_exit_code() -> None:
    assert (EQUAL.verdict, exit_code_of(EQUAL.verdict)) == (AuditVerdict.EQUAL, 0)
    assert (DIFFERS.verdict, exit_code_of(DIFFERS.verdict)) == (AuditVerdict.DIFFERS, 4)
    assert exit_code_of(left_out(Reason.NOT_MIRRORED_YET).verdict) == 0
    assert exit_code_of(left_out(Reason.NEVER_MIRRORED).verdict) == 4
    moved = replace(EQUAL, partitions=(replace(EQUAL.partitions[0], verdict=AuditVerdict.MOVED),))
    assert (moved.verdict, exit_code_of(moved.verdict)) == (AuditVerdict.MOVED, 4)


def test_the_document_is_plain_json() -> None:
    document = json.loads(json.dumps(as_document(DIFFERS)))
    assert (document["verdict"], document["window_seconds"]) == ("differs", 600)
    assert document["frozen_at"] == "1970-01-01T00:00:01.000Z"
    assert document["partitions"][0]["source"] == [0, 5]
    assert document["differences"][0]["kind"] == "changed"


def test_the_page_shows_the_findings_and_escapes_what_others_wrote() -> None:
    page = as_html(DIFFERS, "farshore audit run --link east-west")
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "<b>key" not in page
    assert "farshore audit run --link east-west" in page
    assert page.count("<svg") == 1


def test_what_was_not_compared_is_said() -> None:
    page = as_html(left_out(Reason.EXPIRED_AT_TARGET), "x")
    assert "Not compared" in page
    assert Reason.EXPIRED_AT_TARGET.explanation in page


def test_every_reason_is_explained() -> None:
    assert all(reason.explanation for reason in Reason)


def test_window_labels() -> None:
    assert window_label(0, True) == "1970-01-01T00:00:00.000Z"
    assert window_label(-600_000, True) == "without timestamp"
    assert window_label(100_000, False) == "from offset 100,000"
    assert window_label(-1, False) == "outside the offset map"


def test_the_last_summary_of_each_link(tmp_path: Path) -> None:
    assert read_summaries(tmp_path) == ()
    write_summary(EQUAL, tmp_path)
    write_summary(DIFFERS, tmp_path)
    (summary,) = read_summaries(tmp_path)
    assert (summary.verdict, summary.windows_differing, summary.source_records) == (AuditVerdict.DIFFERS, 1, 5)
    for damage in ("", "[]", '{"schema_version": 99}', '{"schema_version": 1}'):
        (tmp_path / "last" / "east-west.json").write_text(damage)
        with pytest.raises(AuditResultDamaged):
            read_summaries(tmp_path)
