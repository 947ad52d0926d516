"""Fetch sessions: a client that follows the answers knows what full answers would have told it, in bounded memory."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.limits import FETCH_SESSION_EVICTION_MS, FETCH_SESSION_PARTITIONS_MAX, FETCH_SESSIONS_MAX
from broker.topics.fetch_sessions import Fetched, FetchPlan, FetchSessionError, FetchSessions
from broker.topics.partition import Waiters
from broker.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.broker.clock import ManualClock

TOPICS = ("a", "b")
IDS = {name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in TOPICS}


def sessions(clock: ManualClock | None = None, **limits: int) -> FetchSessions:
    return FetchSessions(clock or ManualClock(), itertools.count(1).__next__, **limits)


def request(session: int, epoch: int, *rows: tuple[str, int, int], **fields: Any) -> FetchRequest:
    topics = [FetchTopic(name, [FetchPartition(index, fetch_offset=offset)], IDS[name]) for name, index, offset in rows]
    return FetchRequest(session_id=session, session_epoch=epoch, topics=topics, **fields)


def forget(*rows: tuple[str, int]) -> list[ForgottenTopic]:
    return [ForgottenTopic(name, [index], IDS[name]) for name, index in rows]


def begun(cache: FetchSessions, *rows: tuple[str, int, int], by_id: bool = False) -> int:
    session = cache.begin(cache.plan(request(0, 0, *rows), by_id=by_id))
    return 0 if session is None else session.session_id


def asked(plan: FetchPlan) -> list[tuple[Any, int, int]]:
    return [(one.topic, one.asked.partition, one.asked.fetch_offset) for one in plan.partitions.values()]


def code(cache: FetchSessions, session: int, epoch: int, *rows: tuple[str, int, int], by_id: bool = False) -> int:
    with pytest.raises(FetchSessionError) as refused:
        cache.plan(request(session, epoch, *rows), by_id=by_id)
    return int(refused.value.error_code)


def test_a_session_goes_on_by_changes_alone() -> None:
    cache = sessions()
    session = begun(cache, ("a", 0, 5), ("a", 1, 6), ("b", 0, 7))
    assert asked(cache.plan(request(session, 1, ("a", 1, 9)), by_id=False)) == [("a", 0, 5), ("a", 1, 9), ("b", 0, 7)]
    plan = cache.plan(request(session, 2, ("b", 1, 1), forgotten_topics_data=forget(("a", 0))), by_id=False)
    assert asked(plan) == [("a", 1, 9), ("b", 0, 7), ("b", 1, 1)]
    assert cache.partition_count == 3


def test_a_request_that_does_not_fit_its_session_is_refused_and_changes_nothing() -> None:
    cache = sessions()
    session = begun(cache, ("a", 0, 5))
    assert code(cache, session + 1, 1) == 70
    assert code(cache, session, 2, ("b", 0, 0)) == 71
    assert code(cache, session, 0x7FFFFFFF) == 71
    assert code(cache, session, 1, ("b", 0, 0), by_id=True) == 106
    assert code(cache, 0, 1, ("a", 0, 0)) == 70
    assert asked(cache.plan(request(session, 1), by_id=False)) == [("a", 0, 5)]
    assert code(cache, session, 1) == 71


def test_a_session_by_ids_is_kept_by_ids() -> None:
    cache = sessions()
    session = begun(cache, ("a", 0, 5), by_id=True)
    assert code(cache, session, 1) == 106
    plan = cache.plan(request(session, 1, ("b", 0, 1)), by_id=True)
    assert asked(plan) == [(IDS["a"], 0, 5), (IDS["b"], 0, 1)]
    plan = cache.plan(request(session, 2, forgotten_topics_data=forget(("a", 0))), by_id=True)
    assert asked(plan) == [(IDS["b"], 0, 1)]


def test_the_epoch_begins_again_after_the_largest() -> None:
    cache = sessions()
    plan = cache.plan(request(0, 0, ("a", 0, 0)), by_id=False)
    session = cache.begin(plan)
    assert session is not None
    session.epoch = 2**31 - 1
    cache.plan(request(session.session_id, 2**31 - 1), by_id=False)
    assert session.epoch == 1


def test_a_session_ends_when_it_is_told_to_or_has_nothing_left() -> None:
    cache = sessions()
    one, two, three = (begun(cache, ("a", 0, 0)) for _ in range(3))
    plan = cache.plan(request(one, -1, ("a", 0, 0)), by_id=False)
    assert (plan.begins, plan.session, len(asked(plan))) == (False, None, 1)
    plan = cache.plan(request(two, 0, ("a", 1, 0)), by_id=False)
    assert (plan.begins, plan.session) == (True, None)
    plan = cache.plan(request(three, 1, forgotten_topics_data=forget(("a", 0))), by_id=False)
    assert (plan.begins, plan.session, asked(plan)) == (False, None, [])
    assert [code(cache, gone, 1) for gone in (one, two, three)] == [70, 70, 70]
    assert (len(cache), cache.partition_count) == (0, 0)


def test_what_had_its_turn_comes_last() -> None:
    cache = sessions()
    plan = cache.plan(request(0, 0, ("a", 0, 0), ("a", 1, 0), ("b", 0, 0)), by_id=False)
    first = next(iter(plan.partitions.values()))
    session, _ = cache.tell(plan, [(first, PartitionData(0, 0, 5, records=b"x"))])
    again = cache.plan(request(session, 1), by_id=False)
    assert asked(again) == [("a", 1, 0), ("b", 0, 0), ("a", 0, 0)]
    assert again.session is not None
    assert [one.key for one in again.session.look(0)] == [("a", 1), ("b", 0), ("a", 0)]


def data_of(*ends: int, offset: int = 0) -> PartitionData:
    """High watermark and last stable offset."""
    return PartitionData(offset, 0, ends[0], ends[-1], 0, records=b"")


def test_what_was_told_is_not_looked_at_until_its_partition_wakes_it() -> None:
    cache = sessions()
    plan = cache.plan(request(0, 0, ("a", 0, 5), ("a", 1, 5), ("b", 0, 5)), by_id=False)
    session_id, _ = cache.tell(plan, [(one, data_of(5)) for one in plan.partitions.values()])
    plan = cache.plan(request(session_id, 1), by_id=False)
    session, waiters = plan.session, dict[str, Waiters](a0={}, a1={}, b0={})
    assert session is not None
    looked_at = session.look(0)
    for one in looked_at:
        one.watch(waiters[f"{one.topic}{one.asked.partition}"])
    a0, a1, b0 = looked_at
    event = asyncio.Event()
    session.waiters[event] = None
    assert session.look_again() == []
    a1.set()
    assert event.is_set()
    assert session.look_again() == [a1]
    b0.set()
    cache.tell(plan, [(a0, data_of(5)), (a1, data_of(6)), (b0, data_of(5))])
    assert session.look(0) == [a1, b0], "one had no room for its records, and one was woken since it was looked at"
    cache.tell(cache.plan(request(session_id, 2), by_id=False), [(a1, data_of(6, 5)), (b0, PartitionData(0, 6, -1))])
    assert session.look(0) == [a1, b0], "an uncommitted reader could read on; an error is told again and again"
    assert session.look(1) == [a0, a1, b0], "who reads otherwise than before"
    cache.tell(cache.plan(request(session_id, 3, ("a", 0, 6)), by_id=False), [(a1, data_of(6, 5)), (b0, data_of(5))])
    assert session.look(1) == [a0], "its offset is another one"
    cache.plan(request(session_id, 4, forgotten_topics_data=forget(("a", 0))), by_id=False)
    assert session.look(1) == []
    assert [len(each) for each in waiters.values()] == [0, 1, 1]
    cache.plan(request(session_id, -1), by_id=False)
    assert [len(each) for each in waiters.values()] == [0, 0, 0]


def test_a_fetch_that_outlives_its_session_watches_nothing() -> None:
    """It waits still when the session is over, or forgets a partition, and looks once more."""
    cache, waiters = sessions(), Waiters()
    session_id = begun(cache, ("a", 0, 5), ("a", 1, 5))
    looked_at = [*cache.plan(request(session_id, 1), by_id=False).partitions.values()]
    for one in looked_at:
        one.watch(waiters)
    assert len(waiters) == 2
    cache.plan(request(session_id, 2, forgotten_topics_data=forget(("a", 0))), by_id=False)
    cache.plan(request(session_id, 0, ("a", 1, 5)), by_id=False)
    for one in looked_at:
        one.watch(waiters)
    assert not waiters


@pytest.mark.parametrize(
    ("data", "news"),
    [
        (PartitionData(0, 0, 5, log_start_offset=1), False),
        (PartitionData(0, 0, 6, log_start_offset=1), True),
        (PartitionData(0, 0, 5, log_start_offset=2), True),
        (PartitionData(0, 0, 5, log_start_offset=1, records=b"x"), True),
        (PartitionData(0, 3, -1), True),
        (PartitionData(0, 1, 5, log_start_offset=1), True),
        (PartitionData(0, 0, 5, log_start_offset=1, diverging_epoch=EpochEndOffset(1, 1)), True),
    ],
)
def test_what_is_news(data: PartitionData, news: bool) -> None:
    (fetched,) = sessions().plan(request(0, 0, ("a", 0, 0)), by_id=False).partitions.values()
    assert fetched.take_news(PartitionData(0, 0, 5, log_start_offset=1))
    assert fetched.take_news(data) is news
    # An error is told until it is over, and that it is over is news.
    assert fetched.take_news(data) is (news and data.high_watermark in (-1, 5) and data.log_start_offset != 2)
    if data.error_code or data.diverging_epoch is not None:
        # So is what came with the order to cut the log: the follower's high watermark was below that then.
        assert fetched.take_news(PartitionData(0, 0, 5, log_start_offset=1))


def test_everything_is_news_in_another_leader_epoch() -> None:
    """What was told in the last one came too late for a follower that follows in a new one by then."""
    cache = sessions()
    session = cache.begin(cache.plan(request(0, 0, ("a", 0, 0)), by_id=False))
    assert session is not None
    (fetched,) = session.partitions.values()
    told = PartitionData(0, 0, 5, log_start_offset=1)
    for epoch, news in ((1, True), (1, False), (2, True), (2, False)):
        again = request(session.session_id, session.epoch, ("a", 0, 0))
        again.topics[0].partitions[0].current_leader_epoch = epoch
        cache.plan(again, by_id=False)
        assert fetched.take_news(told) is news


def test_where_else_to_read_is_news_each_time() -> None:
    """A consumer that comes back from there would wait here for nothing."""
    fetched = Fetched("t", FetchPartition(0))
    sent_away = PartitionData(0, 0, 5, log_start_offset=1, preferred_read_replica=2)
    assert fetched.take_news(sent_away)
    assert fetched.take_news(sent_away)


def test_only_sessions_that_nobody_uses_make_room() -> None:
    clock = ManualClock()
    cache = sessions(clock, sessions_max=2)
    one, two = begun(cache, ("a", 0, 0)), begun(cache, ("a", 0, 0))
    assert begun(cache, ("a", 0, 0)) == 0
    clock.advance(FETCH_SESSION_EVICTION_MS + 1)
    cache.plan(request(one, 1), by_id=False)
    three = begun(cache, ("a", 0, 0))
    assert three
    assert code(cache, two, 1) == 70
    cache.plan(request(one, 2), by_id=False)
    assert begun(cache, ("a", 0, 0)) == 0


def test_a_session_that_is_used_goes_for_a_larger_one_alone_and_not_at_once() -> None:
    clock = ManualClock()
    cache = sessions(clock, sessions_max=1)
    session = begun(cache, ("a", 0, 0))
    assert begun(cache, ("a", 0, 0), ("b", 0, 0)) == 0
    for epoch in range(1, 4):
        clock.advance(FETCH_SESSION_EVICTION_MS)
        cache.plan(request(session, epoch), by_id=False)
        assert begun(cache, ("b", 0, 0)) == 0
    assert begun(cache, ("a", 0, 0), ("b", 0, 0))
    assert code(cache, session, 4) == 70


def test_a_follower_need_not_wait_for_a_session_of_a_consumer() -> None:
    clock = ManualClock()
    cache = sessions(clock, sessions_max=2)

    def followed(*rows: tuple[str, int, int]) -> int:
        session = cache.begin(cache.plan(request(0, 0, *rows), by_id=False, privileged=True))
        return 0 if session is None else session.session_id

    large, small = begun(cache, ("a", 0, 0), ("a", 1, 0)), begun(cache, ("a", 0, 0))
    first = followed(("a", 0, 0))
    assert code(cache, small, 1) == 70
    second = followed(("a", 0, 0))
    assert code(cache, large, 1) == 70
    assert followed(("a", 0, 0), ("b", 0, 0)) == 0
    clock.advance(FETCH_SESSION_EVICTION_MS)
    for session in (first, second):
        cache.plan(request(session, 1), by_id=False)
    clock.advance(1)
    assert begun(cache, ("a", 0, 0), ("a", 1, 0), ("b", 0, 0)) == 0
    assert followed(("a", 0, 0), ("b", 0, 0))


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    cache = sessions(partitions_max=3)
    one = begun(cache, ("a", 0, 0), ("a", 1, 0))
    assert begun(cache, ("a", 0, 0), ("a", 1, 0)) == 0
    two = begun(cache, ("b", 0, 0))
    # Growing beyond the limit ends the session; the client begins again, without one if need be.
    assert code(cache, two, 1, ("b", 1, 0)) == 70
    assert code(cache, two, 2) == 70
    assert (len(cache), cache.partition_count) == (1, 2)
    cache.plan(request(one, 1, ("b", 0, 0)), by_id=False)
    assert cache.partition_count == 3


def test_names_that_no_topic_has_are_not_remembered() -> None:
    cache = sessions()
    long = FetchRequest(topics=[FetchTopic("x" * 250, [FetchPartition()])])
    long.session_epoch = 0
    plan = cache.plan(long, by_id=False)
    assert (plan.begins, len(plan.partitions)) == (False, 1)
    session = begun(cache, ("a", 0, 0))
    long.session_id, long.session_epoch = session, 1
    with pytest.raises(FetchSessionError):
        cache.plan(long, by_id=False)
    assert cache.partition_count == 0


def test_the_default_bounds_are_those_of_the_limits() -> None:
    cache = sessions()
    rows = [("a", index, 0) for index in range(FETCH_SESSION_PARTITIONS_MAX)]
    assert begun(cache, *rows)
    assert begun(cache, ("b", 0, 0)) == 0
    cache = sessions()
    assert all(begun(cache, ("a", 0, 0)) for _ in range(FETCH_SESSIONS_MAX))
    assert begun(cache, ("a", 0, 0)) == 0


class FollowedSession(RuleBasedStateMachine):
    """A client and a log's ends: after each answer the client knows all that a full answer would say."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = sessions(sessions_max=3)
        self.ends = {(name, index): 0 for name in TOPICS for index in range(2)}
        self.wanted: dict[tuple[str, int], int] = {}
        self.sent: dict[tuple[str, int], int] = {}
        self.known: dict[tuple[str, int], int] = {}
        self.session = self.epoch = 0
        self.waiters: dict[tuple[str, int], Waiters] = {where: {} for where in self.ends}

    @rule(where=st.sampled_from([(name, index) for name in TOPICS for index in range(2)]), offset=st.integers(0, 3))
    def want(self, where: tuple[str, int], offset: int) -> None:
        self.wanted[where] = offset

    @rule(where=st.sampled_from([(name, index) for name in TOPICS for index in range(2)]))
    def forget(self, where: tuple[str, int]) -> None:
        self.wanted.pop(where, None)

    @rule(where=st.sampled_from([(name, index) for name in TOPICS for index in range(2)]))
    def grow(self, where: tuple[str, int]) -> None:
        self.ends[where] += 1
        for waiter in self.waiters[where]:
            waiter.set()

    @rule()
    def other_client(self) -> None:
        begun(self.cache, ("b", 1, 0))

    @rule()
    def lose(self) -> None:
        self.session = self.epoch = 0

    @rule()
    def fetch(self) -> None:
        changed = {w: o for w, o in self.wanted.items() if not self.session or self.sent.get(w) != o}
        gone = [where for where in self.sent if self.session and where not in self.wanted]
        self.known = {where: end for where, end in self.known.items() if self.session and where not in gone}
        rows = [(name, index, offset) for (name, index), offset in changed.items()]
        asked_for = request(self.session, self.epoch, *rows, forgotten_topics_data=forget(*gone))
        plan = self.cache.plan(asked_for, by_id=False)
        places = {self._where(one): one.asked.fetch_offset for one in plan.partitions.values()}
        assert places == self.wanted
        found = []
        for one in plan.session.look(0) if plan.session else plan.partitions.values():
            where = self._where(one)
            one.watch(self.waiters[where])
            found.append((one, PartitionData(where[1], 0, self.ends[where], 0, 0)))
        session, told = self.cache.tell(plan, found)
        for one, data in told:
            self.known[self._where(one)] = data.high_watermark
        self.sent = dict(self.wanted)
        self.session, self.epoch = session, self.epoch + 1 if session else 0
        assert self.known == {where: self.ends[where] for where in self.wanted}

    def _where(self, one: Fetched) -> tuple[str, int]:
        return str(one.topic), one.asked.partition

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.cache) <= 3
        assert self.cache.partition_count == sum(len(s.partitions) for s in self.cache._sessions.values())
        watching = {waiter for waiters in self.waiters.values() for waiter in waiters}
        assert watching <= {one for s in self.cache._sessions.values() for one in s.partitions.values()}


FollowedSession.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
test_a_client_that_follows_its_session_misses_nothing = FollowedSession.TestCase
