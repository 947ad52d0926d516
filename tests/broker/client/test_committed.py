"""The committed filter against a plain model of transactions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.client.committed import CommittedFilter
from broker.wire.batch import iter_batches, patch_base_offset
from broker.wire.messages.fetch import AbortedTransaction
from broker.wire.records import ControlKind, Record, control_batch, decode_records, encode_batch

STEPS = st.lists(st.tuples(st.sampled_from(["plain", "txn", "commit", "abort"]), st.integers(1, 3)), max_size=40)


@given(STEPS)
def test_only_committed_records_are_kept(steps: list[tuple[str, int]]) -> None:
    log = bytearray()
    offset = 0
    open_since: dict[int, int] = {}
    written: dict[int, list[int]] = {}
    aborted: list[AbortedTransaction] = []
    committed: set[int] = set()
    for kind, producer_id in steps:
        if kind in ("plain", "txn"):
            transactional = kind == "txn"
            if not transactional and producer_id in open_since:
                continue  # a producer with an open transaction writes within it
            batch = encode_batch(
                [Record(0, 1, None, b"v"), Record(1, 1, None, b"w")],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=transactional,
            )
            if transactional:
                open_since.setdefault(producer_id, offset)
                written.setdefault(producer_id, []).extend((offset, offset + 1))
            else:
                committed |= {offset, offset + 1}
            count = 2
        else:
            if producer_id not in open_since:
                continue
            control = ControlKind.COMMIT if kind == "commit" else ControlKind.ABORT
            batch = control_batch(
                control, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp_ms=1
            )
            first, offsets = open_since.pop(producer_id), written.pop(producer_id)
            if control is ControlKind.COMMIT:
                committed |= set(offsets)
            else:
                aborted.append(AbortedTransaction(producer_id, first))
            count = 1
        patch_base_offset(batch, offset)
        log += batch
        offset += count
    stable = min(open_since.values(), default=offset)
    kept = CommittedFilter(aborted)
    seen = {
        record.offset
        for header, batch in iter_batches(log)
        if header.base_offset < stable and not kept.drops(header, batch)
        for record in decode_records(batch)
    }
    assert seen == {offset for offset in committed if offset < stable}
