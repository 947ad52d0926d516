"""What the log of a partition answers."""

from typing import NamedTuple


class AppendResult(NamedTuple):
    """`log_append_time_ms` is -1 for a CreateTime topic. A duplicate has the offsets that it got the first time."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    last_offset: int
    duplicate: bool


class LogSlice(NamedTuple):
    """Whole batches in order, as buffers that follow each other; `next_offset` is where to read on."""

    records: list[memoryview | bytes]
    next_offset: int

    @property
    def size_bytes(self) -> int:
        return sum(len(buffer) for buffer in self.records)
