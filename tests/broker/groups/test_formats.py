"""The records of `__consumer_offsets`, byte by byte as Kafka writes them."""

from hypothesis import given
from hypothesis import strategies as st

from broker.groups.formats import (
    Committed,
    GroupKey,
    OffsetKey,
    group_entry,
    group_tombstone,
    offset_entry,
    read_group,
    read_key,
    read_offset,
    restore_members,
)
from broker.wire.vocabulary import TopicPartition
from tests.broker.groups.scenario import Story

WHERE = TopicPartition("ab", 3)


def test_an_offset() -> None:
    entry = offset_entry("g", WHERE, Committed(258, 7, "hi", 1))
    assert entry.key == b"\x00\x01\x00\x01g\x00\x02ab\x00\x00\x00\x03"
    assert entry.value == (
        b"\x00\x03\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x07\x00\x02hi\x00\x00\x00\x00\x00\x00\x00\x01"
    )


def test_an_offset_with_a_time_of_expiry_of_its_own_is_of_version_1() -> None:
    entry = offset_entry("g", WHERE, Committed(258, -1, "", 1, 2))
    assert entry.value == (
        b"\x00\x01\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02"
    )
    assert read_offset(entry.value, 5) == Committed(258, -1, "", 1, 2, log_offset=5)


def test_a_group() -> None:
    story = Story()
    story.join(named="m", instance="i", protocols=(("r", b"sub"),), session_ms=1_000, rebalance_ms=2_000)
    story.sync("m", 1, {"m": b"part"})
    story.group.state_timestamp_ms = 9
    entry = group_entry(story.group)
    assert entry.key == b"\x00\x02\x00\x01g".replace(b"\x00\x01g", b"\x00\x0fflights-readers")
    assert entry.value == (
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x01\x00\x01r\x00\x01m\x00\x00\x00\x00\x00\x00\x00\x09"
        b"\x00\x00\x00\x01\x00\x01m\x00\x01i\x00\x06client\x00\x0a/127.0.0.1"
        b"\x00\x00\x07\xd0\x00\x00\x03\xe8\x00\x00\x00\x03sub\x00\x00\x00\x04part"
    )
    (member,) = restore_members(read_group(entry.value))
    was = story.group.members["m"]
    assert (member.member_id, member.instance_id, member.protocols) == ("m", "i", was.protocols)
    assert (member.assignment, member.session_timeout_ms, member.rebalance_timeout_ms) == (b"part", 1_000, 2_000)


def test_keys() -> None:
    assert read_key(group_tombstone("g").key) == GroupKey("g")
    assert read_key(b"\x00\x00\x00\x01g\x00\x02ab\x00\x00\x00\x03") == OffsetKey("g", WHERE), "version 0 too"
    assert read_key(b"\x00\x07whatever") is None


@given(
    st.text(max_size=30),
    st.text(max_size=30),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.text(max_size=50),
)
def test_what_is_written_is_read(group: str, topic: str, partition: int, offset: int, metadata: str) -> None:
    where, committed = TopicPartition(topic, partition), Committed(offset, 0, metadata, 1)
    entry = offset_entry(group, where, committed)
    assert read_key(entry.key) == OffsetKey(group, where)
    assert read_offset(entry.value or b"", -1) == committed
