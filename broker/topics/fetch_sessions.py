"""Fetch sessions (KIP-227): what a client fetches is remembered, so that it asks and is answered only of what changes.

A session begins with a full request (epoch 0) and goes on by requests of epochs 1, 2, 3... that name only the
partitions whose offsets or limits are new, and those to forget. The answers hold only the partitions that have news. A
session that is lost costs its client one full request, so sessions are dropped freely: the memory they may take is
bounded by their number and by the partitions of all together. Who goes for whom is as in Kafka's `FetchSessionCache`.

A consumer's fetch looks only at the partitions that may have news (`due`): whoever was told all of one waits for it
(`Partition.waiters`), and is woken.

Pure of sockets and of logs; one event loop owns it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from broker.base.clock import Clock, steady_ms
from broker.errors import BrokerError
from broker.limits import (
    FETCH_SESSION_EVICTION_MS,
    FETCH_SESSION_PARTITIONS_MAX,
    FETCH_SESSIONS_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from broker.topics.partition import Waiters
from broker.wire.errors import ErrorCode
from broker.wire.fetch_epochs import FINAL_EPOCH, FULL_EPOCH, NO_SESSION, next_epoch
from broker.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, PartitionData
from broker.wire.vocabulary import IsolationLevel

NEVER_TOLD: Final = -1

TopicKey = str | uuid.UUID
"""How the client names a topic: by its name until Fetch v12, by its id from v13 on."""


class FetchSessionError(BrokerError):
    """The session that the request goes on with is not there, or stands elsewhere: begin a new one."""

    error_code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    retriable = True
    hint = "begin a new fetch session with a full request"


@dataclass(slots=True, eq=False)
class Fetched:
    """What is asked of one partition, and what its reader was last told."""

    topic: TopicKey
    asked: FetchPartition
    high_watermark: int = NEVER_TOLD
    log_start_offset: int = NEVER_TOLD
    session: FetchSession | None = None
    watched: Waiters | None = None

    @property
    def key(self) -> Key:
        return self.topic, self.asked.partition

    def set(self) -> None:
        """The partition may have news."""
        if self.session is not None:
            self.session.wake(self)

    def watch(self, waiters: Waiters) -> None:
        """Be woken by this partition, and by none that was there before."""
        if self.session is not None and self.watched is not waiters:
            self.unwatch()
            self.watched = waiters
            waiters[self] = None

    def unwatch(self) -> None:
        if self.watched is not None:
            self.watched.pop(self, None)
            self.watched = None

    def leave(self) -> None:
        """Its session is over, or goes on without it. A fetch that still waits looks once more, and watches nothing."""
        self.unwatch()
        self.session = None

    def may_rest(self, data: PartitionData, isolation_level: int) -> bool:
        """Whether, this being told, there is nothing to tell until the partition says so."""
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        end = data.last_stable_offset if committed else data.high_watermark
        refused = bool(data.error_code) or data.diverging_epoch is not None or data.preferred_read_replica >= 0
        return self.watched is not None and not refused and not data.records and end <= self.asked.fetch_offset

    def take_news(self, data: PartitionData) -> bool:
        """Whether the answer says something that the reader was not told yet, as it now is."""
        refused = bool(data.error_code) or data.diverging_epoch is not None
        told = (self.high_watermark, self.log_start_offset)
        # After that everything is news again: that an error is over, and the high watermark to a follower that had to
        # cut its log before it could take it.
        self.high_watermark = NEVER_TOLD if refused else data.high_watermark
        self.log_start_offset = data.log_start_offset
        return (
            refused
            or bool(data.records)
            or data.preferred_read_replica >= 0
            or told != (data.high_watermark, data.log_start_offset)
        )


Key: TypeAlias = tuple[TopicKey, int]


@dataclass(slots=True, eq=False)
class FetchSession:
    """`epoch` is that of the next request, `privileged` is one of a follower. `due` are the partitions that may have
    news, in the order of their turns; `woken` those of them that were woken since they were last looked at. `waiters`
    are set with each that is.
    """

    session_id: int
    by_id: bool
    privileged: bool = False
    begun_at_ms: float = 0.0
    epoch: int = next_epoch(FULL_EPOCH)
    used_at_ms: float = 0.0
    partitions: dict[Key, Fetched] = field(default_factory=dict)
    due: dict[Key, Fetched] = field(default_factory=dict)
    woken: dict[Key, Fetched] = field(default_factory=dict)
    waiters: Waiters = field(default_factory=dict)
    isolation_level: int = -1

    def put(self, fetched: Fetched) -> None:
        fetched.session = self
        self.partitions[fetched.key] = self.due[fetched.key] = fetched

    def forget(self, key: Key) -> None:
        if (fetched := self.partitions.pop(key, None)) is not None:
            fetched.leave()
        self.due.pop(key, None)
        self.woken.pop(key, None)

    def wake(self, fetched: Fetched) -> None:
        self.due.setdefault(fetched.key, fetched)
        self.woken[fetched.key] = fetched
        for event in self.waiters:
            event.set()

    def look(self, isolation_level: int) -> list[Fetched]:
        """Those to look at for a request that begins."""
        if isolation_level != self.isolation_level:
            self.isolation_level = isolation_level
            self.due = dict(self.partitions)
        self.woken.clear()
        return list(self.due.values())

    def look_again(self) -> list[Fetched]:
        """Those to look at after a wait: of all others that is told which was found before it."""
        woken = list(self.woken.values())
        self.woken.clear()
        return woken

    def told(self, fetched: Fetched, data: PartitionData) -> None:
        key = fetched.key
        if self.partitions.get(key) is not fetched:
            return
        if data.records:
            # It had its turn, and comes last in the next answer, so that each has its turn.
            for turns in (self.partitions, self.due):
                turns.pop(key, None)
                turns[key] = fetched
        elif key not in self.woken and fetched.may_rest(data, self.isolation_level):
            self.due.pop(key, None)
        else:
            self.due.setdefault(key, fetched)

    def end(self) -> None:
        for fetched in self.partitions.values():
            fetched.leave()


def by_topic(found: Iterable[tuple[Fetched, PartitionData]]) -> list[FetchableTopicResponse]:
    topics: dict[TopicKey, FetchableTopicResponse] = {}
    for fetched, data in found:
        key = fetched.topic
        if key not in topics:
            topics[key] = topic = FetchableTopicResponse()
            if isinstance(key, str):
                topic.topic = key
            else:
                topic.topic_id = key
        topics[key].partitions.append(data)
    return list(topics.values())


@dataclass(slots=True)
class FetchPlan:
    """What one request is about. `session` goes on with it, `begins` if it is to become a session."""

    partitions: dict[Key, Fetched]
    session: FetchSession | None = None
    begins: bool = False
    by_id: bool = False
    privileged: bool = False


class FetchSessions:
    """The sessions of a broker, in the order of their last use."""

    def __init__(
        self,
        clock: Clock,
        new_id: Callable[[], int],
        *,
        sessions_max: int = FETCH_SESSIONS_MAX,
        partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
    ) -> None:
        """`new_id` gives numbers from 1 to 2^31 - 1 that nobody can guess."""
        self._clock = clock
        self._new_id = new_id
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[int, FetchSession] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Of all sessions together."""
        return self._partitions

    def plan(self, request: FetchRequest, *, by_id: bool, privileged: bool = False) -> FetchPlan:
        """What is to be read for the request, `privileged` of a follower. Raises FetchSessionError."""
        if request.session_epoch in (FINAL_EPOCH, FULL_EPOCH):
            self._drop(self._sessions.get(request.session_id))
            begins = request.session_epoch == FULL_EPOCH and _is_bounded(request)
            return FetchPlan(_asked(request, by_id), begins=begins, by_id=by_id, privileged=privileged)
        session = self._go_on(request, by_id)
        self._change(session, request)
        if not session.partitions:
            # Nothing is left to fetch: the client is told by the answer that the session is over.
            self._drop(session)
            return FetchPlan({})
        return FetchPlan(session.partitions, session, by_id=by_id)

    def begin(self, plan: FetchPlan) -> FetchSession | None:
        """Makes a session of the full request that was answered; None when there is no room."""
        if not self._make_room(len(plan.partitions), plan.privileged):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        now_ms = self._now_ms()
        session = FetchSession(session_id, plan.by_id, plan.privileged, begun_at_ms=now_ms, used_at_ms=now_ms)
        for fetched in plan.partitions.values():
            session.put(fetched)
        self._sessions[session_id] = session
        self._partitions += len(plan.partitions)
        return session

    def tell(
        self, plan: FetchPlan, found: list[tuple[Fetched, PartitionData]]
    ) -> tuple[int, list[tuple[Fetched, PartitionData]]]:
        """What was found is answered -> the session's id, or NO_SESSION, and what of it goes into the answer: in a
        session that goes on, only what is news.
        """
        if not plan.begins and plan.session is None:
            return NO_SESSION, found
        news = [pair for pair in found if pair[0].take_news(pair[1])]
        session = plan.session or self.begin(plan)
        if session is None:
            return NO_SESSION, found
        for one, data in found:
            session.told(one, data)
        return session.session_id, found if plan.session is None else news

    def _go_on(self, request: FetchRequest, by_id: bool) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionError(f"there is no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise FetchSessionError(
                f"fetch session {session.session_id} is at epoch {session.epoch}, not {request.session_epoch}",
                error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
        if session.by_id is not by_id:
            raise FetchSessionError(
                "a fetch session is by topic names or by topic ids", error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            )
        session.epoch = next_epoch(session.epoch)
        session.used_at_ms = self._now_ms()
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return session

    def _change(self, session: FetchSession, request: FetchRequest) -> None:
        before = len(session.partitions)
        bounded = _is_bounded(request)
        for key, fetched in _asked(request, session.by_id).items():
            known = session.partitions.get(key)
            if known is None:
                session.put(fetched)
            else:
                if known.asked.current_leader_epoch != fetched.asked.current_leader_epoch:
                    # A follower takes no answer that comes in another epoch than it asked in: the last one may be lost.
                    known.high_watermark = NEVER_TOLD
                known.asked = fetched.asked
                session.due.setdefault(key, known)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.forget((topic.topic_id if session.by_id else topic.topic, index))
        self._partitions += len(session.partitions) - before
        if self._partitions > self._partitions_max or not bounded:
            self._drop(session)
            raise FetchSessionError(f"there is no room for fetch session {session.session_id} to grow")

    def _make_room(self, partitions: int, privileged: bool) -> bool:
        """Drops sessions of less use than one of so many partitions, until there is room for it; False where it is
        that one itself.
        """
        while len(self._sessions) >= self._sessions_max or self._partitions + partitions > self._partitions_max:
            dropped = self._least((privileged, partitions))
            if dropped is None:
                return False
            self._drop(dropped)
        return True

    def _least(self, newcomer: tuple[bool, int]) -> FetchSession | None:
        """One that nobody seems to use any more, the longest unused first. Else the smallest of those that are older
        than that, consumers' before followers', if the newcomer is larger; a follower need not wait for a consumer's.
        """
        now_ms = self._now_ms()
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_at_ms > FETCH_SESSION_EVICTION_MS:
            return oldest
        old = [
            ((one.privileged, len(one.partitions)), one)
            for one in self._sessions.values()
            if now_ms - one.begun_at_ms > FETCH_SESSION_EVICTION_MS or (newcomer[0] and not one.privileged)
        ]
        value, least = min(old, key=lambda pair: pair[0], default=(newcomer, None))
        return least if value < newcomer else None

    def _drop(self, session: FetchSession | None) -> None:
        if session is not None and self._sessions.pop(session.session_id, None) is not None:
            self._partitions -= len(session.partitions)
            session.end()

    def _now_ms(self) -> float:
        return steady_ms(self._clock)


def _is_bounded(request: FetchRequest) -> bool:
    """What is no topic's name may be of any length, and is not remembered."""
    return all(len(topic.topic) <= TOPIC_NAME_CHARS_MAX for topic in request.topics)


def _asked(request: FetchRequest, by_id: bool) -> dict[Key, Fetched]:
    """What is asked of each partition: once, though it be named twice."""
    found: dict[Key, Fetched] = {}
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        found.update({(key, asked.partition): Fetched(key, asked) for asked in topic.partitions})
    return found
