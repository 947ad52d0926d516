"""The report and the stored summary, from a result made by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deploy.cli.audit import audit_group
from deploy.cli.audit_lines import exit_code_of, rows_of
from monitoring import limits
from monitoring.audit.document import as_document
from monitoring.audit.gate import why_not_enough
from monitoring.audit.groups import FrozenGroups, GroupOffset, GroupReason, GroupVerdict
from monitoring.audit.model import (
    AuditVerdict,
    FrozenLink,
    FrozenPartition,
    FrozenSite,
    Kind,
    LostProof,
    NotCompared,
    ProvedPart,
    Side,
    Span,
    Step,
)
from monitoring.audit.outcome import AuditResult, Coverage, PartitionResult, PlotBar, RangeResult, RecordDifference
from monitoring.audit.plot import proved_by_time
from monitoring.audit.reasons import ProofLoss, Reason
from monitoring.audit.report import as_html
from monitoring.audit.store import read_documents, read_summaries, write_document, write_summary
from monitoring.errors import AuditResultDamaged

SITE = FrozenSite("east", "localhost:9092", "cluster-a")
ALL = Coverage(10, 0, is_full=True)
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
    (PartitionResult("t", 0, "t", Span(0, 5), Span(0, 5), 5, 5, 50, 50, 1, 0, 0, AuditVerdict.EQUAL, ALL),),
    (),
    (),
    (),
    {},
    (PlotBar("t", 0, 5, 5, False),),
    {"t": 2_048},
    {"spark": "4.0.0"},
)
DIFFERS = replace(
    EQUAL,
    partitions=(replace(EQUAL.partitions[0], verdict=AuditVerdict.DIFFERS, ranges_differing=1),),
    ranges=(RangeResult("t", 0, 0, 5, 5, 50, 51, "A", "B", AuditVerdict.DIFFERS),),
    differences=(RecordDifference("t", 0, Kind.CHANGED, 0, 3, 3, 1, 1, "<b>key</b>", "old", "<script>"),),
    found={Kind.CHANGED: 1},
)


def left_out(reason: Reason) -> AuditResult:
    return replace(EQUAL, not_compared=(NotCompared("t", 1, Side.SOURCE, Span(0, 9), reason, 9),))


def test_verdict_and_exit_code() -> None:
    moved = replace(EQUAL, partitions=(replace(EQUAL.partitions[0], verdict=AuditVerdict.MOVED),))
    nothing = replace(EQUAL, partitions=(replace(EQUAL.partitions[0], verdict=AuditVerdict.NOT_COMPARED),))
    partly = left_out(Reason.NOT_MIRRORED_YET)
    for result, verdict, code, strict_code in (
        (EQUAL, AuditVerdict.EQUAL, 0, 0),
        (partly, AuditVerdict.EQUAL_AS_FAR_AS_COMPARED, 0, 4),
        (moved, AuditVerdict.MOVED, 4, 4),
        (DIFFERS, AuditVerdict.DIFFERS, 4, 4),
        (left_out(Reason.NEVER_MIRRORED), AuditVerdict.DIFFERS, 4, 4),
        (nothing, AuditVerdict.NOT_COMPARED, 4, 4),
    ):
        assert result.verdict is verdict
        assert (exit_code_of(verdict, strict=False), exit_code_of(verdict, strict=True)) == (code, strict_code)


@pytest.mark.parametrize("reason", Reason)
def test_nothing_that_was_left_out_is_equal(reason: Reason) -> None:
    for offsets in (0, 1):
        item = NotCompared("t", 1, Side.SOURCE, Span(0, offsets), reason, offsets)
        assert replace(EQUAL, not_compared=(item,)).verdict is not AuditVerdict.EQUAL


def test_coverage_is_a_floor() -> None:
    assert EQUAL.coverage.percent == 100
    assert left_out(Reason.NOT_MIRRORED_YET).coverage == Coverage(10, 9, is_full=False, is_full_but_in_flight=True)
    assert not left_out(Reason.EXPIRED_AT_TARGET).coverage.is_full_but_in_flight
    assert left_out(Reason.NOT_MIRRORED_YET).coverage.percent == 52.63
    assert Coverage(10**9, 1, is_full=False).percent == 99.99
    assert Coverage(10**9, 0, is_full=False).percent == 99.99
    assert Coverage(0, 0, is_full=False).percent == 0
    assert Coverage(0, 0, is_full=True).percent == 100


def test_coverage_is_in_the_summary_the_document_and_the_report(tmp_path: Path) -> None:
    result = left_out(Reason.NOT_MIRRORED_YET)
    document = json.loads(json.dumps(as_document(result)))
    assert document["coverage"] == {
        "percent": 52.63,
        "records": 10,
        "records_earlier": 0,
        "oldest_at": None,
        "records_left_out_at_most": 9,
        "group_offsets": 0,
        "group_offsets_compared": 0,
    }
    assert document["partitions"][0]["coverage"]["percent"] == 100
    page = as_html(result, "x")
    assert "equal as far as compared" in page
    assert "<b>52.63 %</b>" in page
    assert "Up to 9 records were left out" in page
    (title, rows, columns), *_ = rows_of(document | {"seconds": 2.0})
    said = "east-west: equal as far as compared, 52.63 % compared (10 records of both sites; up to 9 left out), in 2 s"
    assert title == said
    assert columns is not None
    assert [rows[0][name] for name in columns] == ["t", 0, 5, "100 %", "equal"]
    write_summary(result, tmp_path)
    assert read_summaries(tmp_path)[0].coverage_percent == 52.63


def test_what_earlier_runs_proved_is_told_with_its_age(tmp_path: Path) -> None:
    parts = (
        ProvedPart(Span(0, 3), Span(0, 3), 3, 3, 1_500, "run-0"),
        ProvedPart(Span(3, 4), Span(3, 4), 1, 1, 900, "b"),
    )
    partition = replace(EQUAL.partitions[0], proved=parts)
    frozen = replace(EQUAL.frozen, lost=(LostProof("u", 2, ProofLoss.LOG_CUT),))
    result = replace(EQUAL, partitions=(partition,), frozen=frozen)
    assert result.verdict is AuditVerdict.EQUAL
    document = json.loads(json.dumps(as_document(result)))
    oldest = "1970-01-01T00:00:00.900Z"
    assert document["coverage"] | {"percent": 100} == {
        "percent": 100,
        "records": 18,
        "records_earlier": 8,
        "oldest_at": oldest,
        "records_left_out_at_most": 0,
        "group_offsets": 0,
        "group_offsets_compared": 0,
    }
    assert document["proofs_lost"] == [{"topic": "u", "partition": 2, "why": "log_cut"}]
    (title, _, _), *_ = rows_of(document | {"seconds": 2.0})
    assert f"all 18 records of both sites compared (8 of them by earlier runs, since {oldest})" in title
    page = as_html(result, "x")
    assert "8 of them by earlier runs" in page
    assert oldest in page
    assert "log cut" in page
    write_summary(result, tmp_path)
    (summary,) = read_summaries(tmp_path)
    assert (summary.records_earlier, summary.oldest_ms, summary.is_full_but_in_flight) == (8, 900, True)


def test_the_document_is_plain_json() -> None:
    document = json.loads(json.dumps(as_document(DIFFERS)))
    assert (document["verdict"], document["range_offsets"]) == ("differs", 2_048)
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


def test_the_last_summary_of_each_link(tmp_path: Path) -> None:
    assert read_summaries(tmp_path) == ()
    write_summary(EQUAL, tmp_path)
    write_summary(DIFFERS, tmp_path)
    (summary,) = read_summaries(tmp_path)
    assert (summary.verdict, summary.ranges_differing, summary.source_records) == (AuditVerdict.DIFFERS, 1, 5)
    for damage in ("", "[]", '{"schema_version": 99}', '{"schema_version": 1}', '{"schema_version": 3}'):
        (tmp_path / "last" / "east-west.json").write_text(damage)
        with pytest.raises(AuditResultDamaged):
            read_summaries(tmp_path)


def test_runs_that_are_kept_are_listed_and_shown(tmp_path: Path) -> None:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(audit_group, [*arguments, "--output-dir", str(tmp_path)])

    assert json.loads(invoke("list", "-o", "json").stdout)["items"] == []
    later = replace(EQUAL, run_id="run-2", frozen=replace(EQUAL.frozen, frozen_at_ms=5_000))
    for result in (DIFFERS, later):
        write_document(as_document(result), tmp_path)
    assert [document["run_id"] for document in read_documents(tmp_path)] == ["run-2", "run-1"]
    assert read_documents(tmp_path, "other") == []
    listed = invoke("list", "--link", "east-west")
    assert [word for word in listed.stdout.split() if word.startswith("run-")] == ["run-2", "run-1"]
    shown, plain = invoke("show", "run-1"), invoke("show", "run-1", "-o", "json")
    assert "east-west: differs, all 10 records of both sites compared" in shown.stdout
    assert json.loads(plain.stdout).items() >= json.loads(json.dumps(as_document(DIFFERS))).items()
    assert (shown.exit_code, plain.exit_code) == (0, 0)
    differing, equal = invoke("diff", "run-1"), invoke("diff", "run-2")
    assert (differing.exit_code, equal.exit_code, equal.stdout) == (4, 0, "")
    assert "1 changed" in differing.stdout
    (found,) = json.loads(invoke("diff", "run-1", "-o", "json").stdout)["items"]
    assert (found["kind"], found["source_offset"]) == ("changed", 3)
    missing = invoke("show", "run-9")
    assert (missing.exit_code, missing.stderr.splitlines()[-1]) == (1, "hint: see which there are: farshore audit list")
    (tmp_path / "documents" / "run-3.json").write_text("{")
    assert invoke("list").exit_code == 1


def test_a_move_is_gated_by_the_last_audit(tmp_path: Path) -> None:
    """It is as old as its freeze; what was in flight then is no reason to refuse, all else that was left out is."""

    def why(result: AuditResult, now_ms: int = 61_000) -> str | None:
        write_summary(result, tmp_path)
        return why_not_enough(read_summaries(tmp_path)[0], 60_000, now_ms)

    assert why(EQUAL) is why(left_out(Reason.NOT_MIRRORED_YET)) is None
    assert "is of 1970-01-01T00:00:01.000Z (run run-1)" in str(why(EQUAL, now_ms=61_001))
    assert "said differs" in str(why(DIFFERS))
    assert "said differs" in str(why(left_out(Reason.NEVER_MIRRORED)))
    assert why(left_out(Reason.COMPACTED)) is None
    moved = replace(EQUAL, partitions=(replace(EQUAL.partitions[0], verdict=AuditVerdict.MOVED),))
    assert "said moved" in str(why(moved))
    for reason in Reason:
        if reason.stops_a_move and not reason.is_finding:
            assert "covered 52.63 %" in str(why(left_out(reason))), reason
    assert why_not_enough(None, 60_000, 0) == "there was no audit of it on this machine"


def test_a_list_that_is_cut_says_of_how_many(tmp_path: Path) -> None:
    partition = replace(DIFFERS.partitions[0], ranges_differing=1_200, ranges_moved=34)
    result = replace(DIFFERS, partitions=(partition,), found={Kind.CHANGED: 1_500, Kind.LOST: 2, Kind.MOVED: 9})
    assert (result.records_missing, result.records_surplus) == (1_502, 1_500)
    document = json.loads(json.dumps(as_document(result)))
    assert (document["ranges_found"], sum(document["differences_found"].values())) == (1_234, 1_511)
    page = as_html(result, "x")
    assert "The first 1 of 1,234 are listed" in page
    assert "The first 1 of 1,511 are listed" in page
    _, (title, _, _), *_ = rows_of(document | {"seconds": 2.0})
    assert title == "2 lost, 1,500 changed, 9 moved (the first 1 of 1,511; all are in the Parquet table diffs)"
    page = as_html(DIFFERS, "x")
    assert "are listed" not in page


@pytest.mark.parametrize("at_ms", [-(10**15), -5, -1, 10**13, 1_700_000_000_000_000, 9_223_372_036_854_775])
def test_odd_timestamps_end_no_report(at_ms: int) -> None:
    """Before 1970, without one, in the year 2286, in microseconds, and the last that Spark holds."""
    difference = replace(DIFFERS.differences[0], source_timestamp_ms=at_ms, target_timestamp_ms=at_ms)
    result = replace(DIFFERS, differences=(difference,))
    assert as_html(result, "x").count("<svg") == 1
    assert json.loads(json.dumps(as_document(result)))["ranges_found"] == 1


def test_times_that_were_not_compared_are_said() -> None:
    stamped = replace(EQUAL.frozen.partitions[0], timestamps_comparable=False)
    result = replace(EQUAL, frozen=replace(EQUAL.frozen, partitions=(stamped,)))
    assert as_document(result)["topics_without_times"] == ["t"]
    assert "Timestamps were not compared" in as_html(result, "x")
    assert as_document(EQUAL)["topics_without_times"] == []
    assert "Timestamps were not compared" not in as_html(EQUAL, "x")


def with_groups(*offsets: GroupOffset, not_listed: str = "") -> AuditResult:
    return replace(EQUAL, frozen=replace(EQUAL.frozen, groups=FrozenGroups(1, 1, True, 2, not_listed, offsets)))


SAME = GroupOffset("g", "t", 0, "t", 3, 3, 3, GroupVerdict.SAME, None, False, "a0", "a0")
BEHIND = GroupOffset("<i>b", "t", 1, "t", 3, 1, 3, GroupVerdict.BEHIND, GroupReason.NOT_CARRIED)
FLYING = GroupOffset("h", "t", 0, "t", 3, 1, 3, GroupVerdict.BEHIND, GroupReason.MOVING, is_in_flight=True)
DOUBTED = GroupOffset("u", "t", 0, "t", 3, 1, None, GroupVerdict.UNMAPPED, GroupReason.BEFORE_THE_MIRROR)


def test_groups_are_in_the_verdict_the_coverage_and_the_gate(tmp_path: Path) -> None:
    def gate(result: AuditResult) -> str | None:
        write_summary(result, tmp_path)
        return why_not_enough(read_summaries(tmp_path)[0], 60_000, 2_000)

    assert (with_groups(SAME).verdict, gate(with_groups(SAME))) == (AuditVerdict.EQUAL, None)
    differs = with_groups(SAME, BEHIND)
    assert (differs.verdict, "said differs" in str(gate(differs))) == (AuditVerdict.DIFFERS, True)
    flying = with_groups(SAME, FLYING)
    assert (flying.verdict, gate(flying)) == (AuditVerdict.EQUAL_AS_FAR_AS_COMPARED, None)
    for partly in (with_groups(SAME, DOUBTED), with_groups(SAME, not_listed="node 2 does not answer")):
        assert partly.verdict is AuditVerdict.EQUAL_AS_FAR_AS_COMPARED
        assert "covered 99.99 %" in str(gate(partly))
        assert exit_code_of(partly.verdict, strict=True) == 4
    write_summary(differs, tmp_path)
    (summary,) = read_summaries(tmp_path)
    found = (summary.group_offsets, summary.group_offsets_compared, summary.group_offsets_differing)
    assert found == (2, 2, 1)


def test_groups_are_in_the_document_the_tables_and_the_report() -> None:
    result = with_groups(SAME, BEHIND, FLYING)
    document = json.loads(json.dumps(as_document(result)))
    groups = document["groups"]
    counts = ("groups", "offsets", "offsets_compared", "offsets_compared_by_content", "offsets_differing")
    assert [groups[name] for name in counts] == [3, 3, 2, 1, 1]
    assert [(item["group"], item["verdict"], item["is_in_flight"]) for item in groups["told"]] == [
        ("<i>b", "behind", False),
        ("h", "behind", True),
    ]
    assert document["coverage"]["group_offsets_compared"] == 2
    title, rows, _ = next(table for table in rows_of(document) if table[0].startswith("groups"))
    assert title == "groups: 2 of 3 committed offsets compared, 1 differ, 1 in flight"
    assert [row["reason"] for row in rows] == ["not carried", "in flight: moving"]
    assert "up to 0 left out; 2 of 3 offsets of groups" in rows_of(document)[0][0]
    page = as_html(result, "x")
    assert "&lt;i&gt;b" in page
    assert "2 of 3 committed offsets of 3 groups were compared" in page
    assert "behind (in flight)" in page
    assert as_document(EQUAL)["groups"] is None
    assert "Groups" not in as_html(EQUAL, "x")


def test_a_list_of_groups_that_is_cut_says_of_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_GROUPS_LISTED", 1)
    result = with_groups(BEHIND, FLYING)
    document = json.loads(json.dumps(as_document(result)))
    assert "The first 1 of 2 that are not the same are listed" in as_html(result, "x")
    assert any("the first 1 of 2 that are not the same" in title for title, _, _ in rows_of(document))


def test_proof_over_time_is_drawn_where_there_is_more_than_one_run() -> None:
    assert proved_by_time(EQUAL) == [(1_000, 10)]
    assert "Proof over time" not in as_html(EQUAL, "x")
    parts = tuple(ProvedPart(Span(n, n + 1), Span(n, n + 1), 2, 2, at_ms, "r") for n, at_ms in ((0, 500), (1, 100)))
    one = replace(EQUAL.partitions[0], proved=parts)
    result = replace(EQUAL, partitions=(one, replace(one, proved=parts[:1], verdict=AuditVerdict.DIFFERS)))
    assert proved_by_time(result) == [(100, 4), (500, 12), (1_000, 22)]
    page = as_html(result, "x")
    assert "Proof over time" in page
    assert page.count("<svg") == 2


def test_the_page_is_for_light_and_dark() -> None:
    """Its colours are named twice each, and nothing else in its style has a colour of its own."""
    page = as_html(DIFFERS, "x")
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    names = [set(re.findall(r"--[a-z-]+(?=:)", text)) for text in (light, dark)]
    assert names[0] == names[1]
    style = page[page.index("<style>") : page.index("</style>")].replace(light, "").replace(dark, "")
    assert not re.findall(r"#[0-9a-f]{3,6}\b", style)
