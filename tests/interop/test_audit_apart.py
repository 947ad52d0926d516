"""An audit whose sites are digested apart: what each part reaches, what travels, and what is refused."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import delete_records
from broker.wire.vocabulary import TopicPartition
from monitoring import limits
from monitoring.audit import child
from monitoring.audit.document import as_document
from monitoring.audit.job import AuditJob, run_job
from monitoring.audit.look import log_starts
from monitoring.audit.model import AuditVerdict, FrozenLink, Kind, LogMark, Marks, Side, Span, Step
from monitoring.audit.outcome import AuditResult
from monitoring.audit.plans import KeptPlan, Plan, read_plan, write_plan
from monitoring.audit.proof import read_proof
from monitoring.audit.protocol import EVENT, REQUEST, ApartRequest, ChildRequest, Digested
from monitoring.audit.ranges import plan
from monitoring.audit.reasons import Reason
from monitoring.audit.sample import Sample, Sampled, choose
from monitoring.audit.store import read_documents, read_summaries
from monitoring.errors import DigestsUnusable
from tests.monitoring.audit.planted import START_MS, Copy, changed, doubled, plant, records

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

WIDTH = 50
NOWHERE = "localhost:1"
MARKS = Marks(LogMark("a", 0, 0), LogMark("b", 0, 0), "s")


@pytest.fixture(autouse=True)
def narrow_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_RANGE_OFFSETS", WIDTH)


@dataclass
class Parts:
    """The parts of one run over a folder, as the child carries them out; each reaches only what it is told to."""

    spark: Any
    frozen: FrozenLink
    folder: Path
    kept: KeptPlan

    def digest(self, side: Side) -> Digested:
        return child.digested(self.spark, self.request([side], side), lambda _: None)

    def compare(self, reached: Sequence[Side] = ()) -> AuditResult:
        return child.compared(self.spark, self.request(reached, None), lambda _: None)

    def request(self, reached: Sequence[Side], side: Side | None) -> ChildRequest:
        """As it arrives there."""
        source, target = (
            site if at in reached else replace(site, bootstrap_servers=NOWHERE)
            for at, site in ((Side.SOURCE, self.frozen.source), (Side.TARGET, self.frozen.target))
        )
        frozen = replace(self.kept.plan.frozen, source=source, target=target)
        apart = ApartRequest(self.kept, str(self.folder), side)
        run_id = self.kept.plan.run_id
        sent = ChildRequest(run_id, frozen, "", (), self.folder, self.folder / "log", "farshore", apart=apart)
        return REQUEST.validate_json(REQUEST.dump_json(sent))


def planned(spark: Any, bootstrap: str, copies: list[Copy], folder: Path, compacted: int | None = None) -> Parts:
    """`compacted` is a partition that is."""
    frozen = asyncio.run(plant(bootstrap, copies))
    partitions = [replace(item, compacted=item.partition == compacted, marks=MARKS) for item in frozen.partitions]
    frozen = replace(frozen, partitions=tuple(partitions))
    write_plan(Plan("run-1", frozen, "farshore audit freeze"), folder)
    return Parts(spark, frozen, folder, read_plan(folder, "run-1"))


def test_equal_copies_need_no_site_to_be_compared_and_half_a_copy_is_never_equal(
    spark: Any, shared_broker: Any, tmp_path: Path
) -> None:
    copies = [Copy(records(number, 7), records(number, 7)) for number in (120, 0)]
    parts = planned(spark, shared_broker.bootstrap, copies, tmp_path)
    parts.digest(Side.SOURCE)
    with pytest.raises(DigestsUnusable, match="no digests of site west for run run-1") as refused:
        parts.compare()
    assert "farshore audit digest --site west --run run-1" in refused.value.hint
    told = parts.digest(Side.TARGET)
    assert EVENT.validate_json(EVENT.dump_json(told)) == told
    result = parts.compare()
    assert result.verdict is AuditVerdict.EQUAL
    assert (result.source_records, result.target_records, result.coverage.percent) == (120, 120, 100.0)
    travelled = as_document(result)["apart"]
    stored = {
        site: sum(
            file.stat().st_size
            for table in ("digests", "manifests")
            for file in (tmp_path / table / "run_id=run-1" / f"site={site}").rglob("*.parquet")
        )
        for site in ("east", "west")
    }
    assert travelled["digest_bytes"] == stored
    assert travelled["plan_bytes"] == (tmp_path / "plans" / "run-1.json").stat().st_size
    assert (travelled["records_opened"], travelled["bytes_opened"], travelled["records_compacted"]) == (0, 0, 0)
    assert result.digest_bytes == sum(stored.values())
    _check_what_is_kept(result, parts)

    other = replace(parts, kept=replace(parts.kept, plan_id="another"))
    with pytest.raises(DigestsUnusable, match="made by another plan of run run-1"):
        other.compare()
    part = next((tmp_path / "digests" / "run_id=run-1" / "site=west").glob("topic=*/partition=0"))
    shutil.rmtree(part)
    with pytest.raises(DigestsUnusable, match=r"of planted-.*:0 there are 0 ranges of 0 records here, and 3 of 120"):
        parts.compare()


def _check_what_is_kept(result: AuditResult, parts: Parts) -> None:
    """It is the link's last run, and proves what it found: but where a later freeze was audited before it ended."""
    request = parts.request((), None)
    compared = child.keep(result, request)
    (proof,) = read_proof(parts.folder, "east-west").partitions
    assert proof.end == (120, 120)
    sample = Sampled(50, "s", 3, 2, 0)
    child.keep(replace(result, run_id="run-2", sampled=sample), request)
    assert [summary.run_id for summary in read_summaries(parts.folder)] == ["run-1"]
    page = compared.report.read_text()
    assert "a plan of" in page
    assert "A sample:" not in page

    (part, empty) = result.partitions
    bad = replace(part, verdict=AuditVerdict.DIFFERS, ranges_differing=1)
    found = replace(sample, ranges_differing=1)
    later = replace(result.frozen, frozen_at_ms=result.frozen.frozen_at_ms + 1)
    child.keep(replace(result, run_id="run-3", sampled=found, frozen=later, partitions=(bad, empty)), request)
    assert [summary.run_id for summary in read_summaries(parts.folder)] == ["run-3"]
    assert read_proof(parts.folder, "east-west").partitions == ()
    child.keep(result, request)
    assert [summary.run_id for summary in read_summaries(parts.folder)] == ["run-3"]
    assert read_proof(parts.folder, "east-west").partitions == ()
    assert {document["run_id"] for document in read_documents(parts.folder)} == {"run-1", "run-2", "run-3"}


def test_what_differs_is_opened_at_both_sites_and_what_expires_meanwhile_is_left_out(
    spark: Any, shared_broker: Any, tmp_path: Path
) -> None:
    """Records expire at the source before it is digested (partition 2), at the target before what differs is opened
    (3), and in a whole partition but for a range that has begun to go (4). A compacted one is read from both (5)."""
    plain = Copy(records(200), records(200))
    target = [record for at, record in enumerate(plain.source) if at not in (10, 180)]
    lacking = Copy(plain.source, target, (Step(0, 0), Step(11, 10), Step(181, 179)))
    copies = [changed(plain, 120), doubled(plain, 20), lacking, lacking, plain, lacking]
    parts = planned(spark, shared_broker.bootstrap, copies, tmp_path, compacted=5)
    topic = parts.frozen.partitions[0].topic
    expire(shared_broker.bootstrap, TopicPartition(topic, 2), 30)
    expire(shared_broker.bootstrap, TopicPartition(topic, 4), 180)
    for side in Side:
        parts.digest(side)
    expire(shared_broker.bootstrap, TopicPartition(f"east.{topic}", 3), 70)
    result = parts.compare(tuple(Side))
    assert {(item.kind, item.partition, item.source_offset, item.target_offset) for item in result.differences} == {
        (Kind.CHANGED, 0, 120, 120),
        (Kind.DUPLICATED, 1, None, 21),
        (Kind.LOST, 2, 180, None),
        (Kind.LOST, 3, 180, None),
        (Kind.LOST, 5, 180, None),
    }
    assert [(item.source, item.target, item.ranges) for item in result.partitions] == [
        (Span(0, 200), Span(0, 200), 4),
        (Span(0, 200), Span(0, 201), 4),
        (Span(50, 200), Span(49, 198), 3),
        (Span(100, 200), Span(99, 198), 2),
        (Span(180, 180), Span(0, 0), 0),
        (Span(0, 200), Span(0, 198), 4),
    ]
    expired = [item for item in result.not_compared if item.reason is Reason.EXPIRED_WHILE_READ]
    assert {(item.partition, item.side): item.span for item in expired} == {
        (2, Side.SOURCE): Span(30, 50),
        (2, Side.TARGET): Span(29, 49),
        (3, Side.SOURCE): Span(71, 100),
        (3, Side.TARGET): Span(70, 99),
        (4, Side.SOURCE): Span(180, 200),
        (4, Side.TARGET): Span(0, 200),
    }
    # The changed one's range and the doubled one's, two of each that lacks some; in partition 3 both were opened.
    assert result.apart is not None
    assert result.apart.records_compacted == 199 + 198
    assert result.apart.records_opened == 2 * WIDTH + (2 * WIDTH + 1) + (2 * WIDTH - 1) + 2 * (2 * WIDTH - 1)


def expire(bootstrap: str, where: TopicPartition, start: int) -> None:
    async def deleted() -> None:
        async with Cluster(Site("east", bootstrap)) as cluster:
            await delete_records(cluster, {where: start})

    asyncio.run(deleted())


def test_a_sample_reads_its_ranges_alone(spark: Any, shared_broker: Any) -> None:
    """What differs in them is found, and what differs elsewhere is not."""
    plain = Copy(records(400), records(400))
    copy = plain
    for start in range(0, 400, WIDTH):
        copy = changed(copy, start + 7)
    frozen = asyncio.run(plant(shared_broker.bootstrap, [copy]))
    sample = Sample(30, "seed")
    chosen = choose(plan(frozen)[0], sample)[frozen.partitions[0].topic, 0]
    assert len(chosen) == 3
    job = AuditJob("run-1", frozen, lambda: START_MS, lambda part: asyncio.run(log_starts(frozen, part)), sample=sample)
    result = run_job(spark, job)
    assert [item.source_offset for item in result.differences] == [start + 7 for start in chosen]
    assert (result.source_records, result.target_records) == (3 * WIDTH, 3 * WIDTH)
    assert {(item.side, item.reason, item.offsets) for item in result.not_compared} == {
        (side, Reason.NOT_SAMPLED, 5 * WIDTH) for side in Side
    }
    assert result.sampled == Sampled(30, "seed", 8, 3, 3)
