"""One session of a link, its life and death: what its tasks share, from the fence until anything is in doubt.

The data path is a `Replicator` per partition, with `fetching.py` and `plan.py` before it and `producing.py` behind it.
Nothing is ever sent twice in a session: on any error all tasks end, everything in flight is forgotten, and the next
session recomputes its positions from the target.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from broker.base.turns import in_turns
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER, TopicPartition
from mirror.coordinator.model import Meter
from mirror.groups.sync import GroupSyncMemory
from mirror.offsets.acceptance import anew_asked_at_ms
from mirror.offsets.acceptance_entries import NEVER_ASKED
from mirror.offsets.doubt import is_in_doubt
from mirror.offsets.entries import Gap
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.offset_map import OffsetMap, Where
from mirror.offsets.shared import Examined
from mirror.offsets.state import StateReaders
from mirror.offsets.state_entries import StateEntries
from mirror.topics.plan import pair_topics
from mirror.topics.seen import HoldKey, TopicsSeen, paused_hold
from mirror.topics.sync import TopicSyncReport
from mirror.worker.budget import Budget
from mirror.worker.events import Event, EventSink, tell_hold
from mirror.worker.evidence import partition_pairs
from mirror.worker.holds import is_at_source
from mirror.worker.limits import PARTITIONS_AT_ONCE, WorkerLimits
from mirror.worker.origins import Passage
from mirror.worker.replicator import Replicator
from mirror.worker.shares import Shares
from mirror.worker.startup import Opened


class Session:
    """What is shared by the tasks of one session. All on one event loop.

    `paused` is by topic what an operator paused: nothing of it is read, all else of it goes on as ever. `in_state` are
    the partitions of which the link's state may have a position. `outlived_after_ms`: when its heartbeats name those
    that failed before it no more.
    """

    def __init__(
        self,
        passage: Passage,
        clusters: tuple[Cluster, Cluster],
        opened: Opened,
        limits: WorkerLimits,
        tell: EventSink,
        meter: Meter | None = None,
    ) -> None:
        self.passage = passage
        self.link = passage.link
        self.source, self.target = clusters
        self.limits, self.tell = limits, tell
        self.owner = opened.owner
        self.started_s, self.outlived_after_ms = self.target.clock.monotonic(), limits.healthy_after_ms
        self.topics = opened.topics
        self.source_topic_ids = {
            topic.source_topic: topic.source_topic_id for topic in opened.topics.mirrored if topic.source_topic_id
        }
        """What was opened: a topic that is recreated under its name is another, and is not to be read as this one."""
        self.holds = opened.holds
        self.leaving: set[str] = set()
        """Source topics that are gone, or are others now. Nothing more of them is read, and they leave when all that
        was on its way to the target is answered."""
        self.called_back: set[TopicPartition] = set()
        """Those whose gap was accepted: they are taken in anew when all that was on its way is answered."""
        self.deleted: dict[tuple[str, int], Gap] = {(gap.topic, gap.partition): gap for gap in opened.deleted}
        """The gaps of partitions that the source has no more."""
        self.deletions_decided, self.anew, self.anew_at_ms = False, dict[TopicPartition, Gap](), dict[Where, int]()
        """`anew`: what was asked for of those that do not move: who takes one in may have read the state before."""
        self.note_anew(set(opened.entries.gaps.values()).difference(opened.entries.surplus_gaps()))
        self.paused, self.wishes = dict(opened.entries.paused), opened.wishes
        self._state, self.in_state = opened.state, {*opened.entries.checkpoints, *opened.replicators}
        self.look_due = asyncio.Event()
        self.ground = opened.ground
        self.fenced = set(opened.ground.pairs)
        """The source partitions into whose targets the session may write. Where it is in doubt what became of the last
        that it sent, a marker of its own must come behind that first.
        """
        self.awaited = opened.fence.awaited
        """Partitions of the target that the session's fence waited for when it was last asked."""
        self.replicators = opened.replicators
        self.offset_map = OffsetMap(
            {(where.topic, where.partition): replicator.map for where, replicator in opened.replicators.items()}
        )
        self.state_writer, self.outlet = opened.state_writer, opened.outlet
        self.max_message_bytes = dict(opened.max_message_bytes)
        self.fetched, self.produced = Shares(), Shares()
        self.due_at: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        """Per node of the target: something is ready to be produced there."""
        self.budget = Budget(limits.in_flight_max_bytes, limits.fetch_room_min_bytes)
        self.opening = asyncio.Lock()
        """Batches are opened in one thread at a time, which shares the interpreter with the loop and takes memory."""
        self.groups = GroupSyncMemory.of(opened.entries.groups)
        self.back_readers = StateReaders()
        self.examined: dict[TopicPartition, Examined] = {}
        self.acknowledged_since_checkpoint_bytes = 0
        self.checkpoint_due = asyncio.Event()
        self.meter = meter or Meter()

    async def read_state(self, target: Cluster, only: Collection[Where]) -> StateEntries:
        """The link's state as it is now, with the maps and positions of these partitions alone. It costs what came
        since the last call; one at a time. Raises ClientError, StateDamaged.
        """
        return await self._state.read(target, only)

    async def share_out(self, replicators: Iterable[Replicator]) -> None:
        """Give those that can move to their nodes' tasks; what has no leader any more is held. Raises ClientError."""
        ours = {replicator.source: replicator for replicator in replicators if not replicator.is_stopped}
        theirs = {replicator.target: replicator for replicator in ours.values()}
        fetched = self._led(ours, await self.source.by_leader(ours), at_source=True)
        produced = self._led(theirs, await self.target.by_leader(theirs), at_source=False)
        for node_id, share in produced.items():
            due = self.due_at[node_id]
            for replicator in share:
                replicator.due = due
            self.produced.join(node_id, share)
            due.set()  # what is ready already did not set it
        for node_id, share in fetched.items():
            self.fetched.join(node_id, share)
        self.budget.wake()

    def widen(self, seen: TopicsSeen) -> None:
        """Partitions that this look found at both sites, and that the session did not know, belong to it from now on.

        What is known of them must not have changed (`find_changes`).
        """
        mirrored = [
            topic
            for topic in pair_topics(self.link, seen.source, seen.target)
            if topic.source_topic not in self.leaving
        ]
        more = {w: there for w, there in partition_pairs(self.link, mirrored).items() if w not in self.ground.pairs}
        names = {where.topic for where in more}
        wider = [topic for topic in mirrored if topic.source_topic in names]
        if not wider:
            return
        kept = (topic for topic in self.ground.mirrored if topic.source_topic not in names)
        self.ground = replace(self.ground, mirrored=(*kept, *wider), pairs={**self.ground.pairs, **more})
        now = self.topics.seen.with_pairs(seen, {topic.source_topic: topic.target_topic for topic in wider})
        self.topics = replace(self.topics, seen=now, mirrored=self.ground.mirrored)
        self.source_topic_ids |= {topic.source_topic: topic.source_topic_id for topic in wider if topic.source_topic_id}
        self.passage.widen(topic.source_topic for topic in self.ground.mirrored)

    def waiting(self) -> list[TopicPartition]:
        """The partitions that are not held each for itself, and that the session has not begun with."""
        holds = self.holds
        return [
            where
            for where in self.ground.pairs
            if where not in self.replicators
            and where.topic not in self.leaving
            and where not in holds.late
            and where not in holds.current
        ]

    def note_anew(self, gaps: Iterable[Gap]) -> None:
        """Which of these were asked for, and when: who hears of that later does not do it again."""
        for where, at_ms in anew_asked_at_ms(gaps).items():
            self.anew_at_ms[where] = max(at_ms, self.anew_at_ms.get(where, NEVER_ASKED))

    def is_settled(self, where: TopicPartition) -> bool:
        """Whether nothing of a held partition is on its way any more, and the target has answered to all that was."""
        held = self.replicators.get(where)
        return held is None or (held.is_idle and not held.unanswered)

    def note_settled(self, replicator: Replicator) -> None:
        """Who lets partitions go hears of each of which nothing is on its way any more."""
        where = replicator.source
        if (where.topic in self.leaving or where in self.called_back) and self.is_settled(where):
            self.holds.late_due.set()

    async def admit(self, replicators: Sequence[Replicator]) -> None:
        """These partitions are mirrored from now on, or stand at their gaps. Raises ClientError."""
        for replicator in replicators:
            self.replicators[replicator.source] = replicator
            self.in_state.add(replicator.source)
            self.called_back.discard(replicator.source)
            self.deleted.pop(replicator.source, None)
            self.offset_map.put(*replicator.source, replicator.map)
        await self.begin(replicators)

    async def begin(self, replicators: Collection[Replicator]) -> None:
        """These were opened: what is not paused of them moves from now on. Raises ClientError."""
        for replicator in replicators:
            pause = self.paused.get(replicator.source.topic)
            if pause is not None and replicator.gap is None:
                self.note_hold(self.holds.add(paused_hold(*replicator.source, pause)))
        await self.share_out(replicators)

    def paused_partitions(self) -> dict[HoldKey, Hold]:
        """The holds of those that a pause alone keeps from moving, or is about to."""
        found: dict[HoldKey, Hold] = {}
        for where, replicator in self.replicators.items():
            pause, hold = self.paused.get(where.topic), self.holds.current.get(where)
            if pause is not None and (not replicator.is_held or (hold and hold.reason is HoldReason.PAUSED)):
                found[where] = paused_hold(*where, pause)
        return found

    def drop(self, topics: Collection[str]) -> None:
        """Nothing is left of these source topics here. Nothing of them may be on its way."""
        dropped = [where for where in self.ground.pairs if where.topic in topics]
        for where in dropped:
            self.replicators.pop(where, None)
            self.ground.parts.pop(where, None)
            self.examined.pop(self.ground.pairs[where], None)
            self.offset_map.forget(*where)
        held = [(topic, number) for topic, number in self.holds.current if number is not None and topic in topics]
        for where in {*dropped, *(TopicPartition(*key) for key in held)}:
            self.holds.release(where)
        for shares in (self.fetched, self.produced):
            shares.leave(dropped)
        self.fenced.difference_update(dropped)
        self.called_back.difference_update(dropped)
        kept = tuple(topic for topic in self.ground.mirrored if topic.source_topic not in topics)
        pairs = {where: there for where, there in self.ground.pairs.items() if where.topic not in topics}
        self.ground = replace(self.ground, mirrored=kept, pairs=pairs)
        names = {name: self.link.target_topic(name) for name in topics}
        self.topics = replace(self.topics, seen=self.topics.seen.without_pairs(names), mirrored=kept)
        for name in topics:
            self.source_topic_ids.pop(name, None)
            self.max_message_bytes.pop(name, None)
        self.leaving.difference_update(topics)

    def _led(
        self,
        moving: Mapping[TopicPartition, Replicator],
        grouped: Mapping[int, Sequence[TopicPartition]],
        *,
        at_source: bool,
    ) -> dict[int, list[Replicator]]:
        led = {node: [moving[where] for where in share] for node, share in grouped.items() if node != NO_LEADER}
        found = {replicator.source for share in led.values() for replicator in share}
        for where, replicator in moving.items():
            if replicator.source not in found:
                self.hold(replicator, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(where)), at_source=at_source)
        return led

    def hold(self, replicator: Replicator, error: ClientError, *, at_source: bool) -> None:
        """Hold one partition, for which a site answered with this error; the others go on.

        What the source has to do with does not put in doubt what is on its way to the target: that still arrives.
        """
        if not replicator.is_stopped and not (at_source and replicator.is_held):
            self.note_hold(self.holds.add_error(replicator.source, error, at_source=at_source))

    def doubt_source(self, replicator: Replicator) -> None:
        """The source's log parted from what was read of it. Where, it finds out who takes the partition in anew."""
        if replicator.is_moving:
            text = f"{replicator.source} at {self.link.source.name} lost what was read of it"
            now_ms = self.target.clock.now_ms()
            self.note_hold(self.holds.add(Hold(*replicator.source, HoldReason.ERROR_AT_SOURCE, text, now_ms)))

    def note_hold(self, hold: Hold) -> None:
        """A hold that has just begun: nothing of it moves, the link's state says so, and the sites are looked at."""
        for replicator in self._held_by(hold):
            if not replicator.is_stopped:
                replicator.hold(settles=is_at_source(hold))
                if replicator.is_stopped:
                    self.fenced.discard(replicator.source)
                    self.note_settled(replicator)
        self.state_writer.submit([hold])
        tell_hold(self.tell, hold)
        self.look_due.set()

    def _held_by(self, hold: Hold) -> list[Replicator]:
        if hold.partition is None:
            return [replicator for where, replicator in self.replicators.items() if where.topic == hold.topic]
        found = self.replicators.get(TopicPartition(hold.topic, hold.partition))
        return [found] if found is not None else []

    def tell_topics(self, report: TopicSyncReport) -> None:
        """Say what was made at the target, and what could not be made."""
        for name in report.created:
            self.tell(Event.TOPIC_CREATED, topic=name)
        for name in report.grown:
            self.tell(Event.TOPIC_GROWN, topic=name)
        for name, failure in report.failures.items():
            self.tell(Event.TOPIC_FAILED, topic=name, detail=str(failure))

    def in_doubt(self) -> frozenset[TopicPartition]:
        """The source partitions whose offsets may not mean the mirrored records any more."""
        stopped = {where: replicator.gap for where, replicator in self.replicators.items()}
        return frozenset(self.holds.doubted) | {
            where for where, gap in stopped.items() if gap is not None and is_in_doubt(gap)
        }

    def count_acknowledged(self, size_bytes: int, records: int) -> None:
        """The target has so much more: a checkpoint is due when it is much."""
        self.meter.acknowledged_bytes += size_bytes
        self.meter.acknowledged_records += records
        self.acknowledged_since_checkpoint_bytes += size_bytes
        if self.acknowledged_since_checkpoint_bytes >= self.limits.checkpoint_max_bytes:
            self.checkpoint_due.set()

    def measure_lag(self) -> None:
        """Count what the source has, as its leaders said last, and the target is not proved to have."""
        moving = (one for one in self.replicators.values() if one.source.topic not in self.paused)
        heard = [one for one in moving if one.source_end_offset >= 0]
        self.meter.lag_offsets = sum(max(0, one.source_end_offset - one.position) for one in heard) if heard else None

    def write_owner(self) -> None:
        """Say that this worker lives. An idle worker that was fenced notices it by this: the write is refused."""
        clock = self.target.clock
        lived_s = clock.monotonic() - self.started_s
        if lived_s > self.outlived_after_ms / 1000:
            self.owner = replace(self.owner, restarts=0, restart_reason="")
        if lived_s > self.limits.healthy_after_ms / 1000:
            self.meter.lasted()
        self.state_writer.submit([replace(self.owner, at_ms=clock.now_ms())])

    async def write_checkpoints(self) -> None:
        """Queue the positions that moved since they were last written, and what their maps are packed into.

        Of those that are being taken in who does that says the position: an older one must not come behind its own. Nor
        is there one of who left meanwhile.
        """
        self.acknowledged_since_checkpoint_bytes = 0
        self.checkpoint_due.clear()
        moved = [each for each in self.replicators.values() if each.changed]
        async for replicator in in_turns(moved, PARTITIONS_AT_ONCE):
            where = replicator.source
            if replicator.changed and where not in self.holds.late and self.replicators.get(where) is replicator:
                replicator.changed = False
                self.state_writer.submit([replicator.checkpoint(self.target.clock.now_ms()), *replicator.pack()])
