"""Which offsets of other units' partitions a pass over groups may translate."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from broker.client.model import Topic
from broker.client.site import Site
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Owner, TopicIds, Writer
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.intervals import End
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.state_entries import StateEntries
from mirror.worker.other_units import OtherUnits, doubted

LINK = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:2"), ("flights",), units=2)
WHERE = ("flights", 0)
NOW_MS = 1_000_000
ID = UUID(int=1)
OWNER = Owner(Writer(7, 3), "host:1", NOW_MS - 1_000)
CHECKPOINT = Checkpoint(*WHERE, End(5, 5), 5, OWNER.writer, 5, 5, 1, NOW_MS - 2_000, topic_ids=TopicIds(str(ID), ""))
ENTRIES = StateEntries(LINK.of_unit(1), exists=True, checkpoints={WHERE: CHECKPOINT}, owner=OWNER, units=2)


def topic(topic_id: UUID) -> dict[str, Topic]:
    return {"flights": Topic("flights", topic_id, False, ())}


def test_what_a_living_worker_has_compared_is_translated() -> None:
    assert doubted(ENTRIES, topic(ID), NOW_MS) == set()


def test_another_topic_of_the_name_is_in_doubt_before_its_unit_has_seen_it() -> None:
    assert doubted(ENTRIES, topic(UUID(int=9)), NOW_MS) == {WHERE}
    assert doubted(ENTRIES, {}, NOW_MS) == {WHERE}, "so is one that is not there"


def test_a_unit_that_nobody_runs_or_that_is_being_taken_over_is_in_doubt() -> None:
    assert doubted(ENTRIES, topic(ID), NOW_MS + 60_000) == {WHERE}, "no sign of life"
    assert doubted(replace(ENTRIES, owner=None), topic(ID), NOW_MS) == {WHERE}
    successor = replace(OWNER, writer=Writer(7, 5))
    assert doubted(replace(ENTRIES, owner=successor), topic(ID), NOW_MS) == {WHERE}, "not compared yet"
    command = replace(OWNER, worker="operation op")
    assert doubted(replace(ENTRIES, owner=command), topic(ID), NOW_MS) == {WHERE}


def test_what_its_worker_holds_for_its_source_is_in_doubt() -> None:
    hold = Hold(*WHERE, HoldReason.ERROR_AT_SOURCE, "", 1)
    assert doubted(replace(ENTRIES, holds={WHERE: hold}), topic(ID), NOW_MS) == {WHERE}


def test_a_units_own_map_goes_before_what_others_said_of_its_partitions() -> None:
    own = OffsetMap({WHERE: PartitionMap((), End(9, 9), 9)})
    others = OtherUnits({WHERE: PartitionMap((), End(1, 1), 1), ("flights", 1): PartitionMap((), End(2, 2), 2)})
    joined = others.with_own(own)
    assert joined.mirrored_end(*WHERE) == End(9, 9)
    assert joined.mirrored_end("flights", 1) == End(2, 2)
