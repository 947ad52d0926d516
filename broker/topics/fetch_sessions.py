"""Fetch sessions (KIP-227): what a client fetches is remembered, so that it asks and is answered only of what changes.

A session begins with a full request (epoch 0) and goes on by requests of epochs 1, 2, 3... that name only the
partitions whose offsets or limits are new, and those to forget. The answers hold only the partitions that have news. A
session that is lost costs its client one full request, so sessions are dropped freely: the memory they may take is
bounded by their number and by the partitions of all together.

Pure of sockets and of logs; one event loop owns it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from broker.base.clock import Clock, steady_ms
from broker.errors import BrokerError
from broker.limits import (
    FETCH_SESSION_EVICTION_MS,
    FETCH_SESSION_PARTITIONS_MAX,
    FETCH_SESSIONS_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from broker.wire.errors import ErrorCode
from broker.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
FULL_EPOCH: Final = 0
NEVER_TOLD: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

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


Key = tuple[TopicKey, int]


@dataclass(slots=True, eq=False)
class FetchSession:
    """`epoch` is that of the next request."""

    session_id: int
    by_id: bool
    epoch: int = FULL_EPOCH + 1
    used_at_ms: float = 0.0
    partitions: dict[Key, Fetched] = field(default_factory=dict)

    def move_back(self, keys: Iterable[Key]) -> None:
        """Partitions that just had their turn come last in the next answer, so that each has its turn."""
        for key in keys:
            fetched = self.partitions.pop(key, None)
            if fetched is not None:
                self.partitions[key] = fetched


@dataclass(slots=True)
class FetchPlan:
    """What one request is about. `session` goes on with it, `begins` if it is to become a session."""

    partitions: dict[Key, Fetched]
    session: FetchSession | None = None
    begins: bool = False
    by_id: bool = False


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

    def plan(self, request: FetchRequest, *, by_id: bool) -> FetchPlan:
        """What is to be read for the request. Raises FetchSessionError."""
        if request.session_epoch in (FINAL_EPOCH, FULL_EPOCH):
            self._drop(self._sessions.get(request.session_id))
            begins = request.session_epoch == FULL_EPOCH and _is_bounded(request)
            return FetchPlan(_asked(request, by_id), begins=begins, by_id=by_id)
        session = self._go_on(request, by_id)
        self._change(session, request)
        if not session.partitions:
            # Nothing is left to fetch: the client is told by the answer that the session is over.
            self._drop(session)
            return FetchPlan({})
        return FetchPlan(session.partitions, session, by_id=by_id)

    def begin(self, plan: FetchPlan) -> FetchSession | None:
        """Makes a session of the full request that was answered; None when there is no room."""
        if not self._make_room(len(plan.partitions)):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, plan.by_id, used_at_ms=self._now_ms(), partitions=plan.partitions)
        self._sessions[session_id] = session
        self._partitions += len(plan.partitions)
        return session

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
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.used_at_ms = self._now_ms()
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return session

    def _change(self, session: FetchSession, request: FetchRequest) -> None:
        before = len(session.partitions)
        bounded = _is_bounded(request)
        for key, fetched in _asked(request, session.by_id).items():
            known = session.partitions.get(key)
            if known is None:
                session.partitions[key] = fetched
            else:
                if known.asked.current_leader_epoch != fetched.asked.current_leader_epoch:
                    # A follower takes no answer that comes in another epoch than it asked in: the last one may be lost.
                    known.high_watermark = NEVER_TOLD
                known.asked = fetched.asked
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.partitions.pop((topic.topic_id if session.by_id else topic.topic, index), None)
        self._partitions += len(session.partitions) - before
        if self._partitions > self._partitions_max or not bounded:
            self._drop(session)
            raise FetchSessionError(f"there is no room for fetch session {session.session_id} to grow")

    def _make_room(self, partitions: int) -> bool:
        """Drops sessions that nobody seems to use any more, the longest unused first."""
        while len(self._sessions) >= self._sessions_max or self._partitions + partitions > self._partitions_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or self._now_ms() - oldest.used_at_ms < FETCH_SESSION_EVICTION_MS:
                return False
            self._drop(oldest)
        return True

    def _drop(self, session: FetchSession | None) -> None:
        if session is not None and self._sessions.pop(session.session_id, None) is not None:
            self._partitions -= len(session.partitions)

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
