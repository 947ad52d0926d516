"""The Spark audit against real clusters: equal when equal, and each planted difference in its partition and range."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import delete_records
from broker.wire.vocabulary import TopicPartition
from monitoring import limits
from monitoring.audit.document import as_document
from monitoring.audit.groups import FrozenGroups, GroupOffset, GroupReason, GroupVerdict
from monitoring.audit.job import AuditJob, run_job
from monitoring.audit.look import log_starts
from monitoring.audit.model import AuditVerdict, FrozenLink, Kind, LogMark, Marks, ProvedPart, Side, Span
from monitoring.audit.outcome import AuditResult
from monitoring.audit.proof import next_proof
from monitoring.audit.protocol import ChildRequest
from monitoring.audit.reader import read_records
from monitoring.audit.reasons import Reason
from monitoring.audit.report import as_html
from monitoring.audit.spark_child import run_child
from monitoring.audit.store import read_summaries, write_report, write_summary
from monitoring.audit.tables import write_result, write_tables
from tests.conftest import SPARK_JARS
from tests.monitoring.audit.planted import START_MS, Copy, changed, doubled, dropped, plant, records, retimed

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

RECORDS = 1_000
WIDTH = 50


KAFKA, OURS = "kafka_39", "shared_broker"


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Any:
    """Apache Kafka, or farshore's own broker: an audit reads either through Kafka's own client, the same way."""
    return request.getfixturevalue(request.param)


def slow(cluster: str) -> Any:
    """The other one shows the same, at a tenth of what all audits of these tests cost."""
    return pytest.param(cluster, marks=pytest.mark.slow)


def audit(spark: Any, frozen: FrozenLink, directory: Path | None = None, run_id: str = "run-1") -> AuditResult:
    job = AuditJob(
        run_id,
        frozen,
        clock_ms=lambda: START_MS,
        look=lambda partitions: asyncio.run(log_starts(frozen, partitions)),
    )
    if directory is None:
        return run_job(spark, job)
    result = run_job(spark, job, store=lambda tables: write_tables(tables, directory, run_id))
    write_result(spark, result, directory)
    return result


@pytest.fixture(autouse=True)
def narrow_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_RANGE_OFFSETS", WIDTH)


def range_of(offset: int) -> int:
    return offset - offset % WIDTH


@pytest.mark.parametrize("cluster", [KAFKA, slow(OURS)], indirect=True)
def test_equal_copies_are_equal(spark: Any, cluster: Any) -> None:
    copies = [Copy(records(RECORDS, partition), records(RECORDS, partition)) for partition in range(3)]
    result = audit(spark, asyncio.run(plant(cluster.bootstrap, copies)))
    assert result.verdict is AuditVerdict.EQUAL
    assert (result.source_records, result.target_records) == (3 * RECORDS, 3 * RECORDS)
    assert {item.verdict for item in result.partitions} == {AuditVerdict.EQUAL}
    assert result.ranges == ()
    assert result.differences == ()


@pytest.mark.parametrize("cluster", [OURS, slow(KAFKA)], indirect=True)
def test_each_planted_difference_is_found_in_its_place(spark: Any, cluster: Any, tmp_path: Path) -> None:
    plain = [Copy(records(RECORDS, partition), records(RECORDS, partition)) for partition in range(3)]
    copies = [
        changed(dropped(plain[0], 10), 500),
        retimed(doubled(plain[1], 20), 700, by_ms=3_600_000),
        plain[2],
    ]
    frozen = asyncio.run(plant(cluster.bootstrap, copies))
    behind = GroupOffset("behind", "t", 0, "t", 3, 1, 3, GroupVerdict.BEHIND, GroupReason.NOT_CARRIED)
    groups = FrozenGroups(1, 1, True, 0, "", (GroupOffset("same", "t", 0, "t", 3, 3, 3, GroupVerdict.SAME), behind))
    result = audit(spark, replace(frozen, groups=groups), tmp_path)
    assert result.verdict is AuditVerdict.DIFFERS
    assert [item.verdict for item in result.partitions] == [
        AuditVerdict.DIFFERS,
        AuditVerdict.DIFFERS,
        AuditVerdict.EQUAL,
    ]
    found = {item.kind: item for item in result.differences}
    assert len(result.differences) == 4
    places = {
        kind: (item.partition, item.range_start, item.source_offset, item.target_offset) for kind, item in found.items()
    }
    # The changed record's target index is 500: behind the dropped one, so source offset 501. The retimed one's
    # target index is 700: behind the doubled one, so source offset 699.
    assert places == {
        Kind.LOST: (0, range_of(10), 10, None),
        Kind.CHANGED: (0, range_of(501), 501, 500),
        Kind.DUPLICATED: (1, range_of(20), None, 21),
        Kind.RETIMED: (1, range_of(699), 699, 700),
    }
    retimed_record = found[Kind.RETIMED]
    assert retimed_record.target_timestamp_ms == (retimed_record.source_timestamp_ms or 0) + 3_600_000
    assert (result.records_missing, result.records_surplus) == (3, 3)
    differing = {(item.partition, item.range_start) for item in result.ranges}
    assert differing == {(0, range_of(10)), (0, range_of(501)), (1, range_of(20)), (1, range_of(699))}
    _check_stored(spark, result, tmp_path)
    _check_that_what_is_proved_is_not_read(spark, result)


def _check_that_what_is_proved_is_not_read(spark: Any, result: AuditResult) -> None:
    """As if the first half of each had been proved: what differs there is not seen, and the rest is carried on."""
    marks = Marks(LogMark("a", 0, 0), LogMark("b", 0, 0), "s")
    # The map has one record less there than the source in partition 0, and one more in partition 1.
    halves = [ProvedPart(Span(0, 500), Span(0, end), 500, end, 1, "run-0") for end in (499, 501, 500)]
    known = zip(result.frozen.partitions, halves, strict=True)
    halved = tuple(replace(item, proved=(half,), marks=marks) for item, half in known)
    again = audit(spark, replace(result.frozen, partitions=halved), run_id="run-2")
    assert [(item.kind, item.source_offset) for item in again.differences] == [(Kind.CHANGED, 501), (Kind.RETIMED, 699)]
    assert (again.source_records, again.coverage.records_earlier, again.coverage.oldest_ms) == (1_500, 3_000, 1)
    added = ProvedPart(Span(500, 1_000), Span(500, 1_000), 500, 500, START_MS, "run-2")
    proved = [proof.parts for proof in next_proof(again).partitions]
    assert proved == [(halves[0],), (halves[1],), (halves[2], added)]


def _check_stored(spark: Any, result: AuditResult, directory: Path) -> None:
    for _ in range(2):
        write_result(spark, result, directory)
    assert spark.read.parquet(str(directory / "runs")).count() == 1
    assert spark.read.parquet(str(directory / "diffs")).count() == len(result.differences)
    assert result.groups is not None
    stored = spark.read.parquet(str(directory / "groups")).orderBy("group").collect()
    assert [(row["group"], row["verdict"], row["differs"], row["reason"]) for row in stored] == [
        ("behind", "behind", True, "not_carried"),
        ("same", "same", False, None),
    ]
    ranges = spark.read.parquet(str(directory / "ranges"))
    assert ranges.count() == sum(item.ranges for item in result.partitions)
    assert ranges.where("verdict = 'differs'").count() == len(result.ranges)
    digests = spark.read.parquet(str(directory / "digests" / f"run_id={result.run_id}"))
    sums = digests.groupBy("site", "partition").agg({"records": "sum"}).collect()
    counted = {(row["site"], row["partition"]): row["sum(records)"] for row in sums}
    for item in result.partitions:
        assert counted["east", item.partition] == item.source_records
        assert counted["west", item.partition] == item.target_records
    assert result.digest_bytes == sum(path.stat().st_size for path in (directory / "digests").rglob("*.parquet"))
    page = write_report(as_html(result, "farshore audit run --link east-west"), directory, result.run_id).read_text()
    assert "<svg" in page
    assert "tampered with" in page
    assert "http://" not in page.replace("http://www.w3.org/", "").replace("http://purl.org/", "").replace(
        "http://creativecommons.org/", ""
    )
    assert "src=" not in page
    write_summary(result, directory)
    (summary,) = read_summaries(directory)
    assert (summary.verdict, summary.records_missing) == (AuditVerdict.DIFFERS, 3)
    assert json.loads(json.dumps(as_document(result)))["verdict"] == "differs"


def test_timestamps_in_microseconds_are_compared(spark: Any, kafka_39: Any) -> None:
    odd = [replace(record, timestamp_ms=1_000 * record.timestamp_ms) for record in records(20)]
    copy = Copy(odd, list(odd))
    result = audit(spark, asyncio.run(plant(kafka_39.bootstrap, [copy, changed(copy, 5)])))
    assert [item.verdict for item in result.partitions] == [AuditVerdict.EQUAL, AuditVerdict.DIFFERS]
    assert [(item.kind, item.source_offset) for item in result.differences] == [(Kind.CHANGED, 5)]
    assert as_html(result, "x").count("<svg") == 1


def test_a_large_partition_is_read_by_several_tasks(
    spark: Any, shared_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AUDIT_TASK_OFFSETS", 300)
    copy = Copy(records(RECORDS), records(RECORDS))
    frozen = asyncio.run(plant(shared_broker.bootstrap, [dropped(copy, 299)]))
    topic = frozen.partitions[0].topic
    read = read_records(spark, frozen.source, {(topic, 0): Span(0, RECORDS)}, {topic: topic})
    assert read.rdd.getNumPartitions() == 4
    assert read.select("offset").distinct().count() == RECORDS
    result = audit(spark, frozen)
    assert [(item.kind, item.source_offset) for item in result.differences] == [(Kind.LOST, 299)]


def test_what_moved_is_told_from_what_is_lost_or_twice(spark: Any, shared_broker: Any) -> None:
    """Next to each other; far away, so that each of the two is in a range of its own; twice, and the source's record is
    in a range that is equal; the same, and it is in what was proved before; and nothing is there at all."""
    source = records(RECORDS)
    near, far = list(source), list(source)
    near[0], near[1] = near[1], near[0]
    far[10], far[900] = far[900], far[10]
    targets = [near, far, [*source, source[17]], [*source, source[17]], []]
    frozen = asyncio.run(plant(shared_broker.bootstrap, [Copy(source, target) for target in targets]))
    proved = replace(frozen.partitions[3], proved=(ProvedPart(Span(0, 500), Span(0, 500), 500, 500, 1, "run-0"),))
    result = audit(spark, replace(frozen, partitions=(*frozen.partitions[:3], proved, frozen.partitions[4])))
    moved, differs = AuditVerdict.MOVED, AuditVerdict.DIFFERS
    assert [item.verdict for item in result.partitions] == [moved, moved, differs, differs, differs]
    near_range = [(item.range_start, item.verdict) for item in result.ranges if item.partition == 0]
    assert near_range == [(range_of(0), moved)]
    found = [
        (item.kind, item.partition, item.source_offset, item.target_offset)
        for item in result.differences
        if item.kind is not Kind.LOST
    ]
    assert (result.found[Kind.LOST], result.partitions[4].target) == (RECORDS, Span(0, 0))
    assert found == [(Kind.DUPLICATED, 2, None, RECORDS), (Kind.DUPLICATED, 3, None, RECORDS)]
    assert result.found[Kind.MOVED] == 4


def test_records_that_expired_since_the_freeze_fail_nothing_and_are_left_out(spark: Any, shared_broker: Any) -> None:
    copies = [Copy(records(100, partition), records(100, partition)) for partition in range(2)]
    frozen = asyncio.run(plant(shared_broker.bootstrap, [dropped(copies[0], 50), copies[1]]))
    asyncio.run(expire(frozen.source.site(), TopicPartition(frozen.partitions[0].topic, 0), 30))
    result = audit(spark, frozen)
    assert [item.verdict for item in result.partitions] == [AuditVerdict.DIFFERS, AuditVerdict.EQUAL]
    assert [(item.kind, item.source_offset) for item in result.differences] == [(Kind.LOST, 50)]
    assert (result.partitions[0].source, result.partitions[0].target) == (Span(30, 100), Span(30, 99))
    assert [(item.side, item.reason, item.span) for item in result.not_compared] == [
        (Side.TARGET, Reason.EXPIRED_AT_SOURCE, Span(0, 30))
    ]


def test_of_a_compacted_topic_the_latest_values_are_compared(spark: Any, shared_broker: Any) -> None:
    """A record whose key was written again may be gone at one site; the last one of its key may not."""
    copy = Copy(records(100), records(100))
    frozen = asyncio.run(plant(shared_broker.bootstrap, [dropped(copy, 11), dropped(copy, 70), copy]))
    compacted = tuple(replace(item, compacted=True) for item in frozen.partitions[:2])
    result = audit(spark, replace(frozen, partitions=(*compacted, frozen.partitions[2])))
    assert [item.verdict for item in result.partitions] == [
        AuditVerdict.EQUAL_AS_FAR_AS_COMPARED,
        AuditVerdict.DIFFERS,
        AuditVerdict.EQUAL,
    ]
    assert [(item.kind, item.partition, item.source_offset) for item in result.differences] == [(Kind.LOST, 1, 70)]
    assert result.differences[0].source_value == records(100)[70].value.decode()  # type: ignore[union-attr]  # not null
    assert [(item.partition, item.side, item.reason, item.offsets) for item in result.not_compared] == [
        (0, Side.SOURCE, Reason.COMPACTED, 1)
    ]
    assert [item.source_records for item in result.partitions] == [99, 100, 100]
    assert result.coverage.is_full_but_in_flight
    marks = Marks(LogMark("a", 0, 0), LogMark("b", 0, 0), "s")
    marked = tuple(replace(item, marks=marks) for item in result.frozen.partitions)
    carried_on = next_proof(replace(result, frozen=replace(result.frozen, partitions=marked)))
    assert [proof.partition for proof in carried_on.partitions] == [2]


async def expire(site: Site, where: TopicPartition, start: int) -> None:
    async with Cluster(site) as cluster:
        await delete_records(cluster, {where: start})


async def test_a_child_compares_and_stores(shared_broker: Any, tmp_path: Path) -> None:
    copy = Copy(records(100), records(100))
    frozen = await plant(shared_broker.bootstrap, [dropped(copy, 10)])
    jars = tuple(sorted(str(jar) for jar in SPARK_JARS.glob("*.jar")))
    request = ChildRequest("run-1", frozen, "local[2]", jars, tmp_path, tmp_path / "spark.log", "farshore audit run")
    steps: list[str] = []
    compared = await run_child(request, steps.append)
    assert compared.verdict is AuditVerdict.DIFFERS
    assert [item["kind"] for item in compared.document["differences"]] == ["lost"]
    assert steps == [
        "starting Spark",
        "digesting source east",
        "digesting target west",
        "opening 1 differing ranges",
        "writing the result",
    ]
    assert compared.report == tmp_path / "reports" / "run-1.html"
    tables = {"runs", "digests", "ranges", "diffs", "groups"}
    assert {item.name for item in tmp_path.iterdir()} == tables | {
        "documents",
        "reports",
        "last",
        "proofs",
        "spark.log",
    }
