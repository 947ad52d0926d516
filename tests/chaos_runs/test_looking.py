"""What counts as committed of a log whose last stable offset stands still."""

from __future__ import annotations

from broker.wire.batch import iter_batches
from broker.wire.records import ControlKind, Record, control_batch, encode_batch
from tests.chaos_runs.looking import settled


class Log:
    """Batches one behind the other."""

    def __init__(self) -> None:
        self.end = 0
        self.stored = bytearray()

    def write(self, *values: bytes, producer_id: int | None = None) -> None:
        records = [Record(self.end + at, 0, b"key", value) for at, value in enumerate(values)]
        if producer_id is None:
            self.stored += encode_batch(records, base_offset=self.end)
        else:
            self.stored += encode_batch(
                records,
                base_offset=self.end,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        self.end += len(values)

    def mark(self, kind: ControlKind, producer_id: int) -> None:
        self.stored += control_batch(
            kind,
            base_offset=self.end,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=1,
            timestamp_ms=0,
        )
        self.end += 1

    def committed(self) -> list[tuple[int, bytes | None]]:
        return [(record.offset, record.value) for record in settled(iter_batches(self.stored)).records]


def test_what_was_committed_behind_an_open_transaction_counts_and_what_was_not_does_not() -> None:
    log = Log()
    log.write(b"hangs", producer_id=1)
    log.write(b"plain")
    log.write(b"first", b"second", producer_id=2)
    log.write(b"taken back", producer_id=3)
    log.mark(ControlKind.ABORT, 3)
    log.write(b"third", producer_id=2)
    log.mark(ControlKind.COMMIT, 2)
    log.write(b"hangs, too", producer_id=2)
    assert log.committed() == [(1, b"plain"), (2, b"first"), (3, b"second"), (6, b"third")]
    assert settled(iter_batches(log.stored)).open_producers == {1, 2}
