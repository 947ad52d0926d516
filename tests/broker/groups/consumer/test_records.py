"""What is written of a consumer group, read back: by us, and by the bytes that Kafka's schemas say."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker.groups.consumer.model import ClassicSide, ConsumerGroup, ConsumerMember, MemberState, Slot, Subscription
from broker.groups.consumer.records import GroupReader, changes, removal
from broker.groups.model import GroupProtocol

SLOTS = st.frozensets(st.builds(Slot, st.builds(UUID, int=st.integers(1, 3)), st.integers(0, 5)), max_size=5)
EPOCHS = st.integers(-2, 1000)
TEXT = st.text(max_size=5)
MEMBERS = st.builds(
    ConsumerMember,
    st.sampled_from("abc"),
    st.none() | TEXT,
    st.none() | TEXT,
    TEXT,
    TEXT,
    st.integers(0, 60_000),
    st.builds(Subscription, st.frozensets(TEXT, max_size=3), st.none() | TEXT, st.none() | TEXT),
    EPOCHS,
    EPOCHS,
    st.sampled_from(MemberState),
    SLOTS,
    SLOTS,
    st.none() | st.builds(ClassicSide, st.integers(0, 60_000), st.tuples(st.builds(GroupProtocol, TEXT, st.binary()))),
)
GROUPS = st.builds(
    lambda epoch, target_epoch, members, target: ConsumerGroup(
        "readers", epoch, target_epoch, "", {m.member_id: m for m in members}, target
    ),
    st.integers(1, 1000),
    st.integers(1, 1000),
    st.lists(MEMBERS, max_size=3),
    st.dictionaries(st.sampled_from("abc"), SLOTS),
)


@given(st.lists(GROUPS, min_size=1, max_size=5))
def test_the_differences_of_all_steps_make_the_last_group(steps: list[ConsumerGroup]) -> None:
    reader = GroupReader()
    before = ConsumerGroup("readers")
    for after in steps:
        for entry in changes(before, after):
            assert reader.take(entry.key, entry.value)
        before = after
    assert list(reader.groups()) == [before]
    assert changes(before, before) == []


@given(GROUPS)
def test_nothing_is_left_of_a_group_that_was_removed(group: ConsumerGroup) -> None:
    written = {entry.key: entry.value for entry in changes(ConsumerGroup("readers"), group)}
    written |= {entry.key: entry.value for entry in removal(group)}
    assert set(written.values()) == {None}
    reader = GroupReader()
    for key, value in written.items():
        reader.take(key, value)
    assert list(reader.groups()) == []


def test_records_of_other_kinds_are_left_to_others() -> None:
    reader = GroupReader()
    assert not reader.take(b"", None)
    assert not reader.take(b"\x00\x01rest", b"")
    assert not reader.take(b"\x00\x10regex", b"")


def test_the_bytes_are_those_of_kafkas_schemas() -> None:
    group = ConsumerGroup("g", 7)
    (entry,) = changes(ConsumerGroup("g"), group)
    assert entry.key == b"\x00\x03" + b"\x00\x01g"
    assert entry.value == b"\x00\x00" + b"\x00\x00\x00\x07" + b"\x00"
    member = ConsumerMember("m", None, None, "c", "h", 5, Subscription(frozenset({"t"})), 7, 6)
    metadata, current = changes(group, ConsumerGroup("g", 7, members={"m": member}))
    # A tag that says null: without it a Kafka coordinator takes the member for one of the classic protocol.
    no_classic = b"\x01\x00\x01\x00"
    assert metadata.key == b"\x00\x05" + b"\x00\x01g" + b"\x00\x01m"
    assert (
        metadata.value
        == b"\x00\x00"
        + b"\x00\x00"
        + b"\x02c\x02h"
        + b"\x02\x02t"
        + b"\x00"
        + b"\x00\x00\x00\x05"
        + b"\x00"
        + no_classic
    )
    assert current.key == b"\x00\x08" + b"\x00\x01g" + b"\x00\x01m"
    assert current.value == b"\x00\x00" + b"\x00\x00\x00\x07\x00\x00\x00\x06" + b"\x00" + b"\x01\x01" + b"\x00"


def test_a_classic_members_side_is_written_as_kafka_writes_it_and_what_was_written_before_is_read() -> None:
    classic = ClassicSide(9, (GroupProtocol("range", b"xy"),))
    member = ConsumerMember("m", None, None, "c", "h", 5, Subscription(), classic=classic)
    metadata, _ = changes(ConsumerGroup("g"), ConsumerGroup("g", members={"m": member}))
    # Tag 0, its size, not null, the session time-out, one protocol.
    tag = b"\x01\x00\x11" + b"\x01" + b"\x00\x00\x00\x09" + b"\x02" + b"\x06range" + b"\x03xy" + b"\x00" + b"\x00"
    assert metadata.value is not None
    assert metadata.value.endswith(tag)
    reader = GroupReader()
    reader.take(b"\x00\x03\x00\x01g", b"\x00\x00\x00\x00\x00\x07\x00")
    reader.take(metadata.key, metadata.value.removesuffix(tag) + b"\x00")
    (group,) = reader.groups()
    assert group.members["m"].classic is None
