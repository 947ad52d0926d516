"""A partition with replicas, without disks: what is below the high watermark survives, the rest may be lost."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections.abc import Iterator

from broker.log.producers import ProducerStates
from broker.log.results import AppendResult, LogSlice
from broker.log.validation import AppendOrigin
from broker.topics.errors import NotLeading, RequestTimedOut
from broker.wire.batch import BatchHeader, patch_base_offset, patch_leader_epoch, peek
from broker.wire.records import ControlKind, control_batch
from broker.wire.vocabulary import TopicPartition
from tests.mirror.simulation.loop import SimulatedClock


class LeaderLog:
    """One broker's copy for as long as it believes to lead, from the batches that it began with."""

    log_start_offset = 0

    def __init__(self, clock: SimulatedClock, leader_epoch: int, batches: list[bytes], high_watermark: int) -> None:
        self.leader_epoch = leader_epoch
        self.batches = batches
        self.high_watermark = high_watermark
        self.has_followers = True
        """Until another one leads: then what comes here is lost."""
        self._clock = clock
        self._producers = ProducerStates()
        self._changed = asyncio.Event()
        self._is_over = False
        self._ends: list[int] = []
        """The offset behind each batch."""
        for batch in batches:
            self._note(batch)

    @property
    def log(self) -> LeaderLog:
        return self

    @property
    def log_end_offset(self) -> int:
        return self._ends[-1] if self._ends else 0

    def ends(self) -> list[int]:
        """The offsets behind the batches that are not replicated yet."""
        return self._ends[bisect_right(self._ends, self.high_watermark) :]

    def before(self, end: int) -> list[bytes]:
        """The batches that end there at the latest."""
        return self.batches[: bisect_right(self._ends, end)]

    def append(self, records: memoryview | bytearray, *, leader_epoch: int, origin: AppendOrigin) -> AppendResult:
        header = peek(records)
        if header.producer_id >= 0:
            self._producers.check_batch(header)
        base = self.log_end_offset
        self._write(records)
        return AppendResult(base, -1, 0, self.log_end_offset - 1, duplicate=False)

    def write_marker(
        self, *, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, leader_epoch: int
    ) -> int:
        self._producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        offset = self.log_end_offset
        self._write(
            control_batch(
                ControlKind.COMMIT if commit else ControlKind.ABORT,
                coordinator_epoch=coordinator_epoch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                timestamp_ms=self._clock.now_ms(),
            )
        )
        return offset

    def _write(self, records: memoryview | bytearray) -> None:
        batch = memoryview(bytearray(records))
        patch_base_offset(batch, self.log_end_offset)
        patch_leader_epoch(batch, self.leader_epoch)
        self.batches.append(bytes(batch))
        self._note(self.batches[-1])

    def _note(self, batch: bytes) -> None:
        header = peek(batch)
        self._ends.append(header.next_offset)
        if header.producer_id >= 0:
            self._producers.apply(header, lambda: batch, self._clock.now_ms())

    def read(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> LogSlice:
        """One batch at a time, so that a load takes many steps."""
        index = bisect_right(self._ends, offset)
        return LogSlice([self.batches[index]], self._ends[index])

    def headers(self) -> Iterator[tuple[BatchHeader, bytes]]:
        for batch in self.batches:
            yield peek(batch), batch

    # -- replication -----------------------------------------------------------------------------------------------

    def check_may_append(self) -> None:
        """It is not said how many replicas are needed."""

    async def wait_replicated(self, offset: int, timeout_ms: float, leader_epoch: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self.high_watermark < offset:
                    if self._is_over:
                        raise NotLeading("deposed")
                    await self._changed.wait()
        except TimeoutError:
            raise RequestTimedOut("no replicas") from None

    def replicate(self, rng: random.Random) -> None:
        ends = self.ends()
        if ends and self.has_followers:
            self.high_watermark = rng.choice([ends[-1], ends[-1], rng.choice(ends)])
            self._tell()

    def depose(self) -> None:
        """The broker hears that it does not lead any more."""
        self._is_over = True
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Replicated:
    """The partition: its log is that of its newest leader."""

    def __init__(self, where: TopicPartition, clock: SimulatedClock) -> None:
        self.where = where
        self.node: int | None = None
        self.log = LeaderLog(clock, -1, [], 0)
        self._clock = clock

    def elect(self, node: int, rng: random.Random) -> LeaderLog:
        """The new leader has what was replicated, and perhaps more. The old one does not know yet."""
        old = self.log
        old.has_followers = False
        end = rng.choice([old.high_watermark, *old.ends()])
        self.node = node
        self.log = LeaderLog(self._clock, old.leader_epoch + 1, old.before(end), old.high_watermark)
        return self.log
