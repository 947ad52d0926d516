"""A fetch session at its client: it asks for what changed alone, and knows what full fetches would tell."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from broker.client.errors import KafkaError
from broker.client.fetch_session import UNTOLD, FetchSession, Wanted
from broker.client.log import FetchLimits
from broker.topics.fetch_sessions import Fetched, FetchSessionError, FetchSessions, by_topic
from broker.wire.errors import ErrorCode
from broker.wire.fetch_epochs import EPOCH_MAX
from broker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from broker.wire.vocabulary import TopicPartition
from tests.broker.clock import ManualClock

LIMITS = FetchLimits(1 << 20, 1 << 16, max_wait_ms=500)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": UUID(int=1), "b": UUID(int=2)}


def session() -> FetchSession:
    return FetchSession("east")


def ask(
    at: FetchSession,
    wanted: Mapping[TopicPartition, int],
    ids: Mapping[str, UUID] | None = None,
    changed: set[TopicPartition] | None = None,
) -> FetchRequest:
    return at.next_request({where: Wanted(offset, 3, 2) for where, offset in wanted.items()}, LIMITS, ids, changed)


def answer(
    session_id: int, told: Mapping[TopicPartition, int] | None = None, ids: Mapping[str, UUID] | None = None
) -> FetchResponse:
    topics = [
        FetchableTopicResponse("", [PartitionData(where.partition, 0, end)], ids[where.topic])
        if ids
        else FetchableTopicResponse(where.topic, [PartitionData(where.partition, 0, end)])
        for where, end in (told or {}).items()
    ]
    return FetchResponse(session_id=session_id, responses=topics)


def place(request: FetchRequest) -> tuple[int, int]:
    return request.session_id, request.session_epoch


def named(request: FetchRequest) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.topic, row.partition): row.fetch_offset
        for topic in request.topics
        for row in topic.partitions
    }


def forgotten(request: FetchRequest) -> list[tuple[str, int, UUID]]:
    return [(t.topic, index, t.topic_id) for t in request.forgotten_topics_data for index in t.partitions]


def begun(at: FetchSession, wanted: Mapping[TopicPartition, int], ids: Mapping[str, UUID] | None = None) -> None:
    ask(at, wanted, ids)
    at.take(answer(7, dict.fromkeys(wanted, 5), ids))


def test_it_begins_in_full_and_goes_on_by_what_changed() -> None:
    at = session()
    request = ask(at, {A0: 1, A1: 2, B0: 3})
    assert (place(request), named(request), at.is_full) == ((0, 0), {A0: 1, A1: 2, B0: 3}, True)
    row = request.topics[0].partitions[0]
    assert (row.current_leader_epoch, row.last_fetched_epoch, row.partition_max_bytes) == (3, 2, 1 << 16)
    assert [where for where, _ in at.take(answer(7, {A0: 5, A1: 5, B0: 6}))] == [A0, A1, B0]
    request = ask(at, {A0: 1, A1: 2, B0: 3})
    assert (place(request), named(request), forgotten(request)) == ((7, 1), {}, [])
    assert at.take(answer(7)) == []
    request = ask(at, {A0: 1, B0: 6})
    assert (place(request), named(request), forgotten(request)) == ((7, 2), {B0: 6}, [("a", 1, UUID(int=0))])
    at.take(answer(7, {B0: 9}))
    request = ask(at, {A0: 1, A1: 2, B0: 6})
    assert (place(request), named(request)) == ((7, 3), {A1: 2})


def test_a_leader_epoch_that_changed_is_news() -> None:
    at = session()
    begun(at, {A0: 1})
    for want in (Wanted(1, 4, 2), Wanted(1, 4, 3)):
        request = at.next_request({A0: want}, LIMITS)
        assert named(request) == {A0: 1}
        at.take(answer(7))


def test_who_is_not_named_stands_where_it_stood() -> None:
    at = session()
    assert at.high_watermark(A0) == UNTOLD
    begun(at, {A0: 1, A1: 2})
    ask(at, {A0: 1, A1: 2})
    at.take(answer(7, {A0: 8}))
    assert (at.high_watermark(A0), at.high_watermark(A1)) == (8, 5)
    ask(at, {A0: 1})
    refused = FetchableTopicResponse("a", [PartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)])
    ((_, data),) = at.take(FetchResponse(session_id=7, responses=[refused]))
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (at.high_watermark(A0), at.high_watermark(A1)) == (8, UNTOLD)


@pytest.mark.parametrize(
    ("code", "goes_on_from"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (0, 0)),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, (7, 0)),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, (7, 0)),
    ],
)
def test_a_session_that_is_over_is_begun_anew_in_full(code: ErrorCode, goes_on_from: tuple[int, int]) -> None:
    """With its id where the broker may still have it, so that it is dropped."""
    at = session()
    begun(at, {A0: 1, A1: 2})
    ask(at, {A0: 1, A1: 2})
    assert at.take(FetchResponse(error_code=code)) == []
    request = ask(at, {A0: 1, A1: 2})
    assert (place(request), named(request)) == (goes_on_from, {A0: 1, A1: 2})
    with pytest.raises(KafkaError, match="east"):
        at.take(FetchResponse(error_code=code))  # of a full fetch it would come again and again


def test_any_other_error_of_a_whole_fetch_is_raised_and_the_next_is_full() -> None:
    at = session()
    begun(at, {A0: 1})
    ask(at, {A0: 1})
    with pytest.raises(KafkaError) as raised:
        at.take(FetchResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, session_id=7))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert place(ask(at, {A0: 1})) == (7, 0)


def test_a_request_without_an_answer_is_followed_by_a_full_one() -> None:
    at = session()
    begun(at, {A0: 1, A1: 2})
    ask(at, {A0: 4, A1: 2})
    assert at.is_full
    request = ask(at, {A0: 4, A1: 2})
    assert (place(request), named(request)) == ((7, 0), {A0: 4, A1: 2})


def test_a_broker_without_room_for_a_session_is_asked_in_full_each_time() -> None:
    at = session()
    for _ in range(2):
        request = ask(at, {A0: 1})
        assert (place(request), named(request)) == ((0, 0), {A0: 1})
        assert [where for where, _ in at.take(answer(0, {A0: 5}))] == [A0]


def test_a_session_that_the_broker_closes_is_begun_anew() -> None:
    at = session()
    begun(at, {A0: 1})
    ask(at, {A0: 1})
    assert [where for where, _ in at.take(answer(0, {A0: 9}))] == [A0]
    assert place(ask(at, {A0: 1})) == (0, 0)


def test_an_answer_over_the_quota_has_nothing_and_a_session_goes_on() -> None:
    at = session()
    ask(at, {A0: 1})
    assert at.take(FetchResponse(throttle_time_ms=100)) == []
    assert place(ask(at, {A0: 1})) == (0, 0)
    at.take(answer(7, {A0: 5}))
    ask(at, {A0: 2})
    assert at.take(FetchResponse(throttle_time_ms=100, session_id=7)) == []
    request = ask(at, {A0: 2})
    assert (place(request), named(request)) == ((7, 2), {})


def test_answers_of_what_was_not_asked_are_not_taken_and_end_the_session() -> None:
    at = session()
    begun(at, {A0: 1})
    ask(at, {A0: 1})
    assert [where for where, _ in at.take(answer(7, {A0: 5, A1: 5}))] == [A0]
    assert place(ask(at, {A0: 1})) == (7, 0)


def test_a_full_answer_that_lacks_a_partition_begins_no_session() -> None:
    at = session()
    ask(at, {A0: 1, A1: 1})
    assert [where for where, _ in at.take(answer(7, {A0: 5}))] == [A0]
    assert place(ask(at, {A0: 1, A1: 1})) == (7, 0)


def test_a_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    at = session()
    begun(at, {A0: 1, B0: 1}, IDS)
    request = ask(at, {A0: 1, B0: 1}, {**IDS, "a": UUID(int=9)})
    assert (place(request), named(request)) == ((7, 1), {A0: 1})
    assert request.topics[0].topic_id == UUID(int=9)
    assert forgotten(request) == [("a", 0, UUID(int=1))]
    assert at.high_watermark(A0) == UNTOLD


def test_by_names_after_by_ids_is_another_session() -> None:
    at = session()
    begun(at, {A0: 1}, IDS)
    request = ask(at, {A0: 1})
    assert (place(request), named(request)) == ((7, 0), {A0: 1})


def test_the_epoch_begins_again_after_the_largest() -> None:
    at = session()
    begun(at, {A0: 1})
    at._epoch = EPOCH_MAX
    ask(at, {A0: 1})
    at.take(answer(7))
    assert place(ask(at, {A0: 1})) == (7, 1)


@dataclass
class _Log:
    end: int = 0
    error: ErrorCode = ErrorCode.NONE


class ClientAndBroker(RuleBasedStateMachine):
    """The client beside the broker's own sessions, which forget, and whose answers get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.rng = ManualClock(), random.Random(1)
        self.broker = self._no_sessions()
        self.client = session()
        self.logs = {TopicPartition(topic, index): _Log() for topic in IDS for index in range(2)}
        self.wanted: dict[TopicPartition, int] = {A0: 0}
        self.changed: set[TopicPartition] = set()
        self.ids: Mapping[str, UUID] | None = IDS

    def _no_sessions(self) -> FetchSessions:
        return FetchSessions(self.clock, lambda: self.rng.randrange(1, 2**31), sessions_max=2)

    @rule(where=st.sampled_from((A0, A1, B0)))
    def append(self, where: TopicPartition) -> None:
        self.logs[where].end += 1

    @rule(where=st.sampled_from((A0, A1, B0)), error=st.sampled_from((ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)))
    def fail(self, where: TopicPartition, error: ErrorCode) -> None:
        self.logs[where].error = error

    @rule(wanted=st.sets(st.sampled_from((A0, A1, B0)), min_size=1))
    def want(self, wanted: set[TopicPartition]) -> None:
        self.changed |= self.wanted.keys()
        self.wanted = {where: self.logs[where].end for where in sorted(wanted)}
        self.changed |= wanted

    @rule()
    def forget_sessions(self) -> None:
        self.broker = self._no_sessions()

    @precondition(lambda self: self.ids is not None)
    @rule()
    def lose_ids(self) -> None:
        self.ids = None

    @rule(lost=st.booleans(), names_changes=st.booleans())
    def fetch(self, lost: bool, names_changes: bool) -> None:
        request = ask(self.client, self.wanted, self.ids, self.changed if names_changes else None)
        self.changed = set()
        try:
            plan = self.broker.plan(request, by_id=bool(self.ids))
        except FetchSessionError as error:
            if not lost:
                self.client.take(FetchResponse(error_code=error.error_code))
            return
        found = [(one, self._data(one)) for one in plan.partitions.values()]
        assert {self._where(one) for one in plan.partitions.values()} == set(self.wanted)
        assert all(one.asked.fetch_offset == self.wanted[self._where(one)] for one in plan.partitions.values())
        session_id, told = self.broker.tell(plan, found)
        if lost:
            return
        self.client.take(FetchResponse(session_id=session_id, responses=by_topic(told)))
        for where in self.wanted:
            assert self.logs[where].error or self.client.high_watermark(where) == self.logs[where].end

    def _where(self, fetched: Fetched) -> TopicPartition:
        name = next((name for name, topic_id in IDS.items() if fetched.topic == topic_id), fetched.topic)
        assert isinstance(name, str)
        return TopicPartition(name, fetched.asked.partition)

    def _data(self, fetched: Fetched) -> PartitionData:
        log = self.logs[self._where(fetched)]
        return PartitionData(fetched.asked.partition, int(log.error), -1 if log.error else log.end)


ClientAndBroker.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_the_client_knows_the_ends_that_full_fetches_would_tell = ClientAndBroker.TestCase
