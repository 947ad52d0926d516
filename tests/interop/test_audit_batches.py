"""An audit that opens no batch which both sites have alike, against real clusters: what it proves so, and what it does
not, is said of records as it always was."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.cluster import Cluster
from broker.client.log import append, read_batches
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.batch import patch_producer, peek
from broker.wire.compression import Compression
from broker.wire.records import Record, decode_records, encode_batch
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from monitoring import limits
from monitoring.audit.document import as_document
from monitoring.audit.job import AuditJob, Report, run_job
from monitoring.audit.look import log_starts
from monitoring.audit.model import AuditVerdict, FrozenLink, FrozenPartition, FrozenSite, Kind, Span, Step
from monitoring.audit.outcome import AuditResult
from tests.monitoring.audit.planted import START_MS

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

WIDTH = 50
EACH, BATCHES = 40, 20
END = EACH * BATCHES
HIT = 7
"""The batch in which all is planted; it has offsets of two ranges."""
AT = HIT * EACH + 5
TOUCHED = range(HIT * EACH // WIDTH * WIDTH, (HIT + 1) * EACH, WIDTH)
KAFKA, OURS = "kafka_39", "shared_broker"
Log = list[bytearray]


@dataclass(frozen=True)
class Planted:
    """What the target has of a partition, and the verdict on it, with the kinds of records that differ."""

    target: Callable[[Log], Log]
    verdict: AuditVerdict = AuditVerdict.DIFFERS
    kinds: tuple[Kind, ...] = (Kind.CHANGED,)
    steps: tuple[Step, ...] = (Step(0, 0),)
    opened: Sequence[int] = TOUCHED


def log() -> Log:
    return [batch(range(first, first + EACH)) for first in range(0, END, EACH)]


def batch(offsets: Sequence[int], codec: Compression = Compression.NONE) -> bytearray:
    return encode_batch([record(offset) for offset in offsets], compression=codec)


def record(offset: int) -> Record:
    return Record(offset, START_MS + offset, b"key-%d" % offset, b"value %d" % offset * 5, (("trace", b"%d" % offset),))


def with_another(**fields: Any) -> Callable[[Log], Log]:
    def plant(source: Log) -> Log:
        records = [record(offset) for offset in range(HIT * EACH, (HIT + 1) * EACH)]
        records[5] = records[5]._replace(**fields)
        return [*source[:HIT], encode_batch(records), *source[HIT + 1 :]]

    return plant


def in_place_of(offsets: Sequence[int], codec: Compression = Compression.NONE) -> Callable[[Log], Log]:
    return lambda source: [*source[:HIT], batch(offsets, codec), *source[HIT + 1 :]]


INSIDE = list(range(HIT * EACH, (HIT + 1) * EACH))
EQUAL = AuditVerdict.EQUAL
CASES = {
    "equal": Planted(lambda source: source, EQUAL, (), opened=()),
    "key": Planted(with_another(key=b"kez-285")),
    "value": Planted(with_another(value=b"vblue")),
    "header": Planted(with_another(headers=(("trace", b"x"),))),
    "time": Planted(with_another(timestamp=START_MS + AT + 1), kinds=(Kind.RETIMED,)),
    "lost": Planted(
        in_place_of([offset for offset in INSIDE if offset != AT]),
        kinds=(Kind.LOST,),
        steps=(Step(0, 0), Step(AT + 1, AT)),
    ),
    "duplicated": Planted(
        in_place_of([*INSIDE[:6], *INSIDE[5:]]),
        kinds=(Kind.DUPLICATED,),
        steps=(Step(0, 0), Step(AT + 1, AT + 2)),
    ),
    "swapped": Planted(
        in_place_of([*INSIDE[:5], INSIDE[6], INSIDE[5], *INSIDE[7:]]), AuditVerdict.MOVED, (Kind.MOVED, Kind.MOVED)
    ),
    "compressed otherwise": Planted(in_place_of(INSIDE, Compression.ZSTD), EQUAL, ()),
    "in other batches": Planted(
        lambda source: [*source[:HIT], batch(INSIDE[:3]), batch(INSIDE[3:]), *source[HIT + 1 :]], EQUAL, ()
    ),
    "extra before the map": Planted(
        lambda source: [batch(range(END, END + 2)), *source],
        kinds=(Kind.EXTRA,) * 2,
        steps=(Step(0, 2),),
        opened=(0,),
    ),
    "extra behind the map": Planted(
        lambda source: [*source, batch(range(END, END + 3))], kinds=(Kind.EXTRA,) * 3, opened=()
    ),
    "all made anew": Planted(
        lambda source: [encode_batch(list(decode_records(each)), compression=Compression.LZ4) for each in source],
        EQUAL,
        (),
        opened=range(0, END, WIDTH),
    ),
}


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of fewer records than batches take them for little, as many tasks as there can be, and a look at more
    than the first range."""
    monkeypatch.setattr(limits, "AUDIT_RANGE_OFFSETS", WIDTH)
    monkeypatch.setattr(limits, "AUDIT_UNOPENED_MIN_OFFSETS", 1)
    monkeypatch.setattr(limits, "AUDIT_LOOK_SHARE", 2)


def audit(
    spark: Any, frozen: FrozenLink, reached: FrozenLink | None = None, report: Report = lambda _: None
) -> AuditResult:
    """`reached`: the link with its sites as our client reaches them here, where `frozen` says otherwise."""

    def look(partitions: Any) -> Any:
        return asyncio.run(log_starts(reached or frozen, partitions))

    return run_job(spark, AuditJob("run-1", frozen, lambda: START_MS, look, report, may_stay_closed=True))


def records_of(batches: Log) -> int:
    return sum(peek(each).record_count for each in batches)


def cases() -> list[tuple[Log, Planted]]:
    return [(log(), case) for case in CASES.values()]


async def plant(bootstrap: str, planted: Sequence[tuple[Log, Planted]]) -> FrozenLink:
    """A partition for each: the source's log, and what the target has of it."""
    topic = f"batches-{uuid.uuid4().hex[:8]}"
    async with Cluster(Site("east", bootstrap)) as cluster:
        names = [NewTopic(name, len(planted), configs={"retention.ms": "-1"}) for name in (topic, f"east.{topic}")]
        assert not await create_topics(cluster, names)
        ends = []
        for nth, (source, case) in enumerate(planted):
            target = case.target(source)
            for name, batches in ((topic, source), (f"east.{topic}", target)):
                for each in batches:
                    await append(cluster, TopicPartition(name, nth), each)
            ends.append(records_of(target))
    site = FrozenSite("east", bootstrap, None)
    partitions = tuple(
        FrozenPartition(topic, nth, f"east.{topic}", Span(0, END), Span(0, end), case.steps, (END, end))
        for nth, ((_, case), end) in enumerate(zip(planted, ends, strict=True))
    )
    return FrozenLink("east-west", site, replace(site, name="west"), START_MS, partitions)


@pytest.mark.parametrize("cluster", [KAFKA, pytest.param(OURS, marks=pytest.mark.slow)], indirect=True)
def test_what_batches_do_not_prove_is_opened_and_named(spark: Any, cluster: Any) -> None:
    result = audit(spark, asyncio.run(plant(cluster.bootstrap, cases())))
    found = dict(zip(CASES, result.partitions, strict=True))
    assert {name: item.verdict for name, item in found.items()} == {name: case.verdict for name, case in CASES.items()}
    kinds = {
        name: sorted(each.kind for each in result.differences if each.partition == found[name].partition)
        for name in CASES
    }
    assert kinds == {name: sorted(case.kinds) for name, case in CASES.items()}
    assert {name: item.records_unopened for name, item in found.items()} == {
        name: 2 * (END - WIDTH * len(case.opened)) for name, case in CASES.items()
    }
    assert {item.source_records for item in result.partitions} == {END}
    assert found["lost"].target_records == END - 1
    assert all(item.coverage.is_full for item in result.partitions)
    assert as_document(result)["records_unopened"] == sum(item.records_unopened for item in result.partitions)


@pytest.mark.parametrize("cluster", [OURS, KAFKA], indirect=True)
def test_what_was_in_transactions_and_what_a_broker_stamps_is_proved_unopened(spark: Any, cluster: Any) -> None:
    frozen, records = asyncio.run(mirrored(cluster.bootstrap))
    result = audit(spark, frozen)
    assert result.verdict is AuditVerdict.EQUAL
    assert (result.source_records, result.records_unopened) == (2 * records, 4 * records)


async def mirrored(bootstrap: str) -> tuple[FrozenLink, int]:
    """Committed and aborted transactions, and their copies as a mirror makes them; of the second topic the target
    stamps the records."""
    topics = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("transactions", "stamped")]
    partitions = []
    async with Cluster(Site("east", bootstrap)) as cluster:
        for topic in topics:
            is_stamped = topic.startswith("stamped")
            configs = {"message.timestamp.type": "LogAppendTime"} if is_stamped else {}
            new = [NewTopic(topic, 1), NewTopic(f"east.{topic}", 1, configs=configs)]
            assert not await create_topics(cluster, new)
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
                for commit in (True, False, True, True):
                    await producer.begin_transaction()
                    for nth in range(EACH):
                        await producer.send(topic, b"value %d" % nth, timestamp_ms=START_MS + nth)
                    await (producer.commit_transaction() if commit else producer.abort_transaction())
            where = TopicPartition(topic, 0)
            end = (await log_end_offsets(cluster, [where]))[where]
            steps, at = [], 0
            async for header, stored in read_batches(cluster, where, 0, end, IsolationLevel.READ_COMMITTED):
                steps.append(Step(header.base_offset, at))
                patch_producer(stored, producer_id=-1, producer_epoch=-1, base_sequence=-1)
                at = header.record_count + await append(cluster, TopicPartition(f"east.{topic}", 0), stored)
            log = FrozenPartition(topic, 0, f"east.{topic}", Span(0, end), Span(0, at), tuple(steps), (end, at))
            partitions.append(replace(log, timestamps_comparable=not is_stamped))
    site = FrozenSite("east", bootstrap, None)
    return FrozenLink("east-west", site, replace(site, name="west"), START_MS, tuple(partitions)), 3 * EACH


@pytest.mark.parametrize("cluster", [OURS], indirect=True)
@pytest.mark.parametrize(
    ("dialled", "said"),
    [
        ("127.0.0.1:1", "opening partitions whose batches could not be read: 1, as "),
        ("nowhere", "opening all records: broker.base.address.AddressInvalid: "),
    ],
    ids=["they say so", "their tasks fail"],
)
def test_batches_that_cannot_be_read_prove_nothing_and_records_are_read_all_the_same(
    spark: Any, cluster: Any, dialled: str, said: str
) -> None:
    """Our client is led astray, which Spark's is not."""
    frozen, records = asyncio.run(mirrored(cluster.bootstrap))
    astray = replace(frozen.target, address_map={cluster.bootstrap: dialled})
    steps: list[str] = []
    result = audit(spark, replace(frozen, target=astray, partitions=frozen.partitions[:1]), frozen, steps.append)
    assert (result.verdict, result.source_records, result.records_unopened) == (AuditVerdict.EQUAL, records, 0)
    assert [step for step in steps if step.startswith(said)]


@pytest.mark.parametrize("cluster", [OURS], indirect=True)
def test_one_share_that_was_not_read_leaves_its_whole_partition_to_who_opens_records(
    spark: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch reaches further behind its share than the map is known there: behind the beginning that is looked at."""
    small, at = EACH // 2, 33 * EACH // 2
    monkeypatch.setattr(limits, "AUDIT_TASK_OFFSETS", 3 * small)
    monkeypatch.setattr(limits, "AUDIT_BATCH_OFFSETS", 5)
    even = [batch(range(first, first + small)) for first in range(0, END, small)]
    nth = at // small - 1
    odd = [*even[:nth], batch(range(nth * small, (nth + 2) * small)), *even[nth + 2 :]]
    steps: list[str] = []
    frozen = asyncio.run(plant(cluster.bootstrap, [(odd, CASES["equal"]), (even, CASES["equal"])]))
    result = audit(spark, frozen, report=steps.append)
    assert (result.verdict, result.source_records) == (EQUAL, 2 * END)
    assert [item.records_unopened for item in result.partitions] == [0, 2 * END]
    topic = frozen.partitions[0].topic
    assert [step for step in steps if step.startswith("opening")] == [
        f"opening partitions whose batches could not be read: 1, as {topic}/0: "
        f"a batch of {2 * small} records from offset {nth * small} on"
    ]
