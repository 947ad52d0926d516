"""A session: what it holds, what it tells, and when it must make way for another."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import nullcontext

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER, TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Owner, Writer
from mirror.offsets.fence import Fence
from mirror.offsets.hold_entries import HoldReason
from mirror.offsets.intervals import End
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.origin_entries import SEQUENCES_MAX
from mirror.offsets.state import StateReader
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import StateLog, StateWriter
from mirror.offsets.wishes import WishReader
from mirror.topics.seen import TopicsSeen
from mirror.topics.sync import TopicSyncReport
from mirror.worker.events import Event
from mirror.worker.ground import Ground
from mirror.worker.holds import Attempts, Holds
from mirror.worker.limits import WorkerLimits
from mirror.worker.origins import Passage
from mirror.worker.plan import Rules
from mirror.worker.replicator import Outlet, Replicator
from mirror.worker.session import Session
from mirror.worker.startup import Opened
from mirror.worker.watching import SessionOutdated, refuse_used_sequences
from tests.broker.clock import ManualClock
from tests.mirror.harness import Told
from tests.mirror.partition import Submissions

LIMITS = WorkerLimits()
WHERE = TopicPartition("flights", 0)


def session_of(places: Iterable[TopicPartition], clock: ManualClock, told: Told) -> Session:
    """One in which all of these move."""
    link = Link("east-west", Site("east", "127.0.0.1:1"), Site("west", "127.0.0.1:1"), (".*",))
    clusters = Cluster(link.source, clock=clock), Cluster(link.target, clock=clock)
    writer = Writer(7, 0)
    outlet = Outlet(link.name, Submissions().submit, told.sink(link.name), clock)
    replicators = {
        where: Replicator(where, where, PartitionMap(end=End(0, 0)), Rules(writer, 1_000_000), outlet, shared=False)
        for where in places
    }
    passage = Passage(link, *clusters)
    log = StateLog(clusters[1], link, writer)
    opened = Opened(
        owner=Owner(writer, "here:1", 0),
        state_writer=StateWriter(log),
        entries=StateEntries(link),
        topics=TopicSyncReport(TopicsSeen({}, {}, {}, {}), (), (), (), {}),
        holds=Holds(Attempts(LIMITS, clock), clock),
        ground=Ground(link, passage, (), {}, writer, StateEntries(link), {}),
        outlet=outlet,
        fence=Fence(writer, {}),
        wishes=WishReader(link, log, 0),
        state=StateReader(link),
        max_message_bytes={},
        replicators=replicators,
    )
    return Session(passage, clusters, opened, LIMITS, outlet.tell)


def test_holding_all_partitions_of_a_large_link_costs_each_no_more_than_holding_one() -> None:
    """A broker that dies led thousands: while they are held no heartbeat is written."""
    places = [TopicPartition(f"t{number // 100}", number % 100) for number in range(8_000)]
    session = session_of(places, ManualClock(), Told())
    gone = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the broker that led")
    began_s = time.process_time()
    for replicator in session.replicators.values():
        session.hold(replicator, gone, at_source=True)
    assert time.process_time() - began_s < 4
    assert session.in_doubt() == session.holds.current.keys() == set(places)
    assert all(replicator.is_held for replicator in session.replicators.values())


@pytest.mark.parametrize("at_source", [True, False])
def test_what_lost_its_leader_before_it_was_given_to_a_task_is_held_at_that_site(at_source: bool) -> None:
    lost, kept = TopicPartition("flights", 0), TopicPartition("flights", 1)
    told = Told()
    session = session_of([lost, kept], ManualClock(), told)
    led = session._led(session.replicators, {NO_LEADER: [lost], 3: [kept]}, at_source=at_source)
    assert led == {3: [session.replicators[kept]]}
    (hold,) = session.holds.current.values()
    reason = HoldReason.NO_LEADER_AT_SOURCE if at_source else HoldReason.NO_LEADER_AT_TARGET
    assert (hold.topic, hold.partition, hold.reason) == (*lost, reason)
    assert (session.replicators[lost].is_held, session.replicators[kept].is_held) == (True, False)
    assert [fields["topic"] for fields in told.of(Event.PARTITION_HELD)] == ["flights"]


def test_what_was_made_at_the_target_and_what_could_not_is_told() -> None:
    told = Told()
    session = session_of([], ManualClock(), told)
    refused = KafkaError(ErrorCode.POLICY_VIOLATION, "making bad")
    session.tell_topics(TopicSyncReport(TopicsSeen({}, {}, {}, {}), (), ("new", "newer"), ("grown",), {"bad": refused}))
    assert told.events == [
        ("east-west", Event.TOPIC_CREATED, {"topic": "new"}),
        ("east-west", Event.TOPIC_CREATED, {"topic": "newer"}),
        ("east-west", Event.TOPIC_GROWN, {"topic": "grown"}),
        ("east-west", Event.TOPIC_FAILED, {"topic": "bad", "detail": str(refused)}),
    ]


@pytest.mark.parametrize("names_origins", [True, False])
def test_sequences_that_say_where_batches_came_from_do_not_come_again(names_origins: bool) -> None:
    session = session_of([WHERE], ManualClock(), Told())
    session.passage.names_origins = names_origins
    cursor = session.replicators[WHERE].cursor
    cursor.sequence = SEQUENCES_MAX
    refuse_used_sequences(session, session.replicators[WHERE])
    cursor.sequence += 1
    with pytest.raises(SessionOutdated, match="flights-0 are used up") if names_origins else nullcontext():
        refuse_used_sequences(session, session.replicators[WHERE])
