"""A fetch session as its client keeps it (KIP-227): what changed is asked, and who is not answered of has no news.

One of a connection, over the partitions that are fetched there. It begins with a full fetch, which names all of them;
each later one names those whose place is another, and those to forget. Whatever goes wrong with it costs one full fetch
and nothing else: as in Kafka's own client, a request without an answer, a broker that dropped the session, or has no
room for one, or answers of what was not asked. From Fetch 7 on; to an older broker every fetch is a full one.

Pure: `next_request`, then `take` with its answer, and so on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from broker.client.errors import KafkaError
from broker.client.limits import REPLICA_ID_CONSUMER
from broker.client.log import FetchLimits
from broker.wire.errors import ErrorCode
from broker.wire.fetch_epochs import FULL_EPOCH, NO_SESSION, next_epoch
from broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from broker.wire.schema import ZERO_UUID
from broker.wire.vocabulary import NO_LEADER_EPOCH, IsolationLevel, TopicPartition

UNTOLD: Final = -1

SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Of a whole answer: the session is over, and nothing is wrong with what was asked."""


class Wanted(NamedTuple):
    """Where a partition is to be read, and what is known of it: the leader's epoch (from Fetch 9), and that of the last
    record before `offset` (12). A broker that is not that leader refuses (KIP-320); one whose log parted from what was
    read before says so in `diverging_epoch` (KIP-595).
    """

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    last_epoch: int = NO_LEADER_EPOCH


@dataclass(slots=True, eq=False)
class _Told:
    """What the broker knows that is wanted of one partition, and what it said last of its end."""

    wanted: Wanted
    topic_id: UUID
    high_watermark: int = UNTOLD


class FetchSession:
    """`is_full`: the next request names all partitions, and the broker fills its answer in their order."""

    def __init__(self, where: str, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> None:
        """`where` is fetched from, for people."""
        self._where = where
        self._isolation = int(isolation)
        self._id, self._epoch = NO_SESSION, FULL_EPOCH
        self._told: dict[TopicPartition, _Told] = {}
        self._names: dict[UUID, str] = {}
        self._is_answered = True

    @property
    def is_full(self) -> bool:
        return self._epoch == FULL_EPOCH or not self._is_answered

    def high_watermark(self, where: TopicPartition) -> int:
        """As the broker last said; while it says nothing else, that stands. UNTOLD where it never did."""
        told = self._told.get(where)
        return UNTOLD if told is None else told.high_watermark

    def next_request(
        self,
        wanted: Mapping[TopicPartition, Wanted],
        limits: FetchLimits,
        topic_ids: Mapping[str, UUID] | None = None,
        changed: Collection[TopicPartition] | None = None,
    ) -> FetchRequest:
        """Asks for these partitions, at least one, and for no other that was asked for before. `changed`: where
        something may be another than at the last call, None for anywhere; it costs as much as these are.

        With `topic_ids`, of all their topics, it is one for FETCH_BY_ID_VERSION. `partition_max_bytes` is taken note of
        where a partition is named.
        """
        ids = topic_ids or {}
        names = {topic_id: name for name, topic_id in ids.items()}
        if self.is_full or bool(names) is not bool(self._names):
            self._epoch, self._told = FULL_EPOCH, {}  # with the id of the one before: the broker drops that at once
            changed = None
        self._names, self._is_answered = names, False
        forgotten: dict[tuple[str, UUID], list[int]] = {}
        for where in [each for each in (self._told if changed is None else changed) if each not in wanted]:
            if (told := self._told.pop(where, None)) is not None:
                _add(forgotten, where, told.topic_id)
        asked: dict[tuple[str, UUID], list[FetchPartition]] = {}
        named = wanted.items() if changed is None else [(each, wanted[each]) for each in changed if each in wanted]
        for where, want in named:
            told, topic_id = self._told.get(where), ids.get(where.topic, ZERO_UUID)
            if told is None or told.topic_id != topic_id:
                if told is not None:
                    _add(forgotten, where, told.topic_id)  # of a topic that is another one by now
                self._told[where] = _Told(want, topic_id)
            elif told.wanted != want:
                told.wanted = want
            else:
                continue
            asked.setdefault((where.topic, topic_id), []).append(_row(where.partition, want, limits))
        return FetchRequest(
            replica_id=REPLICA_ID_CONSUMER,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            isolation_level=self._isolation,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[FetchTopic(name, rows, topic_id) for (name, topic_id), rows in asked.items()],
            forgotten_topics_data=[
                ForgottenTopic(name, numbers, topic_id) for (name, topic_id), numbers in forgotten.items()
            ],
        )

    def take(self, response: FetchResponse) -> list[tuple[TopicPartition, PartitionData]]:
        """The answer to the last request -> what it says of each partition that it names. Of all others there is no
        news: no records, no error, and their ends and starts are where they were.

        Nothing at all where only the session is over: a full fetch is next. Raises KafkaError where all is refused.
        """
        self._is_answered = True
        was_full = self._epoch == FULL_EPOCH
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            self._begin_anew(NO_SESSION if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND else self._id)
            if was_full or code not in SESSION_ERRORS:
                raise KafkaError(code, f"fetch from {self._where}")
            return []
        named = sum(len(topic.partitions) for topic in response.responses)
        found = list(self._found(response))
        if len(found) < named or (was_full and len(found) < len(self._told)):
            self._begin_anew(response.session_id)
        elif was_full and response.session_id:
            self._id, self._epoch = response.session_id, next_epoch(FULL_EPOCH)
        elif was_full or response.session_id != self._id:
            self._begin_anew(response.session_id)
        else:
            self._epoch = next_epoch(self._epoch)
        return found

    def _found(self, response: FetchResponse) -> Iterator[tuple[TopicPartition, PartitionData]]:
        """Of what was asked for."""
        for topic in response.responses:
            name = self._names.get(topic.topic_id, topic.topic)
            for data in topic.partitions:
                where = TopicPartition(name, data.partition_index)
                told = self._told.get(where)
                if told is not None:
                    if not data.error_code and data.diverging_epoch is None:
                        told.high_watermark = data.high_watermark
                    yield where, data

    def _begin_anew(self, session_id: int) -> None:
        self._id, self._epoch = session_id, FULL_EPOCH


def _row(partition: int, want: Wanted, limits: FetchLimits) -> FetchPartition:
    return FetchPartition(
        partition,
        current_leader_epoch=want.leader_epoch,
        fetch_offset=want.offset,
        last_fetched_epoch=want.last_epoch,
        partition_max_bytes=limits.partition_max_bytes,
    )


def _add(topics: dict[tuple[str, UUID], list[int]], where: TopicPartition, topic_id: UUID) -> None:
    topics.setdefault((where.topic, topic_id), []).append(where.partition)
