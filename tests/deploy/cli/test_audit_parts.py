"""`audit freeze`, `digest` and `compare` before Spark starts: what is refused, and what reaches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.client.site import Site
from deploy.cli.audit import audit_group
from deploy.cli.audit_lines import sample_text, travelled_text
from deploy.cli.terminal import AppContext, audit_directory
from monitoring.audit.document import as_document
from monitoring.audit.gate import why_not_enough
from monitoring.audit.model import AuditVerdict, Side
from monitoring.audit.outcome import Apart
from monitoring.audit.parts import PartRequest
from monitoring.audit.plans import KeptPlan, Plan, read_plan, write_plan
from monitoring.audit.report import as_html
from monitoring.audit.run import AuditOutcome
from monitoring.audit.sample import Sampled
from monitoring.audit.store import read_summaries, write_summary
from monitoring.errors import SparkFailed
from tests.deploy.cli.test_monitoring import Context, context
from tests.monitoring.audit.test_report import DIFFERS, EQUAL

__all__ = ["context"]


def run(context: Context, *arguments: str) -> Result:
    return CliRunner().invoke(audit_group, arguments, obj=context)


@pytest.fixture
def kept(context: Context) -> KeptPlan:
    directory = context.state_dir / "audit"
    write_plan(Plan("run-1", EQUAL.frozen, "farshore audit freeze --link east-west --full"), directory)
    return read_plan(directory, "run-1")


@pytest.mark.parametrize("part", [("digest", "--site", "west"), ("compare",)])
def test_without_its_plan_no_part_begins(context: Context, part: tuple[str, ...]) -> None:
    refused = run(context, *part, "--run", "run-1")
    assert refused.exit_code == 1
    assert f"there is no plan of run run-1 in {audit_directory(_app(context))}" in refused.stderr
    assert "hint: copy it here from where farshore audit freeze has written it" in refused.stderr
    refused = run(context, *part, "--run", "../run-1")
    assert (refused.exit_code, "cannot name a run" in refused.stderr) == (1, True)


def _app(context: Context) -> AppContext:
    return context  # type: ignore[return-value]  # has its part


def test_a_plan_is_of_two_sites_that_answer(context: Context, kept: KeptPlan) -> None:
    refused = run(context, "freeze", "--run-id", "run-2")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "site east does not answer" in refused.stderr
    assert not kept.path.with_name("run-2.json").exists()


def test_a_site_that_is_not_of_the_run_or_does_not_answer_is_said_before_spark_starts(
    context: Context, kept: KeptPlan
) -> None:
    refused = run(context, "digest", "--site", "north", "--run", "run-1")
    assert (refused.exit_code, "run run-1 does not compare site north" in refused.stderr) == (1, True)
    refused = run(context, "digest", "--site", "west", "--run", "run-1")
    assert refused.exit_code == 1
    assert f"target west at {context.site('west').bootstrap_servers} does not answer" in refused.stderr
    assert "starting Spark" not in refused.stderr


@pytest.mark.parametrize("percent", ["0", "101", "-1", "many"])
def test_a_sample_is_a_share(context: Context, percent: str) -> None:
    assert run(context, "run", "--sample", percent).exit_code == 2


def test_what_is_asked_of_a_part_reaches_it(
    context: Context, kept: KeptPlan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[PartRequest, KeptPlan, object]] = []

    async def digested(request: PartRequest, plan: KeptPlan, side: Side, site: Site, report: object) -> None:
        asked.append((request, plan, (side, site)))
        raise SparkFailed("noted", "")

    async def compared(
        request: PartRequest, plan: KeptPlan, sites: Mapping[Side, Site], report: object
    ) -> AuditOutcome:
        asked.append((request, plan, sites))
        document = as_document(replace(DIFFERS, apart=APART)) | {"seconds": 1.0}
        return AuditOutcome(AuditVerdict.DIFFERS, document, tmp_path / "r.html")

    monkeypatch.setattr("deploy.cli.audit_parts.digest_part", digested)
    monkeypatch.setattr("deploy.cli.audit_parts.compare_part", compared)
    spark = ["--master", "spark://m:7077", "--conf", "spark.a=1", "--jars", "a.jar,b.jar"]
    assert run(context, "digest", "--site", "west", "--run", "run-1", *spark).exit_code == 1
    told = run(context, "compare", "--run", "run-1", "--digests-dir", "s3a://audits/east-west/")
    assert told.exit_code == 4
    assert "records opened at both sites: 9" in told.stderr
    (digest, plan, where), (compare, _, sites) = asked
    assert (digest.master, digest.options, digest.jars) == ("spark://m:7077", {"spark.a": "1"}, ("a.jar", "b.jar"))
    assert (digest.base, compare.base) == (str(context.state_dir / "audit"), "s3a://audits/east-west")
    assert (plan, where) == (kept, (Side.TARGET, context.site("west")))
    assert sites == {Side.SOURCE: context.site("east"), Side.TARGET: context.site("west")}


APART = Apart("id", 700, {"east": 40, "west": 60}, 9, 900, 0)


def test_what_travelled_is_said_with_its_share_of_what_was_audited() -> None:
    document = as_document(replace(EQUAL, digest_bytes=100, apart=APART))
    assert travelled_text(document) == (
        "bytes of digests: east 40, west 60, 100 % of what was audited; of the plan 700; "
        "records opened at both sites: 9"
    )
    page = as_html(replace(EQUAL, apart=APART), "x")
    assert "east: 40 bytes, west: 60 bytes" in page
    compacted = as_document(replace(EQUAL, apart=replace(APART, records_compacted=3)))
    assert travelled_text(compacted).endswith("9, and all 3 of compacted topics")


def test_a_sample_says_how_far_it_reaches_and_opens_no_gate(tmp_path: Path) -> None:
    equal = replace(EQUAL, sampled=Sampled(10, "run-1", 1_000, 100, 0))
    assert equal.verdict is AuditVerdict.EQUAL_AS_FAR_AS_COMPARED
    assert (equal.coverage.is_full, equal.coverage.percent) == (False, 99.99)
    document = as_document(equal)["sample"]
    assert (document["confidence_percent"], document["ranges_differing_at_most"]) == (95, 28)
    text = "100 of 1,000 ranges compared, none of these differs; with 95 % confidence at most 28 of all 1,000 do"
    assert text in sample_text(document)
    assert "with 95 % confidence at most 28 of all 1,000 do" in as_html(equal, "x")
    differs = replace(DIFFERS, sampled=Sampled(10, "run-1", 1_000, 100, 2))
    assert differs.verdict is AuditVerdict.DIFFERS
    assert sample_text(as_document(differs)["sample"]).endswith("2 of these differ; nothing is known of the others")
    write_summary(equal, tmp_path)
    (summary,) = read_summaries(tmp_path)
    assert why_not_enough(summary, 10**9, summary.frozen_at_ms) == "its last audit covered 99.99 % (run run-1)"
