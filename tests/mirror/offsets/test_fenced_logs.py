"""Where a target's logs ended behind a promotion's fence: of which writers, and of which topic, that tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import (
    Checkpoint,
    LinkRun,
    RunState,
    Writer,
    decode_entry,
    decode_key,
    encode_key,
    encode_value,
)
from mirror.offsets.fence import Fence
from mirror.offsets.fence_keeping import UnitFence, keep_fenced_logs
from mirror.offsets.fenced_logs import FencedLog, fenced_entries, is_fence, logs_of
from mirror.offsets.intervals import End
from mirror.offsets.promotion_entries import FencedLogs
from mirror.offsets.recovery import TailBatch
from mirror.offsets.state import read_entries
from mirror.offsets.state_entries import StateEntries, join_units
from mirror.offsets.state_writer import ensure_own_topics
from tests.mirror.harness import make_topic

CHECKPOINT = Checkpoint("flights", 0, End(100, 90), 100, Writer(7, 3), 41, 110, -1, 0)
LOG = FencedLog("id-1", 95, Writer(7, 5), "failover-1")
LOGS = {
    (f"topic-{number}", partition): FencedLog(f"id-{number}", 10 * number + partition, Writer(7, 3), "failover-1")
    for number in range(40)
    for partition in range(2)
}


def test_it_tells_of_writers_from_before_the_fence() -> None:
    assert LOG.read_to(CHECKPOINT, "id-1") == 95


@pytest.mark.parametrize(
    "checkpoint",
    [
        replace(CHECKPOINT, writer=Writer(7, 5)),
        replace(CHECKPOINT, writer=Writer(7, 9)),
        replace(CHECKPOINT, writer=Writer(8, 0)),
        replace(CHECKPOINT, end=End(100, 95)),
        replace(CHECKPOINT, end=End(100, 120)),
    ],
    ids=["its own", "a later session's", "another producer's", "no marker behind", "a log that lost its end"],
)
def test_of_all_else_it_tells_nothing(checkpoint: Checkpoint) -> None:
    assert LOG.read_to(checkpoint, "id-1") is None


@pytest.mark.parametrize(("kept", "now"), [("id-1", "id-2"), ("id-1", ""), ("", "id-1"), ("", "")])
def test_of_a_topic_that_may_be_another_one_it_tells_nothing(kept: str, now: str) -> None:
    assert replace(LOG, topic_id=kept).read_to(CHECKPOINT, now) is None


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (TailBatch(92, 92, 7, 4, -1, is_control=True), True),
        (TailBatch(92, 92, 7, 3, -1, is_control=True), False),
        (TailBatch(92, 92, 8, 4, -1, is_control=True), False),
        (TailBatch(92, 92, 7, 4, 0, is_control=False), False),
    ],
    ids=["a later fence", "the writer's own", "an application's", "no marker"],
)
def test_which_marker_ends_what_a_writer_may_have_written(batch: TailBatch, expected: bool) -> None:
    assert is_fence(batch, CHECKPOINT) is expected


def test_what_is_written_is_read_back() -> None:
    entries = fenced_entries("failover-1", LOGS)
    assert 1 < len(entries) <= 16
    read = [decode_entry(decode_key(encode_key(entry)), encode_value(entry)) for entry in entries]
    assert read == entries
    assert logs_of(entry for entry in read if isinstance(entry, FencedLogs)) == LOGS


def test_of_a_link_that_was_cut_anew_the_next_units_part_counts() -> None:
    link = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2"), ("topic-.*",), units=2)
    where = next(where for where in LOGS if link.unit_of(*where) == 1)
    old, new = {where: LOG}, {where: replace(LOG, end=200)}
    parts = {unit: StateEntries(link.of_unit(unit), exists=True, units=2) for unit in range(2)}
    parts = {0: replace(parts[0], fenced_logs=old), 1: replace(parts[1], fenced_logs=new)}
    assert join_units(link, parts).fenced_logs == new


async def test_a_later_wave_keeps_what_stands_and_asks_for_the_rest(target: Cluster, link: Link) -> None:
    """Applications have written since. A topic that was made anew is fenced anew; one that takes no marker now was."""
    await make_topic(target, "flights", 3)
    await ensure_own_topics(target, link)
    known = StateEntries(
        link,
        run=LinkRun(RunState.PROMOTED, "failover-1", 5),
        fenced_logs={("flights", number): LOG for number in range(3)},
    )
    writer, where = Writer(7, 9), [TopicPartition("flights", number) for number in range(3)]
    away = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "flights-2")
    fence = Fence(writer, {where[2]: away}, reached={where[0]: "id-1", where[1]: "id-2"})
    await keep_fenced_logs(target, "failover-2", [UnitFence(link, writer, fence)], known, known.run)
    stands = replace(LOG, operation_id="failover-2")
    anew = FencedLog("id-2", 0, writer, "failover-2")
    expected = {where[0]: stands, where[1]: anew, where[2]: stands}
    assert (await read_entries(link, target)).fenced_logs == expected
    later = replace(known, run=LinkRun(RunState.PROMOTED, "failover-2", 6))
    await keep_fenced_logs(target, "failover-3", [UnitFence(link, writer, fence)], later, later.run)
    found = (await read_entries(link, target)).fenced_logs
    assert found == {
        where[0]: FencedLog("id-1", 0, writer, "failover-3"),
        where[1]: FencedLog("id-2", 0, writer, "failover-3"),
    }, "an operation that died before it kept any: what the one before it kept may be of before the link ran again"
