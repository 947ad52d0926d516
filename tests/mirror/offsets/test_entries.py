"""The state topic's records: what an older version wrote must mean the same for ever, and what is newer is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    Entry,
    Gap,
    GapKind,
    GapStatus,
    LastRecord,
    LinkRun,
    Owner,
    RunState,
    TopicIds,
    VoidBlock,
    Writer,
    decode_entry,
    decode_key,
    encode_key,
    encode_value,
    encode_void_key,
)
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncTimes, Written
from mirror.offsets.histories import EpochStart
from mirror.offsets.hold_entries import Hold, HoldReason, VoidHold
from mirror.offsets.intervals import End, Interval
from mirror.offsets.left_out import LeftOut
from mirror.offsets.promotion_entries import BackPromotion, FencedEnd, FencedLogs, FencedTopic
from mirror.offsets.topic_entries import TopicIdentity, TopicPause

WRITER = Writer(7, 3)
BLOCK = Block("flights", 2, WRITER, 41, (Interval(100, 90), Interval(105, 93), Interval(2_000, 1_500)))
CHECKPOINT = Checkpoint("flights", 2, End(100, 90), 104, WRITER, 41, 110, 1_700, 1_800)
GAP = Gap("flights", 2, GapKind.TRUNCATED_START, 5, 9, 4, GapStatus.STOPPED, 1_800, "retention")

GOLDEN: list[tuple[Entry, object, dict[str, object]]] = [
    (
        BLOCK,
        ["interval", "flights", 2, 100],
        {"writer": [7, 3], "sequence": 41, "intervals": [100, 90, 5, 3, 1_895, 1_407]},
    ),
    (
        CHECKPOINT,
        ["position", "flights", 2],
        {
            "end": [100, 90],
            "position": 104,
            "writer": [7, 3],
            "sequence": 41,
            "source_end_offset": 110,
            "source_timestamp_ms": 1_700,
            "observed_at_ms": 1_800,
        },
    ),
    (
        replace(
            CHECKPOINT,
            leader_epochs=(EpochStart(3, 0), EpochStart(5, 90)),
            last=LastRecord(99, 88, 7),
            topic_ids=TopicIds("a", "b"),
        ),
        ["position", "flights", 2],
        {
            "end": [100, 90],
            "position": 104,
            "writer": [7, 3],
            "sequence": 41,
            "source_end_offset": 110,
            "source_timestamp_ms": 1_700,
            "observed_at_ms": 1_800,
            "leader_epochs": [[3, 0], [5, 90]],
            "last": [99, 88, 7],
            "topic_ids": ["a", "b"],
        },
    ),
    (
        replace(CHECKPOINT, left_out=(LeftOut("north", 5, 9),)),
        ["position", "flights", 2],
        {
            "end": [100, 90],
            "position": 104,
            "writer": [7, 3],
            "sequence": 41,
            "source_end_offset": 110,
            "source_timestamp_ms": 1_700,
            "observed_at_ms": 1_800,
            "left_out": [["north", 5, 9]],
        },
    ),
    (
        GAP,
        ["gap", "flights", 2, 5, "truncated_start"],
        {
            "kind": "truncated_start",
            "source_to": 9,
            "target_offset": 4,
            "status": "stopped",
            "at_ms": 1_800,
            "detail": "retention",
        },
    ),
    (
        Acceptance("flights", 2, 5, "truncated_start", 1_800, 9, "resume-1"),
        ["accepted", "flights", 2, 5, "truncated_start"],
        {"kind": "truncated_start", "stopped_at_ms": 1_800, "source_to": 9, "operation_id": "resume-1"},
    ),
    (LinkRun(RunState.PROMOTED, "op-1", 5), ["link"], {"state": "promoted", "operation_id": "op-1", "at_ms": 5}),
    (
        LinkRun(RunState.PROMOTED, "op-2", 5, ("op-0", "op-1")),
        ["link"],
        {"state": "promoted", "operation_id": "op-2", "at_ms": 5, "after": ["op-0", "op-1"]},
    ),
    (BackPromotion("back", "op-1"), ["back", "back"], {"link": "back", "operation_id": "op-1"}),
    (
        FencedLogs(3, "op-1", (FencedTopic("flights", "an-id", (FencedEnd(2, 90, 7, 5),)),)),
        ["fenced", 3],
        {"share": 3, "operation_id": "op-1", "topics": [["flights", "an-id", [[2, 90, 7, 5]]]]},
    ),
    (Owner(WRITER, "host:1", 5), ["owner"], {"writer": [7, 3], "worker": "host:1", "at_ms": 5}),
    (
        Owner(WRITER, "host:1", 5, 2, "KafkaError: why"),
        ["owner"],
        {"writer": [7, 3], "worker": "host:1", "at_ms": 5, "restarts": 2, "restart_reason": "KafkaError: why"},
    ),
    (TopicIdentity("flights", "an-id"), ["identity", "flights"], {"topic_id": "an-id"}),
    (TopicPause("flights", "pause-1", 5), ["paused", "flights"], {"operation_id": "pause-1", "at_ms": 5}),
    (GroupSyncTimes({"g": 5}), ["groups"], {"synced_at_ms": {"g": 5}}),
    (GroupSyncTimes({}, 7), ["groups"], {"synced_at_ms": {}, "looked_at_ms": 7}),
    (
        GroupSync(
            "g",
            9,
            {("flights", 2): Written(100, 90), ("flights", 3): Written(7, 7, 5)},
            {("trips", 0): GroupAction.SKIP_ACTIVE, ("trips", 1): GroupAction.SKIP_ACTIVE},
            "why",
            8,
        ),
        ["group", "g"],
        {
            "at_ms": 9,
            "written": {"flights": [2, 100, 90, None, 3, 7, 7, 5]},
            "waiting": {"skip_active": {"trips": [0, 1]}},
            "failure": "why",
            "synced_at_ms": 8,
        },
    ),
    (
        Hold("flights", 2, HoldReason.NO_LEADER_AT_SOURCE, "why", 5),
        ["held", "flights", 2],
        {"reason": "no_leader_at_source", "detail": "why", "at_ms": 5},
    ),
    (
        Hold("flights", None, HoldReason.TOPIC_NOT_CREATED, "why", 5),
        ["held", "flights", None],
        {"reason": "topic_not_created", "detail": "why", "at_ms": 5},
    ),
]

names = st.text(max_size=20)
numbers = st.integers(-1, 2**63 - 1)
small = st.integers(0, 100)
places = st.tuples(names, small)
writers = st.builds(Writer, numbers, small)
ends = st.builds(End, numbers, numbers)
entries = st.one_of(
    st.builds(Block, names, small, writers, numbers, st.lists(st.builds(Interval, numbers, numbers)).map(tuple)),
    st.builds(Checkpoint, names, small, ends, numbers, writers, numbers, numbers, numbers, numbers),
    st.builds(
        Checkpoint,
        names,
        small,
        ends,
        numbers,
        writers,
        numbers,
        numbers,
        numbers,
        numbers,
        st.lists(st.builds(EpochStart, small, numbers)).map(tuple),
        st.one_of(st.none(), st.builds(LastRecord, numbers, numbers, numbers)),
        st.builds(TopicIds, names, names),
    ),
    st.builds(
        Gap,
        names,
        small,
        st.sampled_from(GapKind),
        numbers,
        numbers,
        numbers,
        st.sampled_from(GapStatus),
        numbers,
        names,
    ),
    st.builds(LinkRun, st.sampled_from(RunState), names, numbers),
    st.builds(Owner, writers, names, numbers),
    st.builds(Owner, writers, names, numbers, st.integers(1, 9), names),
    st.builds(TopicIdentity, names, names),
    st.builds(TopicPause, names, names, numbers),
    st.builds(GroupSyncTimes, st.dictionaries(names, numbers, max_size=5), st.none() | numbers),
    st.builds(
        GroupSync,
        names,
        numbers,
        st.dictionaries(places, st.builds(Written, numbers, numbers, st.none() | numbers), max_size=5),
        st.dictionaries(places, st.sampled_from(GroupAction), max_size=5),
        names,
        st.none() | numbers,
    ),
    st.builds(Hold, names, st.one_of(st.none(), small), st.sampled_from(HoldReason), names, numbers),
)


def read_back(entry: Entry) -> Entry:
    if isinstance(entry, Block) and not entry.intervals:
        return decode_entry(["interval", entry.topic, entry.partition, 0], encode_value(entry))
    return decode_entry(decode_key(encode_key(entry)), encode_value(entry))


@given(entries)
def test_whatever_is_written_is_read_back_whole(entry: Entry) -> None:
    assert read_back(entry) == entry


@pytest.mark.parametrize(("entry", "key", "value"), GOLDEN, ids=lambda at: type(at).__name__)
def test_the_records_are_written_as_they_always_were(entry: Entry, key: object, value: dict[str, object]) -> None:
    """Both ways: a link that is upgraded must understand the topic that its last version left."""
    assert json.loads(encode_key(entry)) == key
    assert json.loads(encode_value(entry)) == {"v": 1, **value}
    assert decode_entry(decode_key(json.dumps(key).encode()), json.dumps({"v": 1, **value}).encode()) == entry


@pytest.mark.parametrize("entry", [golden[0] for golden in GOLDEN], ids=lambda at: type(at).__name__)
def test_what_a_newer_version_wrote_is_refused_and_not_guessed(entry: Entry) -> None:
    value = json.dumps(json.loads(encode_value(entry)) | {"v": 2}).encode()
    with pytest.raises(ValueError, match="newer version"):
        decode_entry(decode_key(encode_key(entry)), value)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown entry 'promise'"):
        decode_entry(["promise", "flights"], b'{"v":1}')
    with pytest.raises(ValueError, match="unknown entry 'position'"):
        decode_entry(["position", "flights"], b'{"v":1}')


@pytest.mark.parametrize("key", [b"", b"{}", b"[]", b'"link"', b"7", b"\xff"])
def test_what_is_no_key_is_said_so(key: bytes) -> None:
    is_json = key not in (b"", b"\xff")
    with pytest.raises(ValueError, match="not a key of a link's state" if is_json else "Expecting value|decode"):
        decode_key(key)


def test_a_void_takes_back_exactly_its_block() -> None:
    assert encode_void_key(VoidBlock("flights", 2, BLOCK.key_source)) == encode_key(BLOCK)
    for hold in (entry for entry, _, _ in GOLDEN if isinstance(entry, Hold)):
        assert encode_void_key(VoidHold(hold.topic, hold.partition)) == encode_key(hold)
    for other in (VoidBlock("flights", 2, 101), VoidBlock("flights", 1, 100), VoidBlock("orders", 2, 100)):
        assert encode_void_key(other) != encode_key(BLOCK)


@given(entries.filter(lambda e: not isinstance(e, Block) or bool(e.intervals)), names, small, numbers)
def test_a_void_never_takes_back_anything_but_a_block(entry: Entry, topic: str, partition: int, source: int) -> None:
    if encode_void_key(VoidBlock(topic, partition, source)) == encode_key(entry):
        assert isinstance(entry, Block)
        assert (entry.topic, entry.partition, entry.key_source) == (topic, partition, source)


def test_a_gap_of_a_version_that_kept_one_kind_per_offset_is_still_read() -> None:
    assert decode_entry(["gap", "flights", 2, 5], encode_value(GAP)) == GAP


def test_compaction_keeps_one_checkpoint_per_partition_and_every_gap() -> None:
    later = Checkpoint("flights", 2, End(200, 190), 204, Writer(7, 5), 0, 210, 2_700, 2_800)
    assert encode_key(later) == encode_key(CHECKPOINT)
    second = Gap("flights", 2, GapKind.TRUNCATED_START, 30, 40, 20, GapStatus.STOPPED, 1_900, "retention")
    accepted = Gap("flights", 2, GapKind.TRUNCATED_START, 5, 9, 4, GapStatus.ACCEPTED, 1_900, "retention")
    assert encode_key(second) != encode_key(GAP) == encode_key(accepted)
