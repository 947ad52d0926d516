"""The log against a list: whatever is appended, cut, deleted and reopened, reads give what the list says."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.log.config import LogConfig
from broker.log.partition_log import PartitionLog
from tests.broker.clock import ManualClock
from tests.broker.log.support import NOW_MS, batch_of, records_in

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=200, retention_ms=-1)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock(NOW_MS)
        self.directory = Path(self.folder.name) / "topic-0"
        self.log = PartitionLog.open(self.directory, CONFIG, self.clock)
        # (base offset, values) per batch; the log start is kept apart, as it may lie inside a batch.
        self.batches: list[tuple[int, list[bytes]]] = []
        self.start = self.end = 0
        self.written = 0

    def teardown(self) -> None:
        shutil.rmtree(self.log.retire())
        self.folder.cleanup()

    def expected(self) -> dict[int, bytes]:
        found = {base + i: value for base, values in self.batches for i, value in enumerate(values)}
        return {offset: value for offset, value in found.items() if offset >= self.start}

    @rule(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=5))
    def append(self, sizes: list[int]) -> None:
        values = [b"%d:" % (self.written + i) + b"x" * size for i, size in enumerate(sizes)]
        self.written += len(values)
        result = self.log.append(batch_of(*values), leader_epoch=1)
        assert (result.base_offset, result.last_offset) == (self.end, self.end + len(values) - 1)
        self.batches.append((self.end, values))
        self.end += len(values)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        """Without a clean close the old one is simply left, as kill -9 leaves it."""
        if clean:
            self.log.close()
        self.log = PartitionLog.open(self.directory, CONFIG, self.clock)

    @rule(data=st.data())
    def read_part(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        max_bytes = data.draw(st.integers(1, 3000))
        part = self.log.read(offset, max_bytes, up_to=self.end, at_least_one=False)
        assert part.size_bytes <= max_bytes
        assert offset <= part.next_offset <= self.end
        values = {record.offset: record.value for record in records_in(self.log, offset, max_bytes=max_bytes)}
        assert values == {o: v for o, v in self.expected().items() if o >= offset}

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.batches = [(base, values) for base, values in self.batches if base + len(values) <= offset]
        new_end = self.log.truncate_to(offset)
        kept_end = self.batches[-1][0] + len(self.batches[-1][1]) if self.batches else None
        # A batch that reaches over the offset goes whole. Where nothing is left, the log start stays.
        assert new_end <= offset
        if kept_end is not None and kept_end >= self.start:
            assert new_end == kept_end
        else:
            self.batches = []
        self.end = new_end
        self.start = self.log.log_start_offset
        assert self.start <= self.end

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        assert self.log.delete_records_before(self.start) == self.start

    @rule(keep_bytes=st.integers(0, 3000))
    def retain(self, keep_bytes: int) -> None:
        self.log.update_config(replace(CONFIG, retention_bytes=keep_bytes))
        self.log.enforce_retention()
        self.log.update_config(CONFIG)
        # The oldest goes only while what remains still fills `retention.bytes`.
        assert self.log.size_bytes >= keep_bytes or self.log.log_start_offset == self.start
        self.start = self.log.log_start_offset

    @rule(when=st.sampled_from(["flush", "snapshot"]))
    def flush(self, when: str) -> None:
        self.log.flush()

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert {record.offset: record.value for record in records_in(self.log)} == self.expected()


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=30)
