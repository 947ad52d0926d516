"""Consumers as their client libraries have them, step by step: what each reads follows from what it was told."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import count
from uuid import UUID

from broker.groups.consumer.model import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NOTHING,
    STATIC_LEAVE_EPOCH,
    HeartbeatAsk,
    HeartbeatRefused,
    Slot,
    Slots,
)
from broker.groups.limits import CONSUMER_SESSION_TIMEOUT_MS
from broker.groups.model import GroupProtocol, JoinAsk, JoinedMember, JoinResult, Leaver, SyncAsk, SyncResult
from broker.wire.codec import decode_prefixed, encode_prefixed
from broker.wire.errors import ErrorCode
from broker.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.broker.coordinator_host import Host

GROUP = "readers"
CLASSIC_SESSION_MS = 10_000
REBALANCE_MS = 60_000
NO_GENERATION = -1
_NUMBERS = count(1)


class Reader(ABC):
    """One consumer. `reads` is what it reads now; nobody else may at the same time."""

    session_ms: int

    def __init__(self, name: str, topics: Sequence[str], instance: str | None = None) -> None:
        self.name = name
        self.topics = topics
        self.instance = instance
        self.member_id = ""
        self.reads: Slots = NOTHING
        self.heard_ms = 0.0

    @abstractmethod
    def step(self, host: Host, *, lost: bool = False) -> None:
        """Ask what is due, and do as answered; a lost answer changes the broker alone."""

    @abstractmethod
    def leave(self, host: Host) -> None: ...

    def let_go(self) -> None:
        """It was told, or knows by its clock, that it is out of the group."""
        self.reads = NOTHING


class ConsumerReader(Reader):
    """Of the consumer protocol (KIP-848). `regex` in the place of `topics`, where there are none."""

    session_ms = CONSUMER_SESSION_TIMEOUT_MS

    def __init__(self, name: str, topics: Sequence[str], instance: str | None = None) -> None:
        super().__init__(name, topics, instance)
        self.member_id = f"{name}-{next(_NUMBERS)}"
        self.epoch = JOIN_EPOCH
        self.told: Slots = NOTHING
        self.lost_an_answer = False

    def let_go(self) -> None:
        super().let_go()
        self.told, self.epoch, self.lost_an_answer = NOTHING, JOIN_EPOCH, False

    def ask(self, epoch: int) -> HeartbeatAsk:
        anew = epoch == JOIN_EPOCH or self.lost_an_answer
        names, regex = (list(self.topics), None) if self.topics else (None, ".*")
        return HeartbeatAsk(
            self.member_id, epoch, self.instance, None, "client", "/host", 30_000,
            names if anew else None, regex if anew else None, None, self.reads if epoch >= 0 else None,
        )  # fmt: skip

    def step(self, host: Host, *, lost: bool = False) -> None:
        try:
            result = host.groups.consumer_heartbeat(GROUP, self.ask(self.epoch))
        except HeartbeatRefused as refused:
            if refused.error_code is not ErrorCode.UNRELEASED_INSTANCE_ID:
                self.let_go()
            return
        self.heard_ms = host.groups.now_ms()
        self.lost_an_answer = lost
        if lost:
            return
        self.epoch = result.member_epoch
        if result.assignment is not None:
            self.told = result.assignment
        # It gives up first, says so, and takes what is new afterwards.
        self.reads = self.reads & self.told if self.reads - self.told else self.told

    def leave(self, host: Host) -> None:
        epoch = LEAVE_EPOCH if self.instance is None else STATIC_LEAVE_EPOCH
        self.let_go()
        try:
            host.groups.consumer_heartbeat(GROUP, self.ask(epoch))
        except HeartbeatRefused:
            return


class ClassicReader(Reader):
    """Of the classic protocol: eager ones give up everything before they join, cooperative ones what they are told."""

    session_ms = CLASSIC_SESSION_MS

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        instance: str | None = None,
        *,
        eager: bool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(name, topics, instance)
        self.protocol = "range" if eager else "cooperative-sticky"
        self._eager = eager
        self._loop = loop
        self.generation = NO_GENERATION
        self._joins = True
        self._asked: asyncio.Task[JoinResult] | asyncio.Task[SyncResult] | None = None
        self._loses = False
        self._watched: tuple[list[str], Slots] = ([], NOTHING)
        """The topics of all members, and what there was of them, when it assigned as the leader."""

    @property
    def waits(self) -> bool:
        return self._asked is not None and not self._asked.done()

    def let_go(self) -> None:
        super().let_go()
        self.generation, self._joins = NO_GENERATION, True

    def hang_up(self) -> None:
        """The connection is gone: it asks again."""
        if self._asked is not None:
            self._asked.cancel()
            self._asked, self._joins = None, True

    def step(self, host: Host, *, lost: bool = False) -> None:
        if self._asked is None:
            self._loses = lost
            if self._joins:
                self._join(host)
            else:
                self._beat(host)
        for _ in range(3):
            self._loop.run_until_complete(asyncio.sleep(0))
        if self._asked is not None and self._asked.done():
            answer, self._asked = self._asked.result(), None
            self.heard_ms = host.groups.now_ms()
            if self._loses:
                self._loses, self._joins = False, True
            elif isinstance(answer, JoinResult):
                self._joined(host, answer)
            else:
                self._synced(host, answer)

    def _join(self, host: Host) -> None:
        if self._eager:
            self.reads = NOTHING
        owned = _packed(self.reads, _names(host))
        said = ConsumerProtocolSubscription(list(self.topics), None, owned, self.generation)
        protocols = (GroupProtocol(self.protocol, encode_prefixed(said, 2)),)
        new_id = f"{self.name}-{next(_NUMBERS)}"
        ask = JoinAsk(
            self.member_id, self.instance, "client", "/host", "consumer", protocols,
            CLASSIC_SESSION_MS, REBALANCE_MS, new_id, self.instance is None,
        )  # fmt: skip
        self._asked = self._loop.create_task(host.groups.join(GROUP, ask))

    def _joined(self, host: Host, answer: JoinResult) -> None:
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return
        if answer.error is not ErrorCode.NONE:
            self._refused(answer.error)
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        assignments, self._watched = {}, ([], NOTHING)
        if answer.leader == answer.member_id:
            topics = [topic for member in answer.members for topic in _said(member).topics]
            self._watched = topics, slots_of_topics(host, topics)
            assignments = assign(answer.members, host, eager=self._eager)
        ask = SyncAsk(self.member_id, self.instance, self.generation, "consumer", self.protocol, assignments)
        self._asked = self._loop.create_task(host.groups.sync(GROUP, ask))

    def _synced(self, host: Host, answer: SyncResult) -> None:
        if answer.error is not ErrorCode.NONE:
            self._refused(answer.error)
            return
        assigned = NOTHING
        if answer.assignment:
            ids = _ids(host)
            told = decode_prefixed(ConsumerProtocolAssignment, answer.assignment)[0].assigned_partitions
            assigned = frozenset(Slot(ids[t.topic], p) for t in told for p in t.partitions)
        self._joins = bool(self.reads - assigned)
        self.reads = assigned

    def _beat(self, host: Host) -> None:
        error = host.groups.heartbeat(GROUP, self.member_id, self.instance, self.generation)
        if error is ErrorCode.NONE or error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.heard_ms = host.groups.now_ms()
        if error is not ErrorCode.NONE:
            self._refused(error)
        elif slots_of_topics(host, self._watched[0]) != self._watched[1]:
            self._joins = True

    def _refused(self, error: ErrorCode) -> None:
        self._joins = True
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        self.let_go()
        if error is not ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""

    def leave(self, host: Host) -> None:
        """A static one does not say that it goes."""
        self.hang_up()
        self.let_go()
        if self.instance is None and self.member_id:
            host.groups.leave(GROUP, [Leaver(self.member_id, None)])
        self.member_id = ""


def assign(members: Sequence[JoinedMember], host: Host, *, eager: bool) -> dict[str, bytes]:
    """As a leader does: in turns. What another says that it has is given to nobody until it was given up."""
    names, ids = _names(host), _ids(host)
    said = {m.member_id: _said(m) for m in members}
    owner = {
        Slot(ids[t.topic], p): id_ for id_, each in said.items() for t in each.owned_partitions for p in t.partitions
    }
    given: dict[str, set[Slot]] = {id_: set() for id_ in said}
    every = sorted({slot for each in said.values() for slot in slots_of_topics(host, each.topics)})
    for slot in every:
        wanting = [id_ for id_, each in said.items() if names[slot.topic_id] in each.topics]
        taker = min(wanting, key=lambda id_: (len(given[id_]), id_))
        given[taker].add(slot)
    return {
        id_: encode_prefixed(
            ConsumerProtocolAssignment(
                _packed(frozenset(s for s in slots if eager or owner.get(s, id_) == id_), names)
            ),
            1,
        )
        for id_, slots in given.items()
    }


def _said(member: JoinedMember) -> ConsumerProtocolSubscription:
    return decode_prefixed(ConsumerProtocolSubscription, member.metadata)[0]


def slots_of_topics(host: Host, topics: Sequence[str]) -> Slots:
    shapes = [host.topic_shape(name) for name in topics]
    return frozenset(Slot(s.topic_id, p) for s in shapes if s is not None for p in range(s.partitions))


def _ids(host: Host) -> Mapping[str, UUID]:
    shapes = {name: host.topic_shape(name) for name in host.topic_names()}
    return {name: shape.topic_id for name, shape in shapes.items() if shape is not None}


def _names(host: Host) -> Mapping[object, str]:
    return {id_: name for name, id_ in _ids(host).items()}


def _packed(slots: Slots, names: Mapping[object, str]) -> list[TopicPartition]:
    topics: dict[str, list[int]] = {}
    for slot in sorted(slots):
        topics.setdefault(names[slot.topic_id], []).append(slot.partition)
    return [TopicPartition(topic, partitions) for topic, partitions in topics.items()]
