"""What must hold after every step, over the logs as they are and the leaders as they see themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from broker.cluster.metadata import PartitionState
from broker.log.partition_log import PartitionLog
from broker.replication.leading import Leading
from broker.topics.partition import Partition
from broker.wire.batch import iter_batches


class Found(AssertionError):
    """Something that must never be."""


class Replica(Protocol):
    """Of one partition, in one life of its node."""

    @property
    def node_id(self) -> int: ...
    @property
    def life(self) -> int: ...
    @property
    def partition(self) -> Partition: ...
    @property
    def log(self) -> PartitionLog: ...


@dataclass(eq=False)
class Appended:
    """What a producer waits for: his batch, by its CRC, in front of this offset."""

    leader_epoch: int
    end_offset: int
    crc: int


class Batch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    crc: int


@dataclass(eq=False)
class _Seen:
    """The log of one node as it was at the last look."""

    life: int = 0
    start: int = 0
    end: int = 0
    batches: list[Batch] = field(default_factory=list)


@dataclass(eq=False)
class Judge:
    """`committed` is what was acknowledged or shown to consumers, as far as anybody was told."""

    replicas: frozenset[int]
    committed: list[Batch] = field(default_factory=list)
    leaders: dict[int, int] = field(default_factory=dict)
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _before: dict[tuple[int, int], tuple[Batch, Batch | None]] = field(default_factory=dict)
    _high_watermarks: dict[int, tuple[Leading, int]] = field(default_factory=dict)
    _newest: tuple[int, int] = (-1, -1)

    def look(self, node: Replica) -> None:
        """After anything happened at it."""
        self._read(node)
        leading = node.partition.leading
        if leading is None:
            return
        if self.leaders.setdefault(leading.epoch, node.node_id) != node.node_id:
            raise Found(f"epoch {leading.epoch} is led by {self.leaders[leading.epoch]} and by {node.node_id}")
        known = self._high_watermarks.get(node.node_id)
        if known is not None and known[0] is leading and leading.high_watermark < known[1]:
            raise Found(f"the high watermark of {node.node_id} went back to {leading.high_watermark} from {known[1]}")
        self._high_watermarks[node.node_id] = (leading, leading.high_watermark)
        if leading.epoch > self._newest[0]:
            self._newest = (leading.epoch, node.node_id)
            self._check_leader(node)
        self.told(node, leading.high_watermark)

    def acknowledged(self, node: Replica, one: Appended) -> None:
        """A producer is told that his batch is there."""
        seen = self._seen[node.node_id]
        if one.end_offset > seen.start and (one.end_offset, one.crc) not in {
            (b.next_offset, b.crc) for b in seen.batches
        }:
            raise Found(f"{node.node_id} acknowledges what it does not have before {one.end_offset}")
        self.told(node, one.end_offset)

    def told(self, node: Replica, end_offset: int) -> None:
        """Somebody relies on what the node has before `end_offset`."""
        seen = self._seen[node.node_id]
        theirs = {batch.base_offset: batch for batch in seen.batches if batch.next_offset <= end_offset}
        reached = self.committed[-1].next_offset if self.committed else 0
        for batch in self.committed:
            shown = batch.base_offset >= seen.start and batch.next_offset <= end_offset
            if shown and theirs.get(batch.base_offset) != batch:
                raise Found(f"{node.node_id} lacks {batch}, which was acknowledged, and shows what is there")
        news = [batch for batch in seen.batches if reached <= batch.base_offset and batch.next_offset <= end_offset]
        if news:
            self.committed += news
            self._check_newest(news)

    def _check_newest(self, news: list[Batch]) -> None:
        """The newest leader has what one before it acknowledged, also what that does after it was replaced."""
        seen = self._seen[self._newest[1]]
        for batch in news:
            if batch.base_offset >= seen.start and batch not in seen.batches:
                raise Found(f"{batch} was acknowledged, and the leader of epoch {self._newest[0]} lacks it")

    def _check_leader(self, node: Replica) -> None:
        seen = self._seen[node.node_id]
        own = set(seen.batches)
        for batch in self.committed:
            if batch.base_offset >= seen.start and batch not in own:
                raise Found(f"{node.node_id} leads in epoch {self._newest[0]} without {batch}, which was acknowledged")

    def stored(self, state: PartitionState) -> None:
        if not set(state.isr) <= self.replicas or (state.leader >= 0 and state.leader not in state.isr):
            raise Found(f"the ISR {state.isr} under leader {state.leader}")

    def content(self, node: Replica) -> list[Batch]:
        return [batch for batch in self._seen[node.node_id].batches if batch.next_offset > node.log.log_start_offset]

    def _read(self, node: Replica) -> None:
        """Two logs that have a batch of one epoch at one offset have the same before it: so has each what the first who
        had that batch had before it.
        """
        log, seen = node.log, self._seen.setdefault(node.node_id, _Seen())
        if seen.life != node.life or log.log_start_offset > seen.end or log.log_end_offset < seen.start:
            seen = self._seen[node.node_id] = _Seen(node.life, log.log_start_offset, log.log_start_offset)
        while seen.batches and seen.batches[-1].next_offset > log.log_end_offset:
            seen.batches.pop()
        if seen.start != log.log_start_offset:
            seen.batches = [batch for batch in seen.batches if batch.next_offset > log.log_start_offset]
            seen.start = log.log_start_offset
        at = seen.batches[-1].next_offset if seen.batches else log.log_start_offset
        while at < log.log_end_offset:
            part = log.read(at, 1 << 20, up_to=log.log_end_offset, at_least_one=True)
            for buffer in part.records:
                for header, _ in iter_batches(buffer):
                    batch = Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)
                    self._take(node.node_id, seen, batch)
            at = part.next_offset
        seen.end = log.log_end_offset

    def _take(self, node_id: int, seen: _Seen, batch: Batch) -> None:
        before = seen.batches[-1] if seen.batches else None
        known, known_before = self._before.setdefault((batch.epoch, batch.base_offset), (batch, before))
        if known != batch:
            raise Found(f"{node_id} has {batch} where another log of that epoch has {known}")
        if before is not None and known_before is not None and known_before != before:
            raise Found(f"{node_id} has {before} before {batch}, another log has {known_before}")
        if known_before is None:
            self._before[batch.epoch, batch.base_offset] = (batch, before)
        seen.batches.append(batch)
